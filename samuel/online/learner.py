"""The contract every online learner holds, and the object that users talk to.

A learner is two things. A `Rule` is a frozen description with pure functions: `start` makes a state, `advance`
takes a state and feedback and returns the next. A `Learner` holds one rule and one state and gives them the calls
that users expect: `predict`, `update`, tickets for late feedback, pickling. `play` compiles rules; it never looks
inside them.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from samuel.core import Feedback, Full, Linear, Loss, NoHealthyExpert
from samuel.core.arrays import Array
from samuel.core.options import real_array
from samuel.online.domains import Domain, Free

if TYPE_CHECKING:
    from samuel.online.trace import Trace

Pace = Literal["careful", "quiet", "due"]
"""How much care a round needs; see `Rule.advance`."""

Info = dict[str, Array]
"""What a round leaves behind for the record, by name; see `Trace` for the names."""


WANTED = {
    "linear": "update(gradient)",
    "loss": "update(gradient, loss=function of a point that returns its loss)",
    "full": "update(loss=function of a point that returns its loss and gradient)",
}
NOT_TOLD = np.float64(np.nan)
"""The loss of a decision under linear feedback, where only its gradient is told."""


@dataclass(frozen=True)
class Rule(ABC):
    """An online learner as pure functions. Hashable, so that compiled code can be kept for equal rules.

    Attributes:
        dim: dimension of the decisions.
        domain: where decisions must lie.
    """

    dim: int
    domain: Domain

    feedback = "linear"
    """Which feedback `advance` takes: "linear", "loss" or "full"."""

    @abstractmethod
    def start(self, zero: Array, rounds: int) -> Any:
        """The state before round 0, with room for so many rounds.

        `zero` is an array of zeros of shape `(*streams, dim)`, which gives library, dtype and streams. A state
        is a NamedTuple of arrays (or of tuples of them) with at least `decision`, shape `(*streams, dim)`, and
        `round`, the number of rounds completed.
        """

    @abstractmethod
    def advance(
        self, state: Any, feedback: Feedback, chance: Array | None, record: bool, pace: Pace = "careful"
    ) -> tuple[Any, Info]:
        """The next state, and what the round leaves for the record.

        Args:
            state: the state so far.
            feedback: what the round told.
            chance: one number from [0, 1) per stream, if `random` is true.
            record: whether anyone will read more of the info than its entry `healthy`: whether each stream had
                finite numbers to go on with (true if there is no such entry).
            pace: "careful" does all that may be needed. The others are for compiled loops, in which a branch is
                dear: a rule may leave out whatever is rare, and says by a false entry `usual` in the info where it
                was not to be left out; the caller plays those rounds again with care. "quiet" promises that
                `rhythm` does not divide the number of rounds completed after this one, "due" that it does. The
                decision may be left to `settle`.
        """

    def settle(self, state: Any) -> tuple[Any, Array | bool]:
        """The state with its decision made, after an advance that was not careful; and whether all was usual."""
        return state, True

    def grow(self, state: Any, rounds: int) -> Any:
        """The same state with room for so many rounds in all."""
        return state

    def points(self, state: Any) -> Array:
        """The experts' points, `(*streams, slots, experts, dim)`: where losses are needed beside the decision."""
        raise NotImplementedError(f"{type(self).__name__} takes linear feedback only")

    @property
    def limit(self) -> int | None:
        """The number of rounds this rule is made for; None where it can go on for ever."""
        return None

    @property
    def rhythm(self) -> int:
        """Rounds in which nothing is due lie between its multiples; 1 if something may be due in any round."""
        return 1

    @property
    def random(self) -> bool:
        """Whether `advance` needs a random number."""
        return False


OPTIONS = ("streams", "seed", "dtype", "record")
"""What every learner can be made with."""


@dataclass(frozen=True)
class Ticket:
    """A decision that waits for its feedback: made by `Learner.ticket`, good for one `update` of that learner.

    A pickle of the learner takes the ticket as well.
    """

    learner: str
    """Which learner made it."""
    number: int
    """How many it had made before."""


