"""The certificate holds for any gains at all: nothing is assumed of where they come from."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samuel.core import certificate
from samuel.core import weights as mw

SLOTS, EXPERTS, Q = 2, 2, 5
PRIOR = np.array([1.0, 0.25])
gains = hnp.arrays(float, (SLOTS, EXPERTS), elements=st.floats(-50, 50))
rounds = st.lists(st.tuples(gains, hnp.arrays(bool, SLOTS)), min_size=1, max_size=25)


@given(rounds, st.sampled_from([0.0, 0.1, 50.0]), st.booleans())
def test_no_expert_ever_gains_more_than_its_bound(rounds, bound, inherit):
    everyone = np.ones(SLOTS, dtype=bool)
    weights = mw.restart(mw.begin(PRIOR, SLOTS, Q, bound=bound), everyone, PRIOR)
    ledger = certificate.open_ledger(weights)
    for gains, starts in rounds:
        before = weights.bound
        weights, judged = mw.judge(weights, gains)
        ledger = certificate.enter(ledger, gains, gains * judged.used, before)
        limits = certificate.running_bound(ledger, mw.log_total(weights), before)
        assert (ledger.gain <= limits + 1e-9 * (1 + np.abs(limits))).all()
        weights = mw.widen(weights, judged.largest, PRIOR)
        weights = mw.restart(weights, starts, PRIOR, inherit)
        ledger = certificate.reset(ledger, starts, weights)


def test_the_bound_would_be_broken_if_newborns_inherited_without_the_prior():
    """What `v <- v + pi` is for: an expert that starts a block with less than its prior breaks the bound."""
    everyone, prior = np.array([True]), np.ones(2)
    weights = mw.restart(mw.begin(prior, 1, Q, bound=1.0), everyone, prior)
    for _ in range(60):
        weights, _ = mw.judge(weights, np.array([[1.0, -1.0]]))
    ledger = certificate.open_ledger(mw.restart(weights, everyone, prior))  # a new page, but the old weights
    broken = False
    for _ in range(60):
        gains = np.array([[-1.0, 1.0]])
        weights, judged = mw.judge(weights, gains)
        ledger = certificate.enter(ledger, gains, gains * judged.used, weights.bound)
        limits = certificate.running_bound(ledger, mw.log_total(weights), weights.bound)
        broken |= bool((ledger.gain > limits + 1e-9).any())
    assert broken


def test_only_rates_alive_all_the_time_count():
    rates = certificate.rates_alive(np.array(1.0), np.array(4.0), Q=4)
    assert np.isnan(rates).tolist() == [True, True, False, False]
    np.testing.assert_allclose(rates[2:], [1 / 8, 1 / 16])
    assert np.isnan(certificate.rates_alive(np.array(1.0), np.array(2.0**9), Q=4)).all()
