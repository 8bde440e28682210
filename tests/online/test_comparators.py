"""The best fixed point in hindsight, against a general solver."""

import numpy as np
import pytest
from scipy.optimize import minimize

from samuel.online import Ball, Box, Free, LinearLoss, LogisticLoss, Simplex, SquaredLoss
from samuel.online.comparators import best_fixed_point

DOMAINS = [Ball(0.5), Ball(0.5, center=(0.2, 0.1, -0.3)), Ball(50.0), Box(-0.3, 0.4), Simplex(), Free()]


def reference(loss, data, domain, dim):
    constraints, bounds = [], None
    if isinstance(domain, Ball):
        center = np.asarray(domain.center_point(dim))
        constraints = [{"type": "ineq", "fun": lambda x: domain.radius**2 - np.sum((x - center) ** 2)}]
    elif isinstance(domain, Box):
        bounds = domain.bounds(dim)
    elif isinstance(domain, Simplex):
        bounds, constraints = [(0, None)] * dim, [{"type": "eq", "fun": lambda x: np.sum(x) - 1}]
    start = np.asarray(domain.center_point(dim))
    result = minimize(
        lambda x: loss.total(x, data)[0],
        start,
        jac=lambda x: loss.total(x, data)[1],
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return result.fun


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
@pytest.mark.parametrize("loss", [LinearLoss(), SquaredLoss(), LogisticLoss()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("rounds", [1, 2, 50])
def test_it_is_as_good_as_a_general_solvers(domain, loss, rounds):
    if isinstance(domain, Free) and not isinstance(loss, SquaredLoss):
        pytest.skip("the best point is infinitely far away")
    random = np.random.default_rng(rounds)
    features = random.normal(size=(rounds, 3))
    labels = random.normal(size=rounds)
    data = {
        LinearLoss: (features,),
        SquaredLoss: (features, labels),
        LogisticLoss: (features, np.where(labels < 0, -1.0, 1.0)),
    }[type(loss)]
    found = best_fixed_point(loss, data, domain, 3)
    assert bool(domain.contains(found.point))
    assert found.loss == pytest.approx(loss.total(found.point, data)[0])
    expected = reference(loss, data, domain, 3)
    assert found.loss <= expected + 1e-6 * (1 + abs(expected))
    assert found.loss >= expected - found.gap - 1e-6 * (1 + abs(expected))


def test_an_unbounded_search_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="radius="):
        best_fixed_point(LogisticLoss(), (np.ones((2, 1)), np.ones(2)), Free(), 1)
