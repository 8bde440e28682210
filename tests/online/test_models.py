"""Models of rows: they learn without a gradient by hand, and keep the protocols of river and scikit-learn."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from samuel.online import (
    OGD,
    AbsoluteLoss,
    Ball,
    Classifier,
    LinearLoss,
    PinballLoss,
    Regressor,
    Samuel,
    Single,
    river,
    sklearn,
)


@pytest.mark.parametrize(
    "model",
    [river.Regressor(), river.Regressor(loss=PinballLoss(0.9)), river.Classifier()],
    ids=["squared loss", "pinball loss", "logistic loss"],
)
def test_river_accepts_the_estimator(model):
    for check in checks.yield_checks(model):
        check(model.clone())


@parametrize_with_checks([sklearn.Regressor(), sklearn.Classifier()])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


def rows(count, seed=0):
    """Rows of four features on very different scales, and a linear target with a little noise."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, 4)) * [1.0, 1e3, 1e-3, 5.0] + [0.0, 1e4, 0.0, -3.0]
    return x, x @ [2.0, 1e-3, 1e3, -0.4] + 7.0 + 0.1 * random.normal(size=count)


def forecasts(model, x, y):
    """What a model predicts for each row before it learns from it."""
    made = []
    for row, target in zip(x, y, strict=True):
        made.append(model.predict_one(row))
        model.learn_one(row, target)
    return np.array(made)


def test_numbers_that_come_as_text_are_taken_as_categories_with_a_warning():
    model = Regressor()
    with pytest.warns(UserWarning, match="feature 'wind' is text that is a number, and is taken as a category"):
        model.learn_one({"wind": "3.5", "sky": "grey"}, 1.0)
    with pytest.warns(UserWarning, match="feature 'wind' is text"):
        model.predict_one({"wind": "4"})


@pytest.mark.parametrize("model", [Regressor(), Classifier()], ids=["regressor", "classifier"])
def test_threads_that_share_a_model_lose_no_row(model, hurried_threads):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda t: model.learn_one([t % 7, t % 3], t % 2), range(800)))
    assert model._features.moments.count.tolist() == [800, 800]


def test_a_regressor_learns_features_of_any_scale_without_a_learning_rate():
    x, y = rows(1500)
    errors = forecasts(Regressor(), x, y) - y
    assert np.sqrt(np.mean(errors[-300:] ** 2)) < 0.1 * y.std()


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_predictions_do_not_depend_on_the_units_of_features_and_follow_those_of_the_target(factor):
    x, y = rows(200)
    plain = forecasts(Regressor(), x, y)
    scaled = forecasts(Regressor(), x * [factor, 1.0, 1.0, 1 / factor], factor * y)
    np.testing.assert_allclose(scaled, factor * plain, rtol=1e-6, atol=1e-6 * factor)


def test_a_regressor_follows_coefficients_that_change():
    x, y = rows(2000)
    y[1000:] = 20 - y[1000:]
    errors = np.abs(forecasts(Regressor(), x, y) - y)
    assert errors[-200:].mean() < 0.25 * y.std()


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_a_pinball_loss_makes_forecasts_of_a_quantile(level):
    random = np.random.default_rng(0)
    x = random.normal(size=(3000, 1))
    y = 3 * x[:, 0] + random.normal(size=3000)
    below = y < forecasts(Regressor(PinballLoss(level)), x, y)
    assert below[1000:].mean() == pytest.approx(level, abs=0.05)


def test_an_outlier_among_the_targets_hardly_moves_a_median():
    x, y = rows(800)
    y[::50] += 200
    errors = np.abs(forecasts(Regressor(AbsoluteLoss()), x, y) - y)
    assert np.median(errors[-200:]) < y[1:50].std()


def test_a_classifier_tells_three_classes_that_come_one_after_the_other():
    random = np.random.default_rng(0)
    centres = {"north": [0.0, 4.0], "east": [4.0, 0.0], "west": [-4.0, 0.0]}
    names = ["north"] * 20 + ["east", "north"] * 20 + [list(centres)[place] for place in random.integers(0, 3, 600)]
    model, right = Classifier(), []
    for name in names:
        x = random.normal(size=2) + centres[name]
        right.append(model.predict_one(x) == name)
        model.learn_one(x, name)
    assert np.mean(right[-300:]) > 0.95
    shares = model.predict_proba_one(centres["east"])
    assert list(shares) == list(centres)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_features_may_come_and_go():
    x, y = rows(600)
    model, errors = Regressor(), []
    for t, (row, target) in enumerate(zip(x, y, strict=True)):
        known = {f"x{place}": value for place, value in enumerate(row) if place < 2 or t >= 100}
        errors.append(model.predict_one(known) - target)
        model.learn_one(known, target)
    assert np.abs(errors[-100:]).mean() < 0.5 * np.abs(y - y.mean()).mean()
    assert np.isfinite(model.predict_one({"x1": 1e4, "never seen": 3.0}))
    assert np.isfinite(model.predict_one({}))


