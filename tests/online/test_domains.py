import itertools
import math
import pickle
from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from samuel.online import projections
from samuel.online.domains import Ball, Box, Free, HalfLine, Interval, Simplex

INF = math.inf

# Every domain with a number of coordinates it can have.
CASES = [
    (Ball(), 5),
    (Ball(radius=2.5, center=(1.0, -2.0, 0.5)), 3),
    (Ball(radius=0.1, center=3.0), 2),
    (Box(), 4),
    (Box(low=(0.0, -1.0, 2.0), high=(0.5, 1.0, 7.0)), 3),
    (Box(low=(0.0, -INF, -1.0, -INF), high=(INF, 1.0, 2.0, INF)), 4),
    (Interval(-0.5, 2.0), 1),
    (HalfLine(1.0), 1),
    (Simplex(), 4),
    (Simplex(total=3.0), 2),
    (Simplex(total=0.5), 7),
    (Free(), 3),
]
CONSTRAINED = [case for case in CASES if not isinstance(case[0], Free)]
BOUNDED = [case for case in CASES if case[0].bounded]
NORMS = ["euclidean", "diagonal", "matrix"]

cases = pytest.mark.parametrize(("domain", "dim"), CASES, ids=str)
seeds = st.integers(0, 2**32 - 1)
moderately = settings(max_examples=15, deadline=None)


def draw(domain, dim, seed, rows=(6,), spread=2.0, decades=4.0, dtype=np.float64):
    """Targets inside and outside, and for each a metric and eigenvectors, over some orders of magnitude."""
    rng = np.random.default_rng(seed)
    distance = 10.0 ** rng.uniform(-spread, spread, size=(*rows, 1))
    point = np.asarray(domain.center_point(dim)) + distance * rng.normal(size=(*rows, dim))
    metric = 10.0 ** rng.uniform(-decades, 0, size=(*rows, dim)) * 10.0 ** rng.uniform(-2, 2)
    vectors = np.linalg.qr(rng.normal(size=(*rows, dim, dim)))[0]
    return tuple(array.astype(dtype) for array in (point, metric, vectors))


def nearest(domain, norm, point, metric, vectors):
    if norm == "euclidean":
        return domain.project(point)
    if norm == "diagonal":
        return domain.project_diagonal(point, metric)
    return domain.project_matrix(point, metric, vectors)[0]


def gradient(norm, x, point, metric, vectors):
    """Of half the squared distance from x to the point, in the norm."""
    if norm == "euclidean":
        return x - point
    if norm == "diagonal":
        return metric * (x - point)
    turned = np.einsum("...ji,...j->...i", vectors, x - point)
    return np.einsum("...ij,...j->...i", vectors, metric * turned)


def distance(x, y, metric, vectors):
    turned = np.einsum("...ji,...j->...i", vectors, np.asarray(x, np.float64) - np.asarray(y, np.float64))
    return np.sqrt(np.sum(metric * turned**2, axis=-1))


def points_of(domain, dim, seed, count=200):
    """Points of a domain: some anywhere, some on the border, and corners where it has any."""
    rng = np.random.default_rng(seed)
    spread = 10.0 ** rng.uniform(-2, 3, size=(count, 1))
    points = [domain.project(np.asarray(domain.center_point(dim)) + spread * rng.normal(size=(count, dim)))]
    if domain.bounded:
        points += [
            domain.lowest(rng.normal(size=(count, dim))),
            domain.lowest(np.eye(dim)),
            domain.lowest(-np.eye(dim)),
        ]
    return np.concatenate(points)


