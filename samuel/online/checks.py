"""Conformance tests of the interface that `play`, `Trace` and users rely on."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from samuel.online.learner import Learner
from samuel.online.losses import SquaredLoss
from samuel.online.play import play
from samuel.online.streams import Recorded

ROUNDS = 72
"""Rounds of a check: enough for blocks of several lengths to end."""


class ContractBroken(AssertionError):
    """A learner violates the interface; the message says where."""


def check(learner: Learner | Callable[..., Learner], *, tolerance: float = 1e-9, compiled: bool = True) -> list[str]:
    """Test a learner of your own against the interface that this library relies on.

    Args:
        learner: a learner, which is not changed (fresh ones are made with its rule); or a function that makes one,
            called as `learner()` and `learner(streams=3)`.
        tolerance: for numbers that should be equal.
        compiled: also compare with a compiled run if JAX is installed, which takes seconds.

    Returns:
        The names of the checks it passed.

    Raises:
        ContractBroken: with the name of the check and what was found.

    >>> from samuel.online import Samuel, Ball, check
    >>> check(Samuel(dim=2, domain=Ball(1.0)))[:3]
    ['decisions stay in the domain', 'asking changes nothing', 'bad input changes nothing']
    """
    if isinstance(learner, Learner):
        make: Callable[..., Learner] = partial(Learner, learner.rule, dtype=str(learner.dtype))
    else:
        make = learner
    passed = []
    for name, run in _checks(make, tolerance, compiled):
        try:
            run()
        except ContractBroken as error:
            raise ContractBroken(f"{name}: {error}") from None
        passed.append(name)
    return passed


def _checks(make: Callable[..., Learner], tolerance: float, compiled: bool) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "decisions stay in the domain", lambda: _in_domain(make)
    yield "asking changes nothing", lambda: _asking(make)
    yield "bad input changes nothing", lambda: _bad_input(make)
    yield "a pickled learner goes on identically", lambda: _pickled(make)
    yield "streams side by side do not touch each other", lambda: _streams(make, tolerance)
    yield "playing is the same as updating by hand", lambda: _by_hand(make, tolerance)
    yield "reusing a buffer changes nothing", lambda: _by_hand(make, tolerance, reused=True)
    if compiled and importlib.util.find_spec("jax") is not None:
        yield "compiled and plain play agree", lambda: _compiled(make, tolerance)
    yield "playing on continues the run", lambda: _in_pieces(make, tolerance)


def _stream(learner: Learner, seed: int = 0) -> Recorded:
    batch = () if learner.streams is None else (learner.streams,)
    random = np.random.default_rng(seed)
    features = random.normal(size=(ROUNDS, *batch, learner.dim))
    return Recorded(SquaredLoss(), (features, random.normal(size=(ROUNDS, *batch))))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractBroken(message)


def _play(learner: Learner, **options) -> np.ndarray:
    decisions = play(learner, _stream(learner), record="decisions", backend="numpy", **options).decisions
    assert decisions is not None
    return decisions


def _in_domain(make: Callable[..., Learner]) -> None:
    learner = make()
    inside = learner.domain.contains(_play(learner), tolerance=1e-6)
    _require(bool(np.all(inside)), f"round {int(np.argmin(inside))} was decided outside {learner.domain}")


def _asking(make: Callable[..., Learner]) -> None:
    learner = make()
    first, again = learner.predict(), learner.predict()
    _require(first.shape == (learner.dim,), f"predict() has the shape {first.shape}, not ({learner.dim},)")
    _require(np.array_equal(first, again), "predict() twice gave two decisions")
    first += 1e6
    _require(np.array_equal(learner.predict(), again), "changing the array that predict() gave changed the learner")


def _bad_input(make: Callable[..., Learner]) -> None:
    learner = make()
    _play(learner)
    before = pickle.dumps(learner._state)
    nan = np.full(learner.dim, np.nan)
    attempts = {
        "a gradient of the wrong shape": (np.zeros(learner.dim + 1),),
        "a gradient of nan": (nan,),
        "no feedback at all": (),
        "an unknown ticket": (np.zeros(learner.dim), 10**6),
    }
    for what, (gradient, ticket) in ((what, (*given, None, None)[:2]) for what, given in attempts.items()):
        try:
            learner.update(gradient, ticket=ticket)
        except ValueError:
            pass
        else:
            raise ContractBroken(f"{what} was not refused with a ValueError")
        _require(pickle.dumps(learner._state) == before, f"{what} changed the learner")


def _pickled(make: Callable[..., Learner]) -> None:
    learner = make()
    _play(learner, rounds=ROUNDS // 2)
    twin = pickle.loads(pickle.dumps(learner))
    _require(np.array_equal(_play(learner), _play(twin)), "after pickling in mid-run the decisions differ")


def _streams(make: Callable[..., Learner], tolerance: float) -> None:
    together = make(streams=3)
    stream = _stream(together)
    decisions = play(together, stream, record="decisions", backend="numpy").decisions
    assert decisions is not None
    if together.rule.random:
        return  # each stream draws its own numbers
    for number in range(3):
        alone = Recorded(stream.loss, tuple(array[:, number] for array in stream.arrays))
        own = play(make(), alone, record="decisions", backend="numpy").decisions
        _close(
            decisions[:, number],
            own,
            tolerance,
            f"stream {number} is decided differently when others run beside it",
        )


def _by_hand(make: Callable[..., Learner], tolerance: float, reused: bool = False) -> None:
    """Updates by hand give the decisions of `play`, even if the caller reuses one buffer for all gradients."""
    played, by_hand = make(), make()
    stream = _stream(played)
    expected = _play(played)
    buffer = np.zeros(played.dim)
    for t in range(ROUNDS):
        data = tuple(array[0] for array in stream.data(t, t + 1))

        def loss(point: np.ndarray, data: tuple = data) -> tuple:
            gradient = stream.loss.gradient(point, data)
            if reused:
                buffer[:] = gradient
            return stream.loss.value(point, data), buffer if reused else gradient

        decision = by_hand.predict()
        _close(decision, expected[t], tolerance, f"round {t} differs between play and update")
        gradient = loss(decision)[1]
        if by_hand.rule.feedback == "linear":
            by_hand.update(gradient)
        elif by_hand.rule.feedback == "full":
            by_hand.update(loss=loss)
        else:
            by_hand.update(gradient, loss=lambda point: loss(point)[0])


def _compiled(make: Callable[..., Learner], tolerance: float) -> None:
    learner = make()
    plain = _play(make())
    compiled = play(learner, _stream(learner), record="decisions", backend="jax").decisions
    _close(compiled, plain, max(tolerance, 1e-9), "compiled decisions differ from plain ones")


def _in_pieces(make: Callable[..., Learner], tolerance: float) -> None:
    learner = make()
    stream = _stream(learner)
    whole = _play(make())
    cut = ROUNDS // 3
    pieces = [stream.data(0, cut), stream.data(cut, ROUNDS)]
    parts = [
        play(learner, Recorded(stream.loss, piece), record="decisions", backend="numpy").decisions for piece in pieces
    ]
    _close(
        np.concatenate([part for part in parts if part is not None]),
        whole,
        tolerance,
        "two pieces are not the whole",
    )


def _close(found: np.ndarray | None, expected: np.ndarray | None, tolerance: float, message: str) -> None:
    assert found is not None
    assert expected is not None
    away = float(np.max(np.abs(found - expected)))
    _require(away <= tolerance, f"{message} (by {away:.2g})")
