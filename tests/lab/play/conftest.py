import pytest

from samuel_lab.play.contest import run
from samuel_lab.play.plan import Plan
from samuel_lab.play.records import Report


@pytest.fixture(scope="session")
def report() -> Report:
    """Everything that is played by default, as short as it gets."""
    return run(Plan(rounds=256, dim=3, backend="numpy"))


@pytest.fixture(scope="session")
def seeded() -> Report:
    """A few learners of every family on streams of several kinds of losses, with two seeds."""
    return run(
        Plan(
            streams=("drift", "classes-recurring", "advice", "quantile"),
            learners=("ogd", "hedge", "flh", "aflh", "saol", "parameter-free", "samuel", "samuel-blocks"),
            rounds=256,
            dim=2,
            seeds=2,
            backend="numpy",
        )
    )
