"""Search the learning rates of the twelve baselines of a shift, each from the paper's rate upwards or downwards.

    python benchmarks/shift_rates.py --out rates --scale 0.0625 --windows 100 --data cifar10-jpeg.tar.xz --device gpu

Options that are not this script's go to `samuel run shift`. Three rates are trained: a third of the paper's, the
paper's and three times it. While the best is at the edge, the next one beyond it is trained too, up to five in all. The
best has the highest mean of the study's columns. The seed is 100, which the study itself does not use. Every baseline
is a search of its own: on a large GPU run several of these, with `--baselines` and a folder each. Started again with
the same options, it goes on where it was stopped. (`digits_rates.py` is for digits, where a run takes a second.)
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from samuel_lab.report import summary
from samuel_lab.report.reading import read
from samuel_lab.trial.schedules import BASELINES

FACTORS = (1 / 30, 1 / 10, 1 / 3, 1, 3, 10, 30)
PAPERS = FACTORS.index(1)
MOST = 5
"""Rates tried for each baseline."""
OWN = ("--methods", "--seeds", "--first-seed", "-o")
"""Options of `samuel run` that are the search's own."""


def train(folder, methods, options):
    """Train one run, or what is missing of it; the mean of its columns for each method, -inf if it diverged."""
    if (folder / "config.json").exists():
        command = ["resume", str(folder)]
    else:
        values = (",".join(methods), "1", "100", str(folder))
        command = ["run", "shift", *options, *(word for pair in zip(OWN, values, strict=True) for word in pair)]
    ended = subprocess.run([sys.executable, "-m", "samuel_lab", *command], check=False)
    if ended.returncode:
        raise SystemExit(ended.returncode)  # the command has said why
    (found,) = summary.as_json([read(folder)])["studies"]
    means = {}
    for row in found["rows"]:
        values = [value["mean"] for value in row["values"].values()]
        means[row["method"]] = -np.inf if None in values else float(np.mean(values))
    return means


def search(folder, baseline, paper, options):
    """The best rate of a baseline, and what each that was tried came to."""
    scores = {}

    def name(place):
        return f"{baseline}@{float(f'{paper * FACTORS[place]:.3g}'):g}"

    def measure(places):
        part = folder / f"{baseline.replace('/', '-')}-{len(scores)}"
        means = train(part, [name(place) for place in places], options)
        scores.update({place: means[name(place)] for place in places})

    measure([PAPERS - 1, PAPERS, PAPERS + 1])
    while len(scores) < MOST:
        best = max(scores, key=scores.get)
        if best not in (min(scores), max(scores)):
            break
        measure([best + (1 if best == max(scores) else -1)])
    return name(max(scores, key=scores.get)), {name(place): scores[place] for place in sorted(scores)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="the folder for the runs")
    parser.add_argument("--baselines", help="which, comma-separated (all twelve if not given)")
    options, rest = parser.parse_known_args()
    papers = {"/".join(pair): rate for pair, rate in BASELINES.items()}
    names = options.baselines.split(",") if options.baselines else list(papers)
    if strange := [name for name in names if name not in papers]:
        parser.error(f"--baselines must be some of {', '.join(papers)}; got {', '.join(strange)}")
    if own := [word for word in rest if word.split("=")[0] in OWN]:
        parser.error(f"the search sets {', '.join(own)} itself")
    options.out.mkdir(parents=True, exist_ok=True)
    kept, asked = options.out / "options.json", json.dumps(rest)
    if kept.exists() and kept.read_text() != asked:
        parser.error(f"{options.out} has a search with other options, {kept.read_text()}: take another folder")
    kept.write_text(asked)
    for baseline in names:
        best, tried = search(options.out, baseline, papers[baseline], rest)
        print(f"{best} is best: " + ", ".join(f"{name} {100 * mean:.2f}" for name, mean in tried.items()), flush=True)


if __name__ == "__main__":
    main()
