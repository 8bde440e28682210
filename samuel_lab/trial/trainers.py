"""Trainers take the steps of a trial: one network, a population of experts, or a search.

The training loop (`samuel_lab.trial.training`) passes batches to a trainer and requests measurements. The complete
state of a trainer is a pytree of arrays, so a checkpoint of it is complete.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax

import samuel.jax as sj
from samuel_lab.models import Task

Batch = tuple[jax.Array, jax.Array]
ExamBatch = tuple[jax.Array, jax.Array, jax.Array]
"""Inputs, labels, and a mask that is 0 for padding."""

RENEWING = 32
"""Number of batches from which batch statistics are recomputed. In flax's running mean with momentum 0.9 the old ones
then keep a thirtieth of the weight."""


class Score(NamedTuple):
    """Test accuracy and test loss of one network, or of each of several."""

    accuracy: np.ndarray
    loss: np.ndarray


class Trainer(ABC):
    """A method of training: takes the steps of a trial.

    Attributes:
        name: the name of the method.
        label: its name in tables.
        group: "samuel", "baseline", "peer", "search" or "stability".
        about: a description, in one sentence.
        extra: further entries of the plan.
        task: network and loss.
        gradients: the number of gradients a step.
        networks: the number of networks at the end.
        levels: block lengths, one for each row of the weights, None for a block as long as the run; None if there are
            no weights.
        rates: candidate learning rates, one for each column of the weights.
        schedules: for a search, the learning rates of every network, one per phase.
        recent: the number of latest batches that `score` needs.
    """

    name: str = ""
    label: str = ""
    group: str = ""
    about: str = ""
    extra: Mapping[str, Any] = {}
    task: Task
    gradients: int = 1
    networks: int = 1
    levels: tuple[int | None, ...] | None = None
    rates: tuple[float, ...] | None = None
    schedules: tuple[tuple[float, ...], ...] | None = None
    recent: int = 0

    def with_(self, **attributes: Any) -> Self:
        """A copy with other attributes that shares the compiled programs."""
        found = copy(self)
        vars(found).update(attributes)
        return found

    @property
    def row(self) -> dict[str, Any]:
        """The entry of the method in the plan of a run."""
        return {
            "trial": self.name,
            "label": self.label,
            "group": self.group,
            "about": self.about,
            "networks": self.networks,
            "gradients": self.gradients,
            "levels": None if self.levels is None else list(self.levels),
            "rates": None if self.rates is None else list(self.rates),
            "schedules": None if self.schedules is None else [list(rates) for rates in self.schedules],
            **self.extra,
        }

    @abstractmethod
    def init(self, key: jax.Array, round: int = 0) -> Any:
        """The state before the first step; with `round`, a state with the shapes it has after so many steps."""

    @abstractmethod
    def step(self, state: Any, batch: Batch, round: int) -> tuple[Any, jax.Array]:
        """One step: the new state and the training loss. The memory of the old state may be donated."""

    @abstractmethod
    def score(self, state: Any, exam: Iterable[ExamBatch], latest: Iterable[Batch] = ()) -> Score:
        """Evaluate the network on test batches.

        Args:
            state: the state of training.
            exam: the test batches.
            latest: the last `recent` training batches; without them batch statistics stay those of training.
        """

    @abstractmethod
    def facts(self, state: Any, round: int) -> dict[str, Any]:
        """What the state shows after so many steps: the learning rate in use, the weights."""

    def losses(self, round: int) -> int:
        """The number of losses that the step of a round returned; 0 for a scalar."""
        return 0

    def compiles_at(self, round: int) -> bool:
        """Whether the step after so many is compiled."""
        return round == 0


def judged(task: Task, params: Any, model_state: Any, batch: ExamBatch) -> tuple[jax.Array, jax.Array]:
    """The number of correct predictions, and the sum of the losses."""
    inputs, labels, mask = batch
    logits = task.outputs(params, model_state, inputs)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    right = (jnp.argmax(logits, axis=-1) == labels).astype(jnp.float32)
    return jnp.sum(right * mask), jnp.sum(jnp.where(mask > 0, losses, 0.0))


def _total(parts: Sequence[tuple[Any, Any, Any]]) -> Score:
    """The score from correct predictions, sum of losses and number of examples of every test batch."""
    right, loss, count = (np.sum([np.asarray(part) for part in column], axis=0) for column in zip(*parts, strict=True))
    return Score(right / count, loss / count)


class SingleState(NamedTuple):
    """A network in training."""

    params: Any
    opt_state: Any
    model_state: Any
    key: jax.Array
    steady: Any = None
    """The model state of the averaged parameters; None without an average."""


class Single(Trainer):
    """One network under one optimizer. The step is compiled once for all copies that differ in schedule or name.

    Args:
        task: network and loss.
        optimizer: an optax transformation.
        schedule: the learning rate of every step, for a base whose updates are directions to be subtracted times the
            rate. None for optimizers whose updates are complete steps.
        needs_value: whether the optimizer needs the loss.
        evaluate: the parameters to evaluate, from the optimizer's state and the trained parameters.
        pace: the weight of the trained parameters in the last update of their running average, from the optimizer's
            state; batch statistics are averaged with the same weight.
        renews: whether batch statistics are recomputed before every evaluation, on the latest batches and with the
            parameters to evaluate: for averages too long for averaged statistics.
        facts: reads `rate`, and optionally `weights` and `shifts`, from the optimizer's state.
        **attributes: see `Trainer`.
    """

    def __init__(
        self,
        task: Task,
        optimizer: optax.GradientTransformation,
        *,
        schedule: np.ndarray | None = None,
        needs_value: bool = False,
        evaluate: Callable[[Any, Any], Any] = lambda state, params: params,
        pace: Callable[[Any], jax.Array] | None = None,
        renews: bool = False,
        facts: Callable[[Any], Mapping[str, Any]] | None = None,
        **attributes: Any,
    ) -> None:
        vars(self).update(attributes)
        self.task, self.schedule = task, schedule
        scheduled, transformation = schedule is not None, optax.with_extra_args_support(optimizer)
        if renews and jax.tree.leaves(jax.eval_shape(task.init, jax.random.key(0))[1]):
            self.recent = RENEWING

        def step(state: SingleState, batch: Batch, round: jax.Array, rate: jax.Array) -> tuple[SingleState, jax.Array]:
            key = jax.random.fold_in(state.key, round)

            def loss_of(params: Any) -> tuple[jax.Array, Any]:
                loss, model_state, _ = task.loss(params, state.model_state, batch, key)
                return loss, model_state

            (loss, model_state), gradient = jax.value_and_grad(loss_of, has_aux=True)(state.params)
            extra = {"value": loss} if needs_value else {}
            updates, opt_state = transformation.update(gradient, state.opt_state, state.params, **extra)
            if scheduled:
                params = jax.tree.map(lambda p, u: (p - rate * u).astype(p.dtype), state.params, updates)
            else:
                params = optax.apply_updates(state.params, updates)
            steady = state.steady
            if pace is not None:
                steady = optax.incremental_update(model_state, steady, pace(opt_state))
            return SingleState(params, opt_state, model_state, state.key, steady), loss

        def judge(state: SingleState, batch: ExamBatch) -> tuple[jax.Array, jax.Array]:
            statistics = state.model_state if pace is None else state.steady
            return judged(task, evaluate(state.opt_state, state.params), statistics, batch)

        def renew(state: SingleState, batch: Batch) -> SingleState:
            params = evaluate(state.opt_state, state.params)
            _, model_state, _ = task.loss(params, state.model_state, batch, state.key)
            return state._replace(model_state=model_state)

        self._step, self._judge, self._renew = jax.jit(step, donate_argnums=0), jax.jit(judge), jax.jit(renew)
        self._begin, self._averages = jax.jit(transformation.init), pace is not None
        self._facts = None if facts is None else jax.jit(facts)

    def init(self, key: jax.Array, round: int = 0) -> SingleState:
        start, steps = jax.random.split(key)
        # Compiled once for all optimizers: for a ResNet that takes ten seconds.
        params, model_state = self.task.init(start)
        # Compiled initialisers may return one buffer twice (zeros), which cannot be donated twice.
        steady = model_state if self._averages else None
        return jax.tree.map(jnp.copy, SingleState(params, self._begin(params), model_state, steps, steady))

    def step(self, state: SingleState, batch: Batch, round: int) -> tuple[SingleState, jax.Array]:
        rate = 0.0 if self.schedule is None else self.schedule[round]
        return self._step(state, batch, np.int32(round), np.float32(rate))

    def score(self, state: SingleState, exam: Iterable[ExamBatch], latest: Iterable[Batch] = ()) -> Score:
        if self.recent:
            for batch in latest:
                state = self._renew(state, batch)
        return _total([(*self._judge(state, batch), jnp.sum(batch[2])) for batch in exam])

    def facts(self, state: SingleState, round: int) -> dict[str, Any]:
        if self.schedule is not None:
            return {"rate": float(self.schedule[max(0, round - 1)])}
        if self._facts is None:
            return {"rate": None}
        found = jax.device_get(self._facts(state.opt_state))
        return {name: np.asarray(value).tolist() for name, value in found.items()}


class PopulationState(NamedTuple):
    """The experts, and the rate in use in the last round."""

    experts: sj.ExpertsState
    rate: jax.Array


class Population(Trainer):
    """Many experts, each with its own network and gradient: the paper's full feedback.

    Args:
        task: network and loss.
        engine: the experts.
        **attributes: see `Trainer`.
    """

    def __init__(self, task: Task, engine: sj.Experts, **attributes: Any) -> None:
        vars(self).update(attributes)
        self.task, self.engine = task, engine
        listed = engine.candidates["learning_rate"]
        self.rates = rates = tuple(dict.fromkeys(listed))
        self._columns = np.array([rates.index(rate) for rate in listed])
        self.gradients = self.networks = engine.count
        self._judge = jax.jit(lambda found, batch: judged(task, found.params, found.model_state, batch))

    def init(self, key: jax.Array, round: int = 0) -> PopulationState:
        start, steps = jax.random.split(key)
        params, model_state = self.task.init(start)
        experts = self.engine.init(params, model_state, key=steps)
        return PopulationState(experts, jnp.asarray(np.nan, jnp.float32))

    def step(self, state: PopulationState, batch: Batch, round: int) -> tuple[PopulationState, jax.Array]:
        experts, info = self.engine.step(state.experts, batch)
        return PopulationState(experts, info.learning_rate.astype(jnp.float32)), info.loss

    def score(self, state: PopulationState, exam: Iterable[ExamBatch], latest: Iterable[Batch] = ()) -> Score:
        decision = self.engine.decision(state.experts)
        return _total([(*self._judge(decision, batch), jnp.sum(batch[2])) for batch in exam])

    def facts(self, state: PopulationState, round: int) -> dict[str, Any]:
        p = np.asarray(state.experts.p)
        weights = np.zeros((len(p), 1 + self._columns.max()))
        np.add.at(weights.T, self._columns, p.T)
        return {"rate": float(state.rate), "weights": weights.tolist()}


class Search(Trainer):
    """Every step schedule of a grid, each common beginning trained once.

    Args:
        task: network and loss.
        sweep: the search.
        **attributes: see `Trainer`.
    """

    def __init__(self, task: Task, sweep: sj.Sweep, **attributes: Any) -> None:
        vars(self).update(attributes)
        self.task, self.sweep = task, sweep
        last = len(sweep.phases) - 1
        self.gradients = self.networks = sweep.count(last)
        self.schedules = tuple(sweep.schedules_of(last))

        def question(params: Any, model_state: Any, batch: ExamBatch) -> tuple[jax.Array, jax.Array]:
            return judged(task, params, model_state, batch)

        self._question = question

    def init(self, key: jax.Array, round: int = 0) -> sj.SweepState:
        start, steps = jax.random.split(key)
        params, model_state = self.task.init(start)
        return self.sweep.init(params, model_state, key=steps, round=round)

    def step(self, state: sj.SweepState, batch: Batch, round: int) -> tuple[sj.SweepState, jax.Array]:
        state, info = self.sweep.step(state, batch)
        return state, info.losses

    def score(self, state: sj.SweepState, exam: Iterable[ExamBatch], latest: Iterable[Batch] = ()) -> Score:
        return _total([(*self.sweep.ask(state, self._question, batch), jnp.sum(batch[2])) for batch in exam])

    def facts(self, state: sj.SweepState, round: int) -> dict[str, Any]:
        return {"rate": None}

    def losses(self, round: int) -> int:
        return self.sweep.count(self.sweep.phase_of(round - 1))

    def compiles_at(self, round: int) -> bool:
        return round in (0, *self.sweep.transitions)
