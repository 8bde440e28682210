"""The interface of online learners: pure functions (`Rule`), and the stateful object of users (`Learner`).

A `Rule` is a frozen dataclass with pure functions: `start` makes a state, `advance` takes a state and feedback and
returns the next. A `Learner` holds one rule and one state, and has `predict`, `update`, tickets for late feedback and
pickling. `play` compiles rules.
"""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from samuel.core import Feedback, Full, Linear, Loss, NoHealthyExpert
from samuel.core.arrays import Array
from samuel.core.options import real_array
from samuel.online import losses
from samuel.online.domains import Domain, Free

if TYPE_CHECKING:
    from samuel.online.trace import Trace

Pace = Literal["careful", "quiet", "due"]
"""Which rare cases `advance` handles; see `Rule.advance`."""

Info = dict[str, Array]
"""Entries of a round for the trace, by name; see `Trace`."""


WANTED = {
    "linear": "update(gradient)",
    "loss": "update(gradient, loss=function of a point that returns its loss)",
    "full": "update(loss=function of a point that returns its loss and gradient)",
}
LARGEST = {8: losses.LARGEST, 4: 1e16}
"""The largest gradients, by bytes of a number."""
UNKNOWN_LOSS = np.float64(np.nan)
"""The loss of a decision under linear feedback, of which only the gradient is known."""


@dataclass(frozen=True)
class Rule(ABC):
    """An online learner as pure functions. Hashable, so that equal rules share compiled code.

    Attributes:
        dim: dimension of the decisions.
        domain: of the decisions.
    """

    dim: int
    domain: Domain

    feedback = "linear"
    """Which feedback `advance` takes: "linear", "loss" or "full"."""

    @abstractmethod
    def start(self, zero: Array, rounds: int) -> Any:
        """The state before round 0, with room for the given number of rounds.

        `zero` is an array of zeros of shape `(*streams, dim)`, which gives library, dtype and streams. A state
        is a NamedTuple of arrays (or of tuples of them) with at least `decision`, shape `(*streams, dim)`, and
        `round`, the number of rounds completed.
        """

    @abstractmethod
    def advance(
        self, state: Any, feedback: Feedback, chance: Array | None, record: bool, pace: Pace = "careful"
    ) -> tuple[Any, Info]:
        """The next state, and the entries of the round for the trace.

        Args:
            state: the state so far.
            feedback: of the round.
            chance: one number from [0, 1) per stream, if `random` is true.
            record: whether more of the info is needed than its entry `healthy`: whether each stream had an expert with
                finite numbers (true if there is no such entry).
            pace: "careful" handles every case. The others are for compiled loops, in which branches are expensive: a
                rule may skip rare cases and set the entry `usual` of the info to False where one occurred; the caller
                then repeats those rounds with "careful". "quiet" promises that `rhythm` does not divide the number of
                rounds completed after this one, "due" that it does. The decision may be left to `settle`.
        """

    def settle(self, state: Any) -> tuple[Any, Array | bool]:
        """The state with its decision, after an advance that was not careful; and whether no rare case occurred."""
        return state, True

    def grow(self, state: Any, rounds: int) -> Any:
        """The same state with room for the given number of rounds."""
        return state

    def points(self, state: Any) -> Array:
        """The experts' points, `(*streams, slots, experts, dim)`: where losses are needed beside the decision."""
        raise NotImplementedError(f"{type(self).__name__} takes linear feedback only")

    @property
    def limit(self) -> int | None:
        """The largest number of rounds; None for no limit."""
        return None

    @property
    def rhythm(self) -> int:
        """Blocks start only in rounds divisible by it."""
        return 1

    @property
    def random(self) -> bool:
        """Whether `advance` needs a random number."""
        return False


OPTIONS = ("streams", "seed", "dtype", "record")
"""Options of every learner."""


@dataclass(frozen=True)
class Ticket:
    """A decision that waits for late feedback: made by `Learner.ticket`, valid for one `update` of that learner.

    Copies of the learner that were made while it waits accept it, too.
    """

    learner: str
    """Identifier of the learner."""
    number: int
    """Number of tickets that the learner had made before."""


