"""The runs that wait for a GPU are ones that the studies accept, and what was begun is resumed."""

import importlib.util
from pathlib import Path

import pytest

from samuel_lab.studies.catalogue import STUDIES

FILE = Path(__file__).parents[2] / "benchmarks" / "gpu_runs.py"
SPEC = importlib.util.spec_from_file_location("gpu_runs", FILE)
assert SPEC is not None
assert SPEC.loader is not None
gpu_runs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gpu_runs)
RUNS = [planned for part in gpu_runs.PARTS for planned in part.runs]


@pytest.mark.parametrize("planned", RUNS, ids=[planned.folder for planned in RUNS])
def test_a_run_that_waits_for_a_gpu_is_one_that_its_study_accepts(planned, tmp_path):
    _, name, *words, _, data, _, out = gpu_runs.command(planned, tmp_path, tmp_path, lambda out: "plain")
    values, flags = {"data": data}, iter(words)
    for flag in flags:
        key = flag.removeprefix("--").replace("-", "_")
        assert key not in values, "given twice"
        values |= {"deterministic": "no"} if key == "no_deterministic" else {key: next(flags)}
    study = STUDIES[name].read(values)
    assert study.device == "gpu"
    assert out == str(tmp_path / planned.folder)


def test_what_was_begun_is_resumed(tmp_path):
    planned = RUNS[0]
    assert gpu_runs.command(planned, tmp_path, tmp_path, lambda out: "")[0] == "run"
    (tmp_path / planned.folder).mkdir()
    (tmp_path / planned.folder / "config.json").write_text("{}")
    assert gpu_runs.command(planned, tmp_path, tmp_path, lambda out: "") == ["resume", str(tmp_path / planned.folder)]


def test_no_two_runs_share_a_folder():
    assert len({planned.folder for planned in RUNS}) == len(RUNS)
