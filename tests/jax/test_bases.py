"""Bases with a name of their own, against their formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

from samuel.jax import scale_by_discounted_rss


@pytest.mark.parametrize(("alpha", "epsilon"), [(0.5, 0.0), (0.9, 0.25), (1.0, 0.1)])
def test_the_past_fades_by_alpha_and_epsilon_does_not(alpha, epsilon):
    gradients = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    base = scale_by_discounted_rss(alpha, epsilon)
    state = base.init(jnp.zeros(4))
    for t, gradient in enumerate(gradients):
        direction, state = base.update(jnp.asarray(gradient), state)
        past = sum(alpha ** (t - tau) * gradients[tau].astype(float) ** 2 for tau in range(t + 1))
        np.testing.assert_allclose(direction, gradient / np.sqrt(epsilon + past), rtol=2e-6)
