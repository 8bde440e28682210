"""The paper's Algorithm 1 with one gradient a step: a learning rate with a guarantee on every interval.

Lu, Xia, Arora and Hazan 2022, "Adaptive Gradient Methods with Local Guarantees". A cover cuts time into blocks, and one
*slot* holds the running block of each level. Expert `(k, j)` starts where slot `k` began, at `c_k`, and takes the
base's steps `d_k` times its own rate:

    u_k = sum of d_k over the block,        x(k, j) = c_k - lr_j u_k,        x = sum p(k, j) x(k, j).

All experts are judged by the gradient at `x`, with the weights of `samuel.core.weights`:

    r(k, j) = <g, x - x(k, j)> = -<g, c_k - x> + lr_j <g, u_k>.

So two vectors for each slot are kept, `c_k - x` and `u_k`, whatever the number of rates. For convex losses the regret
on a running block is at most what `certificate` says. There is no projection: the largest distance between the
comparator and the points of the expert takes the place of the domain's diameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from samuel.core import certificate as core
from samuel.core import weights as mw
from samuel.core.arrays import ROUNDINGS
from samuel.core.cover import AllIntervals, Anytime, Cover
from samuel.core.options import candidate_rates, whole_number
from samuel.jax import bases

LONG = 2**31
"""Slots are made for this many rounds."""


class Algorithm1State(NamedTuple):
    """State of `algorithm1`. Trees and base states have an axis of the slots in front."""

    round: jax.Array
    weights: mw.Weights
    ledger: core.Ledger
    """Sums of which the certificate is made."""
    origin: Any
    """`c_k - x`: where each slot's block began, seen from the parameters."""
    sum: Any
    """`u_k`: sum of the base's steps since."""
    base: Any
    """The base's state: one for each slot, or one for all."""
    rate: jax.Array
    """Mean learning rate of the last step."""


class Certificate(NamedTuple):
    """How far the parameters were behind each expert in its running block, `(slots, rates)`; NaN where none runs.

    For convex losses an upper bound on the regret to the expert. For networks it is what one gradient a step can tell.
    """

    measured: jax.Array
    """`sum <g, x - x(k, j)>` over the block so far: negative where the parameters were ahead of the expert."""
    bound: jax.Array
    """At most how large that can be, by the weights' bound; no assumption is made."""


def algorithm1(
    base: str | optax.GradientTransformation = "adagrad",
    learning_rates: Sequence[float] = (0.001, 0.01, 0.1, 1.0),
    *,
    cover: Cover | None = None,
    Q: int = 10,
    shared: bool | None = None,
) -> optax.GradientTransformationExtraArgs:
    """The paper's Algorithm 1 as an optax optimizer: one gradient a step, regret bounded on every interval.

    For networks use `samuel.jax.samuel`, which needs two vectors in place of two for each slot.

    Args:
        base: what gives the directions, as `samuel` takes it.
        learning_rates: candidate learning rates.
        cover: which blocks run; by default `Anytime(shortest=32, levels=8)`.
        Q: number of step sizes of the weights.
        shared: whether all slots share the base's state, which saves memory. By default all bases but "adagrad" do:
            one that never forgets must begin anew with every block.

    >>> import jax.numpy as jnp
    >>> from samuel.core import Geometric
    >>> optimizer = algorithm1("sgd", (0.01, 0.1, 1.0), cover=Geometric(64, shortest=16))
    >>> params = jnp.array([3.0, -2.0])
    >>> state = optimizer.init(params)
    >>> for _ in range(40):
    ...     updates, state = optimizer.update(params, state, params)  # the gradient of |x|^2 / 2
    ...     params = params + updates
    >>> report = certificate(state)
    >>> bool(jnp.abs(params).max() < 0.1), bool((report.measured <= report.bound).all())
    (True, True)
    """
    direction = bases.resolve(base)
    cover = Anytime(shortest=32, levels=8) if cover is None else cover
    slots = _slots(cover)
    rates = jnp.asarray(candidate_rates(learning_rates))
    Q = whole_number("Q", Q, least=1)
    if shared not in (True, False, None):
        raise ValueError(f"shared must be True, False or None, got {shared!r}")
    shared = base != "adagrad" if shared is None else shared

    def priors(dtype: Any) -> jax.Array:
        return jnp.full((slots, len(rates)), 1 / len(rates), dtype)

    def init(params: optax.Params) -> Algorithm1State:
        params = jax.tree.map(jnp.asarray, params)
        _refuse_short(params)
        dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
        prior = priors(dtype)
        opens = jnp.asarray(cover.starts(jnp.zeros((), jnp.int32), slots))
        weights = mw.restart(mw.begin(prior[0], slots, Q), opens, prior)
        zeros = jax.tree.map(lambda p: jnp.where(False, p, 0) + jnp.zeros((slots, *[1] * p.ndim), p.dtype), params)
        state = direction.init(params)
        each = state if shared else jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * slots), state)
        rate = jnp.sum(mw.shares(weights) * rates.astype(dtype))
        started = Algorithm1State(
            jnp.zeros((), jnp.int32), weights, core.open_ledger(weights), zeros, zeros, each, rate
        )
        return jax.tree.map(jnp.copy, started)  # no buffer twice: it may be donated

    def update(
        updates: optax.Updates, state: Algorithm1State, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, Algorithm1State]:
        if params is None:
            raise ValueError("algorithm1 needs the parameters: call update(gradients, state, params)")
        dtype = state.rate.dtype
        lr, prior = rates.astype(dtype), priors(dtype)
        gains = _gains(updates, state, lr)
        judged_by = state.weights.bound
        weights, judged = mw.judge(state.weights, gains)
        ledger = core.enter(state.ledger, gains, gains * judged.used, judged_by)
        weights = mw.widen(weights, judged.largest, prior)
        rate = jnp.sum(mw.shares(weights) * lr)

        if shared:
            d, base_state = direction.update(updates, state.base, params, **extra)
            d = jax.tree.map(lambda leaf: leaf[None], d)
        else:
            d, base_state = jax.vmap(lambda own: direction.update(updates, own, params, **extra))(state.base)
        sums = jax.tree.map(lambda u, d: u + d.astype(u.dtype), state.sum, d)
        here = _mean(weights, lr, state.origin, sums)

        restarts = jnp.asarray(cover.starts(state.round + 1, slots))
        fresh = lambda new, old: jax.tree.map(lambda n, o: jnp.where(_beside(restarts, o), n, o), new, old)  # noqa: E731
        weights = mw.restart(weights, restarts, prior)
        ledger = core.reset(ledger, restarts, weights)
        origin = fresh(here, state.origin)
        sums = fresh(jax.tree.map(jnp.zeros_like, sums), sums)
        if not shared:
            base_state = fresh(direction.init(params), base_state)
        change = _mean(weights, lr, origin, sums)
        origin = jax.tree.map(jnp.subtract, origin, change)
        change = jax.tree.map(lambda c, p: c.astype(jnp.asarray(p).dtype), change, params)
        return change, Algorithm1State(state.round + 1, weights, ledger, origin, sums, base_state, rate)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def certificate(state: Algorithm1State) -> Certificate:
    """How far the parameters were behind each expert of the running blocks, and at most how far they can be."""
    bound = core.running_bound(state.ledger, mw.log_total(state.weights), state.weights.bound)
    runs = mw.alive(state.weights)
    return Certificate(*(jnp.where(runs, part, jnp.nan) for part in (state.ledger.gain, bound)))