# --- What a projection is ----------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("norm", NORMS)
@given(seed=seeds)
@moderately
def test_projections_lie_in_the_domain_and_are_nearest_there(domain, dim, norm, seed):
    point, metric, vectors = draw(domain, dim, seed)
    x = nearest(domain, norm, point, metric, vectors)
    assert x.shape == point.shape
    assert domain.contains(x, tolerance=1e-14).all()
    # x is nearest if and only if no point u of the domain has <gradient, u - x> < 0.
    slope = gradient(norm, x, point, metric, vectors)
    others = points_of(domain, dim, seed)[:, None]
    products = np.sum(slope * (others - x), axis=-1)
    rounding = np.linalg.norm(x, axis=-1) + np.linalg.norm(point - x, axis=-1)
    reach = np.linalg.norm(others - x, axis=-1) + np.linalg.norm(x, axis=-1)
    stretch = 1.0 if norm == "euclidean" else np.max(metric) ** 1.5 / np.min(metric) ** 0.5
    assert (products >= -1e-14 * stretch * rounding * reach).all()


@cases
@pytest.mark.parametrize("norm", NORMS)
@given(seed=seeds)
@moderately
def test_projecting_twice_changes_nothing(domain, dim, norm, seed):
    point, metric, vectors = draw(domain, dim, seed)
    once = nearest(domain, norm, point, metric, vectors)
    np.testing.assert_allclose(nearest(domain, norm, once, metric, vectors), once, rtol=1e-14, atol=1e-14)


@cases
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_points_inside_are_returned_as_they_are(domain, dim, norm, dtype):
    _, metric, vectors = draw(domain, dim, 1, rows=(50,), dtype=dtype)
    center = np.asarray(domain.center_point(dim), dtype)
    border = points_of(domain, dim, 1, count=50)[:50].astype(dtype)
    inside = (center + border) / 2 if not isinstance(domain, Simplex) else domain.project(border)
    np.testing.assert_array_equal(nearest(domain, norm, inside, metric, vectors), inside)
    if norm == "matrix":
        assert (domain.project_matrix(inside, metric, vectors)[1] == 0).all()


@cases
@pytest.mark.parametrize("norm", NORMS)
def test_rows_do_not_influence_each_other(domain, dim, norm):
    point, metric, vectors = draw(domain, dim, 5, rows=(3, 4))
    together = nearest(domain, norm, point, metric, vectors)
    for row in itertools.product(range(3), range(4)):
        alone = nearest(domain, norm, point[row], metric[row], vectors[row])
        np.testing.assert_allclose(together[row], alone, rtol=1e-12, atol=1e-13)
    shared = nearest(domain, norm, point, metric[0, 0], vectors[0, 0])  # one metric for all
    alone = nearest(domain, norm, point[2, 3], metric[0, 0], vectors[0, 0])
    np.testing.assert_allclose(shared[2, 3], alone, rtol=1e-12, atol=1e-13)


# --- Against other methods ---------------------------------------------------------------------------------


def by_slsqp(domain, dim, norm, point, metric, vectors):
    if isinstance(domain, Ball):
        center = np.asarray(domain.center_point(dim))
        inside = {"type": "ineq", "fun": lambda x: domain.radius**2 - np.sum((x - center) ** 2)}
        bounds, constraints = None, [inside]
    elif isinstance(domain, Simplex):
        total = {"type": "eq", "fun": lambda x: np.sum(x) - domain.total}
        bounds, constraints = [(0.0, None)] * dim, [total]
    else:
        bounds, constraints = domain.bounds(dim), []
    slope = partial(gradient, norm, point=point, metric=metric, vectors=vectors)
    return minimize(
        lambda x: 0.5 * np.sum(slope(x) * (x - point)),
        domain.project(point),
        jac=slope,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).x


