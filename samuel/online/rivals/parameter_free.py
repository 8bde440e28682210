"""The parameter-free strongly adaptive learner: corrections on many levels instead of experts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from samuel.core import Anytime, Feedback, combine
from samuel.core.arrays import Array, at_least, at_most, is_traced, namespace
from samuel.core.options import one_of, whole_number
from samuel.online import ensemble
from samuel.online.bases.scale_free import ScaleFreeOGD
from samuel.online.domains import Ball, Domain
from samuel.online.learner import Info, Learner, Pace, Rule, check_options, check_place

NEWTON = 2 / (2 - math.log(3))
"""Step of the online Newton method for the staked fraction of wealth."""


class Bettor(NamedTuple):
    """Coin bettors: the number they choose is their stake, a fraction of their wealth. Shapes `(..., levels)`."""

    log_wealth: Array
    part: Array
    """The staked fraction of wealth, in [-1/2, 1/2]."""
    curvature: Array

    @classmethod
    def fresh(cls, like: Array) -> Bettor:
        """Bettors with a wealth of 1 and no stake."""
        zero = namespace(like).zeros_like(like)
        return cls(zero, zero, zero + 1)

    @property
    def stake(self) -> Array:
        """The stakes."""
        return self.part * namespace(self.part).exp(self.log_wealth)

    def updated(self, gradient: Array, low: float, high: float) -> Bettor:
        """The bettors after a round with a gradient in [-1, 1] at the number clipped to `low..high`."""
        xp = namespace(gradient)
        stake = self.stake
        # Beyond the ends only a gradient that points back counts.
        outwards = ((stake < low) & (gradient > 0)) | ((stake > high) & (gradient < 0))
        gradient = xp.where(outwards, 0.0, gradient)
        slope = gradient / (1 - gradient * self.part)
        curvature = self.curvature + slope * slope
        part = at_most(at_least(self.part - NEWTON * slope / curvature, -0.5), 0.5)
        return Bettor(self.log_wealth + xp.log1p(-gradient * self.part), part, curvature)


class ParameterFreeState(NamedTuple):
    """Every level's direction, length and share, and the resulting points."""

    round: Array | int
    decision: Array
    anchor: Array
    """The anchor of the topmost level, `(..., d)`."""
    loose: Array
    """Every level's point before projection, `(..., levels, d)`."""
    held: Array
    """The same points, in the domain; the decision is the first."""
    direction: Array
    """A point of the unit ball for each level, `(..., levels, d)`."""
    squares: Array
    """Sum of the squared norms of the gradients that moved it, `(..., levels, 1)`."""
    length: Bettor
    share: Bettor
    bound: Array
    """The longest gradient so far, `(...)`."""
    share_bound: Array
    """The largest gradient of a share so far, `(...)`."""


