"""SAMUEL for networks: experts that train side by side, and a decision made from them in every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from samuel.core import Anytime, Chosen, Cover, Full, combine
from samuel.core import round as core_round
from samuel.core import weights as mw
from samuel.core.feedback import reference_loss
from samuel.core.options import one_of, refuse_blind_sampling
from samuel.jax.placement import Placement, placement_by_name
from samuel.jax.population import (
    Member,
    Recipe,
    Seen,
    Tree,
    arrays_of,
    choose,
    combinations,
    key_of,
    learning_rates_of,
    numbers,
    only_if,
    parameters_of,
    refuse_used_up,
    shape_of_row,
    usable,
)

FEEDBACK = ("full", "loss")
COMBINE = ("sample", "average", "best")
NEWBORNS = ("fresh", "inherit")


_ELSEWHERE = Member(None, None, None)
"""Stands in a state for members that are handed over beside it."""


class Decision(NamedTuple):
    """The network to use."""

    params: Tree
    """Its parameters."""
    model_state: Tree
    """What it carries along beside them, such as batch statistics; None if there is nothing."""


class ExpertsState(NamedTuple):
    """The experts, their weights and the decision made from them: arrays only, of the same shapes for ever."""

    round: jax.Array
    """Rounds completed."""
    members: Member
    """The experts, one row each: first those of slot 0, a slot's in the order of `Experts.candidates`."""
    decision: Decision | None
    """The network to use, where it is not simply one of the experts (combine="average" or feedback="loss")."""
    weights: mw.Weights
    p: jax.Array
    """The weight of every expert in the decision, shape `(slots, candidates)`."""
    chosen: jax.Array
    """The row of the expert drawn; of the heaviest one with combine="average"."""
    key: jax.Array
    """The random key that everything random follows from, together with the round."""
    recent: jax.Array
    """The largest gain since the bound on gains was last looked at."""


class ExpertsInfo(NamedTuple):
    """What a round was like."""

    loss: jax.Array
    """Loss of the decision."""
    losses: jax.Array
    """Loss of every expert, shape `(slots, candidates)`; nan where one did not take part."""
    p: jax.Array
    """The weights the decision was made with, shape `(slots, candidates)`."""
    chosen: jax.Array
    """The row of the expert that was the decision; of the heaviest one with combine="average"."""
    learning_rate: jax.Array
    """The rate in use: the chosen expert's, or with combine="average" the mean under `p`."""
    restarted: jax.Array
    """Which slots start a new block with the next round, shape `(slots,)`."""
    healthy: jax.Array
    """False if not one expert had a finite loss; the weights are then as they were."""
    aux: Tree
    """What `loss_fn` returned beside, for the decision."""