@pytest.mark.parametrize(("domain", "dim"), CONSTRAINED, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_projections_agree_with_a_general_solver(domain, dim, norm):
    point, metric, vectors = draw(domain, dim, 7, rows=(4,), spread=0.5, decades=1.0)
    metric = metric / np.max(metric)
    for y, h, v in zip(point, metric, vectors, strict=True):
        expected = by_slsqp(domain, dim, norm, y, h, v)
        np.testing.assert_allclose(nearest(domain, norm, y, h, v), expected, atol=2e-5)


def by_bisection(excess, low, high):
    """The sign change of a decreasing function, in extended precision."""
    for _ in range(400):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return middle


@given(seed=seeds, decades=st.floats(0, 12), excess=st.floats(-8, 8))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_ball_takes_a_metric_over_twelve_orders_of_magnitude(dtype, seed, decades, excess):
    rng = np.random.default_rng(seed)
    metric = (10.0 ** rng.uniform(-decades, 0, size=6)).astype(dtype)
    target = rng.normal(size=6) * 10.0 ** rng.uniform(-3, 3, size=6)
    target = (target / np.linalg.norm(target) * (1 + 10.0**excess)).astype(dtype)
    x = Ball().project_diagonal(target, metric)
    h, z = metric.astype(np.longdouble), target.astype(np.longdouble)
    if np.sum(z**2) <= 1:
        return
    lam = by_bisection(lambda lam: np.sum((h * z / (h + lam)) ** 2) - 1, h.min() * 1e-30, np.sum((h * z) ** 2) ** 0.5)
    exact = h * z / (h + lam)
    eps = np.finfo(dtype).eps
    assert np.sqrt(np.sum(h * (x - exact) ** 2) / h.max()) <= 8 * eps
    assert abs(np.linalg.norm(x.astype(np.float64)) - 1) <= 8 * eps


@given(seed=seeds, decades=st.floats(0, 10), size=st.floats(-3, 4))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_simplex_is_exact_in_a_metric_of_any_scale(dtype, seed, decades, size):
    rng = np.random.default_rng(seed)
    metric = (10.0 ** rng.uniform(-decades, 0, size=6)).astype(dtype)
    target = (10.0**size * rng.normal(size=6)).astype(dtype)
    x = Simplex(2.0).project_diagonal(target, metric)
    exact = in_the_simplex_exactly(target, metric, total=2)
    eps = np.finfo(dtype).eps
    assert abs(np.sum(x, dtype=np.longdouble) - 2) <= 16 * eps
    assert np.max(np.abs(x - exact)) <= 8 * eps * (2 + np.max(np.abs(target)))


def in_the_simplex_exactly(target, metric, total):
    """Without rounding: drop the coordinates that come out negative until none does (Michelot 1986)."""
    pairs = [(Fraction(float(y)), Fraction(float(h))) for y, h in zip(target, metric, strict=True)]
    kept, before = pairs, []
    while len(kept) != len(before):
        theta = (sum(y for y, _ in kept) - total) / sum(1 / h for _, h in kept)
        before, kept = kept, [(y, h) for y, h in kept if h * y > theta]
    return np.array([float(max(0, y - theta / h)) for y, h in pairs])


def by_enumeration(domain, dim, point, matrix):
    """The nearest point of a box or simplex, as the best of the nearest points of all its faces."""
    best, least = None, INF
    bounds = [(0.0, INF)] * dim if isinstance(domain, Simplex) else domain.bounds(dim)
    for sides in itertools.product((0, 1, None), repeat=dim):
        if any(side is not None and math.isinf(bound[side]) for side, bound in zip(sides, bounds, strict=True)):
            continue
        free = [i for i, side in enumerate(sides) if side is None]
        x = np.array([point[i] if side is None else bounds[i][side] for i, side in enumerate(sides)])
        if isinstance(domain, Simplex):
            if not free:
                continue
            system = np.block(
                [
                    [matrix[np.ix_(free, free)], np.ones((len(free), 1))],
                    [np.ones((1, len(free))), np.zeros((1, 1))],
                ]
            )
            right = np.append(-(matrix @ (x - point))[free], domain.total - np.sum(x))
            x[free] += np.linalg.solve(system, right)[:-1]
        elif free:
            x[free] -= np.linalg.solve(matrix[np.ix_(free, free)], (matrix @ (x - point))[free])
        value = (x - point) @ matrix @ (x - point)
        if domain.contains(x, tolerance=1e-9) and value < least:
            best, least = x, value
    return best


@pytest.mark.parametrize("domain", [Box(), Box((0.0, -INF, -1.0, -INF), (INF, 1.0, 2.0, INF)), Simplex(3.0)], ids=str)
@given(seed=seeds)
@moderately
def test_the_matrix_norm_finds_the_best_of_all_faces(domain, seed):
    point, metric, vectors = draw(domain, 4, seed, rows=(), spread=1.0)
    x, error = domain.project_matrix(point, metric, vectors)
    expected = by_enumeration(domain, 4, point, (vectors * metric) @ vectors.T)
    assert distance(x, expected, metric, vectors) <= 1e-9 * np.sqrt(np.max(metric)) * np.linalg.norm(point - x) + error


# --- How far from nearest ----------------------------------------------------------------------------------


@cases
@given(seed=seeds)
@moderately
def test_the_reported_error_covers_the_distance_to_the_nearest_point(domain, dim, seed):
    point, metric, vectors = draw(domain, dim, seed, spread=3.0, dtype=np.float32)
    x, error = domain.project_matrix(point, metric, vectors)
    assert x.dtype == error.dtype == np.float32
    assert error.shape == point.shape[:-1]
    wide = [array.astype(np.float64) for array in (point, metric, vectors)]
    wide[2] = np.linalg.qr(wide[2])[0] * np.sign(np.sum(np.linalg.qr(wide[2])[0] * wide[2], axis=-2, keepdims=True))
    exact, tiny = domain.project_matrix(*wide)
    assert (distance(x, exact, *wide[1:]) <= error + tiny).all()
    size = np.sqrt(np.max(metric, axis=-1)) * (np.linalg.norm(point - x, axis=-1) + np.linalg.norm(x, axis=-1))
    assert (tiny <= 1e-9 * size).all()
    assert (error <= 3e-3 * size).all()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize(("domain", "dim"), [case for case in CONSTRAINED if case[1] > 1], ids=str)
def test_the_error_is_honest_when_the_method_is_cut_short(domain, dim, steps, monkeypatch):
    point, metric, vectors = draw(domain, dim, 11, rows=(100,), spread=1.0)
    exact, _ = domain.project_matrix(point, metric, vectors)

    def cut(step, carry, times, done):
        for _ in range(steps):
            carry = step(carry)
        return carry

    monkeypatch.setattr(projections, "iterate", cut)
    x, error = domain.project_matrix(point, metric, vectors)
    assert domain.contains(x).all()
    missed = distance(x, exact, metric, vectors)
    assert (missed <= error).all()
    if steps == 1 and dim > 2:
        assert (missed > 1e-6).any()  # or there would have been nothing to report


@pytest.mark.parametrize(("domain", "dim"), [(Ball(), 100), (Box(), 100), (Simplex(), 100)], ids=str)
@pytest.mark.parametrize("decades", [1.0, 7.0])
def test_a_hundred_coordinates_are_no_difficulty(domain, dim, decades):
    point, metric, vectors = draw(domain, dim, 3, rows=(3,), spread=1.0, decades=decades)
    x, error = domain.project_matrix(point, metric, vectors)
    assert domain.contains(x).all()
    size = np.sqrt(np.max(metric, axis=-1)) * (np.linalg.norm(point - x, axis=-1) + np.linalg.norm(x, axis=-1))
    assert (error <= 1e-9 * size).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("domain", "dim"), CONSTRAINED, ids=str)
