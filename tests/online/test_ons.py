"""Online Newton Step, and the certificate of exp-concave losses."""

import numpy as np
import pytest

from samuel.online import ONS, Anytime, Ball, Box, Recorded, Samuel, Single, SquaredLoss, play
from samuel.online.certificates import Comparison, base_bounds

ALPHA = 1 / (2 * 3.0**2)
"""`exp(-alpha e^2)` is concave for errors of at most 3."""


def regression(rounds, seed=0):
    random = np.random.default_rng(seed)
    features = random.normal(size=(rounds, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return Recorded(SquaredLoss(), (features, features @ [0.5, -0.3, 0.2] + random.uniform(-0.5, 0.5, rounds)))


def learners(domain, rate):
    return {
        "alone": Single(ONS(rate), 3, domain),
        "under SAMUEL": Samuel(3, domain, base=ONS(), learning_rates=(rate, 4 * rate)),
        "with full feedback": Samuel(3, domain, base=ONS(), learning_rates=(rate, 4 * rate), feedback="full"),
    }


@pytest.mark.parametrize("name", ["alone", "under SAMUEL", "with full feedback"])
@pytest.mark.parametrize("domain", [Ball(1.0), Box(-1.0, 1.0)], ids=["ball", "box"])
@pytest.mark.parametrize("rate", [0.5, 2.0, 8.0, 32.0])
def test_the_certificate_for_exp_concave_losses_is_never_broken(name, domain, rate):
    trace = play(learners(domain, rate)[name], regression(48), backend="numpy")
    for first in range(0, 48, 5):
        for last in range(first, 48, 3):
            assert trace.regret(first, last) <= trace.certificate(first, last, exp_concavity=ALPHA).measured + 1e-9


@pytest.mark.parametrize("size", [1e4, 1e9, 1e18, 1e140])
def test_the_certificate_is_not_broken_by_a_gradient_of_another_size(size):
    """`log det A` of a matrix in which all but one eigenvalue are lost in rounding."""
    for seed in range(4):
        gradients = np.random.default_rng(seed).normal(size=(60, 3))
        gradients[30] *= size
        gradients[0] *= 1e-200  # whose square is 0
        learner = Samuel(3, Box(-1.0, 1.0), base=ONS(), learning_rates=(0.001, 3.0), cover=Anytime(1))
        trace = play(learner, gradients, backend="numpy")
        for first in range(0, 31, 10):
            for last in range(30, 60, 7):
                certificate = trace.certificate(first, last)
                assert certificate.linearised <= certificate.measured + 1e-9 * size


def test_for_exp_concave_losses_the_certificate_grows_like_a_logarithm():
    trace = play(Single(ONS(20.0), 3, Ball(1.0)), regression(4096), backend="numpy")
    comparison = Comparison.of(trace.rule)
    logarithmic, with_squares, capped = [], [], []
    for last in (63, 255, 1023, 4095):
        certificate = trace.certificate(0, last, exp_concavity=ALPHA)
        bounds = [base_bounds(trace, certificate.tiles[0].tile, comparison, alpha)[0] for alpha in (ALPHA, None)]
        logarithmic.append(bounds[0])
        with_squares.append(bounds[1])
        assert certificate.measured == min(bounds[0], certificate.trivial)
        capped.append(certificate.measured == certificate.trivial)
    assert capped == [True, False, False, False]  # the trivial bound is small where there are few rounds
    growth = np.diff(logarithmic)  # from one to four times as many rounds
    assert growth.max() < 1.25 * growth.min()
    squares = np.subtract(with_squares, logarithmic)
    assert squares[3] > 2 * squares[2] > 4 * squares[1]


def test_without_a_square_to_spare_exp_concavity_adds_nothing():
    trace = play(Single(ONS(0.1), 3, Ball(1.0)), regression(64), backend="numpy")
    assert trace.certificate(exp_concavity=ALPHA).measured == pytest.approx(trace.certificate().measured)


def test_steps_do_not_depend_on_the_scale_of_the_losses():
    gradients = np.random.default_rng(0).normal(size=(50, 3))
    one, other = (play(Single(ONS(1.0), 3, Ball(1.0)), scale * gradients).decisions for scale in (1.0, 2.0**40))
    np.testing.assert_allclose(one, other, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.inf, np.nan, "1"])
def test_a_senseless_exp_concavity_is_refused(alpha):
    trace = play(Single(ONS(1.0), 3, Ball(1.0)), regression(4), backend="numpy")
    with pytest.raises(ValueError, match="exp_concavity"):
        trace.certificate(exp_concavity=alpha)


@pytest.mark.parametrize("delta", [0.0, -1.0, np.inf, "1"])
def test_a_senseless_delta_is_refused(delta):
    with pytest.raises(ValueError, match="delta"):
        ONS(delta=delta)
