"""The rate search: laws that hold whatever the gradients are, in every library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samuel.core.rate_search import SEARCHES, RateSearch, search_for

RATES = (0.001, 0.01, 0.1, 1.0)
SEARCH = RateSearch(RATES, memory=20.0, settle=10.0)
NUMBER = st.floats(-1e3, 1e3, allow_subnormal=False)
ROUND = st.tuples(NUMBER, NUMBER, st.booleans(), st.booleans())
STORY = st.lists(ROUND, min_size=1, max_size=25)


def follow(search, story, like=None, advance=None):
    """The states and steps of a search on a story of dot products, shifts and retreats."""
    state = search.start(np.zeros(()) if like is None else like)
    advance = advance or search.advance
    for of_sum, of_lag, shifted, retreats in story:
        dots = np.array([of_sum, of_lag])
        if like is not None:
            dots = (
                jnp.asarray(dots, like.dtype) if isinstance(like, jax.Array) else torch.tensor(dots, dtype=like.dtype)
            )
        state, step = advance(state, dots, 0.5, 0.1, shifted, retreats)
        yield state, step


def numbers(parts):
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in parts])


@given(STORY)
def test_weights_are_shares_and_the_mean_rate_is_theirs(story):
    for state, step in follow(SEARCH, story):
        shares = SEARCH.shares(state)
        assert (shares >= 0).all()
        assert shares.sum() == pytest.approx(1)
        assert state.mean == pytest.approx(shares @ np.array(RATES))
        assert RATES[0] * 0.999 <= state.mean <= RATES[-1] * 1.001
        assert SEARCH.evidence(state).sum() == pytest.approx(1)
        assert np.isfinite(numbers(step)).all()


@given(STORY, st.floats(1e-6, 1e6))
def test_losses_times_a_constant_change_no_step(story, factor):
    scaled = [(factor * of_sum, factor * of_lag, *rest) for of_sum, of_lag, *rest in story]
    for (_, step), (_, same) in zip(follow(SEARCH, story), follow(SEARCH, scaled), strict=True):
        assert numbers(step) == pytest.approx(numbers(same), rel=1e-6)


@given(STORY, STORY)
@settings(max_examples=20)
def test_searches_side_by_side_do_not_touch_each_other(first, second):
    length = min(len(first), len(second))
    # Shifts come to all searches at once.
    second = [(a, b, *one[2:]) for (a, b, *_), one in zip(second[:length], first, strict=False)]
    alone = [list(follow(SEARCH, story)) for story in (first[:length], second)]
    state = SEARCH.start(np.zeros(2))
    for t in range(length):
        dots = np.array([first[t][:2], second[t][:2]])
        state, step = SEARCH.advance(state, dots, 0.5, 0.1, *first[t][2:])
        for k in range(2):
            one, its_step = alone[k][t]
            assert numbers(part[k] for part in (*state, *step)) == pytest.approx(numbers((*one, *its_step)), rel=1e-12)


@given(STORY)
@settings(max_examples=20, deadline=None)
def test_torch_and_compiled_jax_give_the_same_numbers(story):
    compiled = jax.jit(SEARCH.advance)
    ours = list(follow(SEARCH, story))
    tensors = follow(SEARCH, story, torch.zeros((), dtype=torch.float64))
    with jax.enable_x64(True):
        traced = list(follow(SEARCH, story, jnp.zeros((), jnp.float64), compiled))
    for (state, step), *others in zip(ours, tensors, traced, strict=True):
        for other in others:
            assert numbers((*other[0], *other[1])) == pytest.approx(numbers((*state, *step)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shapes_and_dtypes_never_change(dtype):
    state = SEARCH.start(np.zeros(3, dtype))
    for shifted in (False, True, False):
        after, step = SEARCH.advance(state, np.ones((3, 2), dtype), 0.5, 0.1, shifted, ~np.array(shifted))
        assert [(part.shape, part.dtype) for part in after] == [(part.shape, part.dtype) for part in state]
        assert {part.dtype for part in step} == {np.dtype(dtype)}
        state = after


def test_decays_along_another_axis_are_those_of_one_search_each():
    state = SEARCH.start(np.zeros(2))
    dots = np.array([[1.0, 0.2], [-0.5, 0.1]])
    for _ in range(3):
        several = SEARCH.advance(state, dots, 1.0, np.array([[0.0, 0.1], [0.3, 0.0]]))
        for place, decay in enumerate((np.array([0.0, 0.3]), np.array([0.1, 0.0]))):
            _, one = SEARCH.advance(state, dots, 1.0, decay)
            assert several[1].keep[:, place] == pytest.approx(one.keep)
            assert several[1].slide[:, place] == pytest.approx(one.slide)
        state = several[0]


@pytest.mark.parametrize("curvature", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("base", ["adam", "sgd"])
def test_it_descends_a_quadratic_at_any_curvature(base, curvature):
    search = SEARCHES[base]
    state, x, s, lag = search.start(np.zeros(())), np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    start = (x**2).sum()
    for _ in range(600):
        g = curvature * x
        state, step = search.advance(state, np.array([g @ s, g @ lag]), fall=1.0)
        d = g if base == "sgd" else g / np.linalg.norm(g)
        x = step.keep * x + step.slide * s + step.along * d
        s, lag = step.keep * s + step.enter * d, search.lag * (step.keep * lag + step.enter * d)
    assert (x**2).sum() < 0.05 * start


def test_with_one_candidate_every_step_has_its_rate():
    search = RateSearch((0.3,))
    for _, step in follow(search, [(1.0, 0.0, False, False)] * 5):
        assert step.along == pytest.approx(-0.15)  # the schedule leaves a half
        assert step.slide == pytest.approx(0.0)


def test_a_shift_keeps_what_is_known_about_rates_and_a_rate_that_is_remembered_rises_again():
    state, entered = SEARCH.start(np.zeros(())), []
    for t in range(30):
        before = state.mean
        state, step = SEARCH.advance(state, np.array([-1.0, 0.0]), 1.0, 0.0, shifted=t == 14)
        entered.append(step.enter)
        if t == 14:
            assert state.mean < before
            assert state.count == 0
            assert state.memory == 15
    assert entered[14:26] == pytest.approx([1.0, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0])


def test_after_a_shift_the_odds_between_rates_move_less():
    kept = SEARCH.start(np.zeros(()))
    for t in range(15):
        kept, _ = SEARCH.advance(kept, np.array([-1.0, 0.0]), shifted=t == 14)
    after, _ = SEARCH.advance(kept, np.array([-1.0, 0.0]))
    fresh, _ = SEARCH.advance(SEARCH.start(np.zeros(())), np.array([-1.0, 0.0]))
    start = SEARCH.start(np.zeros(()))
    change_after = np.log(SEARCH.shares(after) / SEARCH.shares(kept))
    change_fresh = np.log(SEARCH.shares(fresh) / SEARCH.shares(start))
    assert np.abs(change_after).max() < np.abs(change_fresh).max() / 3


def test_rates_given_up_after_a_blow_up_do_not_come_back_in_the_block():
    state = SEARCH.start(np.zeros(()))
    for _ in range(5):
        state, _ = SEARCH.advance(state, np.array([1.0, 0.0]))
    high = state.mean
    state, _ = SEARCH.advance(state, np.array([0.0, 0.0]), retreats=True)
    assert state.mean <= high / 4
    for _ in range(50):
        state, _ = SEARCH.advance(state, np.array([1.0, 0.0]))
    assert state.mean <= high / 4


def test_regret_is_what_each_rate_would_have_gained():
    state, total, s = SEARCH.start(np.zeros(())), np.zeros(len(RATES)), 0.0
    random = np.random.default_rng(0)
    for g in random.normal(size=12):
        total += g * (np.array(RATES) - state.mean) * s  # <g, x - x_j>
        state, step = SEARCH.advance(state, np.array([g * s, 0.0]))
        s = step.keep * s + step.enter * g
        assert state.regret == pytest.approx(total)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": ()}, "learning_rates is empty"),
        ({"learning_rates": (0.1, 0.1)}, "learning_rates must differ from each other"),
        ({"learning_rates": (0.1, -0.1)}, "a learning rate must be positive and finite, got -0.1"),
        ({"learning_rates": "fast"}, "learning_rates must be a list of numbers, got 'fast'"),
        ({"lag": 1.0}, "lag must be a number at least 0 and below 1, got 1.0"),
        ({"settle": 0}, "settle must be a finite number above 0, got 0"),
        ({"memory": -1}, "memory must be a finite number at least 0, got -1"),
        ({"prior": None}, "prior must be a finite number, got None"),
        ({"Q": 0}, "Q must be a whole number of at least 1, got 0"),
        ({"Q": True}, "Q must be a whole number of at least 1, got True"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        RateSearch(**options)


def test_a_base_of_your_own_is_searched_as_adam_is():
    assert search_for(None) == SEARCHES["adam"]