def shares(state: Algorithm1State) -> jax.Array:
    """The weight of every expert, `(slots, rates)`, summing to 1."""
    return mw.shares(state.weights)


def _gains(gradient: Any, state: Algorithm1State, lr: jax.Array) -> jax.Array:
    """`<g, x - x(k, j)>`, `(slots, rates)`."""
    dtype = lr.dtype

    def products(vectors: Any) -> jax.Array:
        each = jax.tree.map(lambda g, v: jnp.sum(g * v, axis=range(1, v.ndim)).astype(dtype), gradient, vectors)
        return jax.tree.reduce(jnp.add, each)[:, None]

    of_origin, of_sum = products(state.origin), products(state.sum)
    points = of_origin - lr * of_sum
    terms = mw.shares(state.weights) * points
    gains = jnp.sum(terms) - points
    # Experts at one point differ by rounding, which the weights would magnify.
    size = jnp.max(jnp.where(mw.alive(state.weights), abs(of_origin), 0)) + jnp.sum(abs(terms))
    return jnp.where(abs(gains) > ROUNDINGS * jnp.finfo(dtype).eps * size, gains, 0)


def _mean(weights: mw.Weights, lr: jax.Array, origin: Any, sums: Any) -> Any:
    """The mean of the experts, in the frame of the origins."""
    p = mw.shares(weights)
    of_slots, mean_rates = jnp.sum(p, axis=-1), p @ lr

    def mean(c: jax.Array, u: jax.Array) -> jax.Array:
        return jnp.sum(_beside(of_slots, c).astype(c.dtype) * c - _beside(mean_rates, u).astype(u.dtype) * u, axis=0)

    return jax.tree.map(mean, origin, sums)


def _beside(of_slots: jax.Array, leaf: jax.Array) -> jax.Array:
    """Numbers of the slots, to be broadcast against a leaf with their axis in front."""
    return of_slots.reshape(-1, *[1] * (leaf.ndim - 1))


def _slots(cover: Cover) -> int:
    if not isinstance(cover, Cover) or isinstance(cover, AllIntervals):
        raise ValueError(f"cover must be one of Anytime, Geometric, Fixed or Chosen from samuel.core, got {cover!r}")
    if isinstance(cover, Anytime) and cover.levels is None:
        raise ValueError(
            f"every level costs two copies of the parameters, and {cover!r} has no last one: say how many, as in "
            f"Anytime(shortest={cover.shortest}, levels=8)"
        )
    return cover.slots(LONG)


def _refuse_short(params: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating) or jnp.finfo(leaf.dtype).bits < 32:
            raise TypeError(
                f"algorithm1 needs parameters of float32 or float64, got {leaf.dtype} at "
                f"params{jax.tree_util.keystr(path)}"
            )
