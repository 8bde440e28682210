"""A single base learner with the interface of SAMUEL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from samuel.core import Chosen, Cover, Feedback
from samuel.core.arrays import Array, namespace
from samuel.online.bases.base import Base, Group
from samuel.online.bases.optimistic import OptimisticOGD
from samuel.online.domains import Domain
from samuel.online.learner import Info, Learner, Pace, Rule, check_options, check_place


class SingleState(NamedTuple):
    """Point and memory of the learner."""

    round: Array | int
    decision: Array
    memory: tuple[Array, ...]


@dataclass(frozen=True)
class SingleRule(Rule):
    """A base learner from round 0 on, never restarted."""

    base: Base

    @property
    def cover(self) -> Cover:
        """One block that never ends."""
        return Chosen()

    @property
    def groups(self) -> tuple[Group, ...]:
        """The base learner is its own only expert."""
        return (Group(self.base, 0, (self.base.learning_rate,)),)

    def start(self, zero: Array, rounds: int) -> SingleState:
        xp = namespace(zero)
        decision = zero + xp.asarray(self.domain.center_point(self.dim), dtype=zero.dtype)
        return SingleState(0, decision, self.base.init(zero))

    def advance(
        self,
        state: SingleState,
        feedback: Feedback,
        chance: Array | None,
        record: bool,
        pace: Pace = "careful",
    ) -> tuple[SingleState, Info]:
        gradient = feedback.expert_gradients[..., 0, 0, :]
        points, memory, error = self.base.step(
            state.decision, state.memory, gradient, self.base.learning_rate, self.domain
        )
        info: Info = {}
        if record and isinstance(self.base, OptimisticOGD):
            info["hint"] = state.memory[1]
        if record and not self.base.exact(self.domain):
            info["error"] = (error + namespace(points).zeros_like(points[..., 0]))[..., None, None]
        return SingleState(state.round + 1, points, memory), info


class Single(Learner):
    """A single base learner: the baseline of SAMUEL.

    Args:
        base: the base learner, with its learning rate.
        dim: dimension of the decisions.
        domain: of the decisions.
        options: `streams`, `seed`, `dtype`, `record`, as for every `Learner`.

    >>> from samuel.online import OGD, Box
    >>> learner = Single(OGD(0.1), dim=1, domain=Box(-1.0, 1.0))
    >>> learner.update([3.0])
    >>> learner.predict()
    array([-0.3])
    """

    rule: SingleRule

    def __init__(self, base: Base, dim: int, domain: Domain | None = None, **options: Any) -> None:
        dim, domain = check_place(dim, domain)
        if not isinstance(base, Base):
            raise ValueError(f"base must be a base learner such as OGD(0.1), got {base!r}")
        super().__init__(SingleRule(dim, domain, base), **check_options(options))

    def update(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, gradient: Any = None, *, hint: Any = None, **late: Any
    ) -> None:
        """Update the learner with the feedback of the round; see `Learner.update`.

        Args:
            gradient: of the loss at the decision.
            hint: for `OptimisticOGD`, the gradient expected in the coming round; this one by default.
            late: `ticket`, for feedback to an earlier decision.
        """
        if hint is None:
            return super().update(gradient, **late)
        base = self.rule.base
        if not isinstance(base, OptimisticOGD):
            raise ValueError(f"only OptimisticOGD takes a hint, the base learner is {base!r}")
        with self._lock_updates:
            before = self._state
            memory = base.expecting(before.memory, self._checked(hint, self._shape, "hint"))
            self._state = before._replace(memory=memory)
            try:
                self._update(gradient, **late)
            except BaseException:
                self._state = before
                raise
