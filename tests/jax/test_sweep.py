"""A sweep gives what separate runs of every schedule give, for less work."""

from functools import cache
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from samuel.jax.checkpoint import Checkpoints
from samuel.jax.sweep import Sweep

PHASES = ((0.1, 0.5), (0.01, 0.1, 1.0), (0.02, 0.3))
TRANSITIONS = (2, 5)
ROUNDS = 6


def loss_of(params, seen, batch, key):
    noise = jax.random.normal(key, batch.shape)
    return jnp.mean((params["w"] - batch) ** 2 * (1 + 0.1 * noise)), seen + batch.mean(), params["w"][0]


def start():
    return {"w": jnp.zeros(3)}, jnp.zeros(()), jax.random.key(4)


def batches():
    return np.random.default_rng(0).normal(size=(ROUNDS, 3)).astype(np.float32)


@cache
def swept(**options):
    sweep = Sweep(loss_of, "momentum", PHASES, TRANSITIONS, **options)
    state = sweep.init(*start())
    for batch in batches():
        state, info = sweep.step(state, batch)
    return sweep, state, info


def alone(schedule, reset=False):
    """One schedule, trained as anyone would."""
    params, model_state, key = start()
    optimizer = optax.trace(decay=0.9)
    memory = optimizer.init(params)
    for round, batch in enumerate(batches()):
        phase = sum(transition <= round for transition in TRANSITIONS)
        if reset and round in TRANSITIONS:
            memory = optimizer.init(params)
        own = jax.random.fold_in(key, round)
        gradient = jax.grad(lambda params: loss_of(params, model_state, batch, own)[0])(params)  # noqa: B023
        loss, model_state, _ = loss_of(params, model_state, batch, own)
        step, memory = optimizer.update(gradient, memory)
        params = jax.tree.map(lambda p, d, rate=schedule[phase]: p - rate * d, params, step)
    return params["w"], model_state, loss


@pytest.mark.parametrize("reset", [False, True])
def test_every_schedule_gives_what_a_run_of_its_own_gives(reset):
    sweep, state, info = swept(reset=reset)
    schedules = sweep.schedules(state)
    assert schedules == list(product(*PHASES))
    for place in (0, 4, 7, 11):
        params, model_state, loss = alone(schedules[place], reset)
        found, found_state = sweep.network(state, place)
        np.testing.assert_allclose(found["w"], params, rtol=1e-5)
        np.testing.assert_allclose(found_state, model_state, rtol=1e-5)
        np.testing.assert_allclose(info.losses[place], loss, rtol=1e-5)


def test_an_exhaustive_search_costs_each_common_beginning_once():
    rates = (0.1, 0.2, 0.3, 0.4, 0.5)
    sweep = Sweep(lambda p, state, batch, key: ((p - batch) ** 2, state), "sgd", (rates,) * 3, transitions=(1, 2))
    state = sweep.init(0.0)
    sizes = []
    for _ in range(3):
        state, info = sweep.step(state, 1.0)
        sizes.append(info.losses.size)
    assert sizes == [5, 25, 125]
    assert sweep.work(state) == 5 + 25 + 125
    assert len(set(sweep.schedules(state))) == 125


def test_one_after_another_gives_what_all_at_once_gives():
    _, _, vectorised = swept()
    _, _, in_turn = swept(placement="scan")
    np.testing.assert_allclose(in_turn.losses, vectorised.losses, rtol=1e-5)
    np.testing.assert_allclose(in_turn.aux, vectorised.aux, rtol=1e-5)


def test_networks_branch_with_the_first_round_of_a_phase():
    sweep = Sweep(loss_of, "sgd", PHASES, TRANSITIONS)
    state = sweep.init(*start())
    for batch in batches()[:2]:
        state, _ = sweep.step(state, batch)
    assert sweep.schedules(state) == [(0.1,), (0.5,)]
    state, _ = sweep.step(state, batches()[2])
    assert sweep.schedules(state) == list(product(*PHASES[:2]))


def test_questions_are_answered_for_every_network():
    sweep, state, _ = swept()
    answers = sweep.ask(state, lambda params, seen, batch: params["w"] @ batch, jnp.arange(3.0))
    expected = [sweep.network(state, place)[0]["w"] @ jnp.arange(3.0) for place in range(12)]
    np.testing.assert_allclose(answers, expected, rtol=1e-5)


def test_a_schedule_that_diverges_leaves_the_others_alone():
    sweep = Sweep(lambda p, state, batch, key: ((p - batch) ** 2, state), "sgd", ((0.1, 1e30),))
    state = sweep.init(1.0)
    for _ in range(4):
        state, info = sweep.step(state, 0.0)
    assert not np.isfinite(info.losses[1])
    assert 0 < info.losses[0] < 1


@pytest.mark.parametrize(
    ("phases", "transitions", "message"),
    [
        ((), (), "phases is empty"),
        (((),), (), r"phases\[0\] is empty"),
        (((0.1,), (0.1, -1.0)), (3,), r"phases\[1\] must be positive numbers, got -1.0"),
        (((0.1,), (0.2,)), (), "2 phases need 1 transitions"),
        (((0.1,), (0.2,), (0.3,)), (5, 5), "transitions must rise"),
        (((0.1,), (0.2,)), (0,), "a transition must be a round from 1 on, got 0"),
        (0.1, (), "phases must be a list"),
    ],
)
def test_phases_that_make_no_sense_are_refused(phases, transitions, message):
    with pytest.raises(ValueError, match=message):
        Sweep(loss_of, "sgd", phases, transitions)


def test_a_bad_batch_is_refused_before_anything_changes():
    sweep = Sweep(loss_of, "sgd", PHASES, TRANSITIONS)
    state = sweep.init(*start())
    with pytest.raises(ValueError, match="Incompatible shapes"):
        sweep.step(state, jnp.zeros((2, 2)))
    state, _ = sweep.step(state, batches()[0])
    state, _ = sweep.step(state, batches()[1])
    with pytest.raises(ValueError, match="Incompatible shapes"):  # where the networks would branch
        sweep.step(state, jnp.zeros((2, 2)))
    sweep.step(state, batches()[2])


def test_a_state_of_another_sweep_is_refused():
    other = Sweep(loss_of, "sgd", ((0.1, 0.2, 0.3),))
    with pytest.raises(ValueError, match="another sweep's"):
        Sweep(loss_of, "sgd", PHASES, TRANSITIONS).step(other.init(*start()), batches()[0])


@pytest.mark.parametrize("saved_after", [2, 3, 5])
def test_a_sweep_resumes_from_a_checkpoint_of_any_phase(saved_after, tmp_path):
    sweep, whole, _ = swept()
    state = sweep.init(*start())
    for batch in batches()[:saved_after]:
        state, _ = sweep.step(state, batch)
    Checkpoints(tmp_path).save(saved_after, state)
    step, resumed = Checkpoints(tmp_path).restore(like=sweep.init(*start(), round=saved_after))
    for batch in batches()[step:]:
        resumed, _ = sweep.step(resumed, batch)
    for ours, theirs in zip(jax.tree.leaves(resumed.members), jax.tree.leaves(whole.members), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_network_that_is_not_there_is_refused():
    sweep, state, _ = swept()
    with pytest.raises(IndexError, match="from 0 to 11.*got 12"):
        sweep.network(state, 12)


def test_a_state_that_a_step_has_used_up_is_refused_in_words():
    sweep = Sweep(loss_of, "sgd", PHASES[:1])
    state = sweep.init(*start())
    sweep.step(state, batches()[0])
    with pytest.raises(ValueError, match="used up by an earlier step"):
        sweep.step(state, batches()[1])
