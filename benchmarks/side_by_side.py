"""Run several studies at once on one device, for a given time; run it again to go on with those that are not finished.

    python benchmarks/side_by_side.py PLAN --runs RUNS --out OUT --seconds 540 --parallel 6

PLAN is a text file with one run a line, the most important first: a name, then the words of `samuel run`:

    full-optax  shift --scale 0.25 --seeds 1 --methods samuel-full --data cifar10.tar.xz

Each run has the folder RUNS/NAME. A folder that is there is resumed. When the time is up, all are asked to stop, which
writes a checkpoint. OUT gets `runs.tar.gz`, the folders without checkpoints and pages: `samuel report` reads them.

A small network leaves most of a GPU idle. With NVIDIA's multi-process service (`nvidia-cuda-mps-control -d`) several
runs take hardly longer than one.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tarfile
import time
from pathlib import Path

GRACE = 45.0
"""Seconds to write checkpoints in, after the time is up."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("plan", type=Path)
    options.add_argument("--runs", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seconds", type=float, required=True)
    options.add_argument("--parallel", type=int, default=6)
    given = options.parse_args()
    given.runs.mkdir(parents=True, exist_ok=True)
    given.out.mkdir(parents=True, exist_ok=True)
    rows = [shlex.split(line, comments=True) for line in given.plan.read_text().splitlines()]
    waiting = [(words[0], words[1:]) for words in rows if words]
    until = time.monotonic() + given.seconds
    running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
    codes: dict[str, int] = {}
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < given.parallel:
            name, words = waiting.pop(0)
            running[name] = (start(given.runs, name, words), time.monotonic())
        time.sleep(0.5)
        for name, (process, began) in list(running.items()):
            if process.poll() is not None:
                codes[name] = process.returncode
                print(f"{name}: exit code {process.returncode} after {time.monotonic() - began:.0f} s", flush=True)
                del running[name]
    for process, _ in running.values():
        process.terminate()  # a run that is asked to stop writes a checkpoint first
    ends = time.monotonic() + GRACE
    for name, (process, _) in running.items():
        try:
            process.wait(max(0.1, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
        print(f"{name}: stopped, to be resumed", flush=True)
    for name, _ in waiting:
        print(f"{name}: not started", flush=True)
    left_out = ("checkpoints", "report.html")
    with tarfile.open(given.out / "runs.tar.gz", "w:gz") as archive:
        archive.add(given.runs, "runs", filter=lambda one: None if Path(one.name).name in left_out else one)
    sys.exit(any(codes.values()))


def start(runs: Path, name: str, words: list[str]) -> subprocess.Popen[bytes]:
    """A process that runs a study, or goes on with it."""
    folder = runs / name
    command = ["resume", str(folder)] if (folder / "config.json").exists() else ["run", *words, "--out", str(folder)]
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ}
    with (runs / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "samuel_lab", *command, "--quiet"], stdout=log, stderr=log, env=environment
        )


if __name__ == "__main__":
    main()
