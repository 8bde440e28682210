"""SAMUEL's optax transformations as the studies use them: the drop-in, the paper's algorithm, and the average.

The only module of the laboratory that reads their states.
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


def drop_in(base: str, steps: int | None, average: bool) -> dict[str, Any]:
    """SAMUEL at its defaults, as arguments of `Single`.

    Over Muon there are two searches; rate and weights of a run are those of the search for matrices.

    Args:
        base: the base optimizer, by name.
        steps: the number of steps; None if unknown.
        average: whether to evaluate at the average of the parameters.
    """

    def facts(state: Any) -> dict[str, Any]:
        rates, weights = jnp.atleast_1d(sj.learning_rate(state)), jnp.atleast_2d(sj.weights(state))
        return {"rate": rates[0], "weights": weights[:1], "shifts": sj.shifts(state)}

    return {
        "optimizer": sj.samuel(base, steps=steps, average=average),
        "evaluate": sj.averaged,
        "pace": sj.pace if average else None,
        "facts": facts,
        "levels": (None,),
        "rates": search_for(base).learning_rates,
    }


def paper(
    base: optax.GradientTransformation,
    shared: bool,
    rates: tuple[float, ...],
    steps: int,
    cover: Any,
    etas: int | None,
) -> dict[str, Any]:
    """The paper's algorithm with one gradient a step, as arguments of `Single`.

    Args:
        base: the base optimizer.
        shared: whether all blocks share its state, which is right for bases that forget, such as Adam.
        rates: candidate learning rates.
        steps: length of the run.
        cover: when experts restart: `samuel.jax.Geometric` or `samuel.jax.Chosen`.
        etas: number of step sizes of the weights.
    """
    slots = cover.slots(paper_algorithm.LONG)
    return {
        "optimizer": paper_algorithm.algorithm1(base, rates, cover=cover, Q=etas or 10, shared=shared),
        "facts": lambda state: {"rate": state.rate, "weights": paper_algorithm.shares(state)},
        "levels": levels(cover, steps, slots),
        "rates": tuple(sorted(rates)),
    }


def levels(cover: Any, steps: int, slots: int) -> tuple[int | None, ...]:
    """The block lengths of a cover; None for a block as long as the run."""
    if not hasattr(cover, "length"):
        return (None,) * slots
    lengths = [cover.length(slot) for slot in range(slots)]
    return tuple(length if length < steps else None for length in lengths)


class AveragedState(NamedTuple):
    """State of an optimizer with SAMUEL's average of the parameters."""

    inner: Any
    round: jax.Array
    detector: ShiftState
    tail: TailState
    mean: Tree
    """The average without the last step, whose result is not known before the next."""


def averaged(inner: optax.GradientTransformation, steps: int) -> optax.GradientTransformationExtraArgs:
    """Add SAMUEL's running average of the parameters to an optimizer; its steps are unchanged.

    Separates the merit of the learning rate from that of the average in comparisons with SAMUEL.

    Args:
        inner: the optimizer.
        steps: the length of the run; near its end no shift restarts the average.

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
    """The averaged parameters, given the parameters after the last step."""
    return optax.incremental_update(params, state.mean, state.tail.pace)


def pace_of(state: AveragedState) -> jax.Array:
    """The weight of the last parameters in the average."""
    return state.tail.pace
