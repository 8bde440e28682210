"""Multiplicative weights: the algorithm against a plain reference, and what holds whatever the gains are."""

import contextlib
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samuel.core import NoHealthyExpert
from samuel.core import weights as mw

SLOTS, EXPERTS, Q = 3, 2, 4
PRIOR = np.array([1.0, 0.5])
ALL = np.ones(SLOTS, dtype=bool)
any_float = st.floats(allow_nan=True, allow_infinity=True, width=64)
gain_rounds = st.lists(hnp.arrays(float, (SLOTS, EXPERTS), elements=any_float), min_size=1, max_size=8)
finite_gains = hnp.arrays(float, (SLOTS, EXPERTS), elements=st.floats(-100, 100).map(lambda x: round(x, 6)))
masks = hnp.arrays(bool, SLOTS)


def opened(bound=0.0):
    return mw.restart(mw.begin(PRIOR, SLOTS, Q, bound=bound), ALL, PRIOR)


def play(weights, gains):
    """A round as a user of the module writes it."""
    weights, judged = mw.judge(weights, gains)
    return mw.widen(weights, judged.largest, PRIOR), judged


class Reference:
    """The rules of the module's first lines, written down with a dictionary of logarithms and nothing else."""

    def __init__(self, bound):
        self.bound, self.log_v, self.ended, self.started = bound, {}, [], 0.0

    def restart(self, starts, inherit=False):
        for k in np.flatnonzero(starts):
            for j in range(EXPERTS):
                for q in range(1, Q + 1):
                    old = self.log_v.pop((k, j, q), -math.inf)
                    self.started += PRIOR[j]
                    if inherit:
                        self.log_v[k, j, q] = np.logaddexp(old, math.log(PRIOR[j]))
                    else:
                        self.ended.append(old)
                        self.log_v[k, j, q] = math.log(PRIOR[j])

    def judge(self, gains):
        largest = max(abs(gains[k, j]) for k, j, _ in self.log_v)
        if self.bound == 0:
            self.bound = largest
            return
        used = gains * min(1.0, self.bound / largest) if largest > 0 else gains
        for k, j, q in self.log_v:
            self.log_v[k, j, q] += math.log1p(used[k, j] / (self.bound * 2**q))
        doublings = 0
        while self.bound * 2**doublings < largest:
            doublings += 1
        self.bound = self.bound * 2**doublings if doublings <= Q else largest
        shift = min(doublings, Q)
        for k, j in {(k, j) for k, j, _ in self.log_v}:
            old = [self.log_v[k, j, q] for q in range(1, Q + 1)]
            new = old[shift:] + [math.log(PRIOR[j])] * shift
            self.ended += old[:shift]
            self.started += shift * PRIOR[j]
            self.log_v |= {(k, j, q): value for q, value in enumerate(new, start=1)}

    @property
    def p(self):
        weight = np.zeros((SLOTS, EXPERTS))
        top = max(self.log_v.values())
        for (k, j, q), log_v in self.log_v.items():
            weight[k, j] += math.exp(log_v - top) / 2**q
        return weight / weight.sum()

    @property
    def log_total(self):
        return np.logaddexp.reduce(list(self.log_v.values()) + self.ended)