def test_text_is_a_category_of_its_own():
    model = Classifier()
    for sky, umbrella in [("clear", False), ("grey", True)] * 50:
        model.learn_one({"sky": sky}, umbrella)
    assert model.predict_one({"sky": "grey"}) is True
    assert model.predict_one({"sky": "clear"}) is False


@pytest.mark.parametrize("kind", [Regressor, Classifier])
def test_predicting_changes_nothing(kind):
    x, y = rows(50)
    predicting, silent = kind(), kind()
    for row, target in zip(x, y > 7 if kind is Classifier else y, strict=True):
        for other in x[:3]:
            predicting.predict_one(other)
        predicting.learn_one(row, target)
        silent.learn_one(row, target)
    assert pickle.dumps(predicting) == pickle.dumps(silent)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-1e90, 1e90), st.floats(-1e90, 1e90)), min_size=1, max_size=15))
def test_predictions_stay_finite_whatever_the_numbers(pairs):
    model = Regressor()
    for x, y in pairs:
        model.learn_one([x], y)
        assert np.isfinite(model.predict_one([x]))


WRONG = [
    ([1.0, np.nan], 1.0, "feature 1 must be a number below 1e\\+100 in size, got nan"),
    ({"a": 1.0, "b": None}, 1.0, "feature 'b' must be a number .* got None"),
    ([[1.0]], 1.0, "x must be a dictionary of features or a row of numbers, got the shape"),
    ("text", 1.0, "x must be real numbers, got 'text'"),
    ([1.0, 2.0], np.inf, "y must be a number .* got inf"),
    ([1.0, 2.0], "3", "y must be a number .* got '3'"),
]


@pytest.mark.parametrize(("x", "y", "message"), WRONG)
def test_a_wrong_row_is_refused_before_anything_changes(x, y, message):
    model = Regressor()
    model.learn_one([1.0, 2.0], 3.0)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=message):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("y", [None, float("nan")])
def test_a_class_that_is_none_is_refused(y):
    with pytest.raises(ValueError, match="y must be a class, got"):
        Classifier().learn_one([1.0], y)


@pytest.mark.parametrize("loss", [LinearLoss(), "squared"])
def test_a_loss_of_something_else_is_refused(loss):
    with pytest.raises(ValueError, match="loss must be one of predictions of a number, such as SquaredLoss"):
        Regressor(loss)


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (3, "learner must be a class such as Samuel, or a function like it, got 3"),
        (lambda dim: None, "learner must make a samuel.online learner, it made None"),
        (lambda dim: Samuel(dim + 1), r"learner\(3\) must make a new learner of 3 weights"),
        (lambda dim: Samuel(dim, Ball(1.0), feedback="full"), "learner must take linear feedback, .* takes 'full'"),
    ],
)
def test_a_learner_that_is_none_is_refused(learner, message):
    with pytest.raises(ValueError, match=message):
        Regressor(learner=learner).learn_one([1.0, 2.0], 1.0)


def test_any_learner_may_find_the_weights():
    x, y = rows(1000)
    errors = forecasts(Regressor(learner=lambda dim: Single(OGD(0.1), dim)), x, y) - y
    assert np.abs(errors[-200:]).mean() < 0.2 * y.std()


def test_classes_that_come_late_to_scikit_learn_are_refused():
    model = sklearn.Classifier().partial_fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(ValueError, match="y has the class 'c', which is not among the classes"):
        model.partial_fit([[2.0]], ["c"])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit([[2.0]], ["a"], classes=["a", "c"])


def test_fitting_at_once_and_in_parts_is_the_same():
    x, y = rows(100)
    once, parts = sklearn.Regressor().fit(x, y), sklearn.Regressor()
    for first in range(0, 100, 20):
        parts.partial_fit(x[first : first + 20], y[first : first + 20])
    np.testing.assert_array_equal(once.predict(x), parts.predict(x))
