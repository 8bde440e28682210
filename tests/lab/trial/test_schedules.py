"""Learning rates are the paper's and optax's, at every round."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import samuel.jax
from samuel_lab.trial import schedules
from samuel_lab.trial.schedules import (
    BASELINES,
    SCHEDULES,
    Constant,
    Cosine,
    CosineRestarts,
    Exponential,
    Increasing,
    Linear,
    Schedule,
    Step,
    WarmupCosine,
    make,
)

# The rates of rounds 0, 1,000, 17,000 and 25,600, worked out from the appendix with thirty digits of bc(1).
PAPER = {
    ("sgd", "constant"): (0.15, 0.15, 0.15, 0.15),
    ("sgd", "cosine"): (0.3, 0.298871930190, 0.0760652711655, 0.0),
    ("sgd", "warmup-cosine"): (1e-5, 0.5, 0.136217998228, 0.0),
    ("sgd", "exponential"): (0.6, 0.476220315590, 0.0118117598428, 0.00161942915621),
    ("adagrad", "constant"): (0.2, 0.2, 0.2, 0.2),
    ("adagrad", "cosine"): (0.2, 0.199247953460, 0.0507101807770, 0.0),
    ("adagrad", "warmup-cosine"): (1e-5, 0.15, 0.0408653994684, 0.0),
    ("adagrad", "exponential"): (0.35, 0.277795184094, 0.00689019324161, 0.000944667007790),
    ("adam", "constant"): (0.001, 0.001, 0.001, 0.001),
    ("adam", "cosine"): (0.001, 0.000996239767299, 0.000253550903885, 0.0),
    ("adam", "warmup-cosine"): (1e-5, 0.005, 0.00136217998228, 0.0),
    ("adam", "exponential"): (0.005, 0.00396850262992, 0.0000984313320230, 0.0000134952429684),
}
OPTAX = {
    "constant": lambda rate: optax.constant_schedule(rate),
    "cosine": lambda rate: optax.cosine_decay_schedule(rate, 25_600, alpha=0.0),
    "warmup-cosine": lambda rate: optax.warmup_cosine_decay_schedule(1e-5, rate, 1000, 25_600, end_value=0.0),
    "exponential": lambda rate: optax.exponential_decay(rate, 3000, 0.5),
    "linear": lambda rate: optax.linear_schedule(rate, 0.0, 25_600),
    "cosine-restarts": lambda rate: optax.sgdr_schedule(
        [
            {"init_value": rate, "peak_value": rate, "warmup_steps": 0, "decay_steps": 1707 * 2**period}
            for period in range(4)
        ]
    ),
    "increasing": lambda rate: optax.exponential_decay(rate, 25_600, 100.0),
}
rates = st.floats(1e-6, 1e3)
lengths = st.integers(1, 10**6)


def test_the_table_of_baselines_is_the_papers():
    assert set(BASELINES) == set(PAPER)
    assert len(BASELINES) == 12


@pytest.mark.parametrize(("base", "schedule"), PAPER, ids="/".join)
def test_baselines_have_the_papers_rates(base, schedule):
    made = make(schedule, BASELINES[base, schedule], 25_600)
    found = [made(round) for round in (0, 1000, 17_000, 25_600)]
    assert found == pytest.approx(PAPER[base, schedule], rel=1e-10, abs=1e-15)


def test_every_schedule_has_its_counterpart_in_optax():
    assert set(OPTAX) == set(SCHEDULES)


@pytest.mark.parametrize("name", OPTAX)
def test_schedules_are_those_of_optax(name):
    made = make(name, 0.3, 25_600)
    # Also where one phase becomes the next, and after the end; the restarts of optax end with its list.
    last = 25_600 if name == "cosine-restarts" else 30_000
    rounds = np.unique(np.r_[0:last:97, 999:1002, 1706:1709, 5120:5123, 11948:11951, 25_598:25_601, last])
    with jax.enable_x64(True):
        expected = np.broadcast_to(OPTAX[name](0.3)(jnp.asarray(rounds)), rounds.shape)
    np.testing.assert_allclose([made(int(round)) for round in rounds], expected, rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize("name", SCHEDULES)
@given(rate=rates, rounds=lengths, share=st.floats(0, 1))
def test_rates_stay_between_zero_and_the_largest(name, rate, rounds, share):
    value = make(name, rate, rounds)(int(share * rounds))
    largest = 100 * rate if name == "increasing" else rate
    assert 0 <= value <= largest * (1 + 1e-12)
    assert isinstance(value, float)


@pytest.mark.parametrize("name", ["cosine", "warmup-cosine", "linear"])
@given(rounds=lengths)
def test_schedules_that_anneal_end_at_zero(name, rounds):
    assert make(name, 0.5, rounds)(rounds) == pytest.approx(0.0, abs=1e-15)


@given(rounds=st.integers(15, 10**6))
def test_restarts_leave_no_stump_at_the_end_of_a_run(rounds):
    made = make("cosine-restarts", 1.0, rounds)
    restarts = [made.first, 3 * made.first, 7 * made.first]
    assert all(made(restart) == 1.0 for restart in restarts if restart < rounds)
    # Four periods, and no fifth before the end, where the rate would be large again.
    assert 15 * made.first >= rounds


def test_proportions_shrink_with_the_run():
    small, full = make("warmup-cosine", 0.15, 2560), make("warmup-cosine", 0.15, 25_600)
    assert small.warmup == 100
    assert full.warmup == 1000
    assert [small(round) for round in (100, 1000, 2000)] == pytest.approx([full(t) for t in (1000, 10_000, 20_000)])
    assert make("exponential", 0.6, 2560) == Exponential(0.6, transition=300)
    assert make("warmup-cosine", 0.15, 3).warmup == 1


def test_a_rate_below_the_usual_beginning_does_not_start_above_itself():
    assert make("warmup-cosine", 1e-6, 1000)(0) == 1e-6


def test_step_schedules_change_at_their_transitions():
    made = Step([1.0, 0.1, 0.01], [125, 200])
    assert [made(t) for t in (0, 124, 125, 199, 200, 10_000)] == [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    assert hash(made) == hash(Step((1.0, 0.1, 0.01), (125, 200)))
    assert Step((0.5,), ())(7) == 0.5


def test_an_exhaustive_search_has_125_different_schedules():
    candidates = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    found = schedules.product([candidates] * 3)
    assert len(found) == len(set(found)) == 125
    assert found[0] == (1e-4, 1e-4, 1e-4)
    assert found[1] == (1e-4, 1e-4, 1e-3)
    assert found[25] == (1e-3, 1e-4, 1e-4)


def test_an_exhaustive_search_is_in_the_order_of_sweeps():
    phases = ((0.1, 0.2), (0.3, 0.4, 0.5))
    sweep = samuel.jax.Sweep(lambda params, state, batch, key: (params**2, state), "sgd", phases, (1,))
    state = sweep.init(jnp.array(1.0), round=2)
    assert schedules.product(phases) == sweep.schedules(state)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_describe_themselves_with_their_rate(name):
    assert "0.25" in make(name, 0.25, 1000).describe()


def test_schedules_are_values():
    assert make("cosine", 0.1, 10) == Cosine(0.1, 10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cosine(0.1, 10).rate = 0.2  # pyright: ignore[reportAttributeAccessIssue]
    assert issubclass(Cosine, Schedule)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: make("sine", 0.1, 10), "'cosine'.*got 'sine'"),
        (lambda: make("cosine", 0.0, 10), "rate .*got 0.0"),
        (lambda: make("constant", math.nan, 10), "rate .*got nan"),
        (lambda: make("cosine", 0.1, 0), "rounds .*got 0"),
        (lambda: Constant(-1.0), "rate .*got -1.0"),
        (lambda: Cosine(math.inf, 10), "rate .*got inf"),
        (lambda: WarmupCosine(0.1, rounds=10, warmup=10), "warmup .*10 rounds, got 10"),
        (lambda: WarmupCosine(0.1, rounds=10, warmup=-1), "warmup .*got -1"),
        (lambda: Exponential(0.1, transition=0), "transition .*got 0"),
        (lambda: Exponential(0.1, 10, decay=0.0), "decay .*got 0.0"),
        (lambda: Linear(0.1, rounds=0), "rounds .*got 0"),
        (lambda: CosineRestarts(0.1, first=0), "first .*got 0"),
        (lambda: Increasing(0.1, 10, growth=-2.0), "growth .*got -2.0"),
        (lambda: Step((1.0, 0.1), ()), r"1 phases, got 2 rates: \(1.0, 0.1\)"),
        (lambda: Step((1.0, 0.1, 0.1), (5, 5)), r"transitions .*got \(5, 5\)"),
        (lambda: Step((1.0, 0.1), (0,)), r"transitions .*got \(0,\)"),
        (lambda: Step((1.0, -0.1), (5,)), "rates .*got -0.1"),
        (lambda: Constant(0.1)(-1), "round .*got -1"),
        (lambda: schedules.product([(0.1, 0.1)]), r"all different, got \(0.1, 0.1\)"),
        (lambda: schedules.product([()]), r"got \(\)"),
    ],
)
def test_what_makes_no_schedule_is_refused_by_name(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
