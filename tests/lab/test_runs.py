"""The folder of a run: nothing written is ever lost, half written, or shared by two processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samuel
from samuel_lab.files import replace
from samuel_lab.runs import BusyRun, DamagedRun, Lines, Position, Run, RunError

ROOT = Path(samuel.__file__).parents[1]
HOLD = """
import sys
from samuel_lab.runs import Run
with Run.open(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""
LIMITED = """
import resource, sys
from pathlib import Path
from samuel_lab.runs import Run, RunError
size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    {work}
except RunError as error:
    print(error)
"""


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path / "run", "digits", {"seeds": 3}, "samuel run digits")


def fill(run, *events):
    with run.locked():
        for event in events:
            run.metrics.append(event)


def child(code, *words):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=True)


def everything(folder):
    """All files below a folder and what is in them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_new_run_says_what_it_is(run):
    found = json.loads((run.folder / "config.json").read_text())
    assert found.pop("created").endswith("+00:00")
    assert found == {"format": 1, "study": "digits", "options": {"seeds": 3}, "command": "samuel run digits"}
    assert Run.open(run.folder).config["study"] == "digits"


def test_an_empty_folder_can_become_a_run(tmp_path):
    assert Run.create(tmp_path, "digits", {}, "samuel run digits").folder == tmp_path


def test_a_folder_that_holds_a_run_is_not_made_into_another(run):
    before = everything(run.folder)
    with pytest.raises(RunError, match="holds a run already: continue it with `samuel resume"):
        Run.create(run.folder, "shift", {}, "samuel run shift")
    assert everything(run.folder) == before


def test_a_folder_that_holds_anything_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(RunError, match=r"is not empty \(thesis.tex, ...\): choose a new folder with --out"):
        Run.create(tmp_path, "digits", {}, "")
    assert everything(tmp_path) == {"thesis.tex": b"mine"}
    with pytest.raises(RunError, match="cannot be made: (Not a directory|File exists)"):
        Run.create(tmp_path / "thesis.tex", "digits", {}, "")
    with pytest.raises(RunError, match="cannot be made: Not a directory"):
        Run.create(tmp_path / "thesis.tex" / "run", "digits", {}, "")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "config.json cannot be read"),
        (b"\xff", "config.json cannot be read"),
        (b"[]", "is not a file of a run: it names no format"),
        (b'{"study": "digits", "options": {}}', "is not a file of a run: it names no format"),
        (b'{"format": 2, "study": "digits", "options": {}}', "has format 2, and this version of samuel reads 1"),
        (b'{"format": 1, "study": "digits"}', "config.json is damaged: options must be a dictionary, got None"),
        (b'{"format": 1, "study": 3, "options": {}}', "config.json is damaged: study must be a text, got 3"),
        (b'{"format": 1, "study": "digits", "options": {}, "command": 3}', "command must be a text, got 3"),
        (b'{"format": true, "study": "digits", "options": {}}', "names no format"),
    ],
)
def test_what_is_no_run_of_ours_is_not_opened(run, content, message):
    (run.folder / "config.json").write_bytes(content)
    with pytest.raises(RunError, match=message):
        Run.open(run.folder)


@pytest.mark.parametrize("sessions", [{}, {"sessions": None}, {"sessions": [3]}])
def test_an_environment_without_sessions_is_refused_before_anything_is_changed(run, sessions):
    path = run.folder / "environment.json"
    path.write_text(json.dumps({"format": 1, **sessions}))
    before = path.read_text()
    with pytest.raises(DamagedRun, match=r"environment.json has no list of sessions.*Delete it to continue"):
        run.begin_session({})
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accuracy": 7}, "line 2 .*: accuracy must lie between 0 and 1, got 7"),
        ({"accuracy": [0.5, -0.1]}, "line 2 .*: accuracy must lie between 0 and 1, got -0.1"),
        ({"loss": "low"}, "line 2 .*: loss must be a number, got 'low'"),
        ({"rate": True}, "line 2 .*: rate must be a number, got True"),
        ({"weights": [[0.5, 1.5]]}, "line 2 .*: weights must lie between 0 and 1, got 1.5"),
        ({"step": "1"}, "line 2 .*: step must be a whole number of at least 0, got '1'"),
        ({"seed": -1}, "line 2 .*: seed must be a whole number of at least 0, got -1"),
        ({"event": "pause"}, "line 2 .*: unknown event 'pause'"),
    ],
)
def test_numbers_that_cannot_be_are_found_and_named(run, changes, message):
    fill(run, LINES[0], LINES[1] | changes, LINES[2])
    with pytest.raises(DamagedRun, match=message):
        run.position(5)
    assert run.repair()
    assert list(run.metrics.events()) == [(LINES[0], len(WRITTEN) // len(LINES))]


def test_a_folder_without_a_run_is_not_opened(tmp_path):
    with pytest.raises(RunError, match="is not the folder of a run: it has no config.json"):
        Run.open(tmp_path)
    with pytest.raises(RunError, match="is not a folder; a run is a folder made by `samuel run STUDY`"):
        Run.open(tmp_path / "nowhere")


def test_a_second_process_is_refused_and_a_killed_one_holds_nothing(run):
    words = [sys.executable, "-c", HOLD, str(run.folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes) as holder:
        try:
            assert holder.stdout.readline() == b"locked\n"
            with pytest.raises(BusyRun, match=rf"trained by another process \(number {holder.pid}\)"), run.locked():
                pytest.fail("two processes work on one run")
        finally:
            holder.send_signal(signal.SIGKILL)
    with run.locked():
        assert (run.folder / "lock").read_text() == f"{os.getpid()}\n"
    assert (run.folder / "lock").read_text() == ""


def test_nothing_is_appended_unless_the_run_is_locked(run):
    with pytest.raises(RuntimeError, match="metrics.jsonl is open only while the run is locked"):
        run.metrics.append({})


def test_numbers_have_six_digits_and_what_is_not_finite_is_null(run):
    infinite = float("inf")
    fill(run, {"a": 0.123456789, "b": [float("nan"), -infinite, 1e-9 / 3], "c": {"d": 123456789.0}, "e": 123456789})
    written = '{"a": 0.123457, "b": [null, null, 3.33333e-10], "c": {"d": 123457000.0}, "e": 123456789}\n'
    assert run.metrics.path.read_text() == written


LINES = [{"event": "measure", "trial": "a", "seed": 0, "step": step, "loss": 0.5} for step in range(4)]
WRITTEN = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)


@pytest.mark.parametrize("room", [0, 1, 30])
def test_a_line_that_the_disk_takes_in_part_is_not_written_at_all(run, room):
    fill(run, *LINES)
    code = LIMITED.format(
        work=f"run = Run.open(sys.argv[1])\n    with run.locked(): run.metrics.append({LINES[3] | {'step': 4}})"
    )
    told = child(code, run.folder, len(WRITTEN) + room).stdout
    assert "metrics.jsonl could not be written: File too large. Nothing that was written is lost: make room" in told
    assert f"samuel resume {run.folder}" in told
    assert run.metrics.path.read_bytes() == WRITTEN
    fill(run, LINES[3] | {"step": 4})
    assert len(list(run.metrics.events())) == 5


def test_a_full_disk_is_told_as_one():
    lines = Lines(Path("/dev/full"))
    lines.open()
    with pytest.raises(RunError, match="/dev/full could not be written: No space left on device"):
        lines.append({"event": "measure"})
    lines.close()


def test_a_folder_that_takes_no_file_is_told_as_one(tmp_path):
    code = LIMITED.format(work="Run.create(Path(sys.argv[1]), 'digits', {}, '')")
    assert child(code, tmp_path / "run", 0).stdout == f"{tmp_path / 'run'} cannot be written to: File too large\n"
    assert everything(tmp_path) == {}


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path):
    path = tmp_path / "plan.json"
    replace(path, "old")
    with pytest.raises(UnicodeEncodeError):
        replace(path, "new \ud800")
    assert everything(tmp_path) == {"plan.json": b"old"}


@given(st.integers(0, len(WRITTEN)))
def test_wherever_a_kill_tears_the_last_line_the_whole_ones_are_read(tmp_path_factory, size):
    lines = Lines(tmp_path_factory.mktemp("torn") / "metrics.jsonl")
    lines.path.write_bytes(WRITTEN[:size])
    whole = WRITTEN[:size].count(b"\n")
    found = list(lines.events())
    assert [event for event, _ in found] == LINES[:whole]
    assert [end for _, end in found] == [len(WRITTEN) * (place + 1) // 4 for place in range(whole)]


@pytest.mark.parametrize("damaged", [b'{"event": "mea\x00sure"', b"[1, 2]", b"\xff\xfe", b""])
def test_a_damaged_line_is_named_and_nothing_is_changed(run, damaged):
    lines = WRITTEN.splitlines()
    run.metrics.path.write_bytes(b"\n".join([*lines[:2], damaged, lines[3], b""]))
    before = everything(run.folder)
    with pytest.raises(DamagedRun, match=r"metrics.jsonl, line 3 is damaged: .*samuel resume --repair"):
        run.position(trials=1)
    assert everything(run.folder) == before


def test_repair_keeps_the_damaged_file_and_what_came_before_the_damage(run):
    lines = WRITTEN.splitlines(keepends=True)
    damaged = b"".join([*lines[:2], b"{ \n", *lines[2:]])
    run.metrics.path.write_bytes(damaged)
    aside = run.repair()
    assert aside is not None
    assert Path(aside).parent == run.folder
    assert Path(aside).read_bytes() == damaged
    assert run.metrics.path.read_bytes() == b"".join(lines[:2])
    assert run.repair() is None


def end(name):
    return {"event": "end", "trial": name, "seed": 0, "step": 3, "diverged": False}


def test_a_run_stands_after_the_last_trial_that_has_ended(run):
    assert run.position(trials=2) == Position(trial=0, size=0)
    fill(run, *LINES)
    assert run.position(trials=2) == Position(trial=0, size=0)
    fill(run, end("a"))
    size = run.metrics.path.stat().st_size
    fill(run, *LINES[:2])
    assert run.position(trials=2) == Position(trial=1, size=size)
    fill(run, end("b"))
    assert run.position(trials=2).trial == 2
    with pytest.raises(DamagedRun, match="has 2 complete trials, and the plan has 1"):
        run.position(trials=1)


def test_a_plan_that_would_be_another_is_refused_by_what_differs(run):
    plan = {"rounds": 10, "data": {"train": 5, "classes": ["a", "b"]}, "trials": []}
    run.settle_plan(plan)
    run.settle_plan({**plan, "data": {"train": 5, "classes": ("a", "b")}})  # JSON knows no tuples
    before = everything(run.folder)
    with pytest.raises(RunError, match='data was {"train": 5, .* and would now be {"train": 6'):
        run.settle_plan({**plan, "data": {"train": 6, "classes": ["a", "b"]}})
    with pytest.raises(RunError, match="model was null and would now be 1"):
        run.settle_plan({**plan, "model": 1})
    assert everything(run.folder) == before


def test_every_session_is_noted_and_why_the_last_one_ended(run):
    run.begin_session({"pid": 1})
    run.stopped("interrupted", "Ctrl-C")
    assert run.read("stopped.json")["reason"] == "interrupted"
    run.begin_session({"pid": 2})
    assert [session["pid"] for session in run.read("environment.json")["sessions"]] == [1, 2]
    assert not (run.folder / "stopped.json").exists()


def test_checkpoints_of_all_trials_but_one_can_be_dropped(run):
    for trial in range(3):
        run.checkpoint_folder(trial).mkdir(parents=True)
    run.drop_checkpoints(keep=1)
    assert [path.name for path in (run.folder / "checkpoints").iterdir()] == ["trial_0001"]
    run.drop_checkpoints()
    assert list((run.folder / "checkpoints").iterdir()) == []
