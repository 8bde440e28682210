"""Intervals that keep their coverage: one step at a time, and for whole series."""

import importlib.util
import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from samuel.online import (
    AFLH,
    CBCE,
    FLH,
    OGD,
    SACS,
    SAOL,
    FixedShare,
    Hedge,
    Interval,
    ParameterFree,
    PinballLoss,
    Samuel,
    ScaleFreeOGD,
    Single,
)
from samuel.online.conformal import Conformal, ConformalRegressor, backtest, sliding_coverage

ROOT = Path(__file__).parent.parent.parent


def alone(base):
    return lambda dim, domain, streams: Single(base, dim, domain, streams=streams)


def with_options(kind, **options):
    return lambda dim, domain, streams: kind(dim, domain, streams=streams, **options)


def step_by_step(actual, forecasts, **options):
    """Every interval of a series, and the object that made them."""
    streams = None if actual.ndim == 1 else actual.shape[1]
    intervals = Conformal(streams=streams, **options)
    ends = []
    for value, forecast in zip(actual, forecasts, strict=True):
        intervals.update(value)
        ends.append(intervals.predict(forecast))
    low, high = (np.array(end) for end in zip(*ends, strict=True))
    return intervals, low, high


def noise(rounds, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=rounds)


# --- Coverage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coverage", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("sides", ["symmetric", "separate"])
def test_coverage_of_errors_that_do_not_drift_is_near_its_target(coverage, sides):
    result = backtest(noise(1200), np.zeros(1200), coverage=coverage, sides=sides, backend="numpy").coverage(200)
    assert result.overall == pytest.approx(coverage, abs=0.02)
    assert result.lowest > coverage - 0.07


