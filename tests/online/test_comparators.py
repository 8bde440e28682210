"""The best fixed point in hindsight: against general solvers, by its own proof, and on data that make solvers fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog, minimize

from samuel.online import (
    AbsoluteLoss,
    Ball,
    Box,
    Domain,
    Free,
    HalfLine,
    Interval,
    LinearLoss,
    LogisticLoss,
    LossFamily,
    PinballLoss,
    Recorded,
    Samuel,
    Simplex,
    SquaredLoss,
    play,
)
from samuel.online.comparators import (
    InexactComparator,
    best_fixed_point,
    best_fixed_points,
    best_on_intervals,
    warn_if_inexact,
)
from samuel.online.regret import hindsight, regret_map

DOMAINS = [Ball(0.5), Ball(0.5, center=(0.2, 0.1, -0.3)), Ball(50.0), Box(-0.3, 0.4), Simplex(), Free()]
HALF = Box((0.0, -np.inf, -1.0), (np.inf, 0.1, 1.0))
SMOOTH = [SquaredLoss(), LogisticLoss()]
KINKED = [AbsoluteLoss(), PinballLoss(0.9)]


def name(thing):
    return type(thing).__name__ if isinstance(thing, LossFamily) else str(thing)


def finite(losses, domains):
    """The pairs of losses and domains with a best point that is not infinitely far away."""
    falling = LinearLoss, LogisticLoss
    return [(loss, domain) for loss in losses for domain in domains if domain.bounded or not isinstance(loss, falling)]


def drawn(loss, rounds, dim, seed=0):
    """Random data for a loss family."""
    random = np.random.default_rng(seed)
    features, target = random.normal(size=(rounds, dim)), random.normal(size=rounds)
    if isinstance(loss, LinearLoss):
        return (features,)
    return features, np.where(target < 0, -1.0, 1.0) if isinstance(loss, LogisticLoss) else target


def is_proved(found, loss, data, domain):
    """The point is in the domain, its loss is what it is said to be, and the gap is small enough."""
    assert bool(domain.contains(found.point))
    assert found.loss == pytest.approx(loss.total(found.point, data)[0], rel=1e-9, abs=1e-9)
    assert 0 <= found.gap <= 1e-8 * (1 + abs(found.loss))
    return True


# --- Against other solvers ------------------------------------------------------------------------------------------


def by_a_general_solver(loss, data, domain, dim):
    constraints, bounds = [], None
    if isinstance(domain, Ball):
        center = np.asarray(domain.center_point(dim))
        constraints = [{"type": "ineq", "fun": lambda x: domain.radius**2 - np.sum((x - center) ** 2)}]
    elif isinstance(domain, Box):
        bounds = domain.bounds(dim)
    elif isinstance(domain, Simplex):
        bounds, constraints = [(0, None)] * dim, [{"type": "eq", "fun": lambda x: np.sum(x) - 1}]
    return minimize(
        lambda x: loss.total(x, data)[0],
        np.asarray(domain.center_point(dim)),
        jac=lambda x: loss.total(x, data)[1],
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-14, "maxiter": 1000},
    ).fun


@pytest.mark.parametrize(("loss", "domain"), finite([LinearLoss(), *SMOOTH], [*DOMAINS, HALF]), ids=name)
@pytest.mark.parametrize("rounds", [1, 2, 50])
def test_it_is_as_good_as_a_general_solvers(loss, domain, rounds):
    data = drawn(loss, rounds, 3, seed=rounds)
    found = best_fixed_point(loss, data, domain, 3)
    assert is_proved(found, loss, data, domain)
    expected = by_a_general_solver(loss, data, domain, 3)
    assert found.loss <= expected + 1e-8 * (1 + abs(expected))
    assert found.loss >= expected - 1e-6 * (1 + abs(expected))  # the general solver is no better than that


def by_linear_programming(loss, data, domain, dim):
    """`min sum high p + (-low) q` with `p - q = <a, x> - y` and `p, q >= 0`."""
    features, target = data
    high, low = (1.0, -1.0) if isinstance(loss, AbsoluteLoss) else (1 - loss.level, -loss.level)
    rounds, one = len(target), np.eye(len(target))
    equal, right = np.hstack([features, -one, one]), target
    bounds = {Simplex: [(0, None)] * dim, Free: [(None, None)] * dim}.get(type(domain))
    bounds = domain.bounds(dim) if bounds is None else bounds
    if isinstance(domain, Simplex):
        equal = np.vstack([equal, np.append(np.ones(dim), np.zeros(2 * rounds))])
        right = np.append(right, 1.0)
    cost = np.concatenate([np.zeros(dim), np.full(rounds, high), np.full(rounds, -low)])
    return linprog(cost, A_eq=equal, b_eq=right, bounds=[*bounds, *[(0, None)] * (2 * rounds)]).fun


@pytest.mark.parametrize("domain", [Box(-0.3, 0.4), HALF, Simplex(), Free()], ids=str)
@pytest.mark.parametrize("loss", KINKED, ids=name)
@pytest.mark.parametrize("rounds", [1, 2, 3, 50])
def test_losses_with_kinks_are_solved_as_well_as_by_linear_programming(domain, loss, rounds):
    data = drawn(loss, rounds, 3, seed=rounds)
    found = best_fixed_point(loss, data, domain, 3)
    assert is_proved(found, loss, data, domain)
    assert found.loss == pytest.approx(by_linear_programming(loss, data, domain, 3), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("loss", KINKED, ids=name)
def test_losses_with_kinks_on_a_disc_are_solved_as_well_as_by_going_round_its_rim(loss):
    data = drawn(loss, 30, 2, seed=3)
    found = best_fixed_point(loss, data, Ball(0.4), 2)
    assert is_proved(found, loss, data, Ball(0.4))
    angles = np.linspace(0, 2 * np.pi, 100_001)
    rim = 0.4 * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    assert np.linalg.norm(found.point) == pytest.approx(0.4, abs=1e-6)  # the best of all points lies outside
    on_the_rim = np.sum(loss.value(rim[:, None, :], data), axis=-1)
    assert found.loss == pytest.approx(np.min(on_the_rim), rel=1e-6)


# --- By its own proof -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    numbers=hnp.arrays(
        float,
        st.tuples(st.integers(1, 6), st.integers(2, 5)),
        elements=st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 3.0]),
    ),
    loss=st.sampled_from([SquaredLoss(), LogisticLoss(), AbsoluteLoss(), PinballLoss(0.1)]),
    domain=st.sampled_from([Ball(1.0), Ball(0.3, center=1.0), Box(-1.0, 0.5), Box(0.0, np.inf), Simplex(), Free()]),
    seed=st.integers(0, 2**32),
)
def test_no_point_of_the_domain_is_better_than_the_proof_allows(numbers, loss, domain, seed):
    features, target = numbers[:, :-1], numbers[:, -1]
    dim = features.shape[1]
    if (isinstance(loss, LogisticLoss) and not domain.bounded) or (isinstance(domain, Simplex) and dim == 1):
        return
    if isinstance(loss, LogisticLoss):
        target = np.where(target < 0, -1.0, 1.0)
    found = best_fixed_point(loss, (features, target), domain, dim)
    assert is_proved(found, loss, (features, target), domain)
    random = np.random.default_rng(seed)
    near = found.point + random.normal(size=(50, dim)) * 10.0 ** random.uniform(-6, 1, size=(50, 1))
    others = np.asarray(domain.project(near))
    losses = np.sum(loss.value(others[:, None, :], (features, target)), axis=-1)
    assert np.min(losses) >= found.loss - found.gap - 1e-12 * (1 + found.loss)


AWKWARD = {
    "fewer rows than coordinates": lambda random: random.normal(size=(3, 6)),
    "one round": lambda random: random.normal(size=(1, 6)),
    "all features zero": lambda random: np.zeros((5, 6)),
    "a feature that is always zero": lambda random: random.normal(size=(20, 6)) * (np.arange(6) != 2),
    "the same row again and again": lambda random: np.tile(random.normal(size=6), (40, 1)),
    "features from 1e-6 to 1e6": lambda random: random.normal(size=(30, 6)) * 10.0 ** np.array([-6, -3, 0, 0, 3, 6]),
    "features that all but agree": lambda random: random.normal(size=(30, 1)) + 1e-3 * random.normal(size=(30, 6)),
    "rounds from 1e-3 to 1e3": lambda random: random.normal(size=(30, 6)) * 10.0 ** random.uniform(-3, 3, (30, 1)),
}


@pytest.mark.parametrize("data", AWKWARD)
@pytest.mark.parametrize(
    ("loss", "domain"),
    finite([*SMOOTH, *KINKED], [Ball(1.0), Box(-1.0, 1.0), Box(0.0, np.inf), Simplex(), Free()]),
    ids=name,
)
def test_awkward_data_are_solved_with_proof(data, loss, domain):
    features = AWKWARD[data](np.random.default_rng(5))
    data = features, drawn(loss, len(features), 6, seed=7)[1]
    assert is_proved(best_fixed_point(loss, data, domain, 6), loss, data, domain)


@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
@pytest.mark.parametrize("domain", [Ball(1.0), Simplex()], ids=str)
def test_many_coordinates_and_rounds_are_solved_with_proof(loss, domain):
    data = drawn(loss, 1000, 60)
    assert is_proved(best_fixed_point(loss, data, domain, 60), loss, data, domain)


@pytest.mark.parametrize("domain", [Box(-1.0, 2.0), Ball(1.0), Ball(50.0), Simplex()], ids=str)
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
def test_rounds_a_million_times_as_large_as_others_are_solved_with_proof(loss, domain):
    """Far out logistic losses have no curvature to go by, and next to large rounds small ones drown in rounding."""
    random = np.random.default_rng(5)
    sizes = 10.0 ** random.uniform(-3, 3, size=(100, 8, 1))
    features, target = drawn(loss, 800, 12)
    data = features.reshape(100, 8, 12) * sizes, target.reshape(100, 8)
    found = best_fixed_points(loss, data, domain, 12)
    assert np.asarray(domain.contains(found.points)).all()
    assert found.losses == pytest.approx(np.sum(loss.value(found.points[:, None], data), axis=-1), rel=1e-9, abs=1e-9)
    assert np.max(found.gaps / (1 + found.losses)) <= 1e-8


def test_logistic_losses_of_very_different_rounds_are_solved_as_well_as_by_a_general_solver():
    random = np.random.default_rng(5)
    for _ in range(10):
        features = random.normal(size=(8, 12)) * 10.0 ** random.uniform(-3, 3, size=(8, 1))
        data = features, np.where(random.normal(size=8) < 0, -1.0, 1.0)
        total, start = LogisticLoss().total, np.full(12, 0.5)
        other = minimize(total, start, args=(data,), jac=True, method="L-BFGS-B", bounds=[(-1, 2)] * 12)
        assert best_fixed_point(LogisticLoss(), data, Box(-1.0, 2.0), 12).loss <= other.fun + 1e-8 * (1 + other.fun)


def test_the_gap_of_far_away_points_has_their_rounding_in_it():
    """There are more coordinates than rounds, so that the least loss is 0; but points 10^5 away are not that exact."""
    random = np.random.default_rng(5)
    features = random.normal(size=(50, 8, 12)) * 10.0 ** random.uniform(-3, 3, size=(50, 8, 1))
    target = 1000 * random.normal(size=(50, 8))
    found = best_fixed_points(AbsoluteLoss(), (features, target), Free(), 12)
    assert np.max(np.abs(found.points)) > 1e5
    exact = np.sum(features.astype(np.longdouble) * found.points[:, None], axis=-1) - target
    assert np.max(np.sum(np.abs(exact), axis=-1)) <= 10 * np.max(found.gaps) <= 1e-5


@pytest.mark.parametrize("radius", [1e12, 1e100, 1e200, 1e300])
@pytest.mark.parametrize("loss", [*SMOOTH, *KINKED], ids=name)
def test_a_ball_may_be_of_any_size(loss, radius):
    data = drawn(loss, 50, 3)
    found, expected = (best_fixed_point(loss, data, ball, 3) for ball in (Ball(radius), Ball(1e3)))
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)
    assert found.loss - expected.loss <= found.gap <= found.loss


# --- One dimension --------------------------------------------------------------------------------------------------


def test_in_one_dimension_the_best_point_is_a_weighted_quantile():
    """Kinks at 1, 2 and 4 with weights 1, 3 and 1: the median of 1, 2, 2, 2, 4 is 2, and the loss 1 + 0 + 2."""
    data = np.array([[1.0], [-3.0], [1.0]]), np.array([1.0, -6.0, 4.0])
    best = best_fixed_point(AbsoluteLoss(), data, Free(), 1)
    assert best.point == pytest.approx([2.0])
    assert best.loss == pytest.approx(3.0)
    assert best_fixed_point(AbsoluteLoss(), data, HalfLine(3.0), 1).point == pytest.approx([3.0])
    assert best_fixed_point(AbsoluteLoss(), data, Ball(1.0), 1).point == pytest.approx([1.0])
    # The 0.9-quantile of five equal readings is the largest of them.
    readings = np.ones((5, 1)), np.array([3.0, 1.0, 5.0, 4.0, 2.0])
    assert best_fixed_point(PinballLoss(0.9), readings, Interval(0.0, 10.0), 1).point == pytest.approx([5.0])


@settings(max_examples=50, deadline=None)
@given(
    numbers=hnp.arrays(
        float, st.tuples(st.integers(1, 7), st.just(2)), elements=st.floats(-3, 3).map(lambda x: round(x, 2))
    ),
    level=st.sampled_from([0.05, 0.5, 0.8]),
    domain=st.sampled_from([Free(), Interval(-0.5, 2.0), HalfLine(0.25), Ball(1.0)]),
)
def test_in_one_dimension_no_kink_is_better(numbers, level, domain):
    features, target = numbers[:, :1], numbers[:, 1]
    best = best_fixed_point(PinballLoss(level), (features, target), domain, 1)
    kinks = np.append(target / np.where(features[:, 0] == 0, 1.0, features[:, 0]), [-0.5, 0.25, 1.0, 2.0])
    points = np.asarray(domain.project(kinks[:, None]))
    losses = np.sum(PinballLoss(level).value(points[:, None, :], (features, target)), axis=-1)
    assert best.loss <= np.min(losses) + 1e-12 * (1 + best.loss)


# --- Many at once ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [LinearLoss(), *SMOOTH, *KINKED], ids=name)
def test_many_intervals_at_once_are_solved_as_each_by_itself(loss):
    data = tuple(array.reshape(4, 10, *array.shape[1:]) for array in drawn(loss, 40, 3))
    together = best_fixed_points(loss, data, Ball(1.0), 3)
    for number in range(4):
        alone = best_fixed_point(loss, tuple(array[number] for array in data), Ball(1.0), 3)
        assert together.losses[number] == pytest.approx(alone.loss, rel=1e-9)
        np.testing.assert_allclose(together.points[number], alone.point, atol=1e-4)


def test_intervals_may_overlap():
    data = drawn(AbsoluteLoss(), 30, 2)
    found = best_on_intervals(AbsoluteLoss(), data, Ball(1.0), 2, starts=np.array([0, 3, 10]), length=20)
    for start, total in zip((0, 3, 10), found.losses, strict=True):
        part = tuple(array[start : start + 20] for array in data)
        assert total == pytest.approx(best_fixed_point(AbsoluteLoss(), part, Ball(1.0), 2).loss, rel=1e-9)


# --- What is not known exactly ---------------------------------------------------------------------------------------


QUESTIONS = {
    "regret": lambda trace: trace.regret(radius=1e200),
    "worst": lambda trace: trace.worst(16, radius=1e200),
    "hindsight": lambda trace: hindsight(trace.stream, Free(), radius=1e200),
    "regret_map": lambda trace: regret_map(trace, radius=1e200),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_regret_against_points_that_are_not_known_exactly_comes_with_a_warning(question):
    """How small losses are somewhere in a ball of radius 1e200 cannot be proved with 16 digits."""
    trace = play(Samuel(dim=3), Recorded(AbsoluteLoss(), drawn(AbsoluteLoss(), 64, 3)), backend="numpy")
    with pytest.warns(InexactComparator, match=r"intervals: its loss of \d.* may be \d.* above the smallest"):
        QUESTIONS[question](trace)


def test_the_warning_names_the_worst_gap():
    with pytest.warns(InexactComparator, match=r"on 2 of 3 intervals: its loss of 9 may be 0\.5 above"):
        warn_if_inexact(np.array([1.0, 9.0, 2.0]), np.array([1e-9, 0.5, 1e-3]))
    warn_if_inexact(np.array([1.0, 1e3]), np.array([1e-6, 1e-3]))  # no warning: they are errors here


# --- What cannot be answered ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", [Free(), HalfLine(0.0)], ids=str)
def test_an_unbounded_search_is_refused_with_the_way_out(domain):
    with pytest.raises(ValueError, match="radius="):
        best_fixed_point(LogisticLoss(), (np.ones((2, 1)), np.ones(2)), domain, 1)


def test_data_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="finite data, got nan"):
        best_fixed_point(SquaredLoss(), (np.array([[1.0, np.nan]]), np.ones(1)), Ball(1.0), 2)


class Fourth(LossFamily):
    """`sum_i (x_i - y_i)^4`: not a function of `<a, x>`."""

    def value(self, point, data):
        return np.sum((point - data[0]) ** 4, axis=-1)

    def gradient(self, point, data):
        return 4 * (point - data[0]) ** 3

    def curvature(self, data):
        return 12 * 9.0 * len(data[0])


class Corner(Fourth):
    def curvature(self, data):
        return np.inf


def test_a_loss_family_of_ones_own_is_solved_by_descent():
    data = (np.array([[2.0, 0.0], [2.0, 0.0]]),)
    best = best_fixed_point(Fourth(), data, Ball(1.0), 2)
    assert best.point == pytest.approx([1.0, 0.0], abs=1e-6)
    assert best.loss == pytest.approx(2.0)
    assert best.gap <= 1e-8 * 3


def test_a_domain_of_ones_own_is_solved_by_descent():
    """A ball that the solver does not know to be one."""
    wrapped = type("Wrapped", (Domain,), {method: _through(method) for method in Domain.__abstractmethods__})()
    data = drawn(SquaredLoss(), 20, 2)
    found, expected = (best_fixed_point(SquaredLoss(), data, domain, 2) for domain in (wrapped, Ball(0.5)))
    assert found.loss == pytest.approx(expected.loss, rel=1e-7)
    with pytest.raises(ValueError, match="curvature is inf"):
        best_fixed_point(AbsoluteLoss(), data, wrapped, 2)


def _through(method):
    if isinstance(getattr(Domain, method), property):
        return property(lambda self: getattr(Ball(0.5), method))
    return lambda self, *arguments: getattr(Ball(0.5), method)(*arguments)


def test_a_loss_family_of_ones_own_with_kinks_is_refused():
    with pytest.raises(ValueError, match="curvature is inf"):
        best_fixed_point(Corner(), (np.ones((2, 2)),), Ball(1.0), 2)


@pytest.mark.parametrize("rounds", [5_000, 40_000])
def test_it_is_proved_for_long_intervals_too(rounds):
    random = np.random.default_rng(rounds)
    features = random.normal(size=(rounds, 7)) * np.array([1, 1, 1, 0.3, 0.1, 3, 1])
    labels = np.sign(features @ random.normal(size=7) + random.logistic(size=rounds))
    found = best_fixed_point(LogisticLoss(), (features, labels), Ball(10.0), 7)
    assert found.loss < 0.9 * rounds * np.log(2)  # better than no opinion
    assert found.gap <= 1e-8 * (1 + found.loss)
