"""What a step does with arrays as large as the parameters: dot products before it, one pass over all of them in it.

Every array lies where its parameter lies, also when that is spread over devices. The scalars are those of
`samuel.core.rule`, whose first lines have the formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from samuel.core.arrays import is_traced
from samuel.core.rule import Moves


class Place(NamedTuple):
    """Where a parameter finds its scalars."""

    search: int
    """Its search: the first axis of the scalars."""
    decay: int
    """Its weight decay: the second axis of those that depend on it."""


def products(
    gradients: Sequence[jax.Array],
    sums: Sequence[jax.Array],
    lags: Sequence[jax.Array],
    places: Sequence[Place],
    searches: int,
) -> tuple[jax.Array, jax.Array]:
    """`<g, s>` and `<g, l>` of every search, `(searches, 2)`, and `<g, g>`, `(searches,)`.

    >>> g, s, l = jnp.ones(3), jnp.full(3, 2.0), jnp.zeros(3)
    >>> dots, squares = products([g], [s], [l], [Place(0, 0)], searches=1)
    >>> dots.tolist(), squares.tolist()
    ([[6.0, 0.0]], [3.0])
    """
    totals = [[jnp.zeros((), jnp.float32)] * 3 for _ in range(searches)]
    for g, s, lag, place in zip(gradients, sums, lags, places, strict=True):
        total = totals[place.search]
        for i, other in enumerate((s, lag, g)):
            total[i] = total[i] + jnp.sum(g * other.astype(g.dtype)).astype(jnp.float32)
    table = jnp.stack([jnp.stack(total) for total in totals])
    return table[:, :2], table[:, 2]


class Factors(NamedTuple):
    """Factors of the pass over all parameters, made of `samuel.core.rule.Moves`.

    change = shrink * p + slide * s + along * d + back * l
    s      = keep * s + enter * d
    l      = hold * l + admit * d
    """

    shrink: jax.Array
    slide: jax.Array
    along: jax.Array
    back: jax.Array
    keep: jax.Array
    enter: jax.Array
    hold: jax.Array
    admit: jax.Array

    def at(self, place: Place, dtype: Any) -> Factors:
        """The factors of one parameter."""
        own = (factor[place if factor.ndim == 2 else place.search] for factor in self)
        return Factors(*(factor.astype(dtype) for factor in own))


def factors(moves: Moves, memory: float) -> Factors:
    """The factors of a step; `s` and `l` become 0 at a restart.

    Args:
        moves: the scalars of the rule.
        memory: of the lag: `RateSearch.lag`.
    """
    goes_on = 1.0 - moves.restart
    keep, enter = goes_on * moves.keep, goes_on * moves.enter
    lag = jnp.where(moves.gradient > 0, memory, 1.0)  # a skipped step does not count
    return Factors(
        moves.keep - 1, moves.slide, moves.along, moves.back, keep, enter, hold=lag * keep, admit=lag * enter
    )


def apart(function: Callable[..., Any], some: jax.Array, *arguments: Any) -> Any:
    """`function(*arguments)`, compiled for a CPU as a unit of its own.

    XLA's CPU compiler repeats cheap arithmetic on scalars in the loop over every array that depends on it, which here
    would double the time to compile. It does not look into a conditional. (On a GPU it repeats less, and a
    conditional would wait for the host.)

    Args:
        function: function of the arguments.
        some: any number that is not negative, which the compiler must not know.
        arguments: its arguments.
    """
    if jax.default_backend() != "cpu" or not is_traced(some):
        return function(*arguments)
    like = jax.eval_shape(function, *arguments)
    blank = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)  # noqa: E731
    return jax.lax.cond(some >= 0, function, blank, *arguments)


def step(
    p: jax.Array, s: jax.Array, lag: jax.Array, d: jax.Array, own: Factors, round: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The change of one parameter, its direction sum and its lag.

    Args:
        p: the parameter, of 32 bits or more.
        s: the direction sum.
        lag: the lag.
        d: the direction.
        own: its factors.
        round: number of the step, for the rounding of what has 16 bits.
    """
    wide_s, wide_lag = s.astype(p.dtype), lag.astype(p.dtype)
    change = own.shrink * p + own.slide * wide_s + own.along * d + own.back * wide_lag
    new_s, new_lag = own.keep * wide_s + own.enter * d, own.hold * wide_lag + own.admit * d
    return change, narrowed(new_s, s.dtype, round), narrowed(new_lag, lag.dtype, round)


def narrowed(x: jax.Array, dtype: Any, round: jax.Array) -> jax.Array:
    """Numbers in a dtype of a state; in bfloat16, rounded up or down at random, so that small steps add up.

    The chances are such that the mean over many rounds is exact. The same number is rounded the same way in the same
    round.

    >>> x = jnp.full((), 1 + 2.0**-10)  # a quarter of the way between two numbers
    >>> rounded = jax.vmap(lambda t: narrowed(x, jnp.bfloat16, t))(jnp.arange(4000)).astype(jnp.float32)
    >>> bool(abs(rounded.mean() - x) < 2**-13)
    True
    """
    if dtype != jnp.bfloat16 or x.dtype == jnp.bfloat16:
        return x.astype(dtype)
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    chance = _scrambled(bits ^ _scrambled(round.astype(jnp.uint32))) & 0xFFFF
    raised = jax.lax.bitcast_convert_type((bits + chance) & jnp.uint32(0xFFFF0000), jnp.float32)
    return raised.astype(jnp.bfloat16)


def _scrambled(x: jax.Array) -> jax.Array:
    """Bits that look random: Appleby 2011, the last mixing of MurmurHash3."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def fit(change: jax.Array, rest: jax.Array | None, p: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """A change in the dtype of its parameter, and what the parameter cannot hold of it, to be made up for later.

    Args:
        change: the change, of 32 bits or more.
        rest: what was left over before; None for parameters of 32 bits or more.
        p: the parameter.
    """
    if rest is None:
        return change.astype(p.dtype), None
    bits = jnp.finfo(p.dtype)

    def rounded(x: jax.Array) -> jax.Array:  # a plain cast there and back may be optimised away
        return jax.lax.reduce_precision(x, bits.nexp, bits.nmant)

    here = p.astype(jnp.float32)
    wanted = change + rest.astype(jnp.float32)
    moved = rounded(rounded(here + wanted) - here)
    reached = rounded(here + moved)
    return moved.astype(p.dtype), (wanted - (reached - here)).astype(p.dtype)