def test_coverage_stays_near_its_target_in_every_window_when_the_errors_drift():
    errors = noise(2000) * np.where(np.arange(2000) // 400 % 2, 5.0, 1.0)
    result = backtest(errors, np.zeros(2000), backend="numpy").coverage(250)
    assert result.overall == pytest.approx(0.9, abs=0.02)
    assert result.lowest > 0.85
    assert result.highest < 0.98


@pytest.mark.parametrize("base", [ScaleFreeOGD(1.0), OGD(0.05)], ids=["scale-free", "fixed rate"])
def test_coverage_recovers_from_a_jump_sooner_than_with_a_single_learner(base):
    errors = noise(1200) * np.where(np.arange(1200) < 1000, 1.0, 8.0)
    ours, single = (
        backtest(errors, np.zeros(1200), learner=learner, backend="numpy").covered[1000:1100].mean()
        for learner in (None, alone(base))
    )
    assert ours > 0.8
    assert ours > single + 0.1


@pytest.mark.parametrize("horizon", [1, 4, 30])
def test_coverage_is_kept_when_labels_come_late(horizon):
    result = backtest(noise(1500), np.zeros(1500), horizons=horizon, backend="numpy").coverage(250)
    assert result.overall == pytest.approx(0.9, abs=0.025)
    assert result.lowest > 0.8


@settings(max_examples=20)
@given(arrays(float, st.integers(20, 60), elements=st.floats(0, 1)))
def test_what_coverage_lacks_is_bounded_by_the_regret(scores):
    # Convexity at 0 and the regret against the largest bound, D = 4: D (c n - covered) <= R + c sum s.
    learner = with_options(Samuel, record=True)
    intervals, _, high = step_by_step(scores, np.zeros(len(scores)), bound=4.0, learner=learner)
    covered = np.sum(scores[1:] <= high[:-1])
    rounds = len(scores) - 1
    certificate = intervals.learners[0].trace().certificate()
    assert 4.0 * (0.9 * rounds - covered) <= certificate.linearised + 0.9 * scores[1:].sum() + 1e-9
    assert certificate.linearised <= certificate.measured + 1e-9


def test_a_certificate_of_late_labels_holds_for_the_bounds_that_were_issued():
    scores = np.abs(noise(400))
    learner = with_options(Samuel, record=True)
    intervals, _, high = step_by_step(scores, np.zeros(400), bound=4.0, horizons=5, learner=learner)
    loss, data = PinballLoss(0.9), (np.ones((395, 1)), scores[5:])
    issued = loss.value(high[:-5, None], data).sum()
    best = min(loss.value(np.array([bound]), data).sum() for bound in scores[5:])
    assert 0 < issued - best <= intervals.learners[0].trace().certificate().measured


@given(arrays(float, st.integers(1, 30), elements=st.sampled_from([0.0, 1.0, np.nan])), st.integers(1, 8))
def test_sliding_coverage_is_the_mean_of_the_last_known_outcomes(covered, window):
    found = sliding_coverage(covered, window)
    for t in range(len(covered)):
        known = covered[: t + 1][~np.isnan(covered[: t + 1])]
        if np.isnan(covered[t]) or len(known) < window:
            assert np.isnan(found[t])
        else:
            assert found[t] == pytest.approx(known[-window:].mean())


# --- Clocks and late labels -------------------------------------------------------------------------------


def test_every_horizon_has_a_clock_of_its_own():
    actual, forecasts = noise(150), noise((150, 3), seed=1)
    _, low, high = step_by_step(actual, forecasts, horizons=(1, 4, 20))
    for h, horizon in enumerate((1, 4, 20)):
        _, alone_low, alone_high = step_by_step(actual, forecasts[:, h], horizons=horizon)
        np.testing.assert_array_equal(low[:, h], alone_low)
        np.testing.assert_array_equal(high[:, h], alone_high)


def test_late_labels_out_of_order_are_learnt_from_as_a_learner_learns_with_tickets():
    scores, order = np.abs(noise(8, seed=3)), [2, 1, 5, 3, 4, 8, 7, 6]
    intervals = Conformal(bound=4.0)
    by_hand = Samuel(1, Interval(0.0, 4.0), **expert_options(intervals), gradient_bound=0.9, newborns="warm")
    waiting = {}

    def both_predict(t):
        waiting[t] = by_hand.predict(), by_hand.ticket()
        low, high = intervals.predict(10.0)
        assert (low, high) == (10.0 - waiting[t][0], 10.0 + waiting[t][0])

    for t in range(8):
        both_predict(t + 1)
    for t in order:
        decision, ticket = waiting[t]
        intervals.update(10.0 - scores[t - 1], at=t)
        by_hand.update([0.1] if scores[t - 1] < decision[0] else [-0.9], ticket=ticket)
        both_predict(intervals.time + 1)
    assert intervals.coverage().count == 8


def expert_options(intervals):
    """Base and rates of the default learner, to make the same by hand."""
    experts = intervals.learners[0].rule.experts
    return {"base": experts[0], "learning_rates": [expert.learning_rate for expert in experts]}


def test_labels_that_never_arrive_are_forgotten():
    intervals = Conformal(horizons=(1, 5), patience=20)
    for t in range(300):
        intervals.predict([0.0, 0.0])
        if t % 50 == 0:
            intervals.update(1.0)
    size = len(pickle.dumps(intervals))
    for _ in range(400):
        intervals.predict([0.0, 0.0])
    assert len(pickle.dumps(intervals)) == size


def test_a_label_that_comes_too_late_changes_nothing():
    intervals = Conformal(warmup=1, patience=3)
    for t in range(10):
        intervals.predict(0.0)
        if t != 2:
            intervals.update(1.0)
    before = pickle.dumps(intervals)
    intervals.update(100.0, at=3)
    assert pickle.dumps(intervals) == before


def test_threads_that_tell_late_labels_lose_none(hurried_threads):
    intervals = Conformal(bound=5.0)
    for _ in range(400):
        intervals.predict(0.0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda at: intervals.update(1.0, at=at), range(1, 401)))
    assert intervals.coverage().count == intervals.learners[0].round == 400


def test_a_run_goes_on_after_pickling():
    actual, forecasts = noise(120), np.zeros((120, 2))
    _, low, _ = step_by_step(actual, forecasts, horizons=(1, 7))
    intervals = Conformal(horizons=(1, 7))
    for t in range(120):
        intervals.update(actual[t])
        if t == 60:
            intervals = pickle.loads(pickle.dumps(intervals))
        np.testing.assert_array_equal(intervals.predict(forecasts[t])[0], low[t])


# --- Streams, missing labels, scale -----------------------------------------------------------------------


