"""Base optimizers by name, which give SAMUEL its directions at a learning rate of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from samuel.core.arrays import is_traced
from samuel.jax.muon import scale_by_muon


class DiscountedRssState(NamedTuple):
    """State of `scale_by_discounted_rss`."""

    sum_of_squares: Any


def scale_by_discounted_rss(
    alpha: float | jax.Array = 1.0, epsilon: float | jax.Array = 0.0
) -> optax.GradientTransformation:
    """Divide gradients by the root of their squares' discounted sum: Adagrad that forgets.

        s <- alpha s + g^2,        direction = g / sqrt(epsilon + s)        (0 where the root is 0)

    With `alpha = 1` this is Adagrad; with `epsilon = 0.1` as well, optax's `scale_by_rss` (whose sum begins at 0.1) but
    for its own epsilon of 1e-7. The first direction without an epsilon is the gradient's sign. Without one, multiplying
    all losses by a constant changes no direction, as long as single precision can hold the squares of gradients (of
    sizes from about 1e-19 to 1e19). The paper's Algorithm 2 runs it with several `alpha` at once ("history decays").

    Args:
        alpha: what the past is multiplied with in every step, above 0 and up to 1.
        epsilon: what is added to the sum inside the root, at least 0; it does not fade.

    >>> import jax.numpy as jnp
    >>> base = scale_by_discounted_rss(0.5)
    >>> state = base.init(jnp.zeros(2))
    >>> direction, state = base.update(jnp.array([3.0, 0.0]), state)
    >>> direction.tolist()
    [1.0, 0.0]
    >>> direction, _ = scale_by_discounted_rss(epsilon=16.0).update(jnp.array([3.0, 0.0]), base.init(jnp.zeros(2)))
    >>> round(direction[0].item(), 4)  # 3 / sqrt(16 + 9)
    0.6
    """
    if not is_traced(alpha) and not 0 < float(alpha) <= 1:
        raise ValueError(f"alpha must be above 0 and at most 1, got {alpha!r}")
    if not is_traced(epsilon) and not 0 <= float(epsilon) < float("inf"):
        raise ValueError(f"epsilon must be at least 0 and finite, got {epsilon!r}")

    def init(params: optax.Params) -> DiscountedRssState:
        return DiscountedRssState(jax.tree.map(jnp.zeros_like, params))

    def update(updates: optax.Updates, state: DiscountedRssState, params: Any = None) -> Any:
        del params
        sums = jax.tree.map(lambda s, g: (alpha * s + g * g).astype(s.dtype), state.sum_of_squares, updates)

        def direction(g: jax.Array, s: jax.Array) -> jax.Array:
            raised = s + epsilon
            return jnp.where(raised > 0, g * jax.lax.rsqrt(jnp.where(raised > 0, raised, 1.0)), 0.0).astype(g.dtype)

        return jax.tree.map(direction, updates, sums), DiscountedRssState(sums)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


BASES: dict[str, Callable[[], optax.GradientTransformation]] = {
    "adam": optax.scale_by_adam,
    "adagrad": scale_by_discounted_rss,
    "momentum": lambda: optax.trace(decay=0.9),
    "sgd": optax.identity,
    "muon": scale_by_muon,
}
"""The bases with a name; `samuel.core.rate_search` says which learning rates go with each."""


def resolve(base: Any, roles: Any = None) -> optax.GradientTransformationExtraArgs:
    """The optax transformation that a base stands for: a name, or any transformation that gives directions.

    >>> resolve("adam").init({"w": 0.0})[0].tolist()
    0
    """
    if isinstance(base, str):
        if base not in BASES:
            raise ValueError(
                f"base must be one of {', '.join(map(repr, BASES))} or an optax transformation, got {base!r}"
            )
        return optax.with_extra_args_support(scale_by_muon(roles) if base == "muon" else BASES[base]())
    if not (callable(getattr(base, "init", None)) and callable(getattr(base, "update", None))):
        raise ValueError(
            f"base must be one of {', '.join(map(repr, BASES))} or an optax transformation such as "
            f"optax.scale_by_adam(), got {base!r}"
        )
    _refuse_descent(base)
    return optax.with_extra_args_support(base)


def _refuse_descent(base: optax.GradientTransformation) -> None:
    """An error for a complete optimizer such as `optax.adam(1.0)`, whose steps go downhill already.

    Found out by a trial step from a gradient of ones; a base that cannot be tried (it wants certain parameters, or
    its own numbers are not known yet because this is being compiled) is taken on trust.
    """
    try:
        with jax.ensure_compile_time_eval():
            ones = {"w": jnp.ones(3)}
            direction, _ = optax.with_extra_args_support(base).update(ones, base.init(ones), ones)
            downhill = all(bool(np.all(np.asarray(leaf) < 0)) for leaf in jax.tree.leaves(direction))
    except Exception:
        return
    if downhill:
        raise ValueError(
            "base steps downhill by itself, so it is a complete optimizer such as optax.adam(1.0); "
            "give the part before its learning rate, such as optax.scale_by_adam() or 'adam'"
        )
