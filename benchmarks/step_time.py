"""Where the time of a training step goes, and how much of the device's arithmetic it uses (MFU).

    python benchmarks/step_time.py                                                      a small network on digits
    python benchmarks/step_time.py --study shift --data CIFAR10 --precision bfloat16    ResNet-18, where there is a GPU
    python benchmarks/step_time.py --study cifar10 --data CIFAR10 --search 25           a step of 25 networks, too

    batch       making a batch
    forward     the loss in training mode
    gradient    the same with its gradient
    METHOD      a whole step on a batch that lies on the device, and what it takes beyond the gradient
    exam        the whole exam after the last step
    search      a step of a search of so many networks, one after another (scan) and side by side (map), for each

All in one process and in turns; a time is the shortest of several rounds, a round as many steps as fill `--seconds`.
MFU is the arithmetic of the network, over what the device could do in that time at its published dense peak. Only
convolutions and matrix products count, as usual. They are counted as the gradient is written: what a network computes
a second time there to save memory counts twice.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import samuel.jax as sj
from samuel_lab.execution import choose_device, environment
from samuel_lab.models import Task
from samuel_lab.studies.catalogue import study_of
from samuel_lab.studies.settings import BadSetting
from samuel_lab.trial import methods, optimizers
from samuel_lab.trial.experiment import Experiment, Feed
from samuel_lab.trial.trainers import Batch, Search, Single, Trainer

OFFLINE = ("cifar10", "sst2", "imagenet", "digits-offline")
STUDIES = ("digits", "shift", *OFFLINE)
METHODS = "sgd/constant,adam/constant,samuel,samuel-linear"
DRAINED = 5
"""Batches thrown away before batches are timed: a pipeline has decoded 4 ahead while other things were measured."""
HOPPER, AMPERE = {"bfloat16": 989.0, "float32": 494.0}, {"bfloat16": 312.0, "float32": 156.0}
PEAKS = {
    "NVIDIA H200": HOPPER,
    "NVIDIA H100 80GB HBM3": HOPPER,  # SXM; the PCIe and NVL cards are slower
    "NVIDIA A100-SXM4-40GB": AMPERE,
    "NVIDIA A100-SXM4-80GB": AMPERE,
    "NVIDIA A100-PCIE-40GB": AMPERE,
    "NVIDIA A100 80GB PCIe": AMPERE,
}
"""NVIDIA's dense peaks in TFLOP/s. Those for float32 are TF32's, which JAX uses there unless told otherwise."""


def flop(function: Callable[..., Any], *arguments: Any) -> int:
    """Floating-point operations of a function's convolutions and matrix products, two for every multiply-add.

    XLA's own count is another: it leaves out what convolutions multiply with padding, which published numbers count
    (0.97 in place of 1.11 GFLOP for a ResNet-18 on 32x32 pixels), and takes the steps of a loop, such as an LSTM's,
    for one.

    >>> flop(lambda a, b: a @ b, jnp.ones((2, 3)), jnp.ones((3, 4)))
    48
    """
    return 2 * multiply_adds(jax.make_jaxpr(function)(*arguments))


def multiply_adds(program: Any) -> int:
    """Those of a jaxpr."""
    total = 0
    for equation in program.eqns:
        name, settings = equation.primitive.name, equation.params
        inner = [multiply_adds(one) for one in inner_programs(settings)]
        if name == "dot_general":
            (contracted, _), _ = settings["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += equation.outvars[0].aval.size * math.prod(left[axis] for axis in contracted)
        elif name == "conv_general_dilated":
            total += of_convolution(equation)
        elif name == "scan":
            total += settings["length"] * sum(inner)
        elif name == "cond":
            total += max(inner)
        elif name == "while" and sum(inner):
            raise ValueError("cannot count the arithmetic of a while loop, whose length is not known: use lax.scan")
        else:
            total += sum(inner)
    return total


def of_convolution(equation: Any) -> int:
    """A convolution's multiply-adds, those with padding included."""
    image, kernel = (one.aval.shape for one in equation.invars)
    numbers = equation.params["dimension_numbers"]
    result = equation.outvars[0].aval.shape
    places = [result[axis] for axis in numbers.out_spec[2:]]
    if max(equation.params["lhs_dilation"]) > 1:
        # The gradient of one with strides: between the image's pixels there are zeros, which nobody needs to multiply.
        places = [image[axis] for axis in numbers.lhs_spec[2:]]
    channels = result[numbers.out_spec[0]] * result[numbers.out_spec[1]] * kernel[numbers.rhs_spec[1]]
    return channels * math.prod(places) * math.prod(kernel[axis] for axis in numbers.rhs_spec[2:])


