import io
import os

import pytest
from rich.console import Console

from samuel_lab.report.reading import read
from samuel_lab.report.watch import pace_of, time_left, watch
from samuel_lab.runs import Run, RunError
from tests.lab.report.folders import cut, shift_run


@pytest.fixture
def folder(tmp_path):
    return shift_run(tmp_path / "run", methods=["adam/cosine", "samuel"], seeds=(0, 1))


def console():
    return Console(file=io.StringIO(), width=110, force_terminal=False)


def shown(folder):
    where = console()
    complete = watch(folder, where, once=True)
    return where.file.getvalue(), complete


def test_a_finished_run_is_complete(folder):
    text, complete = shown(folder)
    assert complete
    assert "Digits  complete" in text
    assert "4 of 4 trials, 768 of 768 steps" in text


def test_where_a_run_is_and_what_it_uses_is_shown(folder):
    cut(folder, 20 + 1 + 5)  # Adam's seed 0 has 20 measures and an end, and SAMUEL's has come to step 64
    with Run.open(folder).locked():
        text, complete = shown(folder)
    assert not complete
    assert f"running (process {os.getpid()})" in text
    assert "1 of 4 trials, 256 of 768 steps" in text
    assert "SAMUEL, seed 0" in text
    assert "step 64 of 192" in text
    trial = read(folder).trials[1]
    assert f"learning rate {trial.rate[-1]:.4f}" in text
    for share in (*trial.by_level[:, -1], *trial.by_rate[:, -1]):
        assert f"{'█' * round(16 * share) or '▏'}" in text
        assert f"{share:.0%}" in text
    assert "whole run" in text
    assert f"{100 * trial.accuracy[-1]:.2f} %" in text
    assert f"{100 * read(folder).trials[0].accuracy[-1]:.2f} %" in text


def test_a_run_that_nobody_works_on_says_how_to_go_on(folder):
    cut(folder, 30)
    text, _ = shown(folder)
    assert "not running: continue with `samuel resume" in text


def test_time_left_comes_from_the_pace_of_each_method(folder):
    cut(folder, 20 + 1 + 20 + 1)  # seed 0 is done
    recorded = read(folder)
    # 1 ms of training a step, and 10 ms for each test.
    first = recorded.trials[0]
    assert pace_of(first) == pytest.approx((176 * 0.001 + 18 * 0.01) / 176)
    assert time_left(recorded) == pytest.approx(2 * 192 * pace_of(first), rel=1e-6)


def test_watching_ends_when_the_run_does(folder):
    whole = (folder / "metrics.jsonl").read_text()
    cut(folder, 30)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            (folder / "metrics.jsonl").write_text(whole)

    where = console()
    assert watch(folder, where, interval=0.25, wait=wait)
    assert len(waits) == 2
    assert min(waits) >= 0.25
    assert "complete" in where.file.getvalue()


def test_leaving_with_ctrl_c_is_quiet(folder):
    cut(folder, 30)

    def leave(seconds):
        raise KeyboardInterrupt

    assert watch(folder, console(), wait=leave) is False


def test_a_run_that_prepares_its_data_says_so(folder):
    (folder / "plan.json").unlink()
    with Run.open(folder).locked():
        text, complete = shown(folder)
    assert (text.strip(), complete) == (f"digits: preparing (process {os.getpid()})", False)
    with pytest.raises(RunError, match="has no plan.json"):
        shown(folder)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a folder"):
        watch(tmp_path / "nothing", console())
