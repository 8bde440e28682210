"""A contest: online learners play the same streams, and their losses and regret are measured.

`run(Plan(...))` returns plain records of numbers and names, from which `figures` and `page` make the report.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from samuel.online import Ball, Learner, Recorded, Stream, Trace, TwoValleys, play
from samuel.online.comparators import best_fixed_point
from samuel.online.regret import Hindsight, RegretMap, hindsight, regret_map
from samuel.online.streams import SideBySide
from samuel_lab.play import workers
from samuel_lab.play.arenas import Arena, arenas
from samuel_lab.play.bounds import ROWS, Field
from samuel_lab.play.cast import LEARNERS, Contestant, sweep
from samuel_lab.play.measuring import (
    STRETCHES,
    Snapshot,
    Tiled,
    Window,
    as_map,
    averaged,
    certificate_of,
    chain_of,
    middles,
    optimum,
    state_bytes,
    stretch_edges,
    weights_by_age,
    weights_of,
)
from samuel_lab.play.plan import Plan
from samuel_lab.play.records import Chain, Contest, Growth, Report, Result, WorstInterval
from samuel_lab.tables import thinned

POINTS, FEW_POINTS = 1000, 128
"""Maximum number of points per curve; fewer with many curves."""
MANY = 12
"""From this many learners on, curves have fewer points."""
QUICK = 2**14
"""Up to this many rounds a single learner is faster without compiling."""
LONG, LONGEST = 2**17, 4096
"""From this many rounds on a run does not fit in memory: only losses are recorded, and intervals of at most this length
are examined."""
HELD = 2**24
"""Maximum size of an array in memory: longer runs record less."""

Progress = Callable[[str, int, int], None]
"""Progress callback: current activity, steps done, steps in all."""


def run(plan: Plan, progress: Progress | None = None) -> Report:
    """Play and measure all contests of a plan.

    Args:
        plan: what to play.
        progress: called before each step with the current activity, the steps done and the steps in all.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if it cannot be used.

    >>> report = run(Plan(streams=("two-valleys",), learners=("ogd-inverse",), rounds=256, backend="numpy"))
    >>> [result.label for result in report.contests[0].results]
    ['OGD, 1/t']
    """
    began = time.perf_counter()
    chosen = arenas(plan)
    steps = _Steps(sum(_steps(plan, arena) for arena in chosen), progress)
    if plan.jobs == 1 or len(chosen) == 1:
        contests = tuple(_contest(plan, arena, steps.next) for arena in chosen)
    else:
        # Longest first, to balance the processes: projections in the norm of a matrix, except onto balls.
        order = sorted(range(len(chosen)), key=lambda place: isinstance(chosen[place].domain, Ball))
        played = workers.each(_one_contest, [(plan, place) for place in order], plan.jobs, steps.next)
        contests = tuple(contest for _, contest in sorted(zip(order, played, strict=True), key=itemgetter(0)))
    steps.next("done")
    date = datetime.now().astimezone().isoformat(timespec="minutes")
    compiled = any(contest.engine == "jax" for contest in contests)
    return Report(plan, contests, time.perf_counter() - began, date, _software(compiled))


class _Steps:
    """Reports the steps of a run to a progress callback."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.progress = -1, total, progress

    def next(self, what: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(what, self.done, self.total)


def _cast(plan: Plan, arena: Arena) -> list[Contestant]:
    return [LEARNERS[name] for name in plan.learners or arena.learners]


def _steps(plan: Plan, arena: Arena) -> int:
    return 1 + len(_cast(plan, arena)) + arena.grows


def _one_contest(plan: Plan, place: int, step: Callable[[str], None]) -> Contest:
    """One contest of a plan, by its index: the work of a process."""
    return _contest(plan, arenas(plan)[place], step)


class _Setting(NamedTuple):
    """What all learners of a contest share."""

    arena: Arena
    parts: tuple[Stream, ...]
    """The streams, one for each seed."""
    stream: Stream
    """All streams side by side; a single one unchanged."""
    engine: Literal["jax", "numpy"]
    best: tuple[Hindsight, ...]
    at: np.ndarray
    optimum: np.ndarray | None
    field: Field | None
    """For a stream of Table 1: its intervals and their yardsticks."""

    @property
    def streams(self) -> int | None:
        """Number of streams that a learner serves at once."""
        return self.stream.streams


def _contest(plan: Plan, arena: Arena, step: Callable[[str], None]) -> Contest:
    step(f"{arena.label}: best fixed points in hindsight")
    cast = _cast(plan, arena)
    seeds = range(plan.seed, plan.seed + (plan.seeds if arena.seeded else 1))
    parts = tuple(arena.stream(seed) for seed in seeds)
    stream = parts[0] if len(parts) == 1 else SideBySide(parts)
    rounds, dim, long = arena.rounds, stream.dim, arena.rounds >= LONG
    changes = (*arena.changes, rounds) if arena.changes and not long else ()
    setting = _Setting(
        arena,
        parts,
        stream,
        plan.engine(rounds),
        tuple(hindsight(part, arena.domain, rounds, longest=LONGEST if long else None) for part in parts),
        thinned(rounds, POINTS if len(cast) <= MANY else FEW_POINTS),
        optimum(parts[0], arena.domain, changes) if changes else None,
        _field(arena, stream),
    )
    best, best_cumulative = (None, None) if long else _best_fixed(setting)
    results, chain = [], None
    for contestant in cast:
        step(f"{arena.label}: {contestant.label}")
        result, found = _result(setting, contestant, wants_chain=chain is None)
        results.append(result)
        chain = chain or found
    growth = None
    if arena.grows:
        step(f"{arena.label}: runs of several lengths")
        growth = _growth(setting, cast, results)
    return Contest(
        stream=arena.name,
        label=arena.label,
        about=arena.about,
        rounds=rounds,
        dim=dim,
        steady=max((length for length in setting.best[0].grid.lengths if length <= arena.steady), default=0),
        seeds=len(parts),
        engine=setting.engine,
        changes=arena.changes,
        at=setting.at,
        path_at=setting.at if dim == 1 else middles(rounds),
        results=tuple(results),
        best_fixed=best,
        best_fixed_cumulative=best_cumulative,
        optimum=setting.optimum[setting.at, 0] if setting.optimum is not None and dim == 1 else None,
        chain=chain,
        growth=growth,
        comparison=arena.comparison,
        groups=setting.field.groups if setting.field else (),
    )


def _field(arena: Arena, stream: Stream) -> Field | None:
    if arena.comparison is None:
        return None
    (gradients,) = stream.data(0, arena.rounds)
    return Field(arena.comparison, arena.domain, gradients.reshape(arena.rounds, -1, stream.dim))


def _best_fixed(setting: _Setting) -> tuple[float, np.ndarray]:
    """Loss of the best fixed point of the whole run: mean over seeds, and cumulative for the first seed."""
    totals, cumulative = [], None
    for part in setting.parts:
        data = part.data(0, setting.arena.rounds)
        best = best_fixed_point(part.loss, data, setting.arena.domain, part.dim)
        totals.append(best.loss)
        if cumulative is None:
            cumulative = np.cumsum(np.asarray(part.loss.value(best.point, data)))[setting.at]
    assert cumulative is not None
    return float(np.mean(totals)), cumulative


def _result(setting: _Setting, contestant: Contestant, wants_chain: bool) -> tuple[Result, Chain | None]:
    """The result of one learner, and, if requested and known, its certificates."""
    arena = setting.arena
    tried = _tune(setting, contestant) if contestant.tuned else ()
    rate = min(tried, key=lambda pair: pair[1])[0] if tried else None
    played = _play(setting, contestant, rate)
    traces = [played.trace.one(i) for i in range(setting.streams)] if setting.streams else [played.trace]
    maps = [regret_map(trace, best) for trace, best in zip(traces, setting.best, strict=True)]
    first, regrets = traces[0], maps[0]
    weights = None
    if first.weights is not None:
        weights = weights_of(first.rule, first.weights)
    elif played.snapshots:
        weights = weights_by_age(first.rule, len(first), played.snapshots)
    losses = played.trace.losses
    result = Result(
        learner=contestant.name,
        label=contestant.label,
        family=contestant.family,
        rate=rate,
        tried=tried,
        middle=contestant.middle_rate,
        totals=tuple(float(total) for total in np.atleast_1d(np.sum(losses, axis=0))),
        worst=tuple(_worst(first, maps, length) for length in regrets.lengths),
        exponents=tuple(_exponent(found, arena.steady) for found in maps),
        microseconds=1e6 * played.seconds / losses.size,
        memory=state_bytes(played.learner),
        cumulative=np.cumsum(losses.reshape(len(losses), -1).mean(axis=1))[setting.at],
        path=_path(setting, first),
        map=as_map(len(first), regrets.lengths, regrets.firsts, regrets.regret),
        weights=weights,
        measured=setting.field.measure(losses.reshape(len(losses), -1)) if setting.field else (),
    )
    proved = wants_chain and contestant.family == "samuel" and certificate_of(first, 0, len(first) - 1) is not None
    return result, chain_of(contestant.name, contestant.label, first, regrets) if proved else None


class _Played(NamedTuple):
    trace: Trace
    seconds: float
    """Time of the run without compilation."""
    learner: Learner
    snapshots: list[Snapshot]
    """Weights over time of a learner with too many to record every round."""


def _tune(setting: _Setting, contestant: Contestant) -> tuple[tuple[float, float], ...]:
    """Total loss for every rate of the list, mean over seeds."""
    rounds, stream = setting.arena.rounds, setting.stream
    learner = sweep(contestant, stream.dim, setting.arena.domain, seeds=len(setting.parts))
    backend = "numpy" if rounds <= QUICK else setting.engine
    tiled = Tiled(stream, len(contestant.rates))
    trace = play(learner, tiled, rounds, record="losses", backend=backend, progress=False)
    totals = np.sum(trace.losses, axis=0).reshape(len(contestant.rates), -1).mean(axis=1)
    return tuple(zip(contestant.rates, totals.tolist(), strict=True))


def _play(setting: _Setting, contestant: Contestant, rate: float | None) -> _Played:
    """The trace of a run of all seeds."""
    arena, stream = setting.arena, setting.stream
    options: dict[str, Any] = {"streams": setting.streams}
    if arena.comparison is not None and contestant.name in ROWS and ROWS[contestant.name].given:
        options["gradient_bound"] = arena.comparison.gradient_bound

    def fresh() -> Learner:
        return contestant.make(stream.dim, arena.domain, rate, **options)

    learner = fresh()
    record = _record(learner, arena.rounds)
    if setting.engine == "jax":  # the first run compiles
        play(fresh(), stream, arena.rounds, record=record, backend="jax", progress=False)
    elif record == "decisions" and hasattr(learner, "weights") and arena.rounds <= QUICK:
        return _play_in_stretches(setting, learner)
    began = time.perf_counter()
    trace = play(learner, stream, arena.rounds, record=record, backend=setting.engine, progress=False)
    return _Played(trace, time.perf_counter() - began, learner, [])


def _record(learner: Learner, rounds: int) -> Literal["all", "decisions", "losses"]:
    """As detailed a trace as fits in memory."""
    rule: Any = learner.rule
    streams = learner.streams or 1
    if rounds >= LONG or rounds * streams * learner.dim > HELD:
        return "losses"
    experts = rule.cover.slots(rounds) * len(rule.experts) if hasattr(rule, "experts") else 1
    return "all" if rounds * streams * experts <= HELD else "decisions"


def _play_in_stretches(setting: _Setting, learner: Any) -> _Played:
    """A run of a learner with too many experts to record: their weights are sampled at intervals."""
    parts, snapshots, seconds = [], [], 0.0
    edges = stretch_edges(setting.arena.rounds).tolist()
    for start, stop in pairwise(edges):
        weights = learner.weights()
        snapshots.append(Snapshot(start, weights if setting.streams is None else weights[0]))
        began = time.perf_counter()
        window = Window(setting.stream, start)
        parts.append(play(learner, window, stop - start, record="decisions", backend="numpy", progress=False))
        seconds += time.perf_counter() - began
    arrays = {name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays}
    return _Played(Trace(learner.rule, arrays, setting.stream), seconds, learner, snapshots)


def _path(setting: _Setting, trace: Trace) -> np.ndarray | None:
    if trace.decisions is None:
        return None
    if trace.rule.dim == 1:
        return trace.decisions[setting.at, 0]
    if setting.optimum is None:
        return None
    return averaged(np.linalg.norm(trace.decisions - setting.optimum, axis=-1), STRETCHES)


def _worst(first: Trace, maps: Sequence[RegretMap], length: int) -> WorstInterval:
    found = [regrets.worst(length) for regrets in maps]
    regrets = [worst.regret for worst in found]
    return WorstInterval(
        length,
        float(np.mean(regrets)),
        float(np.std(regrets, ddof=1)) if len(regrets) > 1 else 0.0,
        found[0].first,
        found[0].last,
        found[0].regret,
        certificate_of(first, found[0].first, found[0].last),
    )


def _exponent(regrets: RegretMap, longest: int) -> float | None:
    exponent = regrets.exponent(longest=max(longest, regrets.lengths[1]))
    return exponent if np.isfinite(exponent) else None


def _growth(setting: _Setting, cast: Sequence[Contestant], results: Sequence[Result]) -> Growth:
    """The contest for runs from 16 times shorter to 4 times longer (with many learners, none longer).

    No learner knows the length of the run, so all lengths are streams of a single run, each evaluated at its own end.
    FLH is left out: its work grows with the square of the length.
    """
    arena = setting.arena
    rounds = tuple(arena.rounds * 2**power // (16 if len(cast) <= MANY else 64) for power in range(7))
    streams = [TwoValleys(length) for length in rounds]
    parts = [stream.data(0, rounds[-1]) for stream in streams]
    together = Recorded(streams[0].loss, tuple(np.stack(arrays, axis=1) for arrays in zip(*parts, strict=True)))
    totals = {}
    for contestant, result in zip(cast, results, strict=True):
        if contestant.name == "flh":
            continue
        learner = contestant.make(together.dim, arena.domain, result.rate, streams=len(rounds))
        trace = play(learner, together, record="losses", backend=setting.engine, progress=False)
        lost = np.cumsum(trace.losses, axis=0)
        totals[contestant.label] = tuple(float(lost[length - 1, place]) for place, length in enumerate(rounds))
    best = tuple(
        best_fixed_point(stream.loss, stream.data(0, stream.rounds), arena.domain, stream.dim).loss
        for stream in streams
    )
    return Growth(rounds, totals, best)


def _software(compiled: bool) -> dict[str, str]:
    import samuel

    found = {"samuel": samuel.__version__, "Python": platform.python_version(), "NumPy": np.__version__}
    if compiled:
        try:
            found["JAX"] = version("jax")
        except PackageNotFoundError:  # installed without metadata
            found["JAX"] = "unknown"
    return found
