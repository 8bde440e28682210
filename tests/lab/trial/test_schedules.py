"""Learning rates are the paper's and optax's, at every step."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from samuel_lab.trial.schedules import BASELINES, SCHEDULES, describe, rates, step_rates

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
LENGTHS = (1, 2, 3, 15, 100, 769)


def test_the_table_of_baselines_is_the_papers():
    assert set(BASELINES) == set(PAPER)
    assert len(BASELINES) == 12


@pytest.mark.parametrize(("base", "schedule"), PAPER, ids="/".join)
def test_baselines_have_the_papers_rates(base, schedule):
    found = rates(schedule, BASELINES[base, schedule], 25_600)[[0, 1000, 17_000, 25_600]].tolist()
    assert found == pytest.approx(PAPER[base, schedule], rel=1e-10, abs=1e-15)


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_stay_between_zero_and_the_largest(name):
    for steps in LENGTHS:
        found = rates(name, 0.3, steps)
        assert found.shape == (steps + 1,)
        assert found.dtype == np.float64
        assert np.all((found >= 0) & (found <= (30 if name == "increasing" else 0.3) * (1 + 1e-12)))


@pytest.mark.parametrize("name", ["cosine", "warmup-cosine", "linear"])
def test_schedules_that_anneal_end_at_zero(name):
    assert [rates(name, 0.5, steps)[-1] for steps in LENGTHS] == pytest.approx([0.0] * len(LENGTHS), abs=1e-15)


@pytest.mark.parametrize("steps", [15, 16, 100, 768])
def test_restarts_leave_no_stump_at_the_end_of_a_run(steps):
    found = rates("cosine-restarts", 1.0, steps)
    first = math.ceil(steps / 15)
    peaks = np.flatnonzero(found[:-1] == 1.0).tolist()
    assert peaks == [peak for peak in (0, first, 3 * first, 7 * first) if peak < steps]
    expected = optax.cosine_decay_schedule(1.0, 2 * first)
    with jax.enable_x64(True):
        np.testing.assert_allclose(found[first : 3 * first], expected(jnp.arange(2 * first)), rtol=1e-6)


def test_proportions_shrink_with_the_run():
    small, full = rates("warmup-cosine", 0.15, 2560), rates("warmup-cosine", 0.15, 25_600)
    assert small.argmax() == 100
    assert full.argmax() == 1000
    assert small[[100, 1000, 2000]].tolist() == pytest.approx(full[[1000, 10_000, 20_000]].tolist())
    assert rates("exponential", 0.6, 2560)[[0, 300, 600]].tolist() == pytest.approx([0.6, 0.3, 0.15])


def test_a_rate_below_the_usual_beginning_does_not_start_above_itself():
    assert rates("warmup-cosine", 1e-6, 1000)[0] == pytest.approx(1e-6)


def test_step_schedules_change_at_their_transitions():
    found = step_rates([1.0, 0.1, 0.01], [125, 200], 300)
    assert found[[0, 124, 125, 199, 200, 300]].tolist() == [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]
    assert step_rates((0.5,), (), 7).tolist() == [0.5] * 8


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_describe_themselves_with_their_rate(name):
    assert "0.25" in describe(name, 0.25, 1000)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: rates("sine", 0.1, 10), "'cosine'.*got 'sine'"),
        (lambda: rates("cosine", 0.0, 10), "rate .*got 0.0"),
        (lambda: rates("constant", math.nan, 10), "rate .*got nan"),
        (lambda: rates("cosine", 0.1, 0), "steps .*got 0"),
        (lambda: step_rates((1.0, 0.1), (), 9), "1 phases, got 2 rates"),
        (lambda: step_rates((1.0, 0.1, 0.1), (5, 5), 9), r"transitions .*got \(5, 5\)"),
        (lambda: step_rates((1.0, 0.1), (0,), 9), r"transitions .*got \(0,\)"),
    ],
)
def test_what_makes_no_schedule_is_refused_by_name(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