@dataclass(frozen=True, kw_only=True)
class ParameterFreeRule(Rule):
    """The construction as pure functions; `ParameterFree` explains it."""

    cover: Anytime
    newborns: str
    feedback: ClassVar[str] = "linear"

    def start(self, zero: Array, rounds: int) -> ParameterFreeState:
        xp = namespace(zero)
        center = zero + xp.asarray(self.domain.center_point(self.dim), dtype=zero.dtype)
        nothing = xp.zeros((*zero.shape[:-1], self.cover.slots(rounds), self.dim), dtype=zero.dtype)
        like, scale = nothing[..., 0], zero[..., 0]
        points = nothing + center[..., None, :]
        return ParameterFreeState(
            0, center, center, points, points, nothing, nothing[..., :1], Bettor.fresh(like), Bettor.fresh(like),
            scale, scale,
        )  # fmt: skip

    def grow(self, state: ParameterFreeState, rounds: int) -> ParameterFreeState:
        levels, have = self.cover.slots(rounds), state.direction.shape[-2]
        if levels <= have:
            return state
        xp = namespace(state.decision)
        nothing = xp.zeros((*state.direction.shape[:-2], levels - have, self.dim), dtype=state.direction.dtype)
        points = nothing + state.anchor[..., None, :]
        fresh = Bettor.fresh(nothing[..., 0])

        def longer(old: Array, new: Array) -> Array:
            return xp.concat([old, new], axis=-2)

        def joined(old: Bettor) -> Bettor:
            return Bettor(*(xp.concat(pair, axis=-1) for pair in zip(old, fresh, strict=True)))

        return state._replace(
            loose=longer(state.loose, points),
            held=longer(state.held, points),
            direction=longer(state.direction, nothing),
            squares=longer(state.squares, nothing[..., :1]),
            length=joined(state.length),
            share=joined(state.share),
        )

    def advance(
        self, state: ParameterFreeState, feedback: Feedback, chance: Array | None, record: bool, pace: Pace = "careful"
    ) -> tuple[ParameterFreeState, Info]:
        xp = namespace(state.decision)
        gradient = feedback.expert_gradients[..., 0, 0, :]
        bound = xp.maximum(state.bound, _length(gradient))
        passed = self._pass_up(state, gradient / xp.where(bound > 0, bound, 1.0)[..., None])
        slope = xp.sum(passed * state.direction, axis=-1)
        above = xp.concat([state.held[..., 1:, :], state.anchor[..., None, :]], axis=-2) - state.anchor[..., None, :]
        pull = -xp.sum(passed * above, axis=-1)
        share_bound = xp.maximum(state.share_bound, xp.max(xp.abs(pull), axis=-1))
        pull = pull / xp.where(share_bound > 0, share_bound, 1.0)[..., None]
        ball = ScaleFreeOGD().step(state.direction, (state.squares,), passed, math.sqrt(2), Ball(1.0))
        after = state._replace(
            round=state.round + 1,
            direction=ball.points,
            squares=ball.memory[0],
            length=state.length.updated(slope, 0.0, self._longest / self._unit),
            share=state.share.updated(pull, 0.0, 1.0),
            bound=bound,
            share_bound=share_bound,
        )
        starts = xp.asarray(self.cover.starts(after.round, state.direction.shape[-2]))
        if is_traced(after.round) or bool(starts.any()):
            after = self._restarted(after, starts)
        after = self._decided(after)
        return after, {"healthy": xp.all(combine.usable(after.decision), axis=-1)}

    def _pass_up(self, state: ParameterFreeState, gradient: Array) -> Array:
        """The gradient of each level: parts that point out of the domain are not passed up."""
        xp = namespace(gradient)
        away = state.loose - state.held
        squared = xp.sum(away * away, axis=-1)
        passed = []
        for level in range(state.loose.shape[-2]):
            normal, size = away[..., level, :], squared[..., level]
            along = xp.sum(gradient * normal, axis=-1)
            outwards = (along < 0) & (size > 0)
            factor = xp.where(outwards, along / xp.where(size > 0, size, 1.0), 0.0)
            gradient = gradient - factor[..., None] * normal
            passed.append(gradient)
        return xp.stack(passed, axis=-2)

    def _restarted(self, state: ParameterFreeState, starts: Array) -> ParameterFreeState:
        xp = namespace(state.decision)
        levels = state.direction.shape[-2]
        fresh = Bettor.fresh(state.length.part)

        def renewed(old: Bettor) -> Bettor:
            return Bettor(*(xp.where(starts, new, was) for new, was in zip(fresh, old, strict=True)))

        anchor = state.anchor
        if self.newborns == "warm":
            # When the topmost running level starts, all levels start.
            running = xp.asarray(self.cover.running(state.round, levels))
            anew = xp.all(starts == running)
            anchor = xp.where(anew, state.decision, anchor)
        return state._replace(
            anchor=anchor,
            direction=xp.where(starts[:, None], 0.0, state.direction),
            squares=xp.where(starts[:, None], 0.0, state.squares),
            length=renewed(state.length),
            share=renewed(state.share),
        )

    def _decided(self, state: ParameterFreeState) -> ParameterFreeState:
        """From the topmost level down: a part of the way back to the anchor, and the level's own step."""
        xp = namespace(state.decision)
        levels = state.direction.shape[-2]
        running = xp.asarray(self.cover.running(state.round, levels))
        stake = self._unit * state.length.stake
        length = xp.where(running, at_most(at_least(stake, 0.0), self._longest), 0.0)
        share = xp.where(running, at_most(at_least(state.share.stake, 0.0), 1.0), 0.0)
        own = length[..., None] * state.direction
        point, loose, held = state.anchor, [], []
        for level in reversed(range(levels)):
            target = state.anchor + (1 - share[..., level, None]) * (point - state.anchor) + own[..., level, :]
            point = self.domain.project(target)
            loose.append(target)
            held.append(point)
        return state._replace(
            decision=self.domain.tidy(point), loose=xp.stack(loose[::-1], axis=-2), held=xp.stack(held[::-1], axis=-2)
        )

    @property
    def _unit(self) -> float:
        """Unit of a bettor's wealth: half of the domain, or 1."""
        return self.domain.diameter(self.dim) / 2 if self.domain.bounded else 1.0

    @property
    def _longest(self) -> float:
        """Maximum length of a level's own step."""
        return self.domain.diameter(self.dim) if self.domain.bounded else 1e15


