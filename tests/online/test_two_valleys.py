"""The paper's one-dimensional example: `(x + 1)^2` for half of the run, then `(x - 1)^2`, unannounced."""

import numpy as np
import pytest

from samuel.online import OGD, Interval, Samuel, Single, TwoValleys, play

DOMAIN = Interval(-1.0, 1.0)
LENGTHS = [2**k for k in range(8, 17)]


def losses(make):
    """Total loss for each length of the run."""
    return np.array([play(make(), TwoValleys(T), record="losses").losses.sum() for T in LENGTHS])


def exponent(totals):
    """How the total grows: the `a` of `T^a`, fitted on a log-log scale."""
    return np.polyfit(np.log(LENGTHS), np.log(totals), 1)[0]


def test_descent_with_rates_one_over_t_loses_of_order_T():
    totals = losses(lambda: Single(OGD(1.0, schedule="inverse"), 1, DOMAIN))
    assert (totals > 0.5 * np.array(LENGTHS)).all()
    assert exponent(totals) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("newborns", ["inherit", "warm"])
def test_samuel_loses_no_more_than_log_T(newborns):
    totals = losses(lambda: Samuel(1, DOMAIN, newborns=newborns))
    assert (totals <= 6 * np.log(LENGTHS)).all()


def test_samuel_with_cold_newborns_loses_no_more_than_a_power_of_log_T():
    totals = losses(lambda: Samuel(1, DOMAIN, newborns="cold"))
    assert (totals <= 2 * np.log(LENGTHS) ** 2).all()
    assert exponent(totals) < 0.5