@pytest.mark.parametrize("sides", ["symmetric", "separate"])
def test_many_series_at_once_are_as_many_alone(sides):
    actual = noise((120, 3)) * [1.0, 100.0, 0.01]
    actual[np.random.default_rng(1).random(actual.shape) < 0.2] = np.nan
    intervals, low, high = step_by_step(actual, np.zeros((120, 2, 3)), horizons=(1, 6), sides=sides)
    report = intervals.coverage()
    for s in range(3):
        one, one_low, one_high = step_by_step(actual[:, s], np.zeros((120, 2)), horizons=(1, 6), sides=sides)
        np.testing.assert_allclose(low[..., s], one_low, rtol=1e-9)
        np.testing.assert_allclose(high[..., s], one_high, rtol=1e-9)
        np.testing.assert_array_equal(report.count[:, s], one.coverage().count)
        np.testing.assert_allclose(report.overall[:, s], one.coverage().overall)


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@pytest.mark.parametrize("sides", ["symmetric", "separate"])
def test_intervals_scale_with_the_errors(factor, sides):
    errors = noise(300)
    small, large = (backtest(scale * errors, np.zeros(300), sides=sides, backend="numpy") for scale in (1.0, factor))
    np.testing.assert_allclose(large.high, factor * small.high, rtol=1e-9)


def test_intervals_are_infinite_until_their_scale_is_known_and_start_at_the_quantile_of_split_conformal_prediction():
    errors = np.array([0.3, -0.1, 0.9, 0.2, -0.5, 0.4, 0.6, -0.7, 0.8, 0.1])
    intervals = Conformal(coverage=0.9)
    for error in errors[:9]:
        low, high = intervals.predict(5.0)
        assert (low, high) == (-np.inf, np.inf)
        intervals.update(5.0 + error)
    low, high = intervals.predict(5.0)
    assert (low, high) == pytest.approx((4.1, 5.9))  # the largest of nine is the quantile for 9 in 10
    assert intervals.coverage().count == 0


def test_intervals_are_finite_from_the_start_if_the_largest_error_is_known():
    low, high = Conformal(bound=3.0).predict(1.0)
    assert -2 <= low <= 1 <= high <= 4


def test_forecasts_without_error_get_intervals_of_no_width_until_there_is_an_error():
    intervals = Conformal(coverage=0.5, warmup=2)
    for error, width in ((0.0, np.inf), (0.0, np.inf), (0.0, 0.0), (2.0, 0.0), (0.0, 4.0)):
        low, high = intervals.predict(7.0)
        assert high - low == width
        intervals.update(7.0 + error)
    assert intervals.coverage().overall == pytest.approx(2 / 3)


def test_an_error_beyond_all_measure_is_a_miss_like_any_other():
    errors = np.full(40, 1e-300)
    errors[20] = 1e300
    plain = backtest(errors, np.zeros(40), backend="numpy")
    _, _, high = step_by_step(errors, np.zeros(40))
    np.testing.assert_allclose(plain.high, high)
    assert plain.covered[19] == 0
    assert plain.high[-1] < 1e-297


def test_separate_bounds_follow_a_forecaster_that_is_always_too_low():
    errors = 5 + 0.1 * noise(600)
    result = backtest(errors, np.zeros(600), sides="separate", backend="numpy")
    assert result.low[-100:].mean() > 4
    assert result.high[-100:].mean() < 6
    assert result.coverage(100).overall > 0.8


def test_where_there_is_no_forecast_there_is_no_interval_and_nothing_is_learnt():
    intervals = Conformal(warmup=1, streams=2)
    intervals.predict([0.0, np.nan])
    intervals.update([1.0, 1.0])
    low, high = intervals.predict([0.0, 0.0])
    np.testing.assert_array_equal(low, [-1.0, -np.inf])
    np.testing.assert_array_equal(high, [1.0, np.inf])


# --- Learners ---------------------------------------------------------------------------------------------

