"""Real runs in real processes, interrupted and killed: what they measure is what an undisturbed run measures."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import samuel

ROOT = Path(samuel.__file__).parents[1]
INTERRUPTED = 130
# The tests may have been started with SIGINT ignored, as by nohup, which programs inherit.
HEEDING_INTERRUPTS = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Starts the `samuel` command in a process of its own."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "TERM": "dumb",
        # Processes find what others compiled: compiling takes longer than all else here.
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("compiled")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def started(*words, **variables):
        words = [sys.executable, "-Sc", HEEDING_INTERRUPTS, sys.executable, "-m", "samuel_lab", *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        where = {"env": environment | variables, "cwd": tmp_path_factory.getbasetemp()}
        return subprocess.Popen(words, **where, **pipes)

    return started


def finished(process):
    """What a process said, once it ended well."""
    said, complaints = process.communicate(timeout=600)
    assert process.returncode == 0, complaints
    return said


def lines_of(folder):
    path = folder / "metrics.jsonl"
    return path.read_bytes().splitlines(keepends=True) if path.exists() else []


def interrupt(process, folder, lines, number):
    """Send a signal once so many lines were measured; what the process said, and the code it ended with."""
    while len(lines_of(folder)) < lines:
        try:
            process.wait(timeout=0.01)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"ended too early: {process.communicate()}")
    process.send_signal(number)
    _, complaints = process.communicate(timeout=300)
    return process.returncode, complaints


def disturbed(start, folder, words, disturbances, total):
    """A run that is interrupted again and again, and resumed each time; what comes of it."""
    process = start("run", *words, "--out", folder, "--quiet")
    for share, number in disturbances:
        code, complaints = interrupt(process, folder, int(share * total), number)
        if number == signal.SIGKILL:
            assert code == -signal.SIGKILL
            with (folder / "metrics.jsonl").open("a") as file:  # as if killed in the middle of a line
                file.write('{"event": "measure", "trial": "sam')
        else:
            assert code == INTERRUPTED
            assert f"Interrupted; the run can be resumed. Continue it with: samuel resume {folder.name}" in complaints
            assert json.loads((folder / "stopped.json").read_text())["reason"] == "interrupted"
        assert "Traceback" not in complaints
        process = start("resume", folder, "--quiet")
    finished(process)
    assert not (folder / "stopped.json").exists()
    assert list((folder / "checkpoints").iterdir()) == []
    sessions = json.loads((folder / "environment.json").read_text())["sessions"]
    assert len(sessions) == 1 + len(disturbances)
    return lines_of(folder)


def trials_in(lines):
    return list(dict.fromkeys(json.loads(line)["trial"] for line in lines))


def of_trials(lines, names):
    return [line for name in names for line in lines if json.loads(line)["trial"] == name]


def test_digits_comes_out_the_same_however_often_it_is_ended(start, tmp_path_factory):
    chosen, others = ("samuel", "adagrad/warmup-cosine", "samuel-linear"), ("samuel-untold", "adam/cosine")
    folder = tmp_path_factory.getbasetemp() / "digits"
    words = ("digits", "--scale", 0.4, "--windows", "10,25", "--seeds", 1, "--methods")
    found = json.loads(finished(start("run", *words, ",".join((*others, *chosen)), "--out", folder, "--json")))
    assert found
    whole = lines_of(folder)
    names = trials_in(whole)
    assert len(names) == len(chosen) + len(others)
    ends = [json.loads(line) for line in whole if b'"end"' in line]
    assert [(end["trial"], end["step"], end["diverged"]) for end in ends] == [(name, 307, False) for name in names]
    best = {name: max(json.loads(line)["accuracy"] for line in of_trials(whole, [name])[:-1]) for name in names}
    assert min(best.values()) > 0.8, best

    # What the trials measure does not depend on which others there are, either.
    words = (*words, ",".join(chosen), "--checkpoint-seconds", 0.2)
    same = of_trials(whole, chosen)
    disturbances = [(0.01, signal.SIGKILL), (0.3, signal.SIGINT), (0.8, signal.SIGKILL)]
    again = disturbed(start, tmp_path_factory.getbasetemp() / "digits-disturbed", words, disturbances, len(same))
    assert again == same


def test_the_offline_study_comes_out_the_same_however_often_it_is_ended(start, tmp_path_factory):
    # Within the first and the last phase of the search, and in the experts; schedule-free keeps an average.
    chosen = ("search", "samuel-full", "schedule-free")
    words = ("digits-offline", "--rates", "0.01,0.1,1", "--scale", 0.2, "--methods")
    folder = tmp_path_factory.getbasetemp() / "offline"
    found = json.loads(finished(start("run", *words, ",".join(("prodigy", *chosen)), "--out", folder, "--json")))
    assert found
    whole = lines_of(folder)
    search = [json.loads(line) for line in of_trials(whole, ["search"])[:-1]]
    assert sorted({len(measure["accuracy"]) for measure in search}) == [3, 9, 27]
    assert max(search[-1]["accuracy"]) > 0.8
    rates = {json.loads(line)["rate"] for line in of_trials(whole, ["prodigy"])[:-1]}
    assert len(rates) > 1  # it finds one as it goes, and what it uses is shown

    words = (*words, ",".join(chosen), "--checkpoint-seconds", 0.3)
    same = of_trials(whole, chosen)
    disturbances = [(0.1, signal.SIGKILL), (0.25, signal.SIGTERM), (0.6, signal.SIGKILL)]
    again = disturbed(start, tmp_path_factory.getbasetemp() / "offline-disturbed", words, disturbances, len(same))
    assert again == same
