"""Combining experts: average, best, and drawing by weight with an explicit source of chance."""

import jax
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samuel.core import combine

weights = (
    hnp.arrays(float, (2, 3), elements=st.floats(0, 1)).filter(lambda w: w.sum() > 1e-6).map(lambda w: w / w.sum())
)
POINTS = np.arange(12.0).reshape(2, 3, 2)


@given(weights)
def test_average_is_the_weighted_sum(p):
    np.testing.assert_allclose(combine.average(POINTS, p), (p[..., None] * POINTS).sum((0, 1)))


@given(weights)
def test_best_is_the_first_of_those_with_the_largest_weight(p):
    largest = np.argwhere(p >= p.max() * (1 - 1e-6))[0]
    assert np.array_equal(combine.best(POINTS, p), POINTS[tuple(largest)])


@given(weights, st.floats(0, 1, exclude_max=True))
def test_an_expert_of_no_weight_is_never_drawn(p, chance):
    assert p.ravel()[int(combine.draw(p, np.asarray(chance)))] > 0


def test_experts_are_drawn_as_often_as_their_weight_says():
    p = np.array([[0.5, 0.0, 0.2], [0.0, 0.25, 0.05]])
    many = np.broadcast_to(p, (40_000, 2, 3))
    places = combine.draw(many, combine.uniform(np.random.default_rng(0), like=many))
    np.testing.assert_allclose(np.bincount(places, minlength=6) / 40_000, p.ravel(), atol=0.01)


def test_each_library_has_its_own_source_of_chance_and_the_same_seed_gives_the_same_draw():
    p = np.full((5, 2, 3), 1 / 6)
    sources = [
        (p, lambda: np.random.default_rng(1)),
        (torch.asarray(p), lambda: torch.Generator().manual_seed(1)),
        (jax.numpy.asarray(p), lambda: jax.random.key(1)),
    ]
    for array, source in sources:
        first, again = (np.asarray(combine.uniform(source(), like=array)) for _ in range(2))
        assert first.shape == (5,)
        assert np.array_equal(first, again)
        assert ((first >= 0) & (first < 1)).all()