LEARNERS = {
    "default": None,
    "Samuel": Samuel,
    "Samuel, loss": with_options(Samuel, feedback="loss"),
    "Samuel, full": with_options(Samuel, feedback="full"),
    "SAOL": SAOL,
    "CBCE": CBCE,
    "SACS": SACS,
    "FLH": FLH,
    "AFLH": AFLH,
    "Hedge": Hedge,
    "FixedShare": FixedShare,
    "ParameterFree": ParameterFree,
    "scale-free": alone(ScaleFreeOGD(1.0)),
    "fixed rate": alone(OGD(0.05)),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
def test_a_backtest_has_the_numbers_of_step_by_step_use(learner):
    actual = noise((60, 2))
    actual[np.random.default_rng(2).random(actual.shape) < 0.1] = np.nan
    forecasts = 0.1 * noise((60, 2, 2), seed=1)
    options = {"horizons": (1, 4), "learner": learner, "coverage": 0.8}
    intervals, low, high = step_by_step(actual, forecasts, window=20, **options)
    result = backtest(actual, forecasts, backend="numpy", **options)
    np.testing.assert_allclose(result.low, low, rtol=1e-9)
    np.testing.assert_allclose(result.high, high, rtol=1e-9)
    expected, found = intervals.coverage(), result.coverage(window=20)
    for name in ("count", "overall", "recent", "lowest", "highest", "width", "loss"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9, err_msg=name)
    assert np.isfinite(result.low[20:]).all()


def test_a_compiled_backtest_has_the_numbers_of_a_plain_one():
    pytest.importorskip("jax", reason="compiling needs JAX")
    errors, options = noise(85), {"horizons": 5, "learner": Samuel, "bound": 5.0}
    plain, compiled = (backtest(errors, np.zeros(85), backend=name, **options) for name in ("numpy", "jax"))
    np.testing.assert_allclose(compiled.high, plain.high, rtol=1e-9)


@pytest.mark.parametrize("times", [1, 5, 6])
def test_a_series_no_longer_than_its_horizon_has_intervals_but_no_coverage(times):
    result = backtest(np.ones(times), np.zeros(times), horizons=6, bound=2.0)
    np.testing.assert_array_equal(result.high, np.ones(times))
    assert result.coverage().count == 0


# --- Bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coverage": 1.0}, "coverage must lie between 0 and 1, such as 0.9, got 1.0"),
        ({"coverage": "0.9"}, "got '0.9'"),
        ({"horizons": 0}, "horizons must be a whole number of at least 1, got 0"),
        ({"horizons": (1, 1)}, r"different whole numbers, at least one, got \(1, 1\)"),
        ({"horizons": ()}, r"got \(\)"),
        ({"horizons": (1, 2.5)}, "every horizon must be a whole number of at least 1, got 2.5"),
        ({"horizons": None}, "horizons must be a whole number or a list of them, got None"),
        ({"streams": 0}, "streams must be a whole number of at least 1, got 0"),
        ({"sides": "both"}, "sides must be one of symmetric, separate, got 'both'"),
        ({"bound": -1.0}, "bound must be positive and finite: no error is larger; got -1.0"),
        ({"warmup": 0}, "warmup must be a whole number of at least 1, got 0"),
        ({"window": 0}, "window must be a whole number of at least 1, got 0"),
        ({"patience": -1}, "patience must be a whole number of at least 0, got -1"),
        ({"learner": "samuel"}, "learner must be a class such as Samuel, or a function like it, got 'samuel'"),
        ({"learner": lambda *place, streams: None}, "must make a samuel.online learner, it made None"),
        ({"learner": lambda *place, streams: Samuel(2)}, "of that dimension, domain and number of streams"),
    ],
)
def test_a_bad_option_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        Conformal(**options)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.predict(0.0), r"forecast must have the shape \(2, 3\) \(\[horizons\], \[streams\]\), got \(\)"),
        (
            lambda x: x.predict(np.full((2, 3), np.inf)),
            r"must be finite, or nan where it is missing; got inf at \(0, 0\)",
        ),
        (lambda x: x.predict("price"), "forecast must be real numbers"),
        (lambda x: x.update([1.0, 2.0]), r"actual must have the shape \(3,\) \(\[streams\]\), got \(2,\)"),
        (lambda x: x.update(np.zeros(3), at=3), "at must be at most 2, the present time"),
        (lambda x: x.update(np.zeros(3), at=-1), "at must be a whole number of at least 0, got -1"),
        (lambda x: x.update(np.zeros(3), at=1), "the value at time 1 was given before"),
    ],
)
def test_bad_numbers_are_named_and_change_nothing(wrong, message):
    intervals = Conformal(horizons=(1, 2), streams=3)
    for t in range(2):
        intervals.update(np.zeros(3), at=t)
        intervals.predict(np.zeros((2, 3)))
    before = pickle.dumps(intervals)
    with pytest.raises(ValueError, match=message):
        wrong(intervals)
    assert pickle.dumps(intervals) == before