def test_targets_far_beyond_the_square_root_of_the_largest_number_are_brought_back(domain, dim, dtype):
    far = np.sqrt(np.finfo(dtype).max) * 10
    point = np.zeros((2, dim), dtype)
    point[:, 0] = far, -far
    for x in (domain.project(point), domain.project_diagonal(point, np.ones_like(point))):
        assert x.dtype == dtype
        assert domain.contains(x).all()


# --- NumPy, JAX and torch ----------------------------------------------------------------------------------


def as_numpy(value):
    return jax.tree.map(np.asarray, value)


METHODS = {
    "project": lambda domain, point, metric, vectors: domain.project(point),
    "project_diagonal": lambda domain, point, metric, vectors: domain.project_diagonal(point, metric),
    "project_matrix": lambda domain, point, metric, vectors: domain.project_matrix(point, metric, vectors),
    "contains": lambda domain, point, metric, vectors: domain.contains(point),
    "lowest": lambda domain, point, metric, vectors: domain.lowest(point) if domain.bounded else point,
}


@cases
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_torch_gives_what_numpy_gives(domain, dim, dtype):
    arrays = draw(domain, dim, 13, decades=2.0, dtype=dtype)
    close = {"rtol": 1e-10, "atol": 1e-12} if dtype == np.float64 else {"rtol": 2e-3, "atol": 2e-4}
    for method in METHODS.values():
        expected = method(domain, *arrays)
        found = method(domain, *map(torch.from_numpy, arrays))
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert isinstance(a, torch.Tensor)
            assert a.numpy().dtype == b.dtype
            np.testing.assert_allclose(a.numpy(), b, **close)


