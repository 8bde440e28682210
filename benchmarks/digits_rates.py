"""Find the learning rates of the twelve baselines on digits: multiples of the paper's, on seeds the study does not use.

    python benchmarks/digits_rates.py --json results/digits_rates.json      takes three minutes

For every baseline the rate with the best mean of the five metrics is kept; `samuel_lab.studies.shift.DIGITS_RATES` has
what came out, and the end of this script says whether it still does.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from samuel_lab.execution import execute
from samuel_lab.report import summary
from samuel_lab.report.reading import read
from samuel_lab.runs import Run
from samuel_lab.studies.catalogue import study_of
from samuel_lab.studies.shift import DIGITS_RATES
from samuel_lab.trial.methods import parse
from samuel_lab.trial.schedules import BASELINES

FACTORS = (1 / 3, 1, 2, 3, 5, 10)
FURTHER = {  # where the best of these lay at their end, or two were close
    "adam/constant": (0.02, 0.03),
    "adam/cosine": (0.02, 0.03, 0.05),
    "adam/warmup-cosine": (0.035,),
    "adam/exponential": (0.1, 0.2),
    "adagrad/exponential": (0.5,),
    "sgd/exponential": (0.9,),
}
SEEDS = {"first_seed": 100, "seeds": 3}


def names():
    for (base, schedule), rate in BASELINES.items():
        pair = f"{base}/{schedule}"
        rates = {float(f"{rate * factor:.2g}") for factor in FACTORS} | set(FURTHER.get(pair, ()))
        yield from (f"{pair}@{one:g}" for one in sorted(rates))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", default=None, help="a file to write the numbers to")
    options = parser.parse_args()
    study = study_of("digits", {"methods": ",".join(names()), **SEEDS})
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", "digits", study.as_json(), "")
        seen = set()

        def tell(moment):
            if moment.trial.title not in seen:
                seen.add(moment.trial.title)
                print(f"{len(seen)} {moment.trial.title}", flush=True)

        execute(run, study, tell=tell)
        found = summary.as_json([read(run.folder)])["studies"][0]
    metrics, best = {}, {}
    for row in found["rows"]:
        values = [column["mean"] for column in row["values"].values()]
        # A rate with which a seed diverged has no mean, and is no candidate.
        metrics[row["method"]] = values
        if all(value is not None for value in values):
            said = parse(row["method"])
            pair, mean = f"{said.base}/{said.schedule}", float(np.mean(values))
            if mean > best.get(pair, (0, -1.0))[1]:
                best[pair] = (said.rates[0], mean)
    chosen = {pair: rate for pair, (rate, _) in best.items()}
    used = {f"{base}/{schedule}": rate for (base, schedule), rate in DIGITS_RATES.items()}
    print(json.dumps(chosen, indent=1))
    print("as in DIGITS_RATES" if chosen == used else f"DIGITS_RATES has others: {used}")
    if options.json:
        columns = [column["key"] for column in found["columns"]]
        content = {"benchmark": "digits_rates", **SEEDS, "columns": columns, "metrics": metrics, "best": chosen}
        Path(options.json).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
