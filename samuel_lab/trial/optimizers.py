"""Optimizers by name: bases, which need a learning rate, and peers, learning-rate-free methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from samuel.core.options import one_of
from samuel.jax import scale_by_muon

Tree = Any
WEIGHT_DECAY = 0.3
"""Decoupled weight decay of AdamW and MuonW: results/research.md has what others give."""


@dataclass(frozen=True)
class Base:
    """An optimizer with unit learning rate; its step is `params - rate * direction`."""

    name: str
    label: str
    """Its name in tables and figures."""
    make: Callable[[], optax.GradientTransformation]
    """Makes the transformation from gradients to directions."""
    about: str
    """What it does, in one sentence."""
    reference: str
    """Where it was published."""
    rate: float
    """The default learning rate."""
    detail: str = ""
    """Appended to the label in descriptions of methods."""


class WNGradState(NamedTuple):
    """State of `scale_by_wngrad`."""

    scale: jax.Array
    """Divisor of the gradients."""


def scale_by_wngrad(initial: float = 1.0) -> optax.GradientTransformation:
    """Divide gradients by one number, which grows by their squared norm over itself.

        b <- b + |g|^2 / b,        direction = g / b

    Wu, Ward and Bottou 2018, "WNGrad: learn the learning rate in gradient descent". The norm is over all parameters.

    Args:
        initial: initial value of `b`.

    >>> base = scale_by_wngrad()
    >>> direction, state = base.update(jnp.array([3.0, 4.0]), base.init(jnp.zeros(2)))
    >>> float(state.scale)
    26.0
    """
    if not initial > 0:
        raise ValueError(f"initial must be a positive number, got {initial!r}")

    def init(params: Tree) -> WNGradState:
        del params
        return WNGradState(jnp.asarray(initial, jnp.float32))

    def update(updates: Tree, state: WNGradState, params: Tree = None) -> tuple[Tree, WNGradState]:
        del params
        squares = optax.tree.norm(updates, squared=True)
        scale = state.scale + squares.astype(jnp.float32) / state.scale
        return jax.tree.map(lambda g: (g / scale).astype(g.dtype), updates), WNGradState(scale)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def matrices(params: Tree) -> Tree:
    """Mask for decoupled weight decay: matrices and kernels, not biases and the scales of norms."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)


def _adamw() -> optax.GradientTransformation:
    return optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(WEIGHT_DECAY, mask=matrices))


def _muonw() -> optax.GradientTransformation:
    return optax.chain(scale_by_muon(), optax.add_decayed_weights(WEIGHT_DECAY, mask=matrices))


def _adafactor() -> optax.GradientTransformation:
    return optax.chain(optax.adafactor(learning_rate=None), optax.scale(-1.0))


_BASES = (
    Base(
        "sgd",
        "SGD",
        optax.identity,
        "Stochastic gradient descent: the gradient itself.",
        "Robbins and Monro 1951",
        rate=0.15,
    ),
    Base(
        "momentum",
        "SGD with momentum",
        lambda: optax.trace(decay=0.9),
        "An exponentially decaying sum of gradients, with momentum 0.9.",
        "Polyak 1964",
        rate=0.05,
    ),
    Base(
        "nesterov",
        "SGD with Nesterov momentum",
        lambda: optax.trace(decay=0.9, nesterov=True),
        "Nesterov's accelerated gradient with momentum 0.9.",
        "Nesterov 1983; Sutskever et al. 2013",
        rate=0.05,
    ),
    Base(
        "adagrad",
        "AdaGrad",
        lambda: optax.scale_by_rss(initial_accumulator_value=0.1, eps=1e-7),
        "Each gradient over the root of the sum of squared gradients, which begins at 0.1 as in optax.",
        "Duchi, Hazan and Singer 2011",
        rate=0.2,
    ),
    Base(
        "adam",
        "Adam",
        optax.scale_by_adam,
        "A running mean of gradients over the root of a running mean of their squares.",
        "Kingma and Ba 2015",
        rate=0.001,
    ),
    Base(
        "adamw",
        "AdamW",
        _adamw,
        f"Adam with decoupled weight decay {WEIGHT_DECAY:g} for matrices.",
        "Loshchilov and Hutter 2019",
        rate=0.001,
        detail=f", weight decay {WEIGHT_DECAY:g}",
    ),
    Base(
        "rmsprop",
        "RMSprop",
        optax.scale_by_rms,
        "Each gradient over the root of a running mean of its squares (decay 0.9).",
        "Tieleman and Hinton 2012",
        rate=0.001,
    ),
    Base(
        "adadelta",
        "Adadelta",
        optax.scale_by_adadelta,
        "RMSprop with steps in the units of the parameters, from a running mean of squared steps; default rate 1.",
        "Zeiler 2012",
        rate=1.0,
    ),
    Base(
        "adafactor",
        "Adafactor",
        _adafactor,
        "RMSprop with row and column means for large matrices, and steps in proportion to the size of each parameter.",
        "Shazeer and Stern 2018",
        rate=0.02,
    ),
    Base(
        "wngrad",
        "WNGrad",
        scale_by_wngrad,
        "The gradient over a scalar `b` that grows by `|g|^2 / b`.",
        "Wu, Ward and Bottou 2018",
        rate=1.0,
    ),
    Base(
        "muon",
        "Muon",
        scale_by_muon,
        "Orthogonalised momentum for matrices, scaled to suit Adam's learning rates; Adam for vectors and embeddings.",
        "Jordan 2024; Liu et al. 2025",
        rate=0.005,
    ),
    Base(
        "muonw",
        "MuonW",
        _muonw,
        f"Muon with decoupled weight decay {WEIGHT_DECAY:g} for matrices.",
        "Jordan 2024; Liu et al. 2025",
        rate=0.005,
        detail=f", weight decay {WEIGHT_DECAY:g}",
    ),
)
BASES: dict[str, Base] = {one.name: one for one in _BASES}
"""The bases by name."""


