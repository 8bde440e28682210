import pytest

from samuel.studies.play.contest import Plan, Report, run


@pytest.fixture(scope="session")
def report() -> Report:
    """Everything the demonstration plays, as short as it gets."""
    return run(Plan(rounds=256, dim=3, backend="numpy"))