@pytest.mark.parametrize(
    ("actual", "forecasts", "message"),
    [
        (np.zeros(0), np.zeros(0), r"actual must have the shape \(times, \[streams\]\), got \(0,\)"),
        (np.zeros((4, 2, 2)), np.zeros(4), r"got \(4, 2, 2\)"),
        (np.zeros(4), np.zeros((4, 2)), r"forecasts must have the shape \(4,\)"),
        ([1.0, np.inf], np.zeros(2), "actual must be finite, or nan where it is missing; got inf at 1"),
    ],
)
def test_a_backtest_names_what_does_not_fit(actual, forecasts, message):
    with pytest.raises(ValueError, match=message):
        backtest(actual, forecasts)


# --- Around a regressor -----------------------------------------------------------------------------------


class Doubled:
    """A regressor that is fitted already: it predicts twice the only feature."""

    def predict(self, X):
        return 2 * np.asarray(X)[:, 0]


class Relative:
    """A score of MAPIE's shape: the error over the prediction."""

    def __init__(self, sym):
        self.sym = sym

    def get_signed_conformity_scores(self, y, y_pred, **kwargs):
        assert kwargs["X"].shape == (len(y), 1)
        return (y - y_pred) / y_pred

    def get_estimation_distribution(self, y_pred, conformity_scores, **kwargs):
        return y_pred * (1 + conformity_scores)


def rows_about(regressor, rounds=800, relative=False):
    X = np.random.default_rng(0).uniform(1.0, 3.0, size=(rounds, 1))
    sizes = 0.1 * np.where(np.arange(rounds) < rounds // 2, 1.0, 3.0) * (regressor.predict(X) if relative else 1.0)
    return X, regressor.predict(X) + sizes * noise(rounds, seed=1)


def test_intervals_around_a_regressor_are_those_around_its_predictions():
    X, y = rows_about(Doubled())
    model, plain = ConformalRegressor(Doubled()), Conformal()
    for t in range(200):
        points, intervals = model.predict_interval(X[t : t + 1])
        assert (points.shape, intervals.shape) == ((1,), (1, 2, 1))
        np.testing.assert_allclose(intervals.ravel(), plain.predict(points[0]), rtol=1e-12)
        plain.update(y[t])
        model.update(X[t : t + 1], y[t : t + 1])
    assert model.coverage().overall == plain.coverage().overall


@pytest.mark.parametrize("sym", [True, False], ids=["symmetric", "separate"])
def test_intervals_by_a_score_of_the_shape_of_mapie_keep_their_coverage(sym):
    X, y = rows_about(Doubled(), 1600, relative=True)
    model, hits, widths = ConformalRegressor(Doubled(), score=Relative(sym)), [], []
    for t in range(1600):
        points, intervals = model.predict_interval(X[t : t + 1])
        low, high = intervals.ravel()
        hits.append(low <= y[t] <= high)
        widths.append((high - low) / points[0])
        model.update(X[t : t + 1], y[t : t + 1])
    assert np.mean(hits) == pytest.approx(0.9, abs=0.03)
    assert np.mean(widths[1000:]) > 2 * np.mean(widths[100:700])


def test_intervals_by_the_scores_of_mapie_itself():
    scores = pytest.importorskip("mapie.conformity_scores", reason="MAPIE is not installed")
    X, y = rows_about(Doubled(), relative=True)
    for theirs, ours in ((scores.AbsoluteConformityScore(), None), (scores.GammaConformityScore(), Relative(False))):
        models = [ConformalRegressor(Doubled(), score=score) for score in (theirs, ours)]
        for model in models:
            model.update(X[:400], y[:400])
        intervals = [model.predict_interval(X[400:])[1] for model in models]
        np.testing.assert_allclose(*intervals)


def test_many_rows_at_once_are_learnt_one_after_the_other():
    X, y = rows_about(Doubled(), 300)
    y[::7] = np.nan  # some targets are missing
    at_once, singly = ConformalRegressor(Doubled()), ConformalRegressor(Doubled())
    at_once.update(X, y)
    for t in range(300):
        singly.update(X[t : t + 1], y[t : t + 1])
    np.testing.assert_array_equal(at_once.predict_interval(X)[1], singly.predict_interval(X)[1])


class Squares:
    def predict(self, X):
        return np.asarray(X) ** 2


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: ConformalRegressor(3.0), r"regressor must have a method predict\(X\), got 3.0"),
        (lambda: ConformalRegressor(Doubled(), score="absolute"), "score must have get_signed_conformity_scores"),
        (lambda: ConformalRegressor(Doubled(), coverage=90), "coverage must lie between 0 and 1, .* got 90"),
        (
            lambda: ConformalRegressor(Squares()).predict_interval(np.ones((3, 2))),
            r"one number a row.* got \(3, 2\)",
        ),
        (lambda: ConformalRegressor(Doubled()).update(np.ones((3, 1)), [1.0]), "one target for each of 3 rows"),
        (
            lambda: ConformalRegressor(Doubled()).update(np.ones((3, 1)), [1.0, np.inf, 1.0]),
            "got inf for row 1",
        ),
    ],
)
def test_a_regressor_a_score_or_rows_that_do_not_fit_are_named(act, message):
    with pytest.raises(ValueError, match=message):
        act()


