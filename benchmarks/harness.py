"""What the instrument costs: time a step in `samuel run`, over a bare jitted loop of the same model and batch size.

    python benchmarks/harness.py                                   a small network on digits
    python benchmarks/harness.py --study shift --data CIFAR10      ResNet-18, where there is a GPU

The bare loop trains on one batch that lies on the device; the instrument gathers, normalises and augments a new one
for every step, adds up losses, and is ready to stop at any step. Both in one process, in turns; the ratio is that of
the shortest times a step.
"""

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np

from samuel_lab.execution import choose_device, environment
from samuel_lab.runs import Run
from samuel_lab.studies.catalogue import study_of
from samuel_lab.trial.training import train

DEFAULTS = {
    "digits": {"width": 96, "batch": 512},
    "shift": {"width": 64, "batch": 512},
    "cifar10": {"width": 64, "batch": 256},
}


def instrument(study, experiment, feed, steps):
    """Seconds a step of the training loop, without compiling and measuring."""
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", study.name, study.as_json(), "")
        with run.locked():
            run.settle_plan(experiment.plan)
            train(run, experiment, 0, feed)
        times = [json.loads(line) for line in run.times.path.read_text().splitlines()]
    last = times[-1]
    assert last["steps"] == steps, last
    return last["train_seconds"] / steps


def bare(trainer, feed, steps):
    """Seconds a step of a plain loop: nothing but the compiled step."""
    state = trainer.init(jax.random.key(0))
    batch = jax.block_until_ready(feed.batch(0))
    rate = np.float32(0.0 if trainer.schedule is None else trainer.schedule[0])
    state, loss = trainer._step(state, batch, np.int32(0), rate)
    loss.block_until_ready()
    began = time.perf_counter()
    for step in range(steps):
        state, loss = trainer._step(state, batch, np.int32(step), rate)
    jax.block_until_ready((state, loss))
    return (time.perf_counter() - began) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", default="digits", choices=tuple(DEFAULTS))
    parser.add_argument("--data", default=None)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--deterministic", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5, help="how often both are measured, in turns")
    parser.add_argument("--method", default="adam/constant")
    parser.add_argument("--json", default=None, help="a file to write the numbers to")
    options = parser.parse_args()
    settings = {"methods": options.method, "seeds": 1, **DEFAULTS[options.study]}
    settings |= {"data": options.data} if options.data else {}
    settings |= {"precision": options.precision, "deterministic": options.deterministic}
    study = study_of(options.study, settings)
    choose_device(study.device, study.deterministic)
    warm = 4
    experiment = study.prepare()
    trial = replace(experiment.trials[0], steps=warm + options.steps, measures=[warm, warm + options.steps])
    experiment, feed = replace(experiment, trials=(trial,)), experiment.feed(trial.seed)
    with_it, without = [], []
    for _ in range(options.rounds):
        with_it.append(instrument(study, experiment, feed, options.steps))
        without.append(bare(trial.method, feed, options.steps))
    ratio = min(with_it) / min(without)
    print(f"{experiment.plan['model']['name']}, batch {study.batch}, {environment()['device']}")
    print(f"bare jitted loop     {1e3 * min(without):9.3f} ms a step")
    print(f"samuel run           {1e3 * min(with_it):9.3f} ms a step")
    print(f"ratio                {ratio:9.3f}   (at most 1.05 wanted)")
    if options.json:
        found = {
            "benchmark": "harness",
            "study": options.study,
            "settings": settings,
            "environment": environment(),
            "bare_ms": 1e3 * min(without),
            "samuel_run_ms": 1e3 * min(with_it),
            "ratio": ratio,
        }
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