class Experts:
    """Train many copies of a network with different learning rates, and always use the one that does best now.

    Every expert has its own parameters, optimizer state, model state (batch statistics) and random stream. Each round,
    all see the same batch; they are weighed by how much better than the decision they were, take a step each, and the
    next decision is drawn by weight. Slots whose block ends start anew from the decision.

        Algorithm 1   cover=Geometric(rounds, shortest): one slot of experts per length of block
        Algorithm 2   cover=Chosen(rounds), hyperparameters={"alpha": ...}, bound=1.0: one slot, restarted as you say

    A round costs every expert a whole training step. Of the network there are as many copies as experts, and one more
    with combine="average" or feedback="loss". An expert whose loss or parameters are not finite loses its weight until
    its slot restarts; a batch on which no expert has a finite loss changes nothing but the clock.

    **Across devices** (placement="shard") an ordinary round moves 4 bytes per expert, their losses, 4 bytes to check
    the decision, and the decision's `aux`. With combine="average" or feedback="loss" the decision itself moves as well,
    once a round: the bytes of one network's parameters and, under feedback="full", its model state. A round in which
    slots restart moves one network more (newborns="inherit": one per such slot). Splitting batches along `data` costs
    what it always does: each expert's gradient, summed along that axis. With several processes call
    `jax.distributed.initialize` first; the rest is the same code in each of them.

    Args:
        loss_fn: `loss_fn(params, model_state, batch, key) -> (loss, model_state)` or `(loss, model_state, aux)`. The
            loss is one number, and the model state (None if there is none) comes back in the shapes it had.
        base: what every expert does with its gradients: an optax transformation whose updates are steps of rate 1 to
            be subtracted, such as `optax.scale_by_adam()`; a name ("adagrad", "adam", "muon", "sgd", "momentum"); or,
            with `hyperparameters`, a function of them that gives such a transformation.
        learning_rates: candidates, one expert each in every slot. With a `Chosen` cover also a list of such lists,
            one per phase.
        cover: which stretches of time get experts of their own: see `samuel.core.cover`.
        hyperparameters: more that experts differ in, as `{"alpha": (0.9, 0.99, 1.0)}`: a slot has an expert for every
            combination with the learning rates. `base` gets them by name, as traced numbers.
        rounds: length of the run, for a cover that does not say (`Anytime`): decides the number of slots.
        feedback: "full" (each expert's own loss and gradient), or "loss" (one gradient, taken at the decision and
            followed by all; a forward pass each, on the decision's model state, with the same randomness).
        combine: "sample" (draw an expert by weight), "best" (the heaviest), or "average" (of parameters and of the
            floating-point model state; an extra forward pass).
        Q: how many step sizes the weights are kept with; by the length of the run if not given.
        bound: how large a gain, the difference of two losses, can be. Found out, and raised as needed, if not given.
        clip: count gains beyond the bound as the bound, rather than raise it for all. One expert with an absurd loss
            then does not slow down how the others are told apart; the paper's guarantee is for gains as they are.
        prior: weight of every candidate of a slot at birth; equal by default.
        newborns: "fresh" (start at the decision with their prior weight) or "inherit" (start at the mean of the slot
            they replace, and add the prior to its weight). The optimizer state is new in either case.
        placement: "map" (vectorised, for small networks), "scan" (one after another, for large ones) or "shard" (over
            the devices of a mesh). The results are the same but for rounding.
        mesh: for "shard": devices with an axis `experts`, and `data` to split batches; all devices by default. Experts
            that do not divide by the devices are filled up with idle ones.
        within: for "shard": what each device does with its experts, "map" or "scan".
        donate: let `step` write into the old state's memory, which is gone then. `False` keeps it.

    Attributes:
        slots: how many slots.
        candidates: the experts of a slot: a column of learning rates and one per hyperparameter.

    >>> import optax
    >>> from samuel.core import Fixed
    >>> def loss_fn(params, model_state, batch, key):
    ...     return ((params["w"] - batch) ** 2).sum(), model_state
    >>> engine = Experts(loss_fn, optax.identity(), (1e-4, 1e-1), cover=Fixed(every=50))
    >>> state = engine.init({"w": jnp.zeros(2)}, key=jax.random.key(0))
    >>> for _ in range(50):
    ...     state, info = engine.step(state, jnp.ones(2))
    >>> [round(float(share), 2) for share in info.p[0]], round(float(info.learning_rate), 4)
    ([0.02, 0.98], 0.1)
    >>> engine.decision(state).params["w"].round(3)
    Array([1., 1.], dtype=float32)
    """

    def __init__(
        self,
        loss_fn: Callable[..., Any],
        base: Any,
        learning_rates: Sequence[float] | Sequence[Sequence[float]],
        *,
        cover: Cover,
        hyperparameters: Mapping[str, Sequence[float]] | None = None,
        rounds: int | None = None,
        feedback: Literal["full", "loss"] = "full",
        combine: Literal["sample", "average", "best"] = "sample",
        Q: int | None = None,
        bound: float | None = None,
        clip: bool = False,
        prior: Sequence[float] | None = None,
        newborns: Literal["fresh", "inherit"] = "fresh",
        placement: Literal["map", "scan", "shard"] = "map",
        mesh: Mesh | None = None,
        within: Literal["map", "scan"] = "map",
        donate: bool = True,
    ) -> None:
        one_of("feedback", feedback, FEEDBACK)
        one_of("combine", combine, COMBINE)
        one_of("newborns", newborns, NEWBORNS)
        refuse_blind_sampling(combine, feedback)
        self.cover, self.feedback, self.combine, self.newborns = cover, feedback, combine, newborns
        self.slots: int = _slots(cover, rounds)
        hyperparameters = _hyperparameters(hyperparameters)
        columns = [combinations(learning_rate=phase, **hyperparameters) for phase in _phases(learning_rates, cover)]
        self._rates = tuple(column.pop("learning_rate") for column in columns)
        self._hyper = columns[0]
        self.recipe: Recipe = Recipe(loss_fn, base, self._hyper)
        self.count: int = self.slots * len(self._rates[0])
        self.prior: tuple[float, ...] = _prior(prior, len(self._rates[0]))
        self.Q = mw.number_of_rates(cover.limit if rounds is None else rounds) if Q is None else Q
        if not isinstance(self.Q, int) or isinstance(self.Q, bool) or self.Q < 1:
            raise ValueError(f"Q must be a whole number of at least 1, got {Q!r}")
        self.bound: float = 0.0 if bound is None else numbers([bound], "bound", positive=True)[0]
        if clip and bound is None:
            raise ValueError("clip=True needs a bound to clip gains at, such as bound=1.0")
        self.clip = clip
        self.placement: Placement = placement_by_name(placement, mesh, within)
        self._keeps_decision = combine == "average" or feedback == "loss"
        self._step = self.placement.compile(self._advance, self.count, donate)
        self._read = self.placement.reader(self._chosen, self.count)

    @property
    def candidates(self) -> dict[str, tuple[float, ...]]:
        """The experts of a slot in the first phase: a column of learning rates and one per hyperparameter."""
        return {"learning_rate": self._rates[0], **self._hyper}

    def init(self, params: Tree, model_state: Tree = None, key: Any = 0) -> ExpertsState:
        """The state before the first round: every expert starts from these parameters.

        Args:
            params: the parameters, any tree of floating-point arrays.
            model_state: what the network carries along beside, None for nothing.
            key: a `jax.random.key`, or a number to make one of.

        Raises:
            TypeError: for a parameter that is not floating-point.
        """
        params, model_state, key = parameters_of(params), arrays_of(model_state, "model_state"), key_of(key)
        members, common = self.placement.build(self._begin, params, model_state, key)
        return common._replace(members=members)

    def step(self, state: ExpertsState, batch: Tree) -> tuple[ExpertsState, ExpertsInfo]:
        """One round: every expert learns from the batch, is judged by its loss on it, and the next decision is made.

        The old state is gone unless the engine was made with `donate=False`. The first call compiles, and so does a
        batch of another shape.

        Args:
            state: the state so far.
            batch: what `loss_fn` takes. Under "shard" arrays that are not on the mesh yet go through `place`.

        Raises:
            TypeError, ValueError: if `loss_fn` or the base does not fit; the state is then as it was.
        """
        self._check_state(state)
        batch = self.placement.place(batch)
        members, common, info = self._step(state.members, state._replace(members=_ELSEWHERE), batch)
        return common._replace(members=members), info

    def decision(self, state: ExpertsState) -> Decision:
        """The network to use now: `params, model_state = engine.decision(state)`."""
        self._check_state(state)
        if state.decision is not None:
            # A copy, which the next step does not use up.
            return jax.tree.map(jnp.copy, state.decision)
        return self._read(state.members, state._replace(members=_ELSEWHERE))

    def place(self, batch: Tree) -> Tree:
        """Put a batch where the experts need it: under "shard", split along `data` and copied along `experts`.

        With several processes each hands in the part of the batch that its own devices hold: all of it where the
        processes differ along `experts` only.
        """
        return self.placement.place(batch)

    def _check_state(self, state: ExpertsState) -> None:
        if not isinstance(state, ExpertsState):
            raise TypeError(f"state must be an ExpertsState, as init and step return it, got {type(state).__name__}")
        refuse_used_up(state.members)
        rows = self.placement.rows(self.count)
        shape = (self.slots, len(self.prior))
        found = {leaf.shape[:1] for leaf in jax.tree.leaves(state.members)}
        if state.p.shape != shape or found != {(rows,)} or (state.decision is None) == self._keeps_decision:
            raise ValueError(
                f"this state is another engine's: {shape[0]} slots of {shape[1]} experts in {rows} rows were expected, "
                f"got {state.p.shape} in {found}"
            )

    # The rest runs while compiling. `rows` are the numbers of the experts that this device has.

    def _begin(self, params: Tree, model_state: Tree, key: jax.Array) -> tuple[Member, ExpertsState]:
        own = model_state if self.feedback == "full" else None
        rows = jnp.arange(self.placement.rows(self.count))
        members = jax.vmap(lambda row: self.recipe.newborn(params, own, self._hyper_of(row)))(rows)
        weights = core_round.begin(self._rules(float), self.slots, self.Q)
        p = mw.shares(weights)
        common = ExpertsState(
            round=jnp.zeros((), jnp.int32),
            members=_ELSEWHERE,
            decision=Decision(params, model_state) if self._keeps_decision else None,
            weights=weights,
            p=p,
            chosen=self._place(p, self._chance(key, 0, p)),
            key=key,
            recent=jnp.zeros_like(weights.bound),
        )
        return members, common

    def _chosen(self, rows: jax.Array, members: Member, state: ExpertsState) -> Decision:
        """The network of the expert drawn."""
        return self.placement.pick(Decision(members.params, members.model_state), state.chosen, rows)

    def _advance(
        self, rows: jax.Array, members: Member, state: ExpertsState, batch: Tree
    ) -> tuple[Member, ExpertsState, ExpertsInfo]:
        self._check(members, state, batch)
        rates = self._rates_now(state.round)
        members, losses, decision, seen = self._learn(rows, members, state, rates, batch)
        gains, rounding = self._gains(seen.loss, losses, state.p)
        after, judged = core_round.judge(state._replace(members=members, decision=decision), gains, rounding)
        copies = _Copies(self, rows, self._chance(state.key, after.round, state.p))
        after = core_round.finish(after, judged.largest, self._rules(state.p.dtype), copies)

        mean_rate = jnp.sum(state.p * rates)
        info = ExpertsInfo(
            loss=seen.loss,
            losses=losses,
            p=state.p,
            chosen=state.chosen,
            learning_rate=mean_rate if self.combine == "average" else rates.ravel()[state.chosen],
            restarted=jnp.asarray(self.cover.starts(after.round, self.slots)),
            healthy=judged.healthy,
            aux=seen.aux,
        )
        return after.members, after._replace(members=_ELSEWHERE), info

    def _rules(self, dtype: Any) -> core_round.Rules:
        """The rules of a round, with the prior in a dtype."""
        prior = jnp.asarray(self.prior, dtype)
        return core_round.Rules(self.cover, prior, self.newborns == "inherit", self.bound)

    def _check(self, members: Member, state: ExpertsState, batch: Tree) -> None:
        one = shape_of_row(members)
        model_state = one.model_state if state.decision is None else state.decision.model_state
        hyper = {name: column[0] for name, column in self._hyper.items()}
        self.recipe.check(one.params, model_state, batch, state.key, hyper)

    def _learn(
        self, rows: jax.Array, members: Member, state: ExpertsState, rates: jax.Array, batch: Tree
    ) -> tuple[Member, jax.Array, Decision | None, Seen]:
        """Let the experts see the batch and take their steps: their losses, and what the decision made of it."""
        recipe, decision = self.recipe, state.decision
        # Even numbers for what the networks do, odd ones for the draws between them.
        key = jax.random.fold_in(state.key, 2 * state.round)
        decision_key = jax.random.fold_in(key, self.count)  # the experts' own are numbered from 0
        alive = self._of_rows(mw.alive(state.weights), rows)
        own = {"row": rows, "rate": self._of_rows(rates, rows), "hyper": self._hyper_of(rows)}

        if self.feedback == "loss":
            assert decision is not None, "feedback='loss' keeps the decision"
            ours, gradient = recipe.differentiate(decision.params, decision.model_state, batch, decision_key)
            sound = jnp.isfinite(ours.loss) & usable(gradient)

            def work(member: Member, own: Any) -> tuple[Member, Any]:
                seen = recipe.look(member.params, decision.model_state, batch, decision_key)
                stepped = recipe.follow(member, gradient, own["rate"], own["hyper"])
                return choose(sound, stepped, member), {"loss": seen.loss}

            new_state = choose(sound, ours.model_state, decision.model_state)
            after = Decision(decision.params, new_state)
        else:

            def work(member: Member, own: Any) -> tuple[Member, Any]:
                own_key = jax.random.fold_in(key, own["row"])
                member, seen = recipe.learn(member, own["rate"], own["hyper"], batch, own_key)
                result = {"loss": seen.loss}
                return member, result if decision is not None else result | {"aux": seen.aux}

            ours, after = None, decision
            if decision is not None:
                ours = recipe.look(decision.params, decision.model_state, batch, decision_key)

        members, results = self.placement.each(work, members, own, alive)
        losses = results["loss"].astype(state.p.dtype)
        losses = self.placement.gather(jnp.where(alive, losses, jnp.nan))[: self.count]
        if ours is None:
            aux = self.placement.pick(results["aux"], state.chosen, rows)
            ours = Seen(losses[state.chosen], None, aux)
        ours = ours._replace(loss=ours.loss.astype(state.p.dtype))
        return members, losses.reshape(state.p.shape), after, ours

    def _gains(self, loss: jax.Array, losses: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
        """How much better than the decision each expert was, and how much of that may be rounding."""
        reference = reference_loss(loss, losses, p, sampled=self.combine == "sample")
        feedback = Full(reference, losses, gradients=None)
        gains = feedback.gains(None, None)
        if self.clip:  # but an infinite loss still takes an expert out
            gains = jnp.where(jnp.isfinite(gains), jnp.clip(gains, -self.bound, self.bound), gains)
        return gains, feedback.rounding(None)

    def _decide(self, rows: jax.Array, state: ExpertsState, chance: jax.Array) -> ExpertsState:
        p = mw.shares(state.weights)
        state = state._replace(p=p, chosen=self._place(p, chance))
        if not self._keeps_decision:
            return state
        assert state.decision is not None, "this engine keeps the decision"
        whole = Decision(state.members.params, state.members.model_state)
        if self.combine == "average":
            combined = self.placement.mean(whole, self._of_rows(p, rows), state.chosen, rows)
        else:
            combined = self.placement.pick(whole, state.chosen, rows)
        if self.feedback == "loss":
            combined = combined._replace(model_state=state.decision.model_state)
        return state._replace(decision=combined)

    def _diverged(self, rows: jax.Array, state: ExpertsState) -> jax.Array:
        """Whether the decision, or with newborns="inherit" what newborns would be made of, may not be finite."""
        if state.decision is None:
            whole = Decision(state.members.params, state.members.model_state)
            diverged = ~self.placement.usable(whole, state.chosen, rows)
        else:
            diverged = ~usable(state.decision)
        if self.newborns == "inherit":  # every expert of a slot enters its newborns
            diverged = diverged | self.cover.starts(state.round, self.slots).any()
        return diverged

    def _finite(self, rows: jax.Array, state: ExpertsState) -> jax.Array:
        """Which experts have finite numbers only, shape `(slots, candidates)`."""
        finite = jax.vmap(usable)(Decision(state.members.params, state.members.model_state))
        return self.placement.gather(finite)[: self.count].reshape(state.p.shape)

    def _reborn(self, rows: jax.Array, starts: jax.Array, state: ExpertsState) -> ExpertsState:
        """The state with newborns in the marked slots."""

        def fill(slots: jax.Array, origin: Decision, members: Member) -> Member:
            marked = self._of_rows(jnp.broadcast_to(slots[:, None], state.p.shape), rows)
            kept = origin.model_state if self.feedback == "full" else None

            def newborn(index: jax.Array) -> Member:
                return self.recipe.newborn(origin.params, kept, self._hyper_of(rows[index]))

            return self.placement.fill(members, marked, newborn)

        def fill_from_own_mean(slot: jax.Array, members: Member) -> Member:
            this = jnp.arange(self.slots) == slot
            own = jnp.where(this[:, None], share, 0.0)
            whole = Decision(members.params, members.model_state)
            origin = self.placement.mean(whole, self._of_rows(own, rows), jnp.argmax(own), rows)
            return fill(this, origin, members)

        members, inherit = state.members, self.newborns == "inherit"
        share, has = core_round.bequests(state.weights)
        heirs = starts & has if inherit else jnp.zeros_like(starts)
        origin = self._chosen(rows, members, state) if state.decision is None else state.decision
        members = fill(starts & ~heirs, origin, members)
        if inherit:

            def refill(slot: jax.Array, members: Member) -> Member:
                return only_if(heirs[slot], partial(fill_from_own_mean, slot), members)

            members = jax.lax.fori_loop(0, self.slots, refill, members)
        return state._replace(members=members)

    def _place(self, p: jax.Array, chance: jax.Array) -> jax.Array:
        """The row of the expert to use: drawn, or the heaviest."""
        if self.combine == "sample":
            return combine.draw(p, chance).astype(jnp.int32)
        places = jnp.arange(p.size, dtype=jnp.int32).reshape(*p.shape, 1)
        return combine.best(places, p)[0].astype(jnp.int32)

    def _chance(self, key: jax.Array, round: Any, p: jax.Array) -> jax.Array:
        """The random number that decides who is drawn for a round."""
        return combine.uniform(jax.random.fold_in(key, 2 * round + 1), like=p)

    def _rates_now(self, round: jax.Array) -> jax.Array:
        """The learning rate of every expert, shape `(slots, candidates)`."""
        table = jnp.asarray(self._rates, dtype=float)
        phase = 0
        if len(self._rates) > 1:
            assert isinstance(self.cover, Chosen), "only chosen restarts divide a run into phases"
            phase = jnp.sum(jnp.asarray(self.cover.rounds) <= round) - 1
        return jnp.broadcast_to(table[phase], (self.slots, table.shape[1]))

    def _of_rows(self, values: jax.Array, rows: jax.Array) -> jax.Array:
        """Of values for every expert, shape `(slots, candidates)`, those of some rows; 0 for idle rows."""
        idle = self.placement.rows(self.count) - self.count
        return jnp.pad(values.ravel(), (0, idle))[rows]

    def _hyper_of(self, rows: jax.Array) -> dict[str, jax.Array]:
        columns = {name: jnp.asarray(column, dtype=float) for name, column in self._hyper.items()}
        return {name: column[rows % len(self.prior)] for name, column in columns.items()}


class _Copies(NamedTuple):
    """Experts that are copies of a network; see `samuel.core.round.Population`."""

    engine: Experts
    rows: jax.Array
    chance: jax.Array

    def decided(self, state: ExpertsState) -> ExpertsState:
        return self.engine._decide(self.rows, state, self.chance)

    def diverged(self, state: ExpertsState) -> jax.Array:
        return self.engine._diverged(self.rows, state)

    def sifted(self, state: ExpertsState) -> tuple[ExpertsState, jax.Array]:
        return state, self.engine._finite(self.rows, state)

    def reborn(self, state: ExpertsState, starts: jax.Array) -> ExpertsState:
        with jax.named_scope("restart"):
            return self.engine._reborn(self.rows, starts, state)

    def when(self, needed: jax.Array, change: Callable[[Any], Any], state: Any) -> Any:
        return only_if(needed, change, state)


def _slots(cover: Any, rounds: Any) -> int:
    if not isinstance(cover, Cover):
        raise TypeError(f"cover must be a samuel.core cover such as Fixed(100), got {cover!r}")
    if rounds is not None and (not isinstance(rounds, int) or isinstance(rounds, bool) or rounds < 1):
        raise ValueError(f"rounds must be a whole number of at least 1, got {rounds!r}")
    if isinstance(cover, Anytime) and rounds is None:
        raise ValueError("Anytime() has no end: say with rounds=... how long the run is, which decides the slots")
    return cover.slots(rounds or cover.limit or 1)


def _hyperparameters(values: Any) -> dict[str, tuple[float, ...]]:
    if values is None:
        return {}
    if not isinstance(values, Mapping) or "learning_rate" in values:
        raise ValueError(
            f'hyperparameters must be names with lists of numbers, such as {{"alpha": (0.9, 1.0)}}, got {values!r}'
        )
    return {name: numbers(column, f"hyperparameters[{name!r}]") for name, column in values.items()}


def _phases(values: Any, cover: Cover) -> tuple[tuple[float, ...], ...]:
    try:
        listed = tuple(values)
    except TypeError:
        raise ValueError(f"learning_rates must be a list of numbers, got {values!r}") from None
    nested = [isinstance(entry, Sequence) and not isinstance(entry, str) for entry in listed]
    if not listed or not all(nested):
        return (learning_rates_of(listed),)
    if not isinstance(cover, Chosen) or len(cover.rounds) != len(listed):
        raise ValueError(
            f"learning_rates is a list of {len(listed)} lists: that needs a cover with as many phases, such as "
            f"Chosen of {len(listed) - 1} rounds, got {cover!r}"
        )
    phases = tuple(learning_rates_of(entry, f"learning_rates[{place}]") for place, entry in enumerate(listed))
    if len({len(phase) for phase in phases}) > 1:
        raise ValueError(f"every phase needs the same number of learning rates, got {[len(phase) for phase in phases]}")
    return phases


def _prior(values: Any, candidates: int) -> tuple[float, ...]:
    if values is None:
        return (1.0,) * candidates
    prior = numbers(values, "prior", positive=True)
    if len(prior) != candidates:
        raise ValueError(f"prior needs one number per expert of a slot ({candidates}), got {len(prior)}")
    return prior