# --- The comparison ---------------------------------------------------------------------------------------


def run_comparison(*arguments):
    command = [sys.executable, ROOT / "benchmarks" / "conformal.py", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_the_comparison_measures_every_method_a_step_and_a_day_ahead(tmp_path):
    day = np.sin(2 * np.pi * np.arange(2000) / 48)
    np.savetxt(tmp_path / "prices.csv", day + 0.1 * noise(2000), header="nswprice", comments="")
    ran = run_comparison(tmp_path / "prices.csv", "--series", "price", "--json", tmp_path / "table.json")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert len({(row["method"], row["ahead"]) for row in rows}) == 12
    for row in rows:
        assert row["coverage"] == pytest.approx(0.9, abs=0.05), row


def test_the_comparison_says_which_file_is_missing():
    ran = run_comparison("nowhere.csv")
    assert ran.returncode == 1
    assert "There is no file nowhere.csv" in ran.stderr


@pytest.fixture(scope="module")
def comparison():
    spec = importlib.util.spec_from_file_location("conformal_comparison", ROOT / "benchmarks" / "conformal.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_aci_by_hand(comparison):
    # Given 9 scores, 1 to 9, whose quantile for 9 in 10 is the 9th. Then a = 0.1 + 0.25 (0.1 - missed).
    scores = np.array([*range(1, 10), 20.0, 1.0, 1.0, 1.0])
    found = comparison.aci(0.25)(scores, 9, 1)
    # Round 9: 9, missed by 20: a = 0.1 - 0.225 < 0. Round 10: infinite, a hit: a = -0.1, and so round 11.
    np.testing.assert_array_equal(found[9:12], [9, np.inf, np.inf])


def test_saocp_by_hand(comparison):
    method = comparison.Saocp(largest=1.0)
    assert method.bound() == 0
    method.learn(1.0)
    # The first expert starts at 0, where everybody stands, and steps by 1 against its gradient of -0.9 over its size.
    assert method.bound() == 1
    method.learn(0.5)
    # A second one is born at 1. Both are too high by 0.5, gradients 0.1: the first steps back by 0.1 / sqrt(0.82), the
    # second by 1 to 0. Nobody has gained anything; their priors are 1 and 1 / (4 (1 + 1)).
    first = 1 - 0.1 / np.sqrt(0.82)
    assert method.bound() == pytest.approx(first * 8 / 9)
    method.learn(0.0)
    # Loss of the mixture 0.1 * 8 / 9 first; the second expert, at 0, gains that over sqrt(3) * 0.9; its weight is that
    # over 2 rounds. The first gains less than nothing, which does not count against it.
    gain = method.experts[1, 3]
    assert gain == pytest.approx(0.1 * first * 8 / 9 / np.sqrt(3) / 0.9)
    np.testing.assert_allclose(method.weights()[:2], [0, gain / 2])
    assert method.experts[:, 1].tolist() == [8, 16, 8]


def test_split_conformal_prediction_is_the_quantile_of_what_was_given(comparison):
    found = comparison.split_conformal(np.array([*range(1, 20), 100.0]), 19, 1)
    np.testing.assert_array_equal(found, np.full(20, 18.0))
