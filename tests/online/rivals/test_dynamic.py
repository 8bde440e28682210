"""Against sequences of points: the bounds of Ader and Sword hold, and they follow what moves."""

from math import floor, log, log2, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samuel.online import Ader, Ball, Recorded, SquaredLoss, Sword, play

ROUNDS, DIM, DIAMETER = 60, 2, 2.0


def comparators(seed, changes):
    """A sequence of points of the unit ball that jumps so many times."""
    random = np.random.default_rng(seed)
    points = random.normal(size=(changes + 1, DIM))
    points /= np.maximum(1.0, np.linalg.norm(points, axis=1, keepdims=True))
    return points[np.sort(random.integers(0, changes + 1, ROUNDS))]


def moved(points):
    return np.linalg.norm(np.diff(points, axis=0), axis=1).sum()


def drawn_against(points, seed):
    """Gradients of length 1 that point away from the comparators, with noise."""
    noise = np.random.default_rng(seed + 1).normal(size=points.shape)
    gradients = -points + 0.5 * noise
    return gradients / np.linalg.norm(gradients, axis=1, keepdims=True)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 2), changes=st.integers(0, ROUNDS))
def test_the_regret_of_ader_against_any_sequence_is_below_its_bound(seed, changes):
    points = comparators(seed, changes)
    gradients = drawn_against(points, seed)
    learner = Ader(DIM, Ball(1.0), horizon=ROUNDS, gradient_bound=1.0)
    decisions = play(learner, gradients, backend="numpy", record="decisions").decisions
    path = moved(points)
    k = floor(log2(1 + 4 * path / (7 * DIAMETER)) / 2) + 1
    bound = 0.75 * sqrt(2 * ROUNDS * (7 * DIAMETER**2 + 4 * DIAMETER * path))
    bound += 0.5 * DIAMETER * sqrt(2 * ROUNDS) * (1 + 2 * log(k + 1))
    assert np.sum(gradients * (decisions - points)) <= bound


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 2), changes=st.integers(0, ROUNDS), smoothness=st.sampled_from([0.05, 0.5, 2.0]))
def test_the_regret_of_sword_against_any_sequence_is_below_its_bound(seed, changes, smoothness):
    points = comparators(seed, changes)
    gradients = drawn_against(points, seed)
    learner = Sword(DIM, Ball(1.0), horizon=ROUNDS, gradient_bound=1.0, smoothness=smoothness, record=True)
    places = []
    for gradient in gradients:
        places.append(learner.rule.points(learner._state)[0])
        learner.update(gradient)
    decisions, places = learner.trace().decisions, np.array(places)
    before = np.concatenate([np.zeros((1, DIM)), gradients[:-1]])
    variation = np.sum((gradients - before) ** 2)
    moves = np.concatenate([np.zeros((1, places.shape[1])), np.sum(np.diff(places, axis=0) ** 2, axis=-1)])
    # Optimistic descent with the step size e: (D^2 + 2 D P) / (2 e) + e V. Optimistic Hedge over it: log N over the
    # last rate, each round the rate times the squared surprise, and the moves of the expert that it is compared with.
    rates = np.array(learner.learning_rates)
    descent = (DIAMETER**2 + 2 * DIAMETER * moved(points)) / (2 * rates) + rates * variation
    surprise = np.einsum("td,tnd->tn", gradients - before, places - decisions[:, None])
    squared = ((surprise.max(axis=1) - surprise.min(axis=1)) / 2) ** 2
    total = np.cumsum(squared)
    rate = np.minimum(1 / (8 * DIAMETER**2 * smoothness), 1 / np.sqrt(np.maximum(total, 1e-12)))
    used = np.concatenate([[1 / (8 * DIAMETER**2 * smoothness)], rate[:-1]])
    hedge = log(len(rates)) / rate[-1] + np.sum(used * squared)
    bound = np.min(descent + 2 * smoothness * moves.sum(axis=0)) + hedge
    assert np.sum(gradients * (decisions - points)) <= bound + 1e-9


@pytest.mark.parametrize("kind", [Ader, Sword])
def test_a_target_that_jumps_is_followed(kind):
    targets = np.where(np.arange(1200)[:, None] // 400 % 2, [0.6, 0.0], [-0.6, 0.3])
    features = np.random.default_rng(0).normal(size=(1200, 2))
    stream = Recorded(SquaredLoss(), (features, np.sum(features * targets, axis=1)))
    losses = play(kind(2, Ball(1.0)), stream, backend="numpy", record="losses").losses
    for change in (0, 400, 800):
        assert losses[change + 200 : change + 400].mean() < 0.1 * losses[change : change + 5].mean()
