"""Run a learner on a stream: compiled if JAX is installed, else in NumPy, with the same results."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from samuel.core import Feedback, Full, Linear, Loss, NoHealthyExpert
from samuel.core.arrays import Array
from samuel.online.learner import Info, Learner, Pace, Rule, whole_number
from samuel.online.losses import Data, LossFamily
from samuel.online.streams import Stream, as_stream
from samuel.online.trace import Trace

RECORDS = ("all", "decisions", "losses")
NAMES: dict[str, tuple[str, ...]] = {"decisions": ("loss", "decision", "gradient"), "losses": ("loss",)}
WORTH_COMPILING = 20_000
"""Rounds from which on compilation pays off: measured between 8,000 and 48,000, by learner."""
LARGE_RECORD = 2**30
"""Bytes of a record above which there is a warning."""
STREAMS_AT_ONCE = 128
"""Streams per compiled loop."""
MOST_COMPILED = 2**28
"""Maximum number of rounds of a compiled run: integers have 32 bits, and covers need multiples of the round."""
CHUNK = 2**15
"""Rounds per chunk: between chunks progress is displayed and the stream makes more data."""


class LargeRecord(UserWarning):
    """The record of a run takes much memory."""


def play(
    learner: Learner,
    stream: Any,
    rounds: int | None = None,
    *,
    record: Literal["all", "decisions", "losses"] = "all",
    backend: Literal["auto", "numpy", "jax"] = "auto",
    progress: bool | None = None,
) -> Trace:
    """Run a learner on a stream and return the trace.

    The learner continues from its state, which is updated.

    Args:
        learner: the learner.
        stream: a `Stream`, or an array of gradients `(rounds, dim)` of linear losses; with several streams at once
            `(rounds, streams, dim)`.
        rounds: number of rounds; by default all of the stream.
        record: "all" (decisions, losses, gains, weights: what certificates need), "decisions" (with losses and
            gradients: what regret needs) or "losses" (a number per round). "all" takes 0.4 KB a round of the
            default `Samuel` in five dimensions.
        backend: "jax" compiles the run into one loop, "numpy" loops over rounds; "auto" uses JAX if it is installed and
            the run is long enough for compilation to pay off.
        progress: display a bar (needs `rich`); by default on a terminal, for long runs.

    Raises:
        ValueError: for a stream that does not fit the learner. The learner is unchanged then.
        NoHealthyExpert: if in some round no expert's numbers are finite. The learner is as before the run.

    Warns:
        LargeRecord: if the record takes more than 1 GiB.

    >>> from samuel.online import Samuel, Interval, TwoValleys, play
    >>> trace = play(Samuel(dim=1, domain=Interval(-1.0, 1.0)), TwoValleys(rounds=1000))
    >>> bool(trace.losses.sum() < 50)  # the best fixed point loses 1000
    True
    """
    stream = as_stream(stream)
    with learner._lock_updates if isinstance(learner, Learner) else contextlib.nullcontext():
        return _played(learner, stream, rounds, record, backend, progress)


def _played(
    learner: Learner, stream: Stream, rounds: int | None, record: str, backend: str, progress: bool | None
) -> Trace:
    rounds = _checked(learner, stream, rounds, record, backend)
    first = learner.round
    rule, names = learner.rule, NAMES.get(record)
    state = rule.grow(learner._state, first + rounds)
    random_before = learner._random.bit_generator.state
    if backend == "auto":
        worth = rounds >= WORTH_COMPILING and first + rounds <= MOST_COMPILED
        backend = "jax" if worth and importlib.util.find_spec("jax") else "numpy"
    run: Callable[..., tuple[Any, Info]] = _run_compiled if backend == "jax" else _run_plain
    arrays: Info = {}
    try:
        for start, stop in _bar(_chunks(rounds), rounds, backend, progress):
            data = tuple(np.asarray(array, dtype=learner.dtype) for array in stream.data(start, stop))
            chance = _chances(learner, stop - start)
            state, info = run(rule, stream.loss, names, state, data, chance)
            if not info.pop("healthy").all():
                raise NoHealthyExpert(f"in rounds {first + start} to {first + stop - 1} a stream had no finite expert")
            if not arrays:
                _warn_of_size(info, rounds / (stop - start))
                arrays = {name: np.empty((rounds, *part.shape[1:]), part.dtype) for name, part in info.items()}
            for name, part in info.items():
                arrays[name][start:stop] = part
    except BaseException:
        learner._random.bit_generator.state = random_before
        raise
    learner._state = state
    if learner._record is not None:
        learner._record += [{name: array[t].copy() for name, array in arrays.items()} for t in range(rounds)]
    return Trace(rule, arrays, stream, first)


def _warn_of_size(info: Info, times: float) -> None:
    """Warn of a record that will be so many times as large."""
    size = times * sum(part.nbytes for part in info.values())
    if size > LARGE_RECORD:
        warnings.warn(
            f"the record of this run takes {size / 1e9:.1f} GB; record='decisions' (regret) and 'losses' take less, "
            "only certificates need 'all'",
            LargeRecord,
            stacklevel=4,
        )


def _checked(learner: Learner, stream: Stream, rounds: int | None, record: str, backend: str) -> int:
    if record not in RECORDS:
        raise ValueError(f"record must be one of {', '.join(RECORDS)}, got {record!r}")
    if backend not in ("auto", "numpy", "jax"):
        raise ValueError(f"backend must be 'auto', 'numpy' or 'jax', got {backend!r}")
    if backend == "jax" and importlib.util.find_spec("jax") is None:
        raise ValueError("backend='jax' needs JAX, which is not installed: pip install \"samuel-optim[jax]\"")
    if not isinstance(learner, Learner):
        raise ValueError(f"the first argument must be a learner such as Samuel(dim=3), got {learner!r}")
    if stream.dim != learner.dim:
        raise ValueError(f"the stream has dimension {stream.dim}, the learner {learner.dim}")
    if stream.streams != learner.streams:
        raise ValueError(
            f"the stream holds {stream.streams or 'no axis of'} streams, the learner was made with "
            f"streams={learner.streams}"
        )
    if rounds is None:
        rounds = stream.rounds
        if rounds is None:
            raise ValueError(f"{type(stream).__name__} has no end: give the number of rounds to play")
    rounds = whole_number("rounds", rounds, least=1)
    if stream.rounds is not None and rounds > stream.rounds:
        raise ValueError(f"rounds must be from 1 to {stream.rounds or 'any number'}, got {rounds}")
    if learner._record is not None and record != "all":
        raise ValueError(f"the learner keeps a record of its own, so it is played with record='all', got {record!r}")
    if backend == "jax" and learner.round + rounds > MOST_COMPILED:
        raise ValueError(
            f"a compiled run counts up to {MOST_COMPILED} rounds, and {rounds} after round {learner.round} are more: "
            "play on with backend='numpy'"
        )
    limit = learner.rule.limit
    if limit is not None and learner.round + rounds > limit:
        raise ValueError(
            f"{rounds} rounds after round {learner.round} go past the horizon of {limit} that the learner was made for"
        )
    return rounds


def observe(rule: Rule, state: Any, loss: LossFamily, data: Data) -> tuple[Feedback, Info]:
    """The feedback for a rule from a loss, and its entries for the trace."""
    decision = state.decision
    value, gradient = loss.value(decision, data), loss.gradient(decision, data)
    seen = {"decision": decision, "gradient": gradient, "loss": value}
    if rule.feedback == "linear":
        return Linear(gradient), seen
    points = rule.points(state)
    batch = decision.ndim - 1
    spread = tuple(array.reshape((*array.shape[:batch], 1, 1, *array.shape[batch:])) for array in data)
    losses = loss.value(points, spread)
    if rule.feedback == "loss":
        return Loss(value, losses, gradient), seen
    return Full(value, losses, loss.gradient(points, spread)), seen


def _round(
    rule: Rule,
    loss: LossFamily,
    names: tuple[str, ...] | None,
    state: Any,
    data: Data,
    chance: Array | None,
    pace: Pace = "careful",
) -> tuple[Any, Info]:
    feedback, seen = observe(rule, state, loss, data)
    after, info = rule.advance(state, feedback, chance, record=names is None, pace=pace)
    fine = seen["loss"] == seen["loss"]  # not nan
    flag = "healthy" if pace == "careful" else "usual"
    flags = {flag: info.pop(flag, fine)}
    return after, {**seen, **info, **flags} if names is None else {name: seen[name] for name in names} | flags


def _run_plain(
    rule: Rule,
    loss: LossFamily,
    names: tuple[str, ...] | None,
    state: Any,
    data: Data,
    chance: np.ndarray | None,
) -> tuple[Any, Info]:
    rows = []
    with np.errstate(all="ignore"):  # overflow expected: diverged experts are dropped
        for t in range(len(data[0])):
            now = tuple(array[t] for array in data)
            state, info = _round(rule, loss, names, state, now, None if chance is None else chance[t])
            rows.append(info)
    return state, {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _run_compiled(
    rule: Rule, loss: LossFamily, names: tuple[str, ...] | None, state: Any, data: Data, chance: np.ndarray | None
) -> tuple[Any, Info]:
    import jax

    wide = data[0].dtype == np.float64
    streams = state.decision.shape[0] if state.decision.ndim > 1 else 1
    if streams == 1:
        groups = [slice(None)]
    else:  # as many streams at a time as fit in the processor's cache
        size = -(-streams // -(-streams // STREAMS_AT_ONCE))
        groups = [slice(start, start + size) for start in range(0, streams, size)]
    round, parts = state.round, []
    with jax.enable_x64(wide) if wide else contextlib.nullcontext():
        for group in groups:
            own = jax.tree.map(lambda array, group=group: array[group] if np.ndim(array) else array, state)
            some = tuple(array if len(groups) == 1 else array[:, group] for array in data)
            luck = chance if chance is None or len(groups) == 1 else chance[:, group]
            parts.append(_run_group(rule, loss, names, own._replace(round=round), some, luck))
    if len(groups) == 1:
        return parts[0]
    states, infos = zip(*parts, strict=True)
    state = jax.tree.map(lambda *arrays: np.concatenate(arrays) if np.ndim(arrays[0]) else arrays[0], *states)
    info = jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1), *infos)
    return state._replace(round=int(state.round)), info


def _run_group(
    rule: Rule, loss: LossFamily, names: tuple[str, ...] | None, state: Any, data: Data, chance: np.ndarray | None
) -> tuple[Any, Info]:
    import jax

    rhythm = 1 if rule.random else rule.rhythm  # a random decision cannot be deferred
    infos = []
    for beats, start, stop in _beats(state.round, len(data[0]), rhythm):
        now = tuple(array[start:stop] for array in data), None if chance is None else chance[start:stop]
        state, info = _compiled(rule, loss, names, beats)(state._replace(round=np.int32(state.round)), *now)
        state = jax.tree.map(np.array, state)
        state = state._replace(round=int(state.round))
        infos.append(jax.tree.map(np.asarray, info))
    return state, {name: np.concatenate([info[name] for info in infos]) for name in infos[0]}


def _beats(t: int, rounds: int, rhythm: int) -> Iterator[tuple[bool, int, int]]:
    """Cut the rounds after round `t` into whole periods of the rhythm, and the rest."""
    head = min(rounds, -t % rhythm)
    body = head + (rounds - head) // rhythm * rhythm
    for beats, start, stop in ((False, 0, head), (rhythm > 1, head, body), (False, body, rounds)):
        if stop > start:
            yield beats, start, stop


@lru_cache(maxsize=64)
def _compiled(rule: Rule, loss: LossFamily, names: tuple[str, ...] | None, beats: bool) -> Any:
    """One loop over the rounds, compiled once per rule, loss family and number of rounds.

    Branches are slow in a compiled loop: each costs a copy of the state. So whole periods of the rule's rhythm are run
    without checks for rare cases; if one occurred, the period is re-run with all checks enabled.
    """
    import jax

    def play_rounds(state: Any, rounds: tuple[Data, Array | None]) -> tuple[Any, Info]:
        def body(state: Any, now: tuple[Data, Array | None]) -> tuple[Any, Info]:
            after, info = _round(rule, loss, names, state, *now)
            return _typed_as(state, after), info

        return jax.lax.scan(body, state, rounds)

    def rounds_at(pace: Pace) -> Callable[[tuple[Any, Array], tuple[Data, Array | None]], tuple[Any, Info]]:
        def body(carry: tuple[Any, Array], now: tuple[Data, Array | None]) -> tuple[Any, Info]:
            state, settled = rule.settle(carry[0])
            after, info = _round(rule, loss, names, state, *now, pace=pace)
            return (_typed_as(state, after), carry[1] & settled & info.pop("usual").all()), info

        return body

    def play_beat(carry: tuple[Any, Array], rounds: tuple[Data, Array | None]) -> tuple[Any, Info]:
        carry, info = jax.lax.scan(rounds_at("quiet"), carry, jax.tree.map(lambda array: array[:-1], rounds))
        carry, last = rounds_at("due")(carry, jax.tree.map(lambda array: array[-1], rounds))
        return carry, jax.tree.map(lambda some, one: jax.numpy.concatenate([some, one[None]]), info, last)

    def play_stretch(state: Any, rounds: tuple[Data, Array | None]) -> tuple[Any, Info]:
        (after, usual), info = jax.lax.scan(play_beat, (state, True), _folded(rounds, rule.rhythm))
        after, settled = rule.settle(after)
        info = _unfolded(info)
        info["healthy"] = info["loss"] == info["loss"]
        return jax.lax.cond(
            usual & settled, lambda: (_typed_as(state, after), info), lambda: play_rounds(state, rounds)
        )

    def play_stretches(state: Any, data: Data, chance: Array | None) -> tuple[Any, Info]:
        beats = len(data[0]) // rule.rhythm
        at_once = max(n for n in range(1, 33) if beats % n == 0)
        state, info = jax.lax.scan(play_stretch, state, _folded((data, chance), at_once * rule.rhythm))
        return state, _unfolded(info)

    def play_all(state: Any, data: Data, chance: Array | None) -> tuple[Any, Info]:
        return play_rounds(state, (data, chance))

    return jax.jit(play_stretches if beats else play_all)


def _typed_as(state: Any, after: Any) -> Any:
    """A state with the dtypes of the original, which a loop must not change."""
    import jax

    return jax.tree.map(lambda new, old: new.astype(old.dtype), after, state)


def _folded(tree: Any, rounds: int) -> Any:
    """Arrays over rounds, cut into chunks."""
    import jax

    return jax.tree.map(lambda array: array.reshape(-1, rounds, *array.shape[1:]), tree)


def _unfolded(tree: Any) -> Any:
    """Arrays over chunks, concatenated."""
    import jax

    return jax.tree.map(lambda array: array.reshape(-1, *array.shape[2:]), tree)


def _chances(learner: Learner, rounds: int) -> np.ndarray | None:
    if not learner.rule.random:
        return None
    return learner._random.random((rounds, *learner.zero.shape[:-1])).astype(learner.dtype)


def _chunks(rounds: int) -> list[tuple[int, int]]:
    return [(start, min(rounds, start + CHUNK)) for start in range(0, rounds, CHUNK)]


def _bar(
    chunks: list[tuple[int, int]], rounds: int, backend: str, progress: bool | None
) -> Iterator[tuple[int, int]] | Iterable[tuple[int, int]]:
    """The chunks, with an optional progress bar."""
    if progress is None:
        progress = sys.stderr.isatty() and rounds > (16 if backend == "jax" else 1) * CHUNK
    if not progress or importlib.util.find_spec("rich") is None:
        return chunks
    return _with_bar(chunks, rounds)


def _with_bar(chunks: list[tuple[int, int]], rounds: int) -> Iterator[tuple[int, int]]:
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    columns = (*Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("playing", total=rounds)
        for start, stop in chunks:
            yield start, stop
            bar.update(task, completed=stop)