@pytest.mark.parametrize(
    ("domain", "dim", "dtype"),
    [
        (Ball(radius=2.5, center=(1.0, -2.0, 0.5)), 3, np.float64),
        (Ball(radius=2.5, center=(1.0, -2.0, 0.5)), 3, np.float32),
        (Box(low=(0.0, -INF, -1.0, -INF), high=(INF, 1.0, 2.0, INF)), 4, np.float64),
        (HalfLine(1.0), 1, np.float32),
        (Simplex(total=0.5), 7, np.float32),
        (Free(), 3, np.float64),
    ],
    ids=str,
)
def test_jax_gives_what_numpy_gives_compiled(domain, dim, dtype):
    arrays = draw(domain, dim, 13, decades=2.0, dtype=dtype)
    close = {"rtol": 1e-9, "atol": 1e-11} if dtype == np.float64 else {"rtol": 2e-3, "atol": 2e-4}
    expected = {name: method(domain, *arrays) for name, method in METHODS.items()}

    @partial(jax.jit, static_argnums=0)  # a domain can be a constant of compiled code
    def everything(domain, *arrays):
        return {name: method(domain, *arrays) for name, method in METHODS.items()}

    with jax.enable_x64(dtype == np.float64):
        found = as_numpy(everything(domain, *map(jnp.asarray, arrays)))
    for name in METHODS:
        for a, b in zip(jax.tree.leaves(found[name]), jax.tree.leaves(expected[name]), strict=True):
            assert a.dtype == b.dtype, name
            np.testing.assert_allclose(a, b, err_msg=name, **close)


def test_jax_arrays_that_are_not_traced_work_too():
    point = jnp.asarray([3.0, 4.0])
    np.testing.assert_allclose(Ball().project_diagonal(point, jnp.ones(2)), [0.6, 0.8], rtol=1e-6)
    x, error = Ball(5.0).project_matrix(point, jnp.ones(2), jnp.eye(2))
    assert isinstance(x, jax.Array)
    assert error == 0.0


@pytest.mark.parametrize("domain", [Ball(), Box(-0.5, 0.5)], ids=str)
def test_projections_work_inside_scan_and_vmap(domain):
    point, metric, vectors = draw(domain, 3, 17, rows=(4, 2), decades=1.0, dtype=np.float32)
    expected = domain.project_matrix(point, metric, vectors)[0]
    mapped = jax.jit(jax.vmap(domain.project_matrix))(point, metric, vectors)[0]
    np.testing.assert_allclose(mapped, expected, atol=1e-4)

    def step(x, arrays):
        x = domain.project_diagonal(x + arrays[0], arrays[1])
        return x, x

    _, path = jax.lax.scan(step, jnp.zeros((2, 3)), (point, metric))
    x = np.zeros((2, 3), np.float32)
    for row, h, found in zip(point, metric, path, strict=True):
        x = domain.project_diagonal(x + row, h)
        np.testing.assert_allclose(found, x, atol=1e-4)