class _Turns:
    """A lock for changes of a learner: threads wait for each other, and a change within a change is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise RuntimeError("the learner is in the middle of a round: a loss function must not change it")
        self._lock.acquire()
        self._owner = me

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner = None
        self._lock.release()

    def __reduce__(self) -> tuple[type[_Turns], tuple[()]]:
        return _Turns, ()  # a copy of a learner has turns of its own


class Learner:
    """An online learner that is asked and told, one round at a time.

    Subclasses such as `Samuel` and `Single` choose the rule; everything here is common to all of them. Several threads
    may use one learner: its rounds are played one after the other.

    Args:
        rule: what to do.
        streams: number of independent streams served at once: decisions and gradients then have the shape
            `(streams, dim)`. None for a single stream of shape `(dim,)`.
        seed: for rules that draw at random.
        dtype: "float64" or "float32".
        record: keep what every round leaves behind, so that `trace()` can be asked afterwards. For `Samuel` as it is
            made by default that is about 4 KB a round at `dim=5`.

    >>> from samuel.online import Samuel, Ball
    >>> learner = Samuel(dim=2, domain=Ball(1.0))
    >>> for _ in range(100):
    ...     x = learner.predict()
    ...     learner.update(2 * (x - [0.3, 0.4]))  # the gradient of |x - u|^2
    >>> learner.predict().round(1)
    array([0.3, 0.4])
    """

    def __init__(
        self,
        rule: Rule,
        *,
        streams: int | None = None,
        seed: int = 0,
        dtype: str = "float64",
        record: bool = False,
    ) -> None:
        if streams is not None:
            whole_number("streams", streams, least=1)
        whole_number("seed", seed, least=0)
        if dtype not in ("float64", "float32", np.float64, np.float32):
            raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}")
        self.rule = rule
        self.streams = streams
        self.dtype: np.dtype = np.dtype(dtype)
        self._random = np.random.default_rng(seed)
        self._shape = (rule.dim,) if streams is None else (int(streams), rule.dim)
        self._state = rule.start(self.zero, rounds=1)
        self._tickets: dict[Ticket, tuple[int, np.ndarray]] = {}
        self._tickets_made = 0
        self._name = uuid.uuid4().hex
        self._turns = _Turns()
        self._record: list[Info] | None = [] if record else None

    @property
    def zero(self) -> np.ndarray:
        """Zeros in the shape of a decision."""
        return np.zeros(self._shape, dtype=self.dtype)

    @property
    def dim(self) -> int:
        """Dimension of the decisions."""
        return self.rule.dim

    @property
    def domain(self) -> Domain:
        """Where decisions lie."""
        return self.rule.domain

    @property
    def round(self) -> int:
        """How many rounds are complete."""
        return int(self._state.round)

    def predict(self) -> np.ndarray:
        """The decision for the coming round. Asking does not change anything, so ask as often as you like."""
        return self._state.decision.copy()

    def ticket(self) -> Ticket:
        """Note the present decision, for feedback that will come late: `update(gradient, ticket=...)`.

        A ticket is kept until its feedback comes; `forget` it if none will.
        """
        with self._turns:
            ticket = Ticket(self._name, self._tickets_made)
            self._tickets_made += 1
            self._tickets[ticket] = self.round, self.predict()
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Give up a ticket whose feedback will never come."""
        with self._turns:
            self._check_ticket(ticket)
            del self._tickets[ticket]

    def update(
        self,
        gradient: Any = None,
        *,
        loss: Callable[[np.ndarray], Any] | None = None,
        ticket: Ticket | None = None,
    ) -> None:
        """Tell the learner how the round went.

        Under linear feedback give the gradient of the loss at the decision. Under full feedback give `loss`, a
        function of a point that returns its loss and gradient; it is called for the decision and for every
        expert. Under loss feedback give the gradient at the decision and `loss`, a function that returns a
        number. With several streams the function takes points `(streams, dim)` and returns `(streams,)` losses.

        Feedback for an earlier decision comes with its `ticket`. The learner takes it as the loss of the coming
        round; how far the earlier decision did worse than the present one is kept in the record and counted in
        the certificate.

        Raises:
            ValueError: for feedback of the wrong kind or shape, numbers that are not finite, an unknown ticket
                or a round past the horizon. The learner is unchanged then.
            NoHealthyExpert: if no expert is left whose numbers are finite. The learner is unchanged then, too.
            RuntimeError: where `loss` changes the learner.
        """
        with self._turns:
            self._update(gradient, loss, ticket)

    def _update(self, gradient: Any, loss: Any = None, ticket: Ticket | None = None) -> None:
        rule = self.rule
        t = self._state.round
        if rule.limit is not None and t >= rule.limit:
            raise ValueError(
                f"round {t} is past the horizon: {type(rule).__name__} was made for {rule.limit} rounds. "
                "Give a larger horizon, or none."
            )
        state, played = rule.grow(self._state, t + 1), None
        if ticket is not None:
            self._check_ticket(ticket)
            asked, played = self._tickets[ticket]
            if asked < t:
                rule = self._rule_for_late_feedback()
        played = state.decision if played is None else played
        feedback, value, slope = self._observe(state, gradient, loss, played)
        chance, undo = None, None
        if rule.random:
            undo = self._random.bit_generator.state
            chance = self._random.random(self._shape[:-1]).astype(self.dtype)
        try:
            with np.errstate(all="ignore"):  # an expert may diverge: it is taken out, and that is no one's concern
                after, info = rule.advance(state, feedback, chance, self._record is not None)
            if not np.all(info.pop("healthy", True)):
                raise NoHealthyExpert(f"in round {t} a stream has no expert left whose numbers are finite")
        except BaseException:
            if undo is not None:
                self._random.bit_generator.state = undo
            raise
        if self._record is not None:
            late = np.sum(slope * (played - state.decision), axis=-1)
            value = np.broadcast_to(value, self._shape[:-1])
            entry = {"decision": played, "gradient": slope, "loss": value, **info}
            if ticket is not None:
                entry["excess"] = entry.get("excess", 0.0) + late
            self._record.append(entry)
        self._state, self.rule = after, rule
        if ticket is not None:
            del self._tickets[ticket]

    def _rule_for_late_feedback(self) -> Rule:
        """The rule to go on with once feedback has come late."""
        return self.rule

    def trace(self) -> Trace:
        """The record of all rounds so far, as `play` would return it; needs `record=True`."""
        from samuel.online.trace import Trace

        if self._record is None:
            raise ValueError("nothing was recorded: make the learner with record=True to ask for its trace")
        if not self._record:
            raise ValueError("no round has been played yet, so there is no trace")
        names = {name: None for entry in self._record for name in entry}
        nothing = np.zeros(self._shape[:-1])
        columns = {name: _stack([entry.get(name, nothing) for entry in self._record]) for name in names}
        return Trace(self.rule, columns, None, self.round - len(self._record))

    def _check_ticket(self, ticket: Any) -> None:
        if not isinstance(ticket, Ticket):
            raise ValueError(f"ticket must be one that this learner's ticket() returned, got {ticket!r}")
        if ticket.learner != self._name:
            raise ValueError(f"ticket {ticket.number} is another learner's")
        if ticket not in self._tickets:
            waiting = sorted(other.number for other in self._tickets)
            raise ValueError(f"no decision is waiting for ticket {ticket.number}; waiting: {waiting or 'none'}")

    def _observe(
        self, state: Any, gradient: Any, loss: Any, played: np.ndarray
    ) -> tuple[Feedback, np.ndarray | np.float64, np.ndarray]:
        """The feedback the rule takes, the loss of the decision played (nan if unknown) and its gradient there."""
        kind = self.rule.feedback
        if (gradient is None) != (kind == "full") or (loss is None) != (kind == "linear"):
            given = [name for name, value in (("gradient", gradient), ("loss", loss)) if value is not None]
            raise ValueError(f"{kind} feedback is given as {WANTED[kind]}; got {' and '.join(given) or 'nothing'}")
        if kind == "linear":
            slope = self._checked(gradient, self._shape, "gradient")
            return Linear(slope), NOT_TOLD, slope
        if not callable(loss):
            raise ValueError(f"loss must be a function of a point, got {loss!r}")
        points, late = self.rule.points(state), played is not state.decision
        places = [(k, j) for k in range(points.shape[-3]) for j in range(points.shape[-2])]
        if kind == "loss":
            slope = self._checked(gradient, self._shape, "gradient")
            ours = self._checked(loss(state.decision.copy()), self._shape[:-1], "loss")
            with np.errstate(all="ignore"):  # an expert may diverge, and its loss with it
                values = [self._shaped(loss(points[..., k, j, :].copy()), self._shape[:-1], "loss") for k, j in places]
            feedback = Loss(ours, self._experts(values, points.shape[:-1]), slope)
            return (
                feedback,
                self._checked(loss(played.copy()), self._shape[:-1], "loss") if late else ours,
                slope,
            )
        ours, slope = self._told(loss, state.decision, self._checked)
        with np.errstate(all="ignore"):
            told = [self._told(loss, points[..., k, j, :], self._shaped) for k, j in places]
        values, slopes = zip(*told, strict=True)
        feedback = Full(ours, self._experts(values, points.shape[:-1]), self._experts(slopes, points.shape))
        return feedback, *(self._told(loss, played, self._checked) if late else (ours, slope))

    def _told(self, loss: Any, point: np.ndarray, shaped: Callable[..., np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Loss and gradient at a point."""
        answer = loss(point.copy())
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ValueError(f"under full feedback loss(x) must return (loss, gradient), got {answer!r}")
        return shaped(answer[0], self._shape[:-1], "loss"), shaped(answer[1], self._shape, "gradient")

    def _experts(self, parts: Sequence[np.ndarray], shape: tuple[int, ...]) -> np.ndarray:
        batch = len(self._shape) - 1
        return np.stack(parts, axis=batch).reshape(shape)

    def _shaped(self, value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
        array = real_array(name, value, self.dtype)
        if array.shape == () and shape == (1,):
            array = array[None]
        if array.shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {array.shape}")
        return array

    def _checked(self, value: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
        array = self._shaped(value, shape, name)
        if not np.isfinite(array).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            where = f" at {place[0] if len(place) == 1 else place}" if place else ""
            raise ValueError(f"{name} must be finite, got {array[place]}{where}")
        return array

    def __repr__(self) -> str:
        streams = "" if self.streams is None else f", streams={self.streams}"
        return f"<{type(self).__name__} in {self.dim} dimensions on {self.domain}, round {self.round}{streams}>"


def whole_number(name: str, value: Any, least: int) -> int:
    """The value as an int; ValueError unless it is a whole number of at least so much."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options every learner takes; ValueError for others."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise ValueError(
                f"there is no option {name!r} (given {value!r}); beside those of its class, a learner takes "
                f"{', '.join(OPTIONS)}"
            )
    return options


def check_place(dim: Any, domain: Any) -> tuple[int, Domain]:
    """Dimension and domain of a learner, all of space if none is given; ValueError if they do not fit."""
    dim = whole_number("dim", dim, least=1)
    domain = Free() if domain is None else domain
    if not isinstance(domain, Domain):
        raise ValueError(f"domain must be a samuel.online domain such as Ball(1.0), got {domain!r}")
    domain.check(dim)
    return dim, domain


def _stack(parts: list[Any]) -> np.ndarray:
    """Stack rounds; a slot that opened later is filled with nan in the rounds before."""
    arrays = [np.asarray(part) for part in parts]
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    if all(array.shape == shape for array in arrays):
        return np.stack(arrays)
    full = np.full((len(arrays), *shape), np.nan)
    for row, array in zip(full, arrays, strict=True):
        row[tuple(slice(size) for size in array.shape)] = array
    return full
