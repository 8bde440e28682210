"""The studies that need a GPU and are not on file yet, most wanted first; what was begun is resumed.

    python benchmarks/gpu_runs.py --cifar10 cifar-10-binary.tar.gz --imagenette imagenette2-160.tgz --sst2 SST-2.zip
    python benchmarks/gpu_runs.py --cifar10 cifar-10-binary.tar.gz --hours 3 --from baselines
    python benchmarks/gpu_runs.py --list

Every run has a folder below `--out`, and a run that is complete is skipped. After `--hours` no other run begins. At the
end it prints the commands that put the rows into `results/`; docs/claims.md is generated from there.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

GPU = "--device gpu --no-deterministic"
SHORT = f"{GPU} --precision bfloat16"
PAPERS_BEST = "adagrad/cosine,adam/constant"
"""Two baselines by which to see whether a change brings all twelve nearer to the paper's figures."""


class Planned(NamedTuple):
    """A run."""

    folder: str
    words: str
    """What follows `samuel run`."""
    data: str
    into: str
    """The file of results whose rows they are."""


class Part(NamedTuple):
    """Runs that answer one question."""

    name: str
    question: str
    runs: tuple[Planned, ...]


def shift(length: str, folder: str, words: str) -> Planned:
    """A run of the online experiment."""
    scale = {"quarter": "--scale 0.25 ", "eighth": "--scale 0.125 ", "full": ""}[length]
    device = GPU if "--precision" in words else SHORT
    return Planned(folder, f"shift {scale}{words} {device}", "cifar10", f"shift_{length}")


PARTS = (
    Part(
        "default",
        "What does today's optimizer do after the shift, with its average or not, given the number of steps or not?",
        (shift("quarter", "default-quarter", "--methods samuel,samuel+average,samuel-untold,samuel-adam --seeds 2"),),
    ),
    Part(
        "algorithm-1",
        "Is Algorithm 1 with forty experts above the baselines at a quarter, over which AdaGrad?",
        tuple(
            shift("quarter", f"full-{base}", f"--methods samuel-full --experts-adagrad {base} --seeds 1")
            for base in ("optax", "plain")
        ),
    ),
    Part(
        "algorithm-1-seeds",
        "The same with two more seeds of the better AdaGrad.",
        (shift("quarter", "full-seeds", "--methods samuel-full --experts-adagrad BETTER --first-seed 1 --seeds 2"),),
    ),
    Part(
        "baselines",
        "What keeps the baselines below the paper's figures? One change at a time, at an eighth.",
        tuple(
            shift("eighth", f"eighth-{name}", f"--seeds 1 --methods {PAPERS_BEST} {words}".rstrip())
            for name, words in {
                "as-ever": "",
                "augment": "--augment crop-flip",
                "stem": "--stem 7x7",
                "wide": "--width 128",
                "float32": "--precision float32",
            }.items()
        ),
    ),
    Part(
        "algorithm-2",
        "Is Algorithm 2 level with the best schedule when there are more seeds?",
        (
            Planned(
                "cifar10-seeds",
                f"cifar10 --scale 0.1 --methods samuel-full,samuel --seeds 3 {SHORT}",
                "cifar10",
                "cifar10_25_epochs",
            ),
            Planned("sst2-seeds", f"sst2 --methods samuel-full,samuel --seeds 10 {SHORT}", "sst2", "sst2"),
        ),
    ),
    Part(
        "stability",
        "Do 18 choices of history decays and step sizes end alike where networks get past 85 %?",
        (Planned("stability", f"stability --task cifar10 --scale 0.08 {SHORT}", "cifar10", "stability_cifar10"),),
    ),
    Part(
        "compute",
        "What does a search cost beside SAMUEL on the paper's other tasks?",
        (
            Planned(
                "compute-imagenette",
                f"compute --task imagenet --size 64 --batch 256 {SHORT}",
                "imagenette",
                "compute_imagenette",
            ),
            Planned("compute-sst2", f"compute --task sst2 {SHORT}", "sst2", "compute_sst2"),
        ),
    ),
    Part(
        "full-length",
        "Algorithm 1 and today's optimizer at the paper's length, as far as the time goes.",
        (
            shift("full", "default-whole", "--methods samuel --seeds 1"),
            shift("full", "full-whole", "--methods samuel-full --experts-adagrad BETTER --seeds 1"),
        ),
    ),
)


def better(out: Path) -> str:
    """The AdaGrad under which Algorithm 1 has the higher mean of its metrics at a quarter."""

    def merit(base: str) -> float:
        said = subprocess.run(
            [sys.executable, "-m", "samuel_lab", "report", str(out / f"full-{base}"), "--json"],
            check=True,
            capture_output=True,
            text=True,
        )
        (study,) = json.loads(said.stdout)["studies"]
        (row,) = study["rows"]
        return sum(value["mean"] for value in row["values"].values())

    return max(("optax", "plain"), key=merit)


def command(planned: Planned, out: Path, data: Path, chosen: Callable[[Path], str]) -> list[str]:
    """What to call: `run` for what is new, `resume` for what was begun."""
    folder = out / planned.folder
    if (folder / "config.json").exists():
        return ["resume", str(folder)]
    words = planned.words.replace("BETTER", chosen(out)) if "BETTER" in planned.words else planned.words
    return ["run", *words.split(), "--data", str(data), "--out", str(folder)]


def main() -> int:
    """Carry out what has its data, until the time is over."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("cifar10", "imagenette", "sst2"):
        options.add_argument(f"--{name}", type=Path, help="its archive or folder; its runs are left out without")
    options.add_argument("--out", type=Path, default=Path("runs/gpu"))
    options.add_argument("--hours", type=float, default=float("inf"))
    options.add_argument("--from", dest="first", choices=[part.name for part in PARTS], default=PARTS[0].name)
    options.add_argument("--list", action="store_true", help="show the runs and end")
    given = options.parse_args()
    names = [part.name for part in PARTS]
    began, failed, done = time.monotonic(), [], []
    for part in PARTS[names.index(given.first) :]:
        print(f"\n{part.name}: {part.question}")
        for planned in part.runs:
            data = getattr(given, planned.data)
            if given.list or data is None:
                print(f"  samuel run {planned.words}" + ("" if given.list else f"  (left out: no --{planned.data})"))
                continue
            if time.monotonic() - began > 3600 * given.hours:
                print(f"  {planned.folder} is left for another time")
                continue
            words = command(planned, given.out, data, better)
            print(f"  samuel {shlex.join(words)}", flush=True)
            code = subprocess.call([sys.executable, "-m", "samuel_lab", *words, "--quiet"])
            (failed if code else done).append(planned)
    print("\nTo put the rows on file:")
    for planned in done:
        report = given.out / f"{planned.folder}.json"
        print(f"  samuel report {given.out / planned.folder} --json > {report}")
        into = Path(f"results/{planned.into}.json")
        print(f"  python results/join.py {into} {report}" if into.exists() else f"  cp {report} {into}")
    for planned in failed:
        print(f"failed: {planned.folder}; calling this again resumes it", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