def _length(gradient: Array) -> Array:
    """The Euclidean norm without overflow or underflow."""
    xp = namespace(gradient)
    largest = xp.max(xp.abs(gradient), axis=-1)
    scaled = gradient / xp.where(largest > 0, largest, 1.0)[..., None]
    return largest * xp.sqrt(xp.sum(scaled * scaled, axis=-1))


class ParameterFree(Learner):
    """A parameter-free strongly adaptive learner: no rates, no experts, one gradient a round.

    On level `k`, whose blocks are `2^k` times the shortest one, a bettor chooses a length and descent on the unit
    ball a direction (together `w^k`), and another bettor a share `z^k` from [0, 1]. With the topmost level's
    `x^(k+1)` the anchor `c`, from the top down

        x^k = Proj(c + (1 - z^k) (x^(k+1) - c) + w^k),   and x^0 is the decision.

    A level passes the gradient on to the one above it, without the part that pushes out of the domain. When a block
    starts, its level is reset. The staked fractions follow an online Newton step (Cutkosky and Orabona 2018).

    Regret on any interval: `O~(|u - c| sqrt(sum |g|^2))` over the gradients of that interval (Cutkosky 2020; the
    chain of levels as in Zhang, Cutkosky and Paschalidis 2022). Gradients and pulls on the shares are measured in
    units of the largest so far. Bets compound, so rounding errors grow: after some hundred rounds decisions depend on
    the last digit of the gradients, and with late feedback they can diverge.

    Args:
        dim: dimension of the decisions.
        domain: where they must lie; all of space by default.
        shortest: rounds in the shortest block.
        newborns: "warm" (when all levels restart, from the decision) or "cold" (from the domain's centre).
        options: `streams`, `seed`, `dtype`, `record`, as for every `Learner`.

    >>> from samuel.online import ParameterFree, Ball
    >>> learner = ParameterFree(dim=2, domain=Ball(1.0))
    >>> for _ in range(100):
    ...     learner.update(2 * (learner.predict() - [0.3, 0.4]))
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    assumptions: tuple[str, ...] = ("gradients are no longer than 1: they are divided by the longest one so far",)
    """Conditions of the theory that were not given, and what is done instead."""

    def __init__(
        self,
        dim: int,
        domain: Domain | None = None,
        *,
        shortest: int = 8,
        newborns: Literal["warm", "cold"] = "warm",
        **options: Any,
    ) -> None:
        dim, domain = check_place(dim, domain)
        one_of("newborns", newborns, ensemble.NEWBORNS)
        cover = Anytime(whole_number("shortest", shortest, least=1))
        rule = ParameterFreeRule(dim=dim, domain=domain, cover=cover, newborns=newborns)
        super().__init__(rule, **check_options(options))