class UpdateLock:
    """A lock for updates that refuses an update inside an update. A copy is a lock of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise RuntimeError("the learner is being updated: a loss function must neither change nor copy it")
        self._lock.acquire()
        self._owner = me

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner = None
        self._lock.release()

    def __reduce__(self) -> tuple[type[UpdateLock], tuple[()]]:
        return UpdateLock, ()  # locks cannot be pickled


class Learner:
    """An online learner: `predict`, then `update`, one round at a time.

    Subclasses such as `Samuel` and `Single` define the rule. Threads may share a learner: its updates run one by one.

    Args:
        rule: the algorithm.
        streams: number of independent streams served at once: decisions and gradients then have the shape
            `(streams, dim)`. None for a single stream of shape `(dim,)`.
        seed: for rules that draw at random.
        dtype: "float64" or "float32".
        record: keep a record of every round, for `trace()`; about 2.3 KB a round for the default `Samuel` with `dim=5`.

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
        self._name = ""
        self._lock_updates = UpdateLock()
        self._record: list[Info] | None = [] if record else None

    def __getstate__(self) -> dict[str, Any]:
        """What `pickle` and `copy` keep. A copy shares nothing that changes, and makes tickets of its own."""
        with self._lock_updates:
            return self.__dict__ | {
                "_random": deepcopy(self._random),
                "_tickets": dict(self._tickets),
                "_name": "",
                "_lock_updates": UpdateLock(),
                "_record": None if self._record is None else list(self._record),
            }

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
        """Domain of the decisions."""
        return self.rule.domain

    @property
    def round(self) -> int:
        """Number of completed rounds."""
        return int(self._state.round)

    def predict(self) -> np.ndarray:
        """The decision for the coming round, without side effects."""
        return self._state.decision.copy()

    def ticket(self) -> Ticket:
        """Keep the current decision for late feedback: `update(gradient, ticket=...)`.

        A ticket is kept until its feedback arrives; `forget` it if none will.
        """
        with self._lock_updates:
            self._name = self._name or uuid.uuid4().hex
            ticket = Ticket(self._name, self._tickets_made)
            self._tickets_made += 1
            self._tickets[ticket] = self.round, self.predict()
        return ticket

    def forget(self, ticket: Ticket) -> None:
        """Discard a ticket whose feedback will not arrive."""
        with self._lock_updates:
            self._check_ticket(ticket)
            del self._tickets[ticket]

    def update(
        self,
        gradient: Any = None,
        *,
        loss: Callable[[np.ndarray], Any] | None = None,
        ticket: Ticket | None = None,
    ) -> None:
        """Update the learner with the feedback of the round.

        Under linear feedback give the gradient of the loss at the decision. Under full feedback give `loss`, a
        function of a point that returns its loss and gradient; it is called for the decision and for every
        expert. Under loss feedback give the gradient at the decision and `loss`, a function that returns a
        number. With several streams the function takes points `(streams, dim)` and returns `(streams,)` losses.

        Feedback for an earlier decision comes with its `ticket`. The learner takes it as the loss of the coming round;
        the excess loss of the earlier decision over the current one is recorded, and included in the certificate.

        Raises:
            ValueError: for feedback of the wrong kind or shape, numbers that are not finite, an unknown ticket
                or a round past the horizon. The learner is unchanged then.
            NoHealthyExpert: if no expert is left whose numbers are finite. The learner is unchanged then, too.
            RuntimeError: if `loss` changes the learner.
        """
        with self._lock_updates:
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
                rule = self.late_rule
        played = state.decision if played is None else played
        feedback, value, slope = self._observe(state, gradient, loss, played)
        chance, undo = None, None
        if rule.random:
            undo = self._random.bit_generator.state
            chance = self._random.random(self._shape[:-1]).astype(self.dtype)
        try:
            with np.errstate(all="ignore"):  # overflow expected: diverged experts are dropped below
                after, info = rule.advance(state, feedback, chance, self._record is not None)
            healthy = info.pop("healthy", True)
            if healthy is not True and not np.all(healthy):
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

    @property
    def late_rule(self) -> Rule:
        """The rule from the first late feedback on."""
        return self.rule

    def trace(self) -> Trace:
        """The trace of all rounds so far, as `play` returns it; needs `record=True`."""
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
        if ticket not in self._tickets:
            if ticket.learner != self._name:
                raise ValueError(f"ticket {ticket.number} is another learner's, or was used already")
            waiting = sorted(other.number for other in self._tickets)
            raise ValueError(f"no decision is waiting for ticket {ticket.number}; waiting: {waiting or 'none'}")

    def _observe(
        self, state: Any, gradient: Any, loss: Any, played: np.ndarray
    ) -> tuple[Feedback, np.ndarray | np.float64, np.ndarray]:
        """The rule's feedback, the loss of the decision played (NaN if unknown) and its gradient there."""
        kind = self.rule.feedback
        if (gradient is None) != (kind == "full") or (loss is None) != (kind == "linear"):
            given = [name for name, value in (("gradient", gradient), ("loss", loss)) if value is not None]
            raise ValueError(f"{kind} feedback is given as {WANTED[kind]}; got {' and '.join(given) or 'nothing'}")
        if kind == "linear":
            slope = self._checked(gradient, self._shape, "gradient")
            return Linear(slope), UNKNOWN_LOSS, slope
        if not callable(loss):
            raise ValueError(f"loss must be a function of a point, got {loss!r}")
        points, late = self.rule.points(state), played is not state.decision
        places = [(k, j) for k in range(points.shape[-3]) for j in range(points.shape[-2])]
        if kind == "loss":
            slope = self._checked(gradient, self._shape, "gradient")
            ours = self._checked(loss(state.decision.copy()), self._shape[:-1], "loss")
            with np.errstate(all="ignore"):  # overflow expected for diverged experts
                values = [self._shaped(loss(points[..., k, j, :].copy()), self._shape[:-1], "loss") for k, j in places]
            feedback = Loss(ours, self._experts(values, points.shape[:-1]), slope)
            return (
                feedback,
                self._checked(loss(played.copy()), self._shape[:-1], "loss") if late else ours,
                slope,
            )
        ours, slope = self._loss_at(loss, state.decision, self._checked)
        with np.errstate(all="ignore"):
            pairs = [self._loss_at(loss, points[..., k, j, :], self._shaped) for k, j in places]
        values, slopes = zip(*pairs, strict=True)
        feedback = Full(ours, self._experts(values, points.shape[:-1]), self._experts(slopes, points.shape))
        return feedback, *(self._loss_at(loss, played, self._checked) if late else (ours, slope))

    def _loss_at(
        self, loss: Any, point: np.ndarray, shaped: Callable[..., np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray]:
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
        largest = np.finfo(self.dtype).max if name == "loss" else LARGEST[self.dtype.itemsize]
        usable = np.abs(array) <= largest  # False for NaN
        if not usable.all():
            place = tuple(int(i) for i in np.argwhere(~usable)[0])
            where = f" at {place[0] if len(place) == 1 else place}" if place else ""
            given = np.reshape(value, shape)[place]  # before it became infinite in float32
            most = f"at most {largest:g} in size, to be squared in {self.dtype}" if np.isfinite(given) else "finite"
            raise ValueError(f"{name} must be {most}, got {given}{where}")
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
    """Check the options of every learner; ValueError for others."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise ValueError(
                f"there is no option {name!r} (given {value!r}); beside those of its class, a learner takes "
                f"{', '.join(OPTIONS)}"
            )
    return options


def check_place(dim: Any, domain: Any) -> tuple[int, Domain]:
    """Dimension and domain of a learner, `Free()` by default; ValueError if they do not fit."""
    dim = whole_number("dim", dim, least=1)
    domain = Free() if domain is None else domain
    if not isinstance(domain, Domain):
        raise ValueError(f"domain must be a samuel.online domain such as Ball(1.0), got {domain!r}")
    domain.check(dim)
    return dim, domain


def _stack(parts: list[Any]) -> np.ndarray:
    """Stack rounds; slots that opened later are NaN in the rounds before."""
    arrays = [np.asarray(part) for part in parts]
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    if all(array.shape == shape for array in arrays):
        return np.stack(arrays)
    full = np.full((len(arrays), *shape), np.nan)
    for row, array in zip(full, arrays, strict=True):
        row[tuple(slice(size) for size in array.shape)] = array
    return full
