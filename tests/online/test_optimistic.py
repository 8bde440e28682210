"""Optimistic gradient descent: hints, and what they are worth in the certificate."""

import numpy as np
import pytest

from samuel.online import OGD, Ball, Box, OptimisticOGD, ScaleFreeOGD, Single, play

RANDOM = np.random.default_rng(0)


def hinted(gradients, hints, domain=Ball(1.0), **options):  # noqa: B008
    """A learner that was given these hints, each for the round after its gradient."""
    learner = Single(OptimisticOGD(1.0), gradients.shape[-1], domain, record=True, **options)
    for gradient, hint in zip(gradients, hints, strict=True):
        learner.update(gradient, hint=hint)
    return learner


def test_by_hand():
    learner = Single(OptimisticOGD(1.0), 1, Box(-10.0, 10.0))
    learner.update([3.0])
    assert learner.predict() == pytest.approx(-2.0)  # S = 9, h = 0, h' = 3: -(3 + 3) / 3
    learner.update([7.0], hint=[-1.0])
    assert learner.predict() == pytest.approx(-2.6)  # S = 9 + 4^2 = 25, h = 3, h' = -1: -2 - (7 - 3 - 1) / 5
    learner.update([-1.0])
    assert learner.predict() == pytest.approx(-2.4)  # the hint was right, S = 25, h' = -1: -2.6 - (0 - 1) / 5


def test_the_last_gradient_as_a_hint_is_the_default():
    gradients = RANDOM.normal(size=(20, 2))
    played = play(Single(OptimisticOGD(1.0), 2, Ball(1.0)), gradients, backend="numpy")
    np.testing.assert_array_equal(hinted(gradients, gradients).trace().decisions, played.decisions)


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0, 10.0])
def test_the_certificate_counts_how_far_hints_were_off_and_is_never_broken(noise):
    gradients = RANDOM.normal(size=(64, 2))
    hints = np.roll(gradients, -1, axis=0) + noise * RANDOM.normal(size=(64, 2))
    trace = hinted(gradients, hints).trace()
    for last in range(64):
        certificate = trace.certificate(0, last)
        assert certificate.linearised <= certificate.measured + 1e-9
    error = np.vstack([gradients[:1], (gradients - np.roll(hints, 1, axis=0))[1:]])
    assert trace.certificate().measured <= 3 * np.linalg.norm(error) + 1e-9
    if noise == 0:  # only the first gradient was not foreseen
        assert trace.certificate().measured == pytest.approx(3 * np.linalg.norm(gradients[0]))


def test_the_certificate_stays_small_where_gradients_change_slowly():
    # Sixteen turns: fewer are followed so well by either learner that the trivial bound is the smaller one for both.
    angle = np.linspace(0, 100, 2000)
    gradients = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    optimistic, other = (
        play(Single(base, 2, Ball(1.0)), gradients, backend="numpy").certificate()
        for base in (OptimisticOGD(1.0), ScaleFreeOGD(1.0))
    )
    assert optimistic.measured < optimistic.trivial
    assert optimistic.measured == pytest.approx(3 * np.sqrt(1 + 1999 * (2 * np.sin(50 / 1999)) ** 2))
    assert other.measured == pytest.approx(3 * np.sqrt(2000))


def test_hints_of_several_streams_do_not_touch_each_other():
    gradients, hints = RANDOM.normal(size=(2, 10, 3, 2))
    together = hinted(gradients, hints, streams=3).predict()
    for number in range(3):
        alone = Single(OptimisticOGD(1.0), 2, Ball(1.0))
        for gradient, hint in zip(gradients[:, number], hints[:, number], strict=True):
            alone.update(gradient, hint=hint)
        np.testing.assert_allclose(together[number], alone.predict(), atol=1e-12)


def test_a_bad_hint_is_refused_and_changes_nothing():
    learner = Single(OptimisticOGD(1.0), 2, Ball(1.0))
    with pytest.raises(ValueError, match="hint must have the shape"):
        learner.update([1.0, 2.0], hint=[1.0])
    with pytest.raises(ValueError, match="gradient must be finite"):
        learner.update([1.0, np.nan], hint=[1.0, 0.0])
    learner.update([1.0, 2.0])
    untouched = Single(OptimisticOGD(1.0), 2, Ball(1.0))
    untouched.update([1.0, 2.0])
    np.testing.assert_array_equal(learner.predict(), untouched.predict())
    with pytest.raises(ValueError, match="only OptimisticOGD takes a hint"):
        Single(OGD(0.1), 1).update([1.0], hint=[1.0])