def base(name: str, weight_decay: float = 0.0) -> optax.GradientTransformationExtraArgs:
    """The directions of a base, by name.

    Args:
        name: one of `BASES`.
        weight_decay: factor of the parameters that is added to their gradients (L2 regularisation).

    >>> plain = base("sgd", weight_decay=0.1)
    >>> params = jnp.array([10.0, 0.0])
    >>> direction, _ = plain.update(jnp.array([0.0, 5.0]), plain.init(params), params)
    >>> direction.tolist()
    [1.0, 5.0]
    """
    one_of("base", name, tuple(BASES))
    if not 0 <= weight_decay < float("inf"):
        raise ValueError(f"weight_decay must be at least 0, got {weight_decay!r}")
    made = BASES[name].make()
    return optax.with_extra_args_support(
        optax.chain(optax.add_decayed_weights(weight_decay), made) if weight_decay else made
    )


@dataclass(frozen=True)
class Peer:
    """A learning-rate-free optimizer at its defaults."""

    name: str
    label: str
    """Its name in tables and figures."""
    about: str
    """What it does, and its defaults."""
    reference: str
    """Where it was published."""
    make: Callable[[], optax.GradientTransformationExtraArgs]
    """Makes the optimizer; its updates are complete steps."""
    rate: Callable[[Any], jax.Array] | None = None
    """Reads the learning rate in use from the state, NaN before it is known; None for a method without one."""
    evaluate: Callable[[Any, Tree], Tree] = lambda state, params: params
    """The parameters to evaluate, from the state and the trained parameters."""
    renews: bool = False
    """Whether batch statistics must be recomputed for the parameters to evaluate."""
    needs_value: bool = False
    """Whether `update` needs the loss, `value=loss`."""


def _from(make: Callable[[], Any]) -> Callable[[], optax.GradientTransformationExtraArgs]:
    """A peer whose initial state shares no memory with the parameters, so that both can be donated."""

    def made() -> optax.GradientTransformationExtraArgs:
        inner = optax.with_extra_args_support(make())
        return inner._replace(init=lambda params: jax.tree.map(jnp.copy, inner.init(params)))

    return made


class MeasuredState(NamedTuple):
    """State of an optimizer that does not report its step size, and the step size."""

    inner: Any
    rate: jax.Array


def _measured(inner: optax.GradientTransformationExtraArgs, heading: Callable[[Any], Tree]) -> Any:
    """Measure the step size of an optimizer that steps along a direction known from its state."""

    def init(params: Tree) -> MeasuredState:
        return MeasuredState(inner.init(params), jnp.full((), jnp.nan, jnp.float32))

    def update(updates: Tree, state: MeasuredState, params: Tree = None, **extra: Any) -> tuple[Tree, MeasuredState]:
        steps, after = inner.update(updates, state.inner, params, **extra)
        along = heading(after)
        square = optax.tree.norm(along, squared=True)
        rate = jnp.negative(optax.tree.vdot(steps, along)) / jnp.where(square > 0, square, 1.0)
        return steps, MeasuredState(after, rate.astype(jnp.float32))

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


