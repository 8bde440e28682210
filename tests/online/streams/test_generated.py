"""Streams of random numbers: the same however they are cut, and what each of them promises."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samuel.online import Adagrad, Ball, Box, HalfLine, ScaleFreeOGD, Simplex, Single, play
from samuel.online.streams import (
    Adversary,
    DriftingClassification,
    DriftingQuantile,
    DriftingRegression,
    ExpertAdvice,
    SparseRegression,
    Storms,
)

# Periods and stretches that are short, so that a few thousand rounds see many changes.
STREAMS = {
    "regression, abrupt": DriftingRegression(dim=3, period=70),
    "regression, gradual": DriftingRegression(dim=3, period=70, drift="gradual"),
    "regression, recurring": DriftingRegression(dim=3, period=70, drift="recurring"),
    "regression, outliers": DriftingRegression(dim=3, period=70, outliers=0.1),
    "classification, abrupt": DriftingClassification(dim=3, period=70),
    "classification, gradual": DriftingClassification(dim=3, period=70, drift="gradual", noise=0.1),
    "classification, recurring": DriftingClassification(dim=3, period=70, drift="recurring", concepts=2),
    "sparse regression": SparseRegression(dim=8, period=300),
    "sparse classification": SparseRegression(dim=8, period=300, task="classification", noise=0.1),
    "sparse, rotated": SparseRegression(dim=8, period=300, rotated=True),
    "advice": ExpertAdvice(dim=4, period=90),
    "advice of two": ExpertAdvice(dim=2, period=90),
    "quantile, abrupt": DriftingQuantile(period=90),
    "quantile, gradual": DriftingQuantile(period=90, drift="gradual"),
    "quantile, recurring": DriftingQuantile(period=90, drift="recurring"),
    "adversary": Adversary(dim=3, longest=128),
    "storms": Storms(dim=3, calm=150, storm=30),
    "sparse storms": Storms(dim=3, calm=150, storm=30, sparse=True),
}
DOMAINS = {
    DriftingRegression: Ball(1.0),
    DriftingClassification: Ball(10.0),
    SparseRegression: Box(-1.0, 1.0),
    ExpertAdvice: Simplex(),
    DriftingQuantile: HalfLine(),
    Adversary: Ball(1.0),
    Storms: Ball(1.0),
}
every_stream = pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
ROUNDS = 2500  # more than two blocks of 1024


@every_stream
@pytest.mark.parametrize("side_by_side", [None, 3], ids=["alone", "three"])
def test_any_cut_gives_the_same_numbers(stream, side_by_side):
    stream = replace(stream, streams=side_by_side)
    whole = stream.data(0, ROUNDS)

    @settings(max_examples=20)
    @given(st.tuples(st.integers(0, ROUNDS), st.integers(0, ROUNDS)).map(sorted))
    def holds(cut):
        start, stop = cut
        for part, array in zip(stream.data(start, stop), whole, strict=True):
            np.testing.assert_array_equal(part, array[start:stop], strict=True)

    holds()


@every_stream
def test_far_rounds_are_made_without_those_before(stream):
    far = 10**9
    once, again = stream.data(far, far + 20), stream.data(far + 5, far + 10)
    assert all(np.array_equal(array[5:10], part) for array, part in zip(once, again, strict=True))


@every_stream
def test_data_are_finite_and_have_the_shapes_of_the_loss(stream):
    point = np.zeros((3, stream.dim))
    data = replace(stream, streams=3).data(0, 200)
    assert all(np.isfinite(array).all() for array in data)
    assert stream.loss.value(point, data).shape == (200, 3)
    assert stream.loss.gradient(point, data).shape == (200, 3, stream.dim)


@every_stream
def test_seeds_and_streams_side_by_side_differ_and_nothing_else_does(stream):
    def numbers(stream):
        return np.concatenate([array.ravel() for array in stream.data(0, 300)])

    assert np.array_equal(numbers(stream), numbers(pickle.loads(pickle.dumps(stream))))
    assert not np.array_equal(numbers(stream), numbers(replace(stream, seed=1)))
    last = replace(stream, streams=2).data(0, 300)[-1]
    assert not np.array_equal(last[:, 0], last[:, 1])


@every_stream
def test_learners_play_it(stream):
    trace = play(
        Single(ScaleFreeOGD(1.0), dim=stream.dim, domain=DOMAINS[type(stream)]), stream, rounds=50, record="losses"
    )
    assert np.isfinite(trace.losses).all()


@pytest.mark.parametrize("kind", [DriftingRegression, DriftingClassification])
class TestDriftingCoefficients:
    def test_abrupt_ones_stay_for_a_period_and_then_change(self, kind):
        truth = kind(dim=3, period=10).truth(0, 30)
        assert (truth[0:10] == truth[0]).all()
        assert not np.allclose(truth[9], truth[10])

    def test_gradual_ones_move_along_the_sphere_in_equal_steps(self, kind):
        stream = kind(dim=3, period=10, drift="gradual", radius=2.0)
        truth = stream.truth(0, 31)
        np.testing.assert_allclose(np.linalg.norm(truth, axis=-1), 2.0)
        steps = np.linalg.norm(np.diff(truth, axis=0), axis=-1).reshape(3, 10)
        np.testing.assert_allclose(steps, steps[:, :1].repeat(10, axis=1))
        np.testing.assert_allclose(truth[::10], replace(stream, drift="abrupt").truth(0, 31)[::10])

    def test_gradual_ones_stay_bounded_where_there_is_no_circle_to_go_along(self, kind):
        truth = kind(dim=1, period=10, drift="gradual").truth(0, 200)
        radius = abs(truth[0, 0])
        assert (np.abs(truth) <= radius * (1 + 1e-12)).all()
        assert (np.diff(truth[::10, 0]) != 0).any()

    def test_recurring_ones_come_back_in_turn(self, kind):
        truth = kind(dim=3, period=10, drift="recurring", concepts=3).truth(0, 60)
        np.testing.assert_array_equal(truth[:30], truth[30:])
        assert len(np.unique(truth, axis=0)) == 3


def test_regression_keeps_the_numbers_that_results_rest_on():
    features, target = DriftingRegression(dim=2, period=10, seed=5).data(9, 11)
    np.testing.assert_allclose(features, [[-0.12243923, -0.91175674], [-0.81222981, 0.55253794]], rtol=1e-7)
    np.testing.assert_allclose(target, [0.84540617, -0.86390550], rtol=1e-7)


def test_regression_targets_are_the_true_ones_and_noise():
    stream = DriftingRegression(dim=3, period=100, drift="gradual", noise=0.3)
    features, target = stream.data(0, 4000)
    noise = target - np.sum(features * stream.truth(0, 4000), axis=-1)
    assert abs(noise.mean()) < 0.02
    assert noise.std() == pytest.approx(0.3, rel=0.05)


def test_outliers_are_rounds_in_another_unit():
    usual = DriftingRegression(dim=3, period=100).data(0, 4000)
    some = DriftingRegression(dim=3, period=100, outliers=0.1).data(0, 4000)
    times = some[1] / usual[1]
    np.testing.assert_allclose(some[0], times[:, None] * usual[0])
    assert set(times.round(9)) == {1.0, 10.0}
    assert 0.08 < np.mean(times > 5) < 0.12


def test_no_coefficients_lose_less_than_the_true_ones_of_a_clear_classification():
    stream = DriftingClassification(dim=3, period=5000, radius=6.0)
    data, truth = stream.data(0, 5000), stream.truth(0, 1)[0]
    slope = stream.loss.gradient(truth, data)
    # At the minimum the mean gradient is 0: within four deviations of it here.
    assert (np.abs(slope.mean(axis=0)) < 4 * slope.std(axis=0) / np.sqrt(5000)).all()


def test_noise_flips_that_share_of_labels():
    clear = DriftingClassification(dim=3, period=100)
    flipped = clear.data(0, 4000)[1] != replace(clear, noise=0.25).data(0, 4000)[1]
    assert flipped.mean() == pytest.approx(0.25, abs=0.03)


class TestSparse:
    def test_few_features_at_a_time_some_often_and_most_rarely(self):
        features, _ = SparseRegression(dim=100, active=4).data(0, 5000)
        there = features != 0
        assert there.sum(axis=-1).max() == 4
        often = there.mean(axis=0)
        assert often[0] > 5 * often[9] > 5 * often[50:].max()

    def test_scales_are_spread_over_the_decades(self):
        stream = SparseRegression(dim=7, active=50, power=0.0, decades=3.0)
        features, _ = stream.data(0, 4000)
        np.testing.assert_allclose(sorted(stream.scales), 10.0 ** np.linspace(-3, 0, 7))
        size = np.sqrt((features**2).sum(axis=0) / (features != 0).sum(axis=0))
        np.testing.assert_allclose(size, stream.scales, rtol=0.1)

    @pytest.mark.parametrize("rotated", [False, True])
    def test_the_domain_it_names_holds_coefficients_that_explain_the_targets(self, rotated):
        stream = SparseRegression(dim=6, radius=2.0, noise=0.01, period=100, rotated=rotated)
        domain = Ball(2.0 * np.sqrt(6)) if rotated else Box(-2.0, 2.0)
        features, target = stream.data(0, 500)
        truth = stream.truth(0, 500)
        assert domain.contains(truth).all()
        assert np.abs(np.sum(features * truth, axis=-1) - target).max() < 0.05

    def test_a_learning_rate_for_each_coordinate_beats_any_single_one(self):
        stream = SparseRegression(dim=50, period=2000)

        def lost(base):
            learner = Single(base, dim=50, domain=Box(-1.0, 1.0))
            return play(learner, stream, rounds=1500, record="losses", backend="numpy").losses.sum()

        assert 1.4 * lost(Adagrad(0.3)) < min(lost(ScaleFreeOGD(rate)) for rate in (0.3, 1.0, 3.0, 10.0))


class TestAdvice:
    def test_the_best_expert_is_better_by_the_gap_and_losses_are_0_or_1(self):
        stream = ExpertAdvice(dim=4, period=2000, gap=0.3)
        (losses,) = stream.data(0, 2000)
        assert set(np.unique(losses)) == {0.0, 1.0}
        best = stream.best(0, 1)[0]
        means = losses.mean(axis=0)
        assert means[best] == pytest.approx(0.2, abs=0.04)
        np.testing.assert_allclose(np.delete(means, best), 0.5, atol=0.05)

    @pytest.mark.parametrize("dim", [2, 3, 5])
    def test_all_experts_have_their_turn_and_none_twice_in_a_row(self, dim):
        best = ExpertAdvice(dim=dim, period=1, streams=4).best(0, 100 * dim)
        assert (best[1:] != best[:-1]).all()
        laps = np.sort(best.reshape(100, dim, 4), axis=1)
        assert (laps == np.arange(dim)[:, None]).all()


class TestQuantile:
    def test_targets_are_positive_and_of_the_distribution_told(self):
        stream = DriftingQuantile(period=3000)
        _, target = stream.data(0, 3000)
        centre, spread = stream.distribution(0, 1)[0]
        assert (target > 0).all()
        assert np.log(target).mean() == pytest.approx(centre, abs=4 * spread / np.sqrt(3000))
        assert np.log(target).std() == pytest.approx(spread, rel=0.06)

    def test_the_quantile_loses_least(self):
        stream = DriftingQuantile(level=0.8, period=1000)
        data = stream.data(0, 1000)
        quantile = np.quantile(data[1], 0.8)
        totals = [stream.loss.value(np.array([quantile * factor]), data).sum() for factor in (0.9, 1.0, 1.1)]
        assert totals[1] == min(totals)

    def test_gradual_drift_goes_straight(self):
        distribution = DriftingQuantile(period=10, drift="gradual").distribution(0, 31)
        np.testing.assert_allclose(np.diff(distribution.reshape(31, 2)[:21], 2, axis=0)[[0, 5, 12, 17]], 0, atol=1e-12)


class TestAdversary:
    def test_gradients_have_norm_one(self):
        (gradients,) = Adversary(dim=5, streams=2).data(0, 50)
        np.testing.assert_allclose(np.linalg.norm(gradients, axis=-1), 1.0)

    def test_blocks_of_every_length_occur(self):
        assert set(Adversary(longest=16, streams=4).blocks(0, 16 * 50).ravel()) == {1, 2, 4, 8, 16}

    def test_the_bias_of_a_block_is_as_large_as_chance(self):
        stream = Adversary(dim=4, longest=64, streams=50)
        (gradients,) = stream.data(0, 64 * 40)
        whole = stream.blocks(0, 64 * 40)[::64] == 64  # stretches that are a single block
        sums = (gradients * 2).reshape(40, 64, 50, 4).sum(axis=1)[whole]
        # Bias 1/8 in 64 signs makes a mean of +-8, chance a variance of 64 (1 - 1/64): together 127.
        assert np.mean(sums**2) == pytest.approx(127, rel=0.1)


class TestStorms:
    def test_the_calm_is_small_and_storms_are_large(self):
        for sparse in (False, True):
            stream = Storms(dim=6, calm=40, storm=5, scale=0.1, sparse=sparse)
            norm = np.linalg.norm(stream.data(0, 450)[0], axis=-1)
            np.testing.assert_allclose(norm, np.tile(np.repeat([0.1, 1.0], [40, 5]), 10))

    def test_every_phase_has_a_direction_of_its_own(self):
        stream = Storms(dim=10, calm=1000, storm=1000, scale=0.5, preference=0.5)
        (gradients,) = stream.data(0, 8000)
        means = np.sign(gradients).reshape(8, 1000, 10).mean(axis=1)
        np.testing.assert_allclose(np.abs(means), 0.5, atol=0.15)
        assert len(np.unique(np.sign(means), axis=0)) == 8

    def test_a_sparse_round_has_one_coordinate_and_few_of_them_have_most(self):
        (gradients,) = Storms(dim=50, sparse=True).data(0, 5000)
        there = gradients != 0
        assert (there.sum(axis=-1) == 1).all()
        assert there[:, 0].mean() == pytest.approx(0.616, abs=0.03)  # 1 / sum of i^-2 up to 50
        # What makes the sum over coordinates the better bound, by a factor of sqrt(50) at most.
        energy = (gradients**2).sum(axis=0)
        assert np.sqrt(50 * energy.sum()) > 1.8 * np.sqrt(energy).sum()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: DriftingRegression(dim=0), "dim must be a whole number of at least 1, got 0"),
        (lambda: DriftingRegression(dim=2, period=1.5), "period must be a whole number of at least 1, got 1.5"),
        (lambda: DriftingRegression(dim=2, noise=-1), "noise must be a number of at least 0, got -1"),
        (lambda: DriftingRegression(dim=2, radius=float("nan")), "radius must be a number of at least 0, got nan"),
        (lambda: DriftingRegression(dim=2, drift="sudden"), "drift must be one of 'abrupt', .*, got 'sudden'"),
        (lambda: DriftingRegression(dim=2, concepts=1), "concepts must be a whole number of at least 2, got 1"),
        (lambda: DriftingRegression(dim=2, seed=-1), "seed must be a whole number of at least 0, got -1"),
        (lambda: DriftingRegression(dim=2, streams=0), "streams must be a whole number of at least 1, got 0"),
        (lambda: DriftingRegression(dim=2, outliers=2), "outliers must be .* at most 1, got 2"),
        (lambda: DriftingClassification(dim=2, noise=0.6), "noise must be .* at most 0.5, got 0.6"),
        (lambda: SparseRegression(dim=2, task="quantile"), "task must be one of .*, got 'quantile'"),
        (lambda: SparseRegression(dim=2, active=0), "active must be a whole number of at least 1, got 0"),
        (lambda: SparseRegression(dim=2, decades=-1), "decades must be a number of at least 0 .*, got -1"),
        (lambda: SparseRegression(dim=2, radius=0), "radius must be a number above 0, got 0"),
        (lambda: ExpertAdvice(dim=1), "dim must be a whole number of at least 2, got 1"),
        (lambda: ExpertAdvice(gap=0), "gap must be a number above 0 and at most 0.5, got 0"),
        (lambda: DriftingQuantile(level=1.0), "level must lie between 0 and 1, got 1.0"),
        (lambda: DriftingQuantile(drift=None), "drift must be one of .*, got None"),
        (lambda: Adversary(longest=100), "longest must be a power of 2, .*, got 100"),
        (lambda: Storms(storm=0), "storm must be a whole number of at least 1, got 0"),
        (lambda: Storms(scale=2.0), "scale must be a number above 0 and at most 1, got 2.0"),
        (lambda: Storms().data(-1, 5), "0 <= start <= stop, got start=-1 and stop=5"),
        (lambda: Storms().data(5, 4), "0 <= start <= stop, got start=5 and stop=4"),
    ],
)
def test_what_cannot_be_is_refused_by_name(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()
