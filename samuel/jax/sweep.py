"""Sweeps: many learning-rate schedules at once, each common beginning trained only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from samuel.jax.placement import Placement, placement_by_name
from samuel.jax.population import (
    Member,
    Recipe,
    Tree,
    arrays_of,
    key_of,
    learning_rates_of,
    parameters_of,
    refuse_used_up,
    shape_of_row,
)


class SweepState(NamedTuple):
    """The networks of a sweep: arrays only. Their number grows at transitions, and then only."""

    round: np.ndarray
    """Rounds completed; kept outside the device, because the number of networks follows from it."""
    members: Member
    """The networks, one row each, in the order of `Sweep.schedules`."""
    key: jax.Array
    """The random key that everything random follows from, together with the round."""


class SweepInfo(NamedTuple):
    """What a round was like."""

    losses: jax.Array
    """Loss of every network, in the order of `Sweep.schedules`."""
    aux: Tree
    """What `loss_fn` returned beside, one row per network."""


class Sweep:
    """Train a network with every step schedule of a grid, without training any common beginning twice.

    With rates for three phases, `5 x 5 x 5`, 5 networks run through the first phase; at its end each becomes 5, and so
    on: 5 + 25 + 125 phases of training in place of 3 x 125. Each schedule gives what a run of its own with the same
    key gives: all networks see the same batches and the same randomness.

    A network whose loss is not finite stays where it is. At a transition the program is compiled anew, for the larger
    number of networks; between transitions nothing is.

    Args:
        loss_fn: `loss_fn(params, model_state, batch, key) -> (loss, model_state)` or `(loss, model_state, aux)`.
        base: an optax transformation whose updates are steps of rate 1 to be subtracted (`optax.scale_by_adam()`), or
            the name of one: "adagrad", "adam", "muon", "sgd", "momentum".
        phases: the candidate learning rates of each phase.
        transitions: the rounds at which the second and later phases start.
        reset: start every phase with a new optimizer state; by default it is kept.
        placement: "map", "scan" or "shard", as for `Experts`; `mesh` and `within` too.
        mesh: for "shard": the devices.
        within: for "shard": what each device does with its networks.
        donate: let `step` write into the old state's memory, which is gone then. `False` keeps it.

    >>> import optax
    >>> loss_fn = lambda params, model_state, batch, key: ((params - batch) ** 2, model_state)
    >>> sweep = Sweep(loss_fn, optax.identity(), phases=((0.1, 0.4), (0.01, 0.3)), transitions=(3,))
    >>> state = sweep.init(jnp.array(1.0))
    >>> for _ in range(4):
    ...     state, info = sweep.step(state, 0.0)
    >>> errors = sweep.ask(state, lambda params, model_state, batch: abs(params - batch), 0.0)
    >>> sweep.schedules(state)[int(errors.argmin())], sweep.work(state)
    ((0.4, 0.3), 10)
    """

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        base: Any,
        phases: Sequence[Sequence[float]],
        transitions: Sequence[int] = (),
        *,
        reset: bool = False,
        placement: Literal["map", "scan", "shard"] = "map",
        mesh: Mesh | None = None,
        within: Literal["map", "scan"] = "map",
        donate: bool = True,
    ) -> None:
        self.recipe: Recipe = Recipe(loss_fn, base)
        self.phases: tuple[tuple[float, ...], ...] = _phases(phases)
        self.transitions: tuple[int, ...] = _transitions(transitions, len(self.phases))
        self.reset = reset
        self.placement: Placement = placement_by_name(placement, mesh, within)
        self._steps = [
            self.placement.compile(self._advancing(phase), self.count(phase), donate)
            for phase in range(len(self.phases))
        ]
        self._branches = [self.placement.arrange(self._branching(phase)) for phase in range(len(self.phases))]
        self._questions: dict[Any, Any] = {}

    def count(self, phase: int) -> int:
        """How many networks a phase has."""
        return prod(len(rates) for rates in self.phases[: phase + 1])

    def phase(self, state: SweepState) -> int:
        """The phase of the last round, numbered from 0."""
        return self.phase_of(int(state.round) - 1)

    def schedules(self, state: SweepState) -> list[tuple[float, ...]]:
        """The learning rates of each network, one for each phase so far."""
        return self.schedules_of(self.phase(state))

    def schedules_of(self, phase: int) -> list[tuple[float, ...]]:
        """The learning rates of each network of a phase, one for each phase up to it."""
        return list(product(*self.phases[: phase + 1]))

    def work(self, state: SweepState) -> int:
        """Steps of a single network done so far, all networks together."""
        return sum(self.count(self.phase_of(round)) for round in range(int(state.round)))

    def init(self, params: Tree, model_state: Tree = None, key: Any = 0, round: int = 0) -> SweepState:
        """The state before the first round; see `Experts.init`.

        Args:
            params: the parameters.
            model_state: what the network carries along beside them, None for nothing.
            key: a `jax.random.key`, or a number to make one of.
            round: to restore a checkpoint: the round it was saved after. The state then has as many networks as there
                are by then (untrained), as `Checkpoints.restore(like=...)` needs it.
        """
        if not isinstance(round, int | np.integer) or isinstance(round, bool) or round < 0:
            raise ValueError(f"round must be a whole number of at least 0, got {round!r}")
        params, model_state, key = parameters_of(params), arrays_of(model_state, "model_state"), key_of(key)
        rows = self.placement.rows(self.count(0))

        def begin(params: Tree, model_state: Tree, key: jax.Array) -> tuple[Member, jax.Array]:
            one = self.recipe.newborn(params, model_state, {})
            return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (rows, *jnp.shape(leaf))), one), key

        members, key = self.placement.build(begin, params, model_state, key)
        for phase in range(1, self.phase_of(int(round) - 1) + 1):
            members = self._branches[phase](members)
        return SweepState(np.asarray(round, np.int32), members, key)

    def step(self, state: SweepState, batch: Tree) -> tuple[SweepState, SweepInfo]:
        """One round: every network learns from the batch. At a transition each becomes several first.

        The old state is gone unless the sweep was made with `donate=False`.
        """
        self._check_state(state)
        round = int(state.round)
        members, phase = state.members, self.phase_of(round)
        batch = self.placement.place(batch)
        if phase > self.phase(state):
            self._check(shape_of_row(members), batch, state.key)  # before anything changes
            members = self._branches[phase](members)
        common = {"round": np.asarray(round, np.int32), "key": state.key}
        members, common, info = self._steps[phase](members, common, batch)
        return SweepState(np.asarray(round + 1, np.int32), members, common["key"]), info

    def ask(self, state: SweepState, question: Callable[..., Tree], batch: Tree = None) -> Tree:
        """`question(params, model_state, batch)` of every network, such as its accuracy on a batch to test with.

        The answers come with one row per network, in the order of `schedules`. Compiled once for each question, so
        ask with the same function again rather than with a new one.
        """
        self._check_state(state)
        phase = self.phase(state)
        if (question, phase) not in self._questions:
            self._questions[question, phase] = self.placement.reader(self._asking(question, phase), self.count(phase))
        return self._questions[question, phase](state.members, self.placement.place(batch))

    def network(self, state: SweepState, place: int) -> tuple[Tree, Tree]:
        """`(params, model_state)` of the network at that place in `schedules`."""
        self._check_state(state)
        count = self.count(self.phase(state))
        if not 0 <= place < count:
            raise IndexError(f"place must be from 0 to {count - 1}, there are {count} networks now; got {place!r}")
        members = state.members
        return jax.tree.map(lambda leaf: leaf[place], (members.params, members.model_state))

    def place(self, batch: Tree) -> Tree:
        """Put a batch where the networks need it; see `Experts.place`."""
        return self.placement.place(batch)

    def phase_of(self, round: int) -> int:
        """The phase that a round, numbered from 0, belongs to."""
        return sum(transition <= round for transition in self.transitions)

    def _check_state(self, state: SweepState) -> None:
        if not isinstance(state, SweepState):
            raise TypeError(f"state must be a SweepState, as init and step return it, got {type(state).__name__}")
        refuse_used_up(state.members)
        rows = self.placement.rows(self.count(self.phase(state)))
        found = {leaf.shape[:1] for leaf in jax.tree.leaves(state.members)}
        if found != {(rows,)}:
            raise ValueError(f"this state is another sweep's: {rows} rows were expected, got {found}")

    def _check(self, one: Member, batch: Tree, key: jax.Array) -> None:
        self.recipe.check(one.params, one.model_state, batch, key, {})

    def _advancing(self, phase: int) -> Callable[..., Any]:
        """One round of a phase, as a function for the placement."""
        count = self.count(phase)

        def advance(rows: jax.Array, members: Member, common: Any, batch: Tree) -> tuple[Member, Any, SweepInfo]:
            rates = jnp.asarray(self.phases[phase], dtype=float)
            self._check(shape_of_row(members), batch, common["key"])
            key = jax.random.fold_in(common["key"], common["round"])

            def work(member: Member, rate: jax.Array) -> tuple[Member, Any]:
                member, seen = self.recipe.learn(member, rate, {}, batch, key)
                return member, (seen.loss, seen.aux)

            # The last phase's rates change fastest.
            members, results = self.placement.each(work, members, rates[rows % len(rates)], rows < count)
            losses, aux = jax.tree.map(lambda leaf: self.placement.gather(leaf)[:count], results)
            return members, common, SweepInfo(losses, aux)

        return advance

    def _asking(self, question: Callable[..., Tree], phase: int) -> Callable[..., Any]:
        """A question to every network of a phase, as a function for the placement."""

        def ask(rows: jax.Array, members: Member, batch: Tree) -> Tree:
            answers = self.placement.ask(lambda one: question(one.params, one.model_state, batch), members)
            return jax.tree.map(lambda leaf: self.placement.gather(leaf)[: self.count(phase)], answers)

        return ask

    def _branching(self, phase: int) -> Callable[[Member], Member]:
        """Every network of the phase before, once for each rate of this one."""
        rows = self.placement.rows(self.count(phase))
        parents = np.minimum(np.arange(rows), self.count(phase) - 1) // len(self.phases[phase])

        def branch(members: Member) -> Member:
            members = jax.tree.map(lambda leaf: leaf[parents], members)
            if self.reset:
                members = jax.vmap(lambda one: self.recipe.newborn(one.params, one.model_state, {}))(members)
            return members

        return branch


def _phases(values: Any) -> tuple[tuple[float, ...], ...]:
    try:
        listed = tuple(values)
    except TypeError:
        raise ValueError(f"phases must be a list of lists of learning rates, got {values!r}") from None
    if not listed:
        raise ValueError("phases is empty: give the learning rates of at least one phase")
    return tuple(learning_rates_of(rates, f"phases[{place}]") for place, rates in enumerate(listed))


def _transitions(values: Any, phases: int) -> tuple[int, ...]:
    try:
        listed = tuple(values)
    except TypeError:
        raise ValueError(f"transitions must be a list of rounds, got {values!r}") from None
    for value in listed:
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
            raise ValueError(f"a transition must be a round from 1 on, got {value!r}")
    if len(listed) != phases - 1:
        raise ValueError(f"{phases} phases need {phases - 1} transitions, got {listed}")
    if list(listed) != sorted(set(listed)):
        raise ValueError(f"transitions must rise, got {listed}")
    return tuple(int(value) for value in listed)
