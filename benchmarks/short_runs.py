"""Short runs of a study, many in one process: what a change of the drop-in's rule does, before anyone believes in it.

    python benchmarks/short_runs.py PLAN.json --data cifar10.tar.xz --json OUT.jsonl

A plan is a list of runs, such as

    [{"study": "shift", "scale": 0.125, "seed": 100, "method": "adamw/warmup-cosine@0.005"},
     {"study": "shift", "scale": 0.125, "seed": 100, "samuel": {"base": "adam", "weight_decay": 0.1, "lag": 0.8}},
     {"study": "cifar10", "scale": 0.04, "seed": 100, "samuel": {}, "averages": true}]

The network's gradient is compiled once for all of them, the optimizer beside it in seconds. Started several times with
the same plan and output, the processes share the work: each takes what nobody has begun. On a GPU with NVIDIA's
multi-process service three or four of them do half as much again as one. Measurements are fewer than the studies', and
`results/research.md` has what was found with them.

With "averages" the network is also judged at moving averages of its parameters, and at the average over the last part
of the time since the gradient leapt. With "signal", of a method with a fixed schedule, the products of the gradient
with the sum of directions are recorded at several lags and for several blocks, as mean over root mean square in twelve
parts of the run: +1 says that a larger rate would be better throughout, -1 a smaller one.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import samuel.jax as sj
from samuel.core.rays import Rays
from samuel.core.rules import follow
from samuel_lab.models import Task
from samuel_lab.studies.catalogue import STUDIES
from samuel_lab.trial import methods, optimizers, schedules
from samuel_lab.trial.trainers import judged

WINDOWS = (4, 16, 64, 256)
"""Rounds that moving averages are over."""
PARTS = {"last ninth": 8.0, "last quarter": 3.0}
"""Averages over the last part of the time since the gradient leapt: the power with which weights grow."""
LAGS = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
BLOCKS = (64, 256, 1024)
CLOCKS = [Rays((1.0,), cover=sj.Watched(short=0), alarm=10.0, average=power) for power in PARTS.values()]
"""Only for the pace of their averages, which begin anew at an alarm."""


class Work:
    """A study at a scale: data, gradient, exams."""

    def __init__(self, name: str, scale: float, **options: Any) -> None:
        study = STUDIES[name](scale=scale, deterministic=False, methods=("samuel",), **options)
        self.course = study.course(lambda *_: None)
        self.setup, self.shift = self.course.setup, self.course.plan.get("shift")
        task = self.setup.task

        def gradient(params: Any, model_state: Any, batch: Any, key: jax.Array, round: Any) -> Any:
            def loss(params: Any) -> Any:
                value, after, _ = task.loss(params, model_state, batch, jax.random.fold_in(key, round))
                return value, after

            return jax.value_and_grad(loss, has_aux=True)(params)

        self.task: Task = task
        self.gradient = jax.jit(gradient)
        self._judge = jax.jit(partial(judged, task))

    def accuracy(self, params: Any, model_state: Any, step: int) -> float:
        right = count = 0.0
        for batch in self.course.exam(step):
            right += float(self._judge(params, model_state, batch)[0])
            count += float(batch[2].sum())
        return right / count

    def measures(self) -> list[int]:
        rounds, shift = self.setup.rounds, self.shift
        if shift is None:
            return np.unique(np.linspace(rounds / 10, rounds, 10).astype(int)).tolist()
        after = [*range(1, 101, 2), *range(100, 501, 10), *range(500, 1001, 25), *range(1000, rounds, 200)]
        before = np.linspace(shift / 6, shift, 21).astype(int).tolist()
        return sorted({*before, *(min(shift + n, rounds) for n in after), rounds})


class Optimizer:
    """What one run trains with: `update` makes parameters and state of parameters, state, gradient, rate, loss."""

    def __init__(self, run: dict[str, Any], work: Work) -> None:
        self.schedule: Callable[[int], float] = lambda round: 0.0
        self.facts: Callable[[Any], dict[str, Any]] = lambda state: {}
        rounds = work.setup.rounds
        if "samuel" in run:
            options = {"base": "adam", "horizon": rounds, **run["samuel"]}
            if "weight_decay" in options:
                options["weight_decay_mask"] = optimizers.matrices
            made: Any = sj.samuel(**options)
            self.facts = lambda state: {"rate": float(sj.learning_rate(state)), "shifts": int(sj.shifts(state))}
        else:
            if run["method"].endswith(methods.AVERAGED):
                raise ValueError(f'{run["method"]!r}: leave {methods.AVERAGED} out, and give "averages": true')
            found = methods.parse(run["method"])
            if found is None:
                peer = optimizers.peer(run["method"])
                made = peer.make(rounds)
                self.facts = lambda state: {} if peer.rate is None else {"rate": float(peer.rate(state))}
            else:
                rate = found.rates[0] if found.rates else optimizers.BASES[found.base].rate
                self.schedule = schedules.make(found.schedule, rate, rounds)
                made = optimizers.direction(found.base)
        scheduled = "samuel" not in run and found is not None
        made = optax.with_extra_args_support(made)

        def update(params: Any, state: Any, gradient: Any, rate: Any, loss: Any) -> Any:
            steps, state = made.update(gradient, state, params, value=loss)
            factor = -rate if scheduled else 1.0
            return jax.tree.map(lambda p, s: p + factor * s, params, steps), state, steps

        self.init = jax.jit(made.init)
        self.update = jax.jit(update)


class Averages:
    """Averages of parameters and statistics, kept beside a run."""

    names = (*(f"{window} rounds" for window in WINDOWS), *PARTS)

    def __init__(self, values: Any) -> None:
        self.kept = [jax.tree.map(jnp.copy, values) for _ in self.names]
        self.clocks = [clock.start(jnp.zeros(())) for clock in CLOCKS]

    def follow(self, values: Any, gradient: Any) -> None:
        self.kept, self.clocks = self._follow(self.kept, self.clocks, values, gradient)

    @staticmethod
    @partial(jax.jit, donate_argnums=0)
    def _follow(kept: Any, clocks: Any, values: Any, gradient: Any) -> Any:
        square = optax.tree.norm(gradient, squared=True)
        dots = jnp.append(jnp.zeros(len(CLOCKS[0].moving)), square)
        clocks = [clock.advance(state, dots)[0] for clock, state in zip(CLOCKS, clocks, strict=True)]
        paces = [jnp.maximum(1 / window, 1 / (clocks[0].round + 1.0)) for window in WINDOWS]
        paces += [state.pace for state in clocks]
        averages = [optax.incremental_update(values, one, pace) for one, pace in zip(kept, paces, strict=True)]
        return averages, clocks


class Signal:
    """What the gradient says about the rate, along a run with a fixed schedule."""

    def __init__(self, params: Any) -> None:
        zeros = jax.tree.map(jnp.zeros_like, params)
        self.sums = zeros
        self.behind = [zeros for _ in LAGS]
        self.starts = [zeros for _ in BLOCKS]
        self.seen: list[jax.Array] = []

    def follow(self, gradient: Any, direction: Any, fraction: float, round: int) -> None:
        products, self.sums, self.behind, self.starts = self._follow(
            gradient, direction, fraction, round, self.sums, self.behind, self.starts
        )
        self.seen.append(products)

    @staticmethod
    @jax.jit
    def _follow(gradient: Any, direction: Any, fraction: Any, round: Any, sums: Any, behind: Any, starts: Any) -> Any:
        def dot(vector: Any) -> jax.Array:
            return jnp.asarray(optax.tree.vdot(gradient, vector))

        whole, late, early = dot(sums), [dot(one) for one in behind], [dot(one) for one in starts]
        lagged = [whole - one for one in late]
        products = jnp.stack([*lagged, *(whole - one for one in early)])
        step = jax.tree.map(lambda one: fraction * one, direction)
        sums = optax.tree.add(sums, step)
        behind = [
            jax.tree.map(lambda b, s: lag * (b + s), one, step)  # noqa: B023
            for lag, one in zip(LAGS, behind, strict=True)
        ]
        begun = [(round + 1) % block == 0 for block in BLOCKS]
        starts = [jax.tree.map(partial(jnp.where, new), sums, old) for new, old in zip(begun, starts, strict=True)]
        return products, sums, behind, starts

    def table(self) -> dict[str, list[float]]:
        seen = np.asarray(jnp.stack(self.seen), np.float64)
        names = [*(f"lag {lag:g}" for lag in LAGS), *(f"blocks of {block}" for block in BLOCKS)]
        parts = [part for part in np.array_split(seen, 12) if len(part)]
        rows = [part.mean(0) / np.sqrt((part**2).mean(0) + 1e-300) for part in parts]
        return {name: [round(float(row[i]), 3) for row in rows] for i, name in enumerate(names)}


def train(run: dict[str, Any], work: Work) -> dict[str, Any]:
    """One run; the metrics of every way it was judged, and the rate along it."""
    began, seed = time.perf_counter(), run.get("seed", 100)
    optimizer = Optimizer(run, work)
    start, key = jax.random.split(jax.random.key(seed))
    params, model_state = work.task.init(start)
    state, feed = optimizer.init(params), work.course.feed(seed)
    averages = Averages((params, model_state)) if run.get("averages") else None
    signal = Signal(params) if run.get("signal") else None
    steady, measures, losses = model_state, set(work.measures()), []
    peak = max(optimizer.schedule(round) for round in range(work.setup.rounds)) or 1.0
    decides = "samuel" in run and follow(run["samuel"].get("rule", "samuel"), horizon=1).averages
    rows: list[dict[str, Any]] = []
    for round in range(work.setup.rounds):
        (loss, model_state), gradient = work.gradient(params, model_state, feed.batch(round), key, round)
        rate = optimizer.schedule(round)
        params, state, steps = optimizer.update(params, state, gradient, rate, loss)
        if decides:
            steady = _along(model_state, steady, sj.pace(state))
        if averages is not None:
            averages.follow((params, model_state), gradient)
        if signal is not None:
            signal.follow(gradient, steps, rate / peak, round)
        losses.append(loss)
        if len(losses) > 8:
            losses[-8].block_until_ready()
        if round + 1 not in measures:
            continue
        row = {"step": round + 1, **optimizer.facts(state)}
        row["parameters"] = work.accuracy(params, model_state, round + 1)
        if decides:
            row["decision"] = work.accuracy(sj.decision(state, params), steady, round + 1)
        if averages is not None:
            for name, kept in zip(averages.names, averages.kept, strict=True):
                row[name] = work.accuracy(kept[0], kept[1], round + 1)
        rows.append(row)
    ways = [name for name in rows[-1] if name not in ("step", "rate", "shifts")]
    found = {name: metrics(rows, name, work.shift) for name in ways}
    rates = [[row["step"], row["rate"]] for row in rows if "rate" in row][:: max(1, len(rows) // 20)]
    out = {"run": run, "metrics": found, "rates": rates, "shifts": rows[-1].get("shifts")}
    if signal is not None:
        out["signal"] = signal.table()
    return out | {"seconds": round_to(time.perf_counter() - began)}


_along = jax.jit(optax.incremental_update)


def metrics(rows: list[dict[str, Any]], name: str, shift: int | None) -> list[float]:
    """In %: means over the first 100, 500 and 1,000 rounds after the shift, best before, best after; or last, best."""
    steps, values = np.array([row["step"] for row in rows]), np.array([row[name] for row in rows])
    if shift is None:
        return [round_to(100 * values[-1]), round_to(100 * values.max())]
    after = steps > shift
    windows = [np.interp(np.arange(1, n + 1), steps[after] - shift, values[after]).mean() for n in (100, 500, 1000)]
    return [round_to(100 * value) for value in (*windows, values[~after].max(), values[after].max())]


def round_to(value: float) -> float:
    return round(float(value), 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--data", type=Path, help="what the study's --data is, where it needs any")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--option", action="append", default=[], help="NAME=JSON, an option of the study")
    parser.add_argument("--json", type=Path, required=True, help="one line is added for every run that ends")
    arguments = parser.parse_args()
    options = {name: json.loads(value) for name, _, value in (one.partition("=") for one in arguments.option)}
    if arguments.data:
        options["data"] = arguments.data
    claims = arguments.json.with_suffix(".claims")
    claims.mkdir(parents=True, exist_ok=True)
    works: dict[tuple[str, float], Work] = {}
    for number, run in enumerate(json.loads(arguments.plan.read_text())):
        try:
            os.close(os.open(claims / str(number), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        where = run["study"], run.get("scale", 1.0)
        if where not in works:
            works[where] = Work(*where, precision=arguments.precision, **options)
        out = train(run, works[where])
        with arguments.json.open("a") as file:
            file.write(json.dumps(out) + "\n")
        print(json.dumps(out["metrics"]), json.dumps(run), f"{out['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