def _momo_adam_heading(state: Any) -> Tree:
    """Adam's direction, which makes the rate comparable with Adam's."""
    mean = optax.tree.bias_correction(state.exp_avg, 0.9, state.count)
    square = optax.tree.bias_correction(state.exp_avg_sq, 0.999, state.count)
    return jax.tree.map(lambda m, v: m / (1e-8 + jnp.sqrt(v)), mean, square)


def _dog_rate(state: Any) -> jax.Array:
    dog = state[1]
    return jnp.where(dog.is_init_step, jnp.nan, dog.max_dist / jnp.sqrt(dog.sum_sq_norm_grads + 1e-8))


def _dowg_rate(state: Any) -> jax.Array:
    dowg = state[1]
    started = dowg.weighted_sq_norm_grads > 0
    return jnp.where(started, dowg.estim_sq_dist / (jnp.sqrt(dowg.weighted_sq_norm_grads) + 1e-4), jnp.nan)


_PEERS = (
    Peer(
        "schedule-free",
        "Schedule-Free AdamW",
        "AdamW that averages its iterates instead of lowering the rate; optax's default rate of 0.0025, no warm-up. "
        "Batch statistics are those of the average.",
        "Defazio et al. 2024, The Road Less Scheduled",
        _from(optax.contrib.schedule_free_adamw),
        rate=lambda state: jnp.where(state.max_lr > 0, state.max_lr, jnp.nan),
        evaluate=optax.contrib.schedule_free_eval_params,
        renews=True,  # as the authors recommend for networks with batch norm
    ),
    Peer(
        "prodigy",
        "Prodigy",
        "Adam whose rate is an estimate of the distance to the solution; constant schedule of 1.",
        "Mishchenko and Defazio 2023",
        _from(optax.contrib.prodigy),
        rate=lambda state: state.estim_lr,
    ),
    Peer(
        "dadapt-adamw",
        "D-Adapt AdamW",
        "Adam whose rate is a lower bound on the distance to the solution; constant schedule of 1.",
        "Defazio and Mishchenko 2023",
        _from(optax.contrib.dadapt_adamw),
        rate=lambda state: state.estim_lr,
    ),
    Peer(
        "dog",
        "DoG",
        "Gradient descent at the distance travelled over the root of the sum of squared gradients; first distance "
        "1e-6 (1 + |x|), optax's default, and no averaging of iterates.",
        "Ivgi, Hinder and Carmon 2023",
        _from(optax.contrib.dog),
        rate=_dog_rate,
    ),
    Peer(
        "dowg",
        "DoWG",
        "DoG with gradients weighted by the distance at their time.",
        "Khaled, Mishchenko and Jin 2023",
        _from(optax.contrib.dowg),
        rate=_dowg_rate,
    ),
    Peer(
        "mechanic",
        "Mechanic",
        "Adam at a rate of 1 whose steps are scaled by a betting strategy, as its authors recommend.",
        "Cutkosky, Defazio and Mehta 2023",
        _from(lambda: optax.contrib.mechanize(optax.adam(1.0))),
        rate=lambda state: state.s.sum(),
    ),
    Peer(
        "cocob",
        "COCOB",
        "Coin betting, one bet for each parameter; it has no learning rate.",
        "Orabona and Tommasi 2017",
        _from(optax.contrib.cocob),
    ),
    Peer(
        "momo",
        "MoMo",
        "SGD with momentum 0.9 and steps that would bring a model of the loss to 0, at most 1 (optax's default).",
        "Schaipp et al. 2023",
        _from(lambda: _measured(optax.contrib.momo(), lambda state: state.exp_avg)),
        rate=lambda state: state.rate,
        needs_value=True,
    ),
    Peer(
        "momo-adam",
        "MoMo-Adam",
        "Adam with steps that would bring a model of the loss to 0, at most 0.01 (optax's default).",
        "Schaipp et al. 2023",
        _from(lambda: _measured(optax.contrib.momo_adam(), _momo_adam_heading)),
        rate=lambda state: state.rate,
        needs_value=True,
    ),
)
PEERS: dict[str, Peer] = {one.name: one for one in _PEERS}
"""The learning-rate-free methods by name."""


def peer(name: str) -> Peer:
    """A learning-rate-free method by name.

    >>> found = peer("prodigy")
    >>> optimizer = found.make()
    >>> round(float(found.rate(optimizer.init(jnp.zeros(3)))), 9)
    1e-06
    """
    one_of("peer", name, tuple(PEERS))
    return PEERS[name]
