"""The rule in NumPy: what it did before, and what holds whatever the gradients are."""

import math

import numpy as np
import pytest

from samuel.core.rate_search import SEARCHES, RateSearch
from samuel.core.rule import Rule
from tests.trajectories import SETTINGS, snapshots


class Holder:
    """The parameters and what goes with them, as the module's first lines ask for it, on one flat vector."""

    def __init__(self, rule, x, direction, weight_decay=0.0):
        self.rule, self.direction, self.weight_decay = rule, direction, weight_decay
        self.x, self.memory = x, np.zeros_like(x)
        self.s, self.lag, self.average = np.zeros_like(x), np.zeros_like(x), x.copy()
        self.state = rule.start(x[0])

    def step(self, g):
        dots, squares = np.array([[g @ self.s, g @ self.lag]]), np.array([g @ g])
        self.state, moves = self.rule.advance(self.state, dots, squares, self.weight_decay)
        g = g * moves.gradient if moves.gradient > 0 else np.zeros_like(g)
        d, memory = self.direction(g, self.memory)
        slide, along, keep, enter, back = (part[0] for part in moves[:5])
        self.x = keep * self.x + slide * self.s + along * d + back * self.lag
        goes_on = 1 - moves.restart
        self.s = goes_on * (keep * self.s + enter * d)
        lag = self.rule.search.lag if moves.gradient > 0 else 1.0
        self.lag = goes_on * lag * (keep * self.lag + enter * d)
        self.memory = memory * (1 - moves.reset)
        self.average = self.average + moves.pace * (self.x - self.average)
        return moves


def unit_momentum(g, memory):
    memory = 0.9 * memory + 0.1 * g
    return memory / np.sqrt((memory**2).mean()), memory


def plain(g, memory):
    return g, memory


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_it_takes_the_recorded_steps(setting):
    rule = Rule(SEARCHES[setting.base], steps=setting.steps, average=True)
    holder = Holder(rule, setting.start.astype(float), unit_momentum, setting.weight_decay)
    found = {"parameters": [], "averages": [], "rates": [], "shifts": []}
    for t, g in enumerate(setting.gradients.astype(float), start=1):
        holder.step(g)
        if t in snapshots():
            now = (holder.x, holder.average, holder.state.search.rate[0], holder.state.detector.shifts)
            for values, value in zip(found.values(), now, strict=True):
                values.append(value)
    for what, values in found.items():
        theirs = setting.read("numpy", what)
        assert np.abs(np.array(values) - theirs).max() <= 1e-12 * max(1, np.abs(theirs).max()), what


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def rosenbrock_gradient(x):
    return np.array([-2 * (1 - x[0]) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)], x.dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [(-1.2, 1.0), (3.0, -4.0), (0.5, 2.0), (-2.0, 2.0)])
@pytest.mark.parametrize("steps", [None, 2000])
def test_plain_gradient_descent_goes_down_rosenbrocks_valley(start, steps, dtype):
    rule = Rule(SEARCHES["sgd"], steps=steps)
    holder = Holder(rule, np.array(start, dtype), plain)
    for _ in range(2000):
        holder.step(rosenbrock_gradient(holder.x))
    assert rosenbrock(holder.x) < 0.02 * rosenbrock(start)
    assert holder.state.retreats <= 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_moves_nothing_and_is_counted(bad):
    holder = Holder(Rule(RateSearch(), average=True), np.ones(3), plain)
    random = np.random.default_rng(0)
    for g in random.normal(size=(20, 3)):
        holder.step(g)
    x, average, before = holder.x, holder.average, holder.state
    holder.step(np.array([0.0, bad, 0.0]))
    assert np.array_equal(holder.x, x)
    assert np.array_equal(holder.average, average)
    assert (holder.state.skipped, holder.state.retreats, holder.state.round) == (1, 0, before.round)
    for now, then in zip(holder.state.search, before.search, strict=True):
        assert np.array_equal(now, then)
    holder.step(np.ones(3))
    assert not np.array_equal(holder.x, x)
    assert holder.state.skipped == 1