# --- The other facts about a domain ------------------------------------------------------------------------


@pytest.mark.parametrize(("domain", "dim"), BOUNDED, ids=str)
@given(seed=seeds)
@moderately
def test_lowest_is_a_point_of_the_domain_and_lower_than_any_other(domain, dim, seed):
    slopes = np.random.default_rng(seed).normal(size=(5, dim))
    slopes[0] = 0.0
    lowest = domain.lowest(slopes)
    assert domain.contains(lowest).all()
    others = points_of(domain, dim, seed)[:, None]
    assert (np.sum(slopes * (others - lowest), axis=-1) >= -1e-12).all()


@pytest.mark.parametrize("domain", [Free(), HalfLine(), Box(0.0, INF), Box((-INF, 0.0), 1.0)], ids=str)
def test_an_unbounded_domain_has_no_lowest_point(domain):
    assert not domain.bounded
    with pytest.raises(ValueError, match=r"is unbounded.*bounded domain.*or name a comparator"):
        domain.lowest(np.ones(2))


@pytest.mark.parametrize(("domain", "dim"), BOUNDED, ids=str)
def test_no_two_points_are_further_apart_than_widths_and_diameter_say(domain, dim):
    points = points_of(domain, dim, 19)
    differences = points[:, None] - points
    widest = np.max(np.abs(differences), axis=(0, 1))
    assert (widest <= np.asarray(domain.widths(dim)) * (1 + 1e-12)).all()
    np.testing.assert_allclose(widest, domain.widths(dim), rtol=1e-9)
    longest = np.max(np.linalg.norm(differences, axis=-1))
    assert 0.9 * domain.diameter(dim) <= longest <= domain.diameter(dim) * (1 + 1e-12)


@cases
def test_the_center_point_is_inside(domain, dim):
    center = domain.center_point(dim)
    assert len(center) == dim
    assert all(isinstance(number, float) for number in center)
    assert domain.contains(np.asarray(center), tolerance=1e-15)


def test_facts_of_each_domain():
    assert Ball(2.0, (1.0, 0.0)).center_point(2) == (1.0, 0.0)
    assert Ball(2.0).widths(2) == (4.0, 4.0)
    assert Box((0.0, 2.0, -INF), (1.0, INF, -3.0)).center_point(3) == (0.5, 2.0, -3.0)
    assert Box((0.0, 2.0, -INF), (1.0, INF, -3.0)).diameter(3) == INF
    assert Box(0.0, (3.0, 4.0)).diameter(2) == 5.0
    assert Simplex(2.0).diameter(3) == pytest.approx(2 * math.sqrt(2))
    assert HalfLine(2.0).widths(1) == (INF,)
    assert HalfLine(-2.0).center_point(1) == (0.0,)
    assert Free().widths(2) == (INF, INF)
    assert repr(HalfLine(2.0)) == "HalfLine(low=2.0)"
    assert not Free().contains(np.array([1.0, np.nan]))


