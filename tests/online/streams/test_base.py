"""Streams of given data and streams side by side."""

import numpy as np
import pytest

from samuel.online import (
    AbsoluteLoss,
    Ball,
    LinearLoss,
    LogisticLoss,
    PinballLoss,
    Recorded,
    Samuel,
    SquaredLoss,
    TwoValleys,
    play,
)
from samuel.online.streams import DriftingRegression, SideBySide


def seeds(count, **options):
    return [DriftingRegression(dim=2, period=30, seed=seed, **options) for seed in range(count)]


def test_each_stream_keeps_its_own_numbers():
    together = SideBySide(seeds(3)).data(20, 50)
    for number, alone in enumerate(seeds(3)):
        for both, own in zip(together, alone.data(20, 50), strict=True):
            np.testing.assert_array_equal(both[:, number], own, strict=True)


def test_learners_decide_as_if_each_were_alone():
    def learner(**options):
        return Samuel(dim=2, domain=Ball(1.0), learning_rates=(0.1, 1.0), **options)

    together = play(learner(streams=3), SideBySide(seeds(3)), rounds=60, backend="numpy")
    for number, stream in enumerate(seeds(3)):
        alone = play(learner(), stream, rounds=60, backend="numpy")
        np.testing.assert_allclose(together.losses[:, number], alone.losses, rtol=1e-9)


def test_it_is_as_long_as_the_shortest():
    assert SideBySide([TwoValleys(rounds=8), TwoValleys(rounds=6)]).rounds == 6
    assert SideBySide(seeds(2)).rounds is None


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "a list of at least one Stream, got \\[\\]"),
        (TwoValleys(rounds=4), "a list of at least one Stream, got TwoValleys"),
        ([np.zeros((3, 2))], "a list of at least one Stream"),
        ([*seeds(1), DriftingRegression(dim=3)], "need one dim, but stream 0 has dim=2 and stream 1 has dim=3"),
        (
            [*seeds(1), Recorded(LogisticLoss(), (np.ones((4, 2)), np.ones(4)))],
            r"need one loss, but stream 0 has loss=SquaredLoss\(\) and stream 1 has loss=LogisticLoss\(\)",
        ),
        (seeds(1, streams=4), "stream 0 holds 4 streams side by side already"),
        (
            [Recorded(SquaredLoss(), (np.ones((4, 1, 2)), np.ones((4, 1))))],
            "stream 0 holds 1 streams side by side already",
        ),
    ],
)
def test_streams_that_do_not_go_together_are_refused(parts, complaint):
    with pytest.raises(ValueError, match=complaint):
        SideBySide(parts)


FEATURES, TARGETS = np.ones((6, 4, 3)), np.ones((6, 4))


@pytest.mark.parametrize(
    ("loss", "arrays", "complaint"),
    [
        (SquaredLoss(), (FEATURES[:, 0], TARGETS), r"got shapes \(6, 3\), \(6, 4\)"),
        (SquaredLoss(), (FEATURES, TARGETS[:, 0]), r"got shapes \(6, 4, 3\), \(6,\)"),
        (PinballLoss(0.9), (FEATURES[:, 0], TARGETS[:, :1]), r"targets \(rounds, \[streams\]\), got shapes"),
        (AbsoluteLoss(), (FEATURES,), r"AbsoluteLoss takes features .* got shapes \(6, 4, 3\)"),
        (LinearLoss(), (FEATURES, TARGETS), "one array of gradients, got 2"),
        (LinearLoss(), (1e160 * FEATURES,), r"gradients must be at most 1e\+150 in size, to be squared, got 1e\+160"),
        (LogisticLoss(), (FEATURES, 0 * TARGETS), "labels of a LogisticLoss are -1 and 1, got 0; write 2"),
        ("squared", (FEATURES, TARGETS), "loss must be a family of losses such as .*, got 'squared'"),
        (SquaredLoss, (FEATURES, TARGETS), "loss must be a family of losses such as .*SquaredLoss"),
    ],
)
def test_data_that_do_not_fit_the_loss_are_refused(loss, arrays, complaint):
    with pytest.raises(ValueError, match=complaint):
        Recorded(loss, arrays)