def inner_programs(settings: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs among the settings of an equation: bodies of loops, branches, functions called."""
    for value in settings.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if hasattr(one, "eqns"):
                yield one


@dataclass
class Part:
    """Something to be timed.

    Attributes:
        name: what it is called in the table.
        seconds: how long so many steps take.
        flop: of one step; None where there is nothing to count.
        networks: what times and arithmetic are divided by.
        beyond: whether it contains a gradient, and the time beyond that is of interest.
    """

    name: str
    seconds: Callable[[int], float]
    flop: int | None = None
    networks: int = 1
    beyond: bool = False
    steps: int = 1
    times: list[float] = field(default_factory=list)

    @property
    def ms(self) -> float | None:
        """The shortest time of a step in milliseconds; None for what the device's memory is too small for."""
        return 1e3 * min(self.times) / self.networks if self.times else None

    @property
    def teraflops(self) -> float | None:
        """What it computes in a second."""
        return None if self.flop is None or self.ms is None else self.flop / self.networks / self.ms / 1e9


def measure(parts: list[Part], rounds: int, seconds: float) -> None:
    """Time them in turns, each as many steps as fill the seconds."""
    ready = []
    for part in parts:
        try:
            part.seconds(1)  # compiles what is not compiled yet
            part.steps = max(1, math.ceil(seconds / part.seconds(1)))
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
        else:
            ready.append(part)
    for _ in range(rounds):
        for part in ready:
            part.times.append(part.seconds(part.steps) / part.steps)


def clock(step: Callable[[], Any], steps: int) -> float:
    """Seconds that so many steps take; each needs what the one before gives."""
    began, last = time.perf_counter(), None
    for _ in range(steps):
        last = step()
    jax.block_until_ready(last)
    return time.perf_counter() - began


def batches(feed: Feed) -> Callable[[int], float]:
    """Times making batches."""
    numbers = count()

    def seconds(steps: int) -> float:
        for _ in range(DRAINED):
            last = jax.block_until_ready(feed.batch(next(numbers)))
        began = time.perf_counter()
        for _ in range(steps):
            # One is on its way while the next is asked for, as in training.
            last, before = feed.batch(next(numbers)), last
            jax.block_until_ready(before)
        jax.block_until_ready(last)
        return time.perf_counter() - began

    return seconds


class Passes:
    """The forward pass and the gradient of a task on one batch."""

    def __init__(self, task: Task, batch: Batch, key: jax.Array) -> None:
        start, self.key = jax.random.split(key)
        self.batch, (self.params, self.model_state) = batch, task.init(start)

        def loss(params: Any, model_state: Any, batch: Batch, key: jax.Array) -> Any:
            return task.loss(params, model_state, batch, key)[:2]

        self.functions = {"forward": loss, "gradient": jax.value_and_grad(loss, has_aux=True)}
        self.arguments = self.params, self.model_state, batch, self.key
        self.flop = {name: flop(function, *self.arguments) for name, function in self.functions.items()}

    def lowered(self, name: str) -> Any:
        """The pass as a program to be compiled. The round goes through it, so that no two run at the same time."""
        function = self.functions[name]

        def program(round: jax.Array, params: Any, model_state: Any, batch: Batch, key: jax.Array) -> Any:
            return round + 1, function(params, model_state, batch, jax.random.fold_in(key, round))

        return jax.jit(program).lower(jnp.int32(0), *self.arguments)

    def timed(self, program: Any) -> Callable[[int], float]:
        round = jnp.int32(0)

        def step() -> Any:
            nonlocal round
            round, result = program(round, *self.arguments)
            return result

        return lambda steps: clock(step, steps)


class Learner:
    """A trainer that goes on and on with one batch."""

    def __init__(self, trainer: Trainer, batch: Batch, key: jax.Array) -> None:
        self.trainer, self.batch, self.round = trainer, batch, 0
        self.state = trainer.init(key)
        self.program: Any = None

    def lowered(self) -> Any:
        """The step as a program to be compiled; None where the trainer sees to that."""
        if not isinstance(self.trainer, Single):
            return None
        return self.trainer._step.lower(self.state, self.batch, *self._now(self.trainer))

    def step(self) -> Any:
        if self.program is not None and isinstance(self.trainer, Single):
            self.state, loss = self.program(self.state, self.batch, *self._now(self.trainer))
        else:
            self.state, loss = self.trainer.step(self.state, self.batch, self.round)
        self.round += 1
        return self.state, loss

    def _now(self, trainer: Single) -> tuple[np.int32, np.float32]:
        rate = 0.0 if trainer.schedule is None else trainer.schedule[self.round]
        return np.int32(self.round), np.float32(rate)


def compiled(lowered: dict[str, Any]) -> dict[str, Any]:
    """The programs, ready to run."""
    wanted = {name: one for name, one in lowered.items() if one is not None}
    # The gradient first: a GPU may try out kernels for it, which should not be done for all of them at once.
    first = {"gradient": wanted.pop("gradient").compile()}
    with ThreadPoolExecutor() as pool:
        return first | dict(zip(wanted, pool.map(lambda one: one.compile(), wanted.values()), strict=True))


def training(experiment: Experiment, feed: Feed) -> tuple[list[Part], Passes, Batch]:
    """The parts of a step and the exam after the last one, all compiled but the exam."""
    batch, key = jax.block_until_ready(feed.batch(0)), jax.random.key(0)
    passes = Passes(experiment.task, batch, key)
    learners = {trial.name: Learner(trial.method, batch, key) for trial in experiment.trials}
    lowered = {name: passes.lowered(name) for name in passes.functions}
    programs = compiled(lowered | {name: learner.lowered() for name, learner in learners.items()})
    parts = [Part("batch", batches(feed))]
    parts += [Part(name, passes.timed(programs[name]), passes.flop[name]) for name in passes.functions]
    for name, learner in learners.items():
        learner.program = programs.get(name)
        arithmetic = learner.trainer.gradients * passes.flop["gradient"]
        parts.append(Part(name, lambda steps, one=learner: clock(one.step, steps), arithmetic, beyond=True))
    examined = next(iter(learners.values()))
    exam = experiment.exam(experiment.steps)
    parts.append(Part("exam", lambda steps: clock(lambda: examined.trainer.score(examined.state, exam), steps)))
    return parts, passes, batch


def searches(study: Any, task: Task, networks: int, batch: Batch, arithmetic: int) -> list[Part]:
    """The step of a search, with both placements."""
    rates = [study.rates[place % len(study.rates)] for place in range(networks)]
    parts = []
    for placement in ("scan", "map"):
        base = optimizers.base(study.base, study.weight_decay)
        sweep = sj.Sweep(task.loss, base, (rates,), placement=placement)
        learner = Learner(Search(task, sweep), batch, jax.random.key(0))
        seconds = lambda steps, one=learner: clock(one.step, steps)  # noqa: E731
        parts.append(Part(f"search, {placement}", seconds, networks * arithmetic, networks, beyond=True))
    return parts


def peak_of(device: str, precision: str) -> float | None:
    """The published peak in TFLOP/s, where it is known."""
    if precision == "float32" and jax.config.jax_default_matmul_precision is not None:  # pyright: ignore
        return None  # someone chose how float32 is multiplied
    return PEAKS.get(device, {}).get(precision)


def table(parts: list[Part], peak: float | None) -> list[dict[str, Any]]:
    """What was found, one row for each part."""
    gradient = next(part.ms for part in parts if part.name == "gradient")
    rows = []
    for part in parts:
        ms, speed = part.ms, part.teraflops
        rows.append(
            {
                "part": part.name,
                "ms": ms,
                "beyond_gradient_ms": None if ms is None or gradient is None or not part.beyond else ms - gradient,
                "tflop_per_second": speed,
                "mfu": None if peak is None or speed is None else speed / peak,
                "networks": part.networks,
                "steps": part.steps,
                "rounds_ms": [1e3 * seconds / part.networks for seconds in part.times],
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    def cell(value: float | None, form: str, width: int) -> str:
        return f"{'' if value is None else format(value, form):>{width}}"

    width = max(len(row["part"]) for row in rows)
    print(f"{'':{width}}{'ms':>12}{'beyond gradient':>18}{'TFLOP/s':>10}{'MFU':>8}")
    for row in rows:
        ms = f"{'does not fit':>14}" if row["ms"] is None else cell(row["ms"], ".3f", 12)
        cells = cell(row["beyond_gradient_ms"], "+.3f", 18), cell(row["tflop_per_second"], ".3f", 10)
        print(f"{row['part']:{width}}{ms}{''.join(cells)}{cell(row['mfu'], '.1%', 8)}".rstrip())


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type of option: a number above 0."""

    def read(text: str) -> Any:
        value = kind(text)
        if not 0 < value < math.inf:
            raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
        return value

    read.__name__ = kind.__name__  # argparse names it where the text is no number
    return read


def options_of(texts: list[str], parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Settings of a study, from NAME=JSON."""
    found = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            found[name] = json.loads(value)
        except ValueError:
            parser.error(f'--option must be NAME=JSON, such as batch=64 or base="adam", got {text}')
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="digits", choices=STUDIES)
    parser.add_argument("--data", default=None, help="what the study's --data is, where it needs any")
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--option", action="append", default=[], help="NAME=JSON, an option of the study")
    parser.add_argument("--methods", default=METHODS, help="whose steps to time, separated by commas")
    parser.add_argument("--search", type=positive(int), help=f"networks of a search, for {', '.join(OFFLINE)}")
    parser.add_argument("--peak", type=positive(float), help="TFLOP/s of the device, where it is not a known one")
    parser.add_argument("--rounds", type=positive(int), default=3, help="how often all are timed, in turns")
    parser.add_argument("--seconds", type=positive(float), default=0.2, help="how long each is timed in a round")
    parser.add_argument("--json", type=Path, help="a file to write the numbers to")
    options = parser.parse_args()
    if options.search and options.study not in OFFLINE:
        parser.error(f"--search is for {', '.join(OFFLINE)}, got --study {options.study}")
    settings = {"methods": options.methods, "seeds": 1, "precision": options.precision}
    settings |= {"data": options.data} if options.data else {}
    settings |= options_of(options.option, parser)
    began = time.perf_counter()
    try:
        study = study_of(options.study, settings)
        for name in filter(methods.is_search, study.method_names()):
            parser.error(f"--methods takes no searches: give --search with a number of networks, got {name}")
        choose_device(study.device, study.deterministic)
        experiment = study.prepare()
    except BadSetting as error:
        parser.error(str(error))
    opened = time.perf_counter()
    feed = experiment.feed(study.first_seed)
    try:
        parts, passes, batch = training(experiment, feed)
        measure(parts, options.rounds, options.seconds)
        if options.search:
            task, arithmetic = experiment.task, passes.flop["gradient"]
            more = searches(study, task, options.search, batch, arithmetic)
            measure(more, options.rounds, options.seconds)
            parts += more
    finally:
        getattr(feed, "close", lambda: None)()
    machine = environment()
    peak = options.peak or peak_of(machine["device"], study.precision)
    rows = table(parts, peak)
    size = experiment.plan["batch"]
    print(f"{experiment.plan['model']['name']}, batch {size}, {study.precision}, {machine['device']}")
    work = {name: value / 1e9 for name, value in passes.flop.items()}
    print(f"a step needs {work['gradient']:.4g} GFLOP, {work['forward']:.4g} of them forward", end="; ")
    print("peak not known, so no MFU: give --peak" if peak is None else f"peak {peak:g} TFLOP/s")
    show(rows)
    print(f"{opened - began:.0f} s to open the data, {time.perf_counter() - opened:.0f} s to compile and measure")
    if options.json:
        found = {
            "benchmark": "step_time",
            "study": options.study,
            "settings": settings,
            "environment": machine,
            "batch": size,
            "gflop": work,
            "peak_tflop_per_second": peak,
            "seconds": options.seconds,
            "parts": rows,
        }
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
