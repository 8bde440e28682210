"""Studies from the command line: what is refused, what a run leaves, and how it is shown and resumed."""

import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import zipfile
from dataclasses import fields
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

import samuel
from samuel_lab import cli
from samuel_lab.studies.catalogue import STUDIES, study_of

ROOT = Path(samuel.__file__).parents[1]
DIVERGING = "sgd/constant@1e+30"
SMALL = ("--seeds", 1, "--scale", 0.05, "--width", 4, "--examples", 20, "--batch", 8)
TINY = (*SMALL, "--methods", f"samuel,{DIVERGING},adam/cosine")


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    for name, value in (("COLUMNS", "200"), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def command(*words, code="from samuel_lab.__main__ import main; main()"):
    """The same in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300, check=False)


def flat(text):
    """Text without the frame and the line ends that a terminal puts into it."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


def events_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A small run of three methods, one of which diverges, and what the command said."""
    folder = tmp_path_factory.mktemp("runs") / "done"
    return folder, call("run", "digits", *TINY, "--tensorboard", "--json", "--out", folder)


@pytest.fixture(scope="module")
def run(done):
    return done[0]


@pytest.fixture
def copy(run, here):
    """The run again, to be changed."""
    shutil.copytree(run, here / "copy")
    return here / "copy"


def unfinished(folder, lines):
    """As if killed after so many lines, in the middle of the next."""
    path = folder / "metrics.jsonl"
    kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept[:lines]) + kept[lines][:30])


# What is refused


@pytest.mark.parametrize("kind", STUDIES.values(), ids=lambda kind: kind.name)
def test_help_names_every_option_of_a_study(kind):
    result = call("run", kind.name, "--help")
    assert result.exit_code == 0
    text = flat(result.output)
    for entry in fields(kind):
        if entry.name != "data" or kind.takes_data:
            assert f" --{entry.name.replace('_', '-')} " in text, entry.name
    for word in ("--out", "--json", "--quiet"):
        assert f" {word} " in text


def test_help_names_every_study():
    for result in (call("run", "--help"), call("list")):
        assert result.exit_code == 0
        for kind in STUDIES.values():
            assert f" {kind.name} " in flat(result.output)
            assert kind.summary.split(";")[0] in flat(result.output)


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("digit",), ["digit"]),
        (("digits", "--colour", "red"), ["--colour"]),
        (("digits", "--seeds", "0"), ["--seeds", "seeds must be a whole number from 1 to 1000, got 0"]),
        (("digits", "--seeds", "many"), ["--seeds", "seeds must be a whole number, got 'many'"]),
        (("digits", "--scale", "1.5"), ["--scale", "scale must be a number above 0 and at most 1, got 1.5"]),
        (("digits", "--checkpoint-seconds", "-1"), ["--checkpoint-seconds", "got -1.0"]),
        (("digits", "--checkpoint-seconds", "-1"), ["--checkpoint-seconds", "at least 0, got -1.0"]),
        (("digits", "--methods", "adam/sine"), ["--methods", "method 'adam/sine' has an unknown schedule"]),
        (("digits", "--methods", ""), ["--methods", "methods is empty"]),
        (("digits", "--first", "1,2", "--then", "3"), ["--then", "as many classes as first"]),
        (("digits", "--data", "."), ["--data", "the study digits has its own"]),
        (("shift",), ["--data", "data is missing: give CIFAR-10: the folder of its binary files"]),
        (("cifar10", "--data", "nowhere"), ["--data", "nowhere does not exist; give CIFAR-10"]),
        (("imagenet", "--data", "nowhere"), ["--data", "nowhere does not exist; give an image folder"]),
        (("sst2", "--data", "nowhere"), ["--data", "nowhere does not exist; give SST-2"]),
        (("stability", "--task", "chess"), ["--task", "got 'chess'"]),
        # These are found out once the data are open.
        (("digits", "--first", "a", "--then", "1"), ["--first", "unknown class 'a'; choose from 0, 1, 2"]),
        (("digits-offline", "--scale", "0.0001"), ["--scale", "scale 0.0001 leaves phases without a step"]),
    ],
    ids=lambda value: "_".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_refused_by_name_and_leaves_no_folder(here, words, messages):
    result = call("run", *words, "--out", "made/run")
    assert result.exit_code == 2, result.output
    for message in messages:
        assert message in flat(result.stderr)
    assert "Traceback" not in result.output
    assert not (here / "made" / "run").exists()


def test_an_archive_that_is_refused_is_bad_input(here):
    with zipfile.ZipFile(here / "evil.zip", "w") as file:
        file.writestr("../../evil", b"!")
    result = call("run", "imagenet", "--data", here / "evil.zip", "--cache", here / "cache", "--out", "run")
    assert result.exit_code == 2, result.output
    assert "--data: " in result.stderr
    assert "'../../evil' would be written outside" in flat(result.stderr)
    assert not (here / "run").exists()


def test_a_device_that_is_not_here_is_refused(here):
    if jax.default_backend() == "gpu":
        pytest.skip("there is a GPU here")
    result = command("run", "digits", "--device", "gpu", "--out", "run")
    assert result.returncode == 2
    assert "--device" in result.stderr
    assert "device gpu is not available here" in flat(result.stderr)
    assert not (here / "run").exists()


def test_a_folder_that_is_in_use_is_not_written_into(run, here):
    before = (run / "metrics.jsonl").read_bytes()
    result = call("run", "digits", *TINY, "--out", run)
    assert result.exit_code == 2
    assert "holds a run already: continue it with `samuel resume" in result.stderr
    assert (run / "metrics.jsonl").read_bytes() == before
    (here / "notes.txt").write_text("mine")
    result = call("run", "digits", *TINY, "--out", here)
    assert result.exit_code == 2
    assert "is not empty (notes.txt, ...)" in result.stderr
    assert [path.name for path in here.iterdir()] == ["notes.txt"]


def test_tensorboard_is_refused_where_it_is_not_installed(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    result = call("run", "digits", *TINY, "--tensorboard", "--out", "run")
    assert result.exit_code == 1
    assert (
        'tensorboard needs tensorboardX, which is not installed: pip install "samuel-optim[tensorboard]"'
        in result.stderr
    )
    assert not (here / "run").exists()


# What a run leaves


def test_a_run_leaves_its_files_and_prints_json_and_nothing_else(done):
    folder, result = done
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    assert result.stderr.splitlines()[-2:] == [f"Run: {folder}", f"Report: {folder / 'report.html'}"]
    found = {path.name for path in folder.iterdir()}
    assert found == {
        *("config.json", "plan.json", "environment.json", "metrics.jsonl", "times.jsonl"),
        *("lock", "report.html", "tensorboard"),
    }
    assert (folder / "report.html").read_text().startswith("<!doctype html>")


def test_the_command_in_the_configuration_makes_the_same_run(run):
    config = json.loads((run / "config.json").read_text())
    words = shlex.split(config["command"])
    assert words[:3] == ["samuel", "run", "digits"]
    again = call("run", *words[2:], "--out", run)  # refused, after the options were read
    assert "holds a run already" in again.stderr
    told = dict(zip(words[3::2], words[4::2], strict=False))
    assert told["--methods"] == f"samuel,{DIVERGING},adam/cosine"
    assert told["--scale"] == "0.05"
    assert "--tensorboard" in words
    assert study_of("digits", config["options"]).method_names() == ("samuel", DIVERGING, "adam/cosine")


def test_a_trial_that_diverges_ends_early_and_the_run_goes_on(run):
    ends = {event["trial"]: event for event in events_of(run) if event["event"] == "end"}
    assert ends[DIVERGING]["diverged"] is True
    assert ends[DIVERGING]["step"] < 38
    assert (ends["adam/cosine"]["diverged"], ends["adam/cosine"]["step"]) == (False, 38)
    assert (ends["samuel"]["diverged"], ends["samuel"]["step"]) == (False, 38)
    text = (run / "metrics.jsonl").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text


def test_weights_and_rates_of_samuel_are_measured(run):
    plan = json.loads((run / "plan.json").read_text())
    (row,) = [row for row in plan["trials"] if row["trial"] == "samuel"]
    measures = [event for event in events_of(run) if event["trial"] == "samuel" and event["event"] == "measure"]
    assert [measure["step"] for measure in measures][:1] == [0]
    assert measures[-1]["step"] == plan["rounds"] == 38
    assert {plan["shift"], plan["shift"] + 1} <= {measure["step"] for measure in measures}
    for measure in measures:
        assert len(measure["weights"]) == len(row["levels"])
        assert {len(weights) for weights in measure["weights"]} == {len(row["rates"])}
        assert sum(map(sum, measure["weights"])) == pytest.approx(1, abs=1e-4)
        assert measure["shifts"] >= 0
    assert all(min(row["rates"]) * 0.999 <= measure["rate"] <= max(row["rates"]) * 1.001 for measure in measures[1:])


def test_tensorboard_files_hold_every_measurement(run):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    from tensorboardX.proto.event_pb2 import Event

    folders = sorted(path.name for path in (run / "tensorboard").iterdir())
    assert folders == ["adam-cosine-0", "samuel-0", "sgd-constant@1e+30-0"]
    (file,) = (run / "tensorboard" / "adam-cosine-0").iterdir()
    content, at, found = file.read_bytes(), 0, {}
    while at < len(content):  # length, its checksum, the record, its checksum
        (length,) = struct.unpack_from("<Q", content, at)
        event = Event.FromString(content[at + 12 : at + 12 + length])
        at += 16 + length
        for value in event.summary.value:
            found[event.step, value.tag] = value.simple_value
    measures = [event for event in events_of(run) if event["trial"] == "adam/cosine" and event["event"] == "measure"]
    for measure in measures:
        for tag in ("accuracy", "test_loss", "rate", "loss"):
            if measure[tag] is not None:
                assert found[measure["step"], tag] == pytest.approx(measure[tag], rel=1e-4)
    assert len(found) == 4 * len(measures) - 1  # there is no loss before the first step


# How runs are shown


def test_report_writes_one_page_from_folders_alone(run, copy, here):
    shutil.rmtree(run.parent / "elsewhere", ignore_errors=True)
    (copy / "report.html").unlink()
    result = call("report", copy)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"Report: {copy / 'report.html'}"
    assert (copy / "report.html").exists()
    result = call("report", run, copy, "--out", "both.html", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    assert result.stderr == f"Report: {here / 'both.html'}\n"
    assert (here / "both.html").read_text().startswith("<!doctype html>")


def test_an_unfinished_run_is_reported_as_far_as_it_is(copy):
    unfinished(copy, 20)
    result = call("report", copy)
    assert result.exit_code == 0, result.output
    assert "0 of 3 trials have ended" in flat((copy / "report.html").read_text())


@pytest.mark.parametrize("name", ["report", "watch", "resume"])
def test_what_is_no_run_is_refused(here, name):
    (here / "empty").mkdir()
    for folder, message in (("empty", "is not the folder of a run"), ("nowhere", "is not a folder")):
        result = call(name, folder)
        assert result.exit_code == 2
        assert message in result.stderr
        assert "Traceback" not in result.output
    assert [path.name for path in here.rglob("*")] == ["empty"]


def test_compare_puts_runs_side_by_side(run, copy):
    result = call("compare", run, copy)
    assert result.exit_code == 0, result.output
    assert "done" in result.stdout
    assert "copy" in result.stdout
    alone = call("compare", run)
    assert alone.exit_code == 2
    assert "give at least two runs to compare" in flat(alone.stderr)


def test_watch_shows_a_run_once(run, copy):
    result = call("watch", run, "--once")
    assert result.exit_code == 0, result.output
    assert "SAMUEL" in result.stdout
    unfinished(copy, 20)
    result = call("watch", copy, "--once")
    assert result.exit_code == 0, result.output


def test_list_names_the_runs_in_a_folder_and_how_they_stand(run, copy, here):
    unfinished(copy, 20)
    shutil.copytree(run, here / "whole")
    (here / "broken").mkdir()
    (here / "broken" / "config.json").write_text("{")
    result = call("list", here)
    assert result.exit_code == 0, result.output
    rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert "complete" in rows["whole"]
    assert "3/3" in rows["whole"]
    assert "can be resumed" in rows["copy"]
    assert "0/3" in rows["copy"]
    assert "broken" in rows
    assert "config.json cannot be read" in flat(result.stdout)
    assert call("list", here / "nowhere").exit_code == 2


# How runs are resumed


def test_to_resume_a_complete_run_prints_its_results_and_trains_nothing(run, copy, monkeypatch):
    monkeypatch.setattr("samuel_lab.execution.train", lambda *_, **__: pytest.fail("something was trained"))
    result = call("resume", copy)
    assert result.exit_code == 0, result.output
    assert "SAMUEL" in result.stdout
    assert (copy / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_a_run_that_another_process_works_on_is_refused_until_that_is_killed(run, copy):
    unfinished(copy, len(events_of(run)) - 2)
    code = """
import sys
from samuel_lab.runs import Run
with Run.open(sys.argv[1]).locked():
    print("locked", flush=True)
    sys.stdin.read()
"""
    words = [sys.executable, "-c", code, str(copy)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=os.environ | {"PYTHONPATH": str(ROOT)}, **pipes) as holder:
        try:
            assert holder.stdout.readline() == b"locked\n"
            before = (copy / "metrics.jsonl").read_bytes()
            result = call("resume", copy)
            assert result.exit_code == 3
            assert f"is being trained by another process (number {holder.pid})" in result.stderr
            assert f"running (process {holder.pid})" in call("list", copy.parent).stdout
            assert (copy / "metrics.jsonl").read_bytes() == before
        finally:
            holder.send_signal(signal.SIGKILL)
    result = call("resume", copy, "--quiet")
    assert result.exit_code == 0, result.output
    assert (copy / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()


def test_a_damaged_line_is_named_and_repaired_on_demand(run, copy):
    path = copy / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    place = len(lines) - 10  # in the last trial
    lines[place] = lines[place].replace("{", "{{", 1)
    damaged = "".join(lines)
    path.write_text(damaged)
    result = call("resume", copy)
    assert result.exit_code == 2
    assert f"line {place + 1} is damaged" in result.stderr
    assert "samuel resume --repair" in result.stderr
    assert "Traceback" not in result.output
    assert path.read_text() == damaged
    assert call("report", copy).exit_code == 2
    result = call("resume", "--repair", copy, "--quiet")
    assert result.exit_code == 0, result.output
    assert path.read_bytes() == (run / "metrics.jsonl").read_bytes()
    (aside,) = copy.glob("metrics.damaged.*.jsonl")
    assert aside.read_text() == damaged


@pytest.mark.parametrize(
    ("file", "changes", "code", "message"),
    [
        ("config.json", {"format": 9}, 2, "has format 9, and this version of samuel reads 1"),
        ("config.json", {"study": "chess"}, 2, "unknown study 'chess'; choose from digits"),
        ("config.json", {"options": {"seeds": -1}}, 2, "seeds must be a whole number from 1 to 1000, got -1"),
        ("config.json", {"options": {"windows": 5}}, 2, "windows must be a list of values, got 5"),
        ("plan.json", {"rounds": 39}, 2, "planned differently: rounds was 39 and would now be 38"),
        ("environment.json", {"sessions": None}, 2, "environment.json has no list of sessions"),
    ],
    ids=["newer", "study", "value", "kind", "plan", "sessions"],
)
def test_a_run_that_is_not_as_it_was_planned_is_not_resumed(run, copy, file, changes, code, message):
    found = json.loads((copy / file).read_text())
    (copy / file).write_text(json.dumps({**found, **changes}))
    unfinished(copy, 20)
    before = (copy / "metrics.jsonl").read_bytes()
    result = call("resume", copy)
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert (copy / "metrics.jsonl").read_bytes() == before


def test_a_full_disk_ends_a_run_that_can_be_resumed(run, here):
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    whole = b"".join(line for line in lines if b"adam/cosine" in line)
    room = len(whole) - 500  # the last lines do not fit

    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}))
from samuel_lab.__main__ import main
main()
"""
    result = command("run", "digits", *SMALL, "--methods", "adam/cosine", "--out", "run", code=code)
    assert result.returncode == 1, result.stderr
    assert "metrics.jsonl could not be written: File too large. Nothing that was written is lost" in result.stderr
    assert "Continue it with: samuel resume run" in result.stderr
    assert "Traceback" not in result.stderr
    assert whole.startswith((here / "run" / "metrics.jsonl").read_bytes())
    assert json.loads((here / "run" / "stopped.json").read_text())["reason"] == "error"
    result = call("resume", "run", "--quiet")
    assert result.exit_code == 0, result.output
    assert (here / "run" / "metrics.jsonl").read_bytes() == whole


def test_a_run_is_complete_also_where_no_page_can_be_made(copy):
    (copy / "report.html").unlink()
    code = "import sys; sys.modules['plotly'] = None; from samuel_lab.__main__ import main; main()"
    result = command("resume", copy, code=code)
    assert result.returncode == 0, result.stderr
    assert "No report: plotly is not installed" in result.stderr
    assert "SAMUEL" in result.stdout
    assert not (copy / "report.html").exists()
