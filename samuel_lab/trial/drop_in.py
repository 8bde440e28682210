"""What the studies use of SAMUEL as an optax transformation: the drop-in, the paper's algorithm, and the average.

The only module of the laboratory that knows how these are called and what their states hold.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import samuel.jax as sj
from samuel.core.rate_search import search_for
from samuel.core.rule import LATE
from samuel.core.shift import ShiftDetector, ShiftState
from samuel.core.tail_average import TailAverage, TailState
from samuel.jax import paper as paper_algorithm

Tree = Any


def drop_in(base: str, steps: int | None) -> dict[str, Any]:
    """SAMUEL at its defaults, as arguments of `Single`.

    Over Muon there are two searches; rate and weights of a run are those of the search for matrices.

    Args:
        base: what gives directions.
        steps: the number of steps, or None for a run of unknown length, which has an average.
    """

    def facts(state: Any) -> dict[str, Any]:
        rates, weights = jnp.atleast_1d(sj.learning_rate(state)), jnp.atleast_2d(sj.weights(state))
        return {"rate": rates[0], "weights": weights[:1], "shifts": sj.shifts(state)}

    return {
        "optimizer": sj.samuel(base, steps=steps),
        "evaluate": sj.averaged,
        "pace": sj.pace if steps is None else None,
        "facts": facts,
        "levels": (None,),
        "rates": search_for(base).learning_rates,
    }


def paper(
    base: optax.GradientTransformation,
    forgets: bool,
    rates: tuple[float, ...],
    steps: int,
    cover: Any,
    etas: int | None,
) -> dict[str, Any]:
    """The paper's algorithm with one gradient a step, as arguments of `Single`.

    Args:
        base: what gives directions.
        forgets: whether the base forgets the past, so that all blocks can share its state.
        rates: candidate learning rates.
        steps: length of the run.
        cover: when experts restart: `samuel.jax.Geometric` or `samuel.jax.Chosen`.
        etas: number of step sizes of the weights.
    """
    slots = cover.slots(paper_algorithm.LONG)
    return {
        "optimizer": paper_algorithm.algorithm1(base, rates, cover=cover, Q=etas or 10, shared=forgets),
        "facts": lambda state: {"rate": state.rate, "weights": paper_algorithm.shares(state)},
        "levels": levels(cover, steps, slots),
        "rates": tuple(sorted(rates)),
    }


def levels(cover: Any, steps: int, slots: int) -> tuple[int | None, ...]:
    """Lengths of the blocks of a cover; None for those as long as the run."""
    if not hasattr(cover, "length"):
        return (None,) * slots
    lengths = [cover.length(slot) for slot in range(slots)]
    return tuple(length if length < steps else None for length in lengths)


class AveragedState(NamedTuple):
    """State of an optimizer whose parameters are averaged as SAMUEL's are."""

    inner: Any
    round: jax.Array
    detector: ShiftState
    tail: TailState
    mean: Tree
    """The average without the last step, which is known at the next."""


def averaged(inner: optax.GradientTransformation, steps: int) -> optax.GradientTransformationExtraArgs:
    """An optimizer with SAMUEL's running average of the parameters beside it; its steps are unchanged.

    A comparison with SAMUEL tells the merit of the rate from that of the average.

    Args:
        inner: the optimizer.
        steps: the length of the run, near the end of which no shift restarts the average.

    >>> optimizer = averaged(optax.identity(), steps=10)
    >>> params = jnp.array([4.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(2):
    ...     direction, state = optimizer.update(params, state, params)
    ...     params = params - 0.5 * direction
    >>> params.tolist(), round(average_of(state, params).item(), 3)  # 4, 2 and 1, the last with 9 / 11 of the weight
    ([1.0], 1.218)
    """
    stepping, detector, tail = optax.with_extra_args_support(inner), ShiftDetector(), TailAverage()

    def init(params: Tree) -> AveragedState:
        zero = jnp.zeros(())
        kept: Any = (detector.start(zero), tail.start(zero), params)
        return AveragedState(stepping.init(params), jnp.zeros((), jnp.int32), *jax.tree.map(jnp.copy, kept))

    def update(updates: Tree, state: AveragedState, params: Tree = None, **extra: Any) -> tuple[Tree, AveragedState]:
        mean = average_of(state, params)
        square = optax.tree.norm(updates, squared=True).astype(jnp.float32)
        length = steps - state.round + state.detector.since  # from the last shift to the end
        found, shifted = detector.advance(state.detector, square, state.detector.since <= (1 - LATE) * length)
        directions, after = stepping.update(updates, state.inner, params, **extra)
        return directions, AveragedState(after, state.round + 1, found, tail.advance(state.tail, shifted), mean)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def average_of(state: AveragedState, params: Tree) -> Tree:
    """The average, from the state and the parameters after the last step."""
    return optax.incremental_update(params, state.mean, state.tail.pace)


def pace_of(state: AveragedState) -> jax.Array:
    """The share of the last parameters in the average."""
    return state.tail.pace