def test_domains_are_records_of_plain_numbers():
    box = Box(np.array([0, 1]), [np.float32(2.0), jnp.asarray(3)])
    assert box == Box((0.0, 1.0), (2.0, 3.0))
    assert hash(box) == hash(Box((0.0, 1.0), (2.0, 3.0)))
    assert box.low == (0.0, 1.0)
    assert all(type(number) is float for number in box.low + box.high)
    ball = Ball(np.float32(2.0), torch.tensor([1.0, 2.0]))
    ball.project(np.zeros(2))
    assert pickle.loads(pickle.dumps(ball)) == ball == Ball(2, (1, 2))
    with pytest.raises(AttributeError):
        box.low = 0.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ball(0.0), r"radius is 0\.0; it must be positive and finite"),
        (lambda: Ball(-1), r"radius is -1\.0; it must be positive"),
        (lambda: Ball(INF), r"radius is inf; .*Free\(\)"),
        (lambda: Ball(math.nan), "radius is nan; it must be a number"),
        (lambda: Ball("1"), "radius is '1'; it must be a number"),
        (lambda: Ball(None), "radius is None; it must be a number"),
        (lambda: Ball(True), "radius is True; it must be a number"),
        (lambda: Ball(1j), r"radius is 1j; it must be a number"),
        (lambda: Ball([1.0]), r"radius is \[1\.0\]; it must be a number"),
        (lambda: Ball(1.0, (0.0, INF)), r"center is \(0\.0, inf\); every coordinate must be finite"),
        (lambda: Ball(1.0, (0.0, "a")), r"center\[1\] is 'a'; it must be a number"),
        (lambda: Ball(1.0, np.zeros((2, 2))), r"center\[0\] is array"),
        (lambda: Ball(1.0, ()), "center is empty"),
        (lambda: Box(1.0, 1.0), r"low is 1\.0 and high is 1\.0; low must be below high"),
        (lambda: Box((0.0, 0.0), (1.0, 0.0)), r"low is 0\.0 and high is 0\.0"),
        (lambda: Box((0.0, 2.0), 1.0), r"low is 2\.0 and high is 1\.0"),
        (lambda: Box(math.nan, 1.0), "low is nan"),
        (lambda: Box(INF, INF), "low is inf"),
        (lambda: Box("low", 1.0), "low is 'low'; it must be a number"),
        (lambda: Box((0.0, 0.0), (1.0, 1.0, 1.0)), "low has 2 coordinates and high has 3"),
        (lambda: Interval(2.0, 1.0), r"low is 2\.0 and high is 1\.0"),
        (lambda: Interval((0.0, 0.0), 1.0), r"low is \(0\.0, 0\.0\); it must be a number"),
        (lambda: HalfLine(INF), "low is inf"),
        (lambda: HalfLine(None), "low is None"),
        (lambda: Simplex(-1), r"total is -1\.0; it must be positive and finite"),
        (lambda: Simplex(0.0), r"total is 0\.0"),
        (lambda: Simplex({}), r"total is \{\}"),
        (lambda: Box((0.0,) * 3, 1.0).check(2), "has 3 coordinates, not dim = 2"),
        (lambda: Box(0.0, (1.0,) * 3).widths(2), "has 3 coordinates, not dim = 2"),
        (lambda: Ball(1.0, (0.0,)).center_point(2), "has 1 coordinates, not dim = 2"),
        (lambda: Interval(0.0, 1.0).check(2), "has 1 coordinate, not dim = 2; Box"),
        (lambda: HalfLine().check(3), "has 1 coordinate, not dim = 3"),
        (lambda: Simplex().check(1), "needs dim >= 2, got dim = 1"),
        (lambda: Free().check(0), "dim is 0; it must be a positive whole number"),
        (lambda: Ball().check(2.0), r"dim is 2\.0; it must be a positive whole number"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@cases
def test_a_fitting_dimension_is_accepted(domain, dim):
    domain.check(dim)
    domain.check(np.int64(dim))


@given(st.integers(0, 2**31))
def test_the_inward_gradient_of_a_ball_bounds_the_regret_of_the_projection(seed):
    random = np.random.default_rng(seed)
    ball = Ball(float(np.exp(random.normal())), tuple(random.normal(size=3)))
    points = np.asarray(ball.center) + random.normal(size=(50, 3)) * ball.radius * 2
    gradients = random.normal(size=(50, 3))
    inward, played = ball.inward(points, gradients), ball.project(points)
    others = ball.project(np.asarray(ball.center) + random.normal(size=(50, 3)) * ball.radius * 5)
    lifted = np.sum(inward * (points - others), axis=-1)
    assert (lifted >= np.sum(gradients * (played - others), axis=-1) - 1e-12 * (1 + abs(lifted))).all()
    assert (np.linalg.norm(inward, axis=-1) <= np.linalg.norm(gradients, axis=-1) + 1e-12).all()
    np.testing.assert_array_equal(inward[ball.contains(points, 0.0)], gradients[ball.contains(points, 0.0)])