@given(
    st.lists(st.tuples(finite_gains, masks), min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([0.0, 1.0, 64.0]),
)
def test_weights_follow_the_plain_rules(rounds, inherit, bound):
    weights, reference = opened(bound), Reference(bound)
    reference.restart(ALL)
    for gains, starts in rounds:
        weights, _ = play(weights, gains)
        reference.judge(gains)
        weights = mw.restart(weights, starts, PRIOR, inherit)
        reference.restart(starts, inherit)
        np.testing.assert_allclose(mw.shares(weights), reference.p, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(mw.log_total(weights), reference.log_total, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(weights.started, reference.started)
        assert float(weights.bound) == pytest.approx(reference.bound)


@given(gain_rounds, st.sampled_from([0.0, 1e-300, 1.0, 1e300]))
def test_shares_are_never_negative_and_sum_to_one_whatever_the_gains(rounds, bound):
    weights = opened(bound)
    for gains in rounds:
        with contextlib.suppress(NoHealthyExpert):
            weights, _ = play(weights, gains)
        p = mw.shares(weights)
        assert (p >= 0).all()
        assert p.sum() == pytest.approx(1.0)


@given(gain_rounds)
def test_an_expert_with_a_bad_gain_has_no_weight_until_its_slot_restarts(rounds):
    weights = opened()
    out = np.zeros((SLOTS, EXPERTS), dtype=bool)
    for gains in rounds:
        bad = out | ~(np.abs(gains) < 1e307)  # beyond that, a gain counts as infinite
        if bad.all():
            continue
        weights, _ = play(weights, gains)
        out = bad
        assert ((mw.shares(weights) == 0) == out).all()
    weights = mw.restart(weights, np.array([True, False, False]), PRIOR)
    assert (mw.shares(weights)[0] > 0).all()
    assert ((mw.shares(weights)[1:] == 0) == out[1:]).all()


def test_if_every_expert_is_bad_there_is_an_error_and_the_weights_are_as_they_were():
    weights, _ = play(opened(1.0), np.full((SLOTS, EXPERTS), 0.5))
    before = [np.array(part) for part in weights]
    with pytest.raises(NoHealthyExpert, match="every expert"):
        mw.judge(weights, np.full((SLOTS, EXPERTS), np.nan))
    with pytest.raises(NoHealthyExpert, match="every expert"):
        mw.remove(weights, np.zeros((SLOTS, EXPERTS), dtype=bool))
    assert all(np.array_equal(old, new) for old, new in zip(before, weights, strict=True))


def test_the_error_names_the_stream():
    batch = mw.restart(mw.begin(PRIOR, SLOTS, Q, batch=(4,)), ALL, PRIOR)
    gains = np.zeros((4, SLOTS, EXPERTS))
    gains[2] = np.inf
    with pytest.raises(NoHealthyExpert, match=r"stream\(s\) 2"):
        mw.judge(batch, gains)


scales = st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1e9])


@given(st.lists(st.tuples(finite_gains, scales), min_size=1, max_size=30), masks)
def test_gains_of_mean_zero_never_raise_the_total_above_what_was_started(rounds, starts):
    """The heart of the theorem: under linear feedback and averaging `sum p r = 0`, and then `L <= log C`.

    Also where the scale falls and rises again, once a round at most.
    """
    weights = opened()
    for gains, scale in rounds:
        gains = gains - (mw.shares(weights) * gains).sum()
        gains[np.abs(gains) < 1e-9] = 0.0  # what is left of equal gains is rounding, and has no mean to speak of
        weights, _ = play(weights, gains)
        assert mw.log_total(weights) <= np.log(weights.started) + 1e-9
        weights = mw.restart(weights, starts, PRIOR)
        weights = mw.narrow(weights, weights.bound * scale, PRIOR, most=3)


@settings(max_examples=10)
@given(st.floats(1e-3, 1e3), st.integers(100, 2000))
def test_weights_survive_blocks_far_beyond_the_range_of_floats(scale, rounds):
    """One expert loses every round: its true weight is 2^-rounds; it must stay positive and recover."""
    prior = np.ones(2)
    weights = mw.restart(mw.begin(prior, 1, Q, bound=scale), np.array([True]), prior)
    for _ in range(rounds):
        weights, _ = mw.judge(weights, np.array([[-scale, scale]]))
    assert 0 < mw.shares(weights)[0, 0] < 1e-6
    assert np.isfinite(mw.log_total(weights))
    for _ in range(2 * rounds):
        weights, _ = mw.judge(weights, np.array([[scale, -scale]]))
    assert mw.shares(weights)[0, 0] > 0.99


def test_the_scale_doubles_only_as_often_as_needed_and_all_rates_may_be_replaced():
    weights, _ = play(opened(), np.full((SLOTS, EXPERTS), 1.0))
    assert float(weights.bound) == pytest.approx(1.0, rel=1e-12)
    weights, judged = play(weights, np.full((SLOTS, EXPERTS), 1024.0))
    assert float(judged.used) == pytest.approx(2.0**-10, rel=1e-12)
    assert float(weights.bound) == pytest.approx(1024.0, rel=1e-12)
    np.testing.assert_allclose(mw.shares(weights), np.tile(PRIOR / PRIOR.sum() / SLOTS, (SLOTS, 1)))


def test_a_scale_that_falls_and_rises_again_keeps_the_values_of_step_sizes_that_stayed():
    weights, _ = play(opened(bound=64.0), np.full((SLOTS, EXPERTS), 40.0) * [[1.0, -1.0]])
    lower = mw.narrow(weights, np.array(40.0 / 2**2), PRIOR)
    assert float(lower.bound) == 64.0 / 2**2
    np.testing.assert_allclose(lower.value[..., 2:], weights.value[..., :2])
    np.testing.assert_allclose(np.exp(mw.log_values(lower)[..., :2]), np.ones((SLOTS, 1, 2)) * PRIOR[:, None])
    again = mw.widen(lower, np.array(64.0), PRIOR)
    assert float(again.bound) == 64.0
    np.testing.assert_allclose(again.value[..., :2], weights.value[..., :2])
    assert float(again.started) == float(weights.started) + 4 * SLOTS * PRIOR.sum()  # two births down, two up


@pytest.mark.parametrize("size", [1.0, 0.1, 3e-7])
def test_gains_that_are_equal_but_for_rounding_do_not_double_the_scale(size):
    weights, _ = play(opened(), np.full((SLOTS, EXPERTS), size))
    before = float(weights.bound)
    weights, _ = play(weights, np.full((SLOTS, EXPERTS), np.nextafter(size, np.inf)))
    assert float(weights.bound) == before
    weights, _ = play(weights, np.full((SLOTS, EXPERTS), 1.001 * size))
    assert float(weights.bound) == 2 * before


def test_more_slots_change_nothing_until_they_open():
    weights, _ = play(opened(), np.arange(SLOTS * EXPERTS, dtype=float).reshape(SLOTS, EXPERTS))
    grown = mw.grow(weights, SLOTS + 2)
    assert np.array_equal(mw.shares(grown)[:SLOTS], mw.shares(weights))
    assert (mw.shares(grown)[SLOTS:] == 0).all()


@pytest.mark.parametrize(
    ("given_", "Q_"),
    [
        ({}, 18),
        ({"rounds": 10_000}, 9),
        ({"rounds": 100, "dim": 3, "diameter": 2.0, "gradient_bound": 1.0}, 23),
    ],
)
def test_number_of_rates(given_, Q_):
    assert mw.number_of_rates(**given_) == Q_


# Weights that start from priors of their own, or from the caller's values


def test_an_expert_of_no_prior_takes_no_part_until_its_slot_restarts():
    priors = np.array([[1.0, 0.5], [2.0, 0.0]])
    weights = mw.restart(mw.begin(priors[0], slots=2, Q=3, bound=1.0), np.array([True, True]), priors)
    np.testing.assert_allclose(mw.shares(weights), priors / 3.5)
    assert float(weights.started) == pytest.approx(3 * 3.5)
    weights, _ = mw.judge(weights, np.array([[0.1, 0.2], [-0.3, 0.9]]))
    assert mw.alive(weights).tolist() == [[True, True], [True, False]]
    weights = mw.restart(weights, np.array([False, True]), priors + 1)
    assert mw.alive(weights).all()


@given(st.lists(st.tuples(st.floats(0.01, 9.0), st.booleans()), min_size=1, max_size=8), st.booleans())
def test_priors_per_slot_are_the_priors_of_their_slots(rounds, inherit):
    """Rows that are all alike must do what one row does."""
    prior, everyone = np.array([1.0, 0.25]), np.array([True, True])
    one = rows = mw.restart(mw.begin(prior, slots=2, Q=3, bound=9.0), everyone, prior)
    for gain, second in rounds:
        gains, starts = np.array([[gain, -gain], [0.0, gain]]), np.array([True, second])
        one, rows = (mw.judge(weights, gains)[0] for weights in (one, rows))
        one = mw.restart(one, starts, prior, inherit)
        rows = mw.restart(rows, starts, np.tile(prior, (2, 1)), inherit)
        for ours, theirs in zip(rows, one, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
