"""Feedback: what a round reveals, and the gains that follow from it.

| kind | a round costs | gain of expert e | what is guaranteed, with `average` |
|---|---|---|---|
| `Linear` | one gradient at the decision | `<g, x - x(e)>` | regret against any fixed point |
| `Loss` | that, and every expert's loss | `l(x) - l(x(e))` | regret against the experts |
| `Full` | every expert's loss and gradient | `l(x) - l(x(e))` | regret against any fixed point |

`Linear` loses nothing: for convex losses `l(x) - l(u) <= <g, x - u>`, which is all that the proof uses.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from samuel.core.arrays import ROUNDINGS, Array, inner, namespace


class Linear(NamedTuple):
    """One gradient at the decision: the cheapest feedback, sufficient for the theorem.

    >>> import numpy as np
    >>> feedback = Linear(gradient=np.array([1.0, 2.0]))
    >>> feedback.gains(np.array([1.0, 1.0]), np.array([[[0.0, 0.0], [1.0, 2.0]]]))
    array([[ 3., -2.]])
    """

    gradient: Array
    """Gradient of the loss at the decision, shape `(..., d)`."""

    def gains(self, decision: Array, points: Array) -> Array:
        """`<g, x - x(e)>` for the points `x(e)` of shape `(..., slots, experts, d)`."""
        ours = namespace(self.gradient).vecdot(self.gradient, decision)
        return ours[..., None, None] - inner(points, self.gradient)

    def rounding(self, decision: Array) -> Array:
        """Gains up to this size may be rounding errors."""
        sizes = abs(self.gradient * decision)
        return ROUNDINGS * namespace(sizes).finfo(sizes.dtype).eps * sizes.sum(-1)

    @property
    def expert_gradients(self) -> Array:
        """The gradient each expert learns from, shape `(..., 1, 1, d)`: the same for all."""
        return self.gradient[..., None, None, :]


class Loss(NamedTuple):
    """One gradient at the decision, and the loss of every expert (a forward pass each)."""

    loss: Array
    """Loss of the decision, shape `(...)`."""
    losses: Array
    """Loss of every expert, shape `(..., slots, experts)`."""
    gradient: Array
    """Gradient of the loss at the decision, shape `(..., d)`."""

    def gains(self, decision: Array, points: Array) -> Array:
        """`l(x) - l(x(e))`."""
        return self.loss[..., None, None] - self.losses

    def rounding(self, decision: Array) -> Array:
        """Gains up to this size may be rounding errors."""
        return _rounding_of(self.loss)

    @property
    def expert_gradients(self) -> Array:
        """The gradient each expert learns from, shape `(..., 1, 1, d)`: the one at the decision."""
        return self.gradient[..., None, None, :]


class Full(NamedTuple):
    """Every expert's own loss and gradient, as in the paper's experiments: a full step per expert."""

    loss: Array
    """Loss of the decision, shape `(...)`."""
    losses: Array
    """Loss of every expert, shape `(..., slots, experts)`."""
    gradients: Array
    """Gradient of the loss at every expert's point, shape `(..., slots, experts, d)`."""

    def gains(self, decision: Array, points: Array) -> Array:
        """`l(x) - l(x(e))`."""
        return self.loss[..., None, None] - self.losses

    def rounding(self, decision: Array) -> Array:
        """Gains up to this size may be rounding errors."""
        return _rounding_of(self.loss)

    @property
    def expert_gradients(self) -> Array:
        """The gradient each expert learns from: its own."""
        return self.gradients


def reference_loss(loss: Array, losses: Array, p: Array, sampled: bool) -> Array:
    """The loss that experts' losses are compared with, under `Loss` and `Full` feedback.

    For a sampled decision the mean loss under `p`, over the experts with a finite loss, so that an expert without one
    loses its own weight only. The same mean replaces the loss of a decision that is not finite.

    Args:
        loss: of the decision, shape `(...)`.
        losses: of every expert, shape `(..., slots, experts)`.
        p: the weights of the experts in the decision.
        sampled: whether the decision was drawn by `p`.

    >>> import numpy as np
    >>> p, losses = np.array([[0.5, 0.25, 0.25]]), np.array([[1.0, 2.5, np.inf]])
    >>> [float(reference_loss(np.array(3.0), losses, p, sampled)) for sampled in (True, False)]
    [1.5, 3.0]
    """
    xp = namespace(losses)
    finite = xp.isfinite(losses) & (p > 0)
    mass = xp.sum(xp.where(finite, p, 0.0), axis=(-2, -1))
    mean = xp.sum(xp.where(finite, p * losses, 0.0), axis=(-2, -1)) / xp.where(mass > 0, mass, 1.0)
    return mean if sampled else xp.where(xp.isfinite(loss), loss, mean)


def _rounding_of(loss: Array) -> Array:
    return ROUNDINGS * namespace(loss).finfo(loss.dtype).eps * abs(loss)


Feedback: TypeAlias = Linear | Loss | Full
"""Any kind of feedback."""
