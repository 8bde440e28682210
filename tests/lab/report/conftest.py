import pytest

from samuel_lab.report.reading import Recorded, read
from tests.lab.report.folders import offline_run, shift_run, stability_run


@pytest.fixture(scope="session")
def shifted(tmp_path_factory) -> Recorded:
    """A finished run of the online study: SAMUEL and twelve baselines, three seeds."""
    return read(shift_run(tmp_path_factory.mktemp("runs") / "shifted"))


@pytest.fixture(scope="session")
def searched(tmp_path_factory) -> Recorded:
    """A finished run of the offline study, with a search over 8 schedules, two seeds."""
    return read(offline_run(tmp_path_factory.mktemp("runs") / "searched", seeds=(0, 1)))


@pytest.fixture(scope="session")
def varied(tmp_path_factory) -> Recorded:
    """A finished run of the stability study."""
    return read(stability_run(tmp_path_factory.mktemp("runs") / "varied"))