def test_two_in_a_row_undo_the_last_steps_and_give_up_large_rates():
    holder = Holder(Rule(RateSearch()), np.ones(2), plain)
    path = []
    for _ in range(30):
        path.append(holder.x)
        holder.step(holder.x)
    rate = holder.state.search.rate[0]
    holder.step(np.full(2, np.nan))
    assert holder.state.retreats == 0
    holder.step(np.full(2, np.nan))
    assert holder.state.retreats == 1
    assert np.abs(holder.x - path[-2]).max() < np.abs(holder.x - path[0]).max() / 5
    holder.step(holder.x)
    assert holder.state.search.rate[0] < rate / 4
    assert np.isfinite(holder.x).all()


def test_past_its_end_a_run_keeps_the_last_rate():
    holder = Holder(Rule(RateSearch(), steps=50), np.ones(2), plain)
    rates = []
    for _ in range(80):
        holder.step(np.ones(2))
        rates.append(holder.state.search.rate[0] / holder.state.search.mean[0])
    assert rates[49] == pytest.approx(1 / 50)
    assert np.allclose(rates[50:], rates[49])


@pytest.mark.parametrize("done", [120, 199, 200, 230])
def test_an_extended_run_goes_on_without_a_leap_and_falls_to_its_new_end(done):
    rule = Rule(RateSearch(), steps=200)
    holder = Holder(rule, np.ones(2), plain)
    for _ in range(done):
        holder.step(np.ones(2))
    before = rule.fall(holder.state)
    holder.state = rule.extend(holder.state, 500)
    falls = []
    for _ in range(500 - done):
        falls.append(float(rule.fall(holder.state)))
        holder.step(np.ones(2))
    assert falls[0] == pytest.approx(float(before))
    ratios = np.array(falls[1:]) / np.array(falls[:-1])
    assert ratios.max() < 1.2
    late = (500 - done) // 2
    assert np.allclose(falls[late:], 1 - np.arange(done + late, 500) / 500)


def test_only_a_run_with_a_number_of_steps_is_extended():
    rule = Rule(RateSearch())
    with pytest.raises(ValueError, match="cannot extend a run without a number of steps"):
        rule.extend(rule.start(np.zeros(())), 100)
    rule = Rule(RateSearch(), steps=10)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1, got 0"):
        rule.extend(rule.start(np.zeros(())), 0)


def test_clipping_scales_the_gradient_and_hides_no_shift():
    random = np.random.default_rng(1)
    gradients = random.normal(size=(200, 4)) * np.where(np.arange(200) < 120, 1.0, 10.0)[:, None]
    holder = Holder(Rule(RateSearch(), clip=0.5), np.ones(4), plain)
    for g in gradients:
        moves = holder.step(g)
        assert np.linalg.norm(g) * moves.gradient == pytest.approx(min(0.5, np.linalg.norm(g)))
    assert holder.state.detector.shifts == 1


def test_shifts_can_be_ignored():
    random = np.random.default_rng(1)
    gradients = random.normal(size=(200, 4)) * np.where(np.arange(200) < 120, 1.0, 10.0)[:, None]
    holder = Holder(Rule(RateSearch(), on_shift="ignore"), np.ones(4), plain)
    for g in gradients:
        holder.step(g)
    assert holder.state.detector.shifts == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": 1.5}, "steps must be a whole number of at least 1, got 1.5"),
        ({"clip": -1.0}, "clip must be a finite number above 0, got -1.0"),
        ({"on_shift": "panic"}, "on_shift must be one of 'restart', 'ignore', got 'panic'"),
        ({"search": 0.1}, "search must be a samuel.core.RateSearch, got 0.1"),
        ({"average": 8.0}, "average must be True or False, got 8.0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Rule(**{"search": RateSearch(), **options})
