import json
import math
from itertools import pairwise

import numpy as np
import pytest

from samuel.online import OGD, DriftingRegression, Interval, Single, TwoValleys, play
from samuel.online.play import WORTH_COMPILING
from samuel.studies.play.contest import LEARNERS, RATES, STREAMS, Plan, averaged, run, summary, thinned
from samuel.studies.play.figures import STYLES


def the(report, stream):
    return next(contest for contest in report.contests if contest.stream == stream)


def test_every_stream_is_played_by_its_own_learners(report):
    assert [contest.stream for contest in report.contests] == list(STREAMS)
    for contest in report.contests:
        assert tuple(result.learner for result in contest.results) == STREAMS[contest.stream].learners


def test_every_learner_has_a_line_of_its_own():
    assert STYLES.keys() == LEARNERS.keys()
    assert len({(style["color"], style["dash"]) for style in STYLES.values()}) == len(STYLES)


def test_learners_with_a_rate_play_at_the_best_that_was_tried(report):
    for contest in report.contests:
        for result in contest.results:
            assert bool(result.tried) == LEARNERS[result.learner].tuned
            if result.tried:
                assert [rate for rate, _ in result.tried] == list(RATES)
                assert result.total == pytest.approx(min(total for _, total in result.tried))
                assert dict(result.tried)[result.rate] == pytest.approx(result.total)
            else:
                assert result.rate is None


def test_the_best_fixed_point_of_two_valleys_loses_one_a_round(report):
    contest = the(report, "two-valleys")
    assert contest.best_fixed == pytest.approx(256)
    assert contest.growth.best_fixed == pytest.approx(contest.growth.rounds)


def test_runs_of_several_lengths_side_by_side_are_what_each_is_alone(report):
    growth = the(report, "two-valleys").growth
    assert growth.rounds == (16, 32, 64, 128, 256, 512, 1024)
    for rounds, total in zip(growth.rounds, growth.totals["OGD, 1/t"], strict=True):
        alone = Single(OGD(1.0, "inverse"), 1, Interval(-1.0, 1.0))
        trace = play(alone, TwoValleys(rounds), record="losses", backend="numpy")
        assert total == pytest.approx(float(trace.losses.sum()), rel=1e-12)


def test_every_link_of_the_chain_of_bounds_holds(report):
    for contest in report.contests:
        chain = contest.chain
        links = (chain.regret, chain.linearised, chain.measured, chain.guaranteed)
        for lower, upper in pairwise(links):
            assert np.all(np.array(lower) <= np.array(upper) + 1e-9)


def test_certificates_are_never_below_the_regret_they_bound(report):
    for contest in report.contests:
        for result in contest.results:
            for worst in result.worst:
                assert worst.certificate is None or worst.regret <= worst.certificate + 1e-9
                assert worst.last - worst.first + 1 == worst.length


def test_weights_are_shares_of_one(report):
    for contest in report.contests:
        assert contest.weights.by_level.sum(axis=0) == pytest.approx(1.0)
        assert contest.weights.by_rate.sum(axis=0) == pytest.approx(1.0)
        assert contest.weights.by_level.shape == (len(contest.weights.lengths), len(contest.weights.at))


def test_curves_end_at_the_total(report):
    for contest in report.contests:
        assert contest.best_fixed_cumulative[-1] == pytest.approx(contest.best_fixed)
        for result in contest.results:
            assert result.cumulative[-1] == pytest.approx(result.total)
            assert len(result.path) == len(contest.path_at)


def test_a_plan_is_played_with_its_own_seed_dimension_and_length():
    plan = Plan(streams=("drift",), learners=("ogd-inverse",), rounds=300, dim=2, seed=7, backend="numpy")
    (contest,) = run(plan).contests
    trace = play(
        LEARNERS["ogd-inverse"].make(2, STREAMS["drift"].domain, None),
        DriftingRegression(2, period=37, seed=7),
        300,
        record="losses",
        backend="numpy",
    )
    assert contest.results[0].total == pytest.approx(float(trace.losses.sum()))
    assert (contest.dim, contest.rounds, contest.weights, contest.chain) == (2, 300, None, None)


def test_a_plan_says_how_to_play_it_again():
    assert Plan().command == "samuel play --rounds 4096 --dim 10 --seed 0"
    plan = Plan(streams=("two-valleys",), learners=("samuel", "ogd"), rounds=512, backend="numpy")
    assert plan.command == (
        "samuel play --stream two-valleys --rounds 512 --learner samuel --learner ogd --backend numpy"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 255}, "rounds must be a whole number from 256 to 65536, got 255"),
        ({"rounds": 1e3}, "got 1000.0"),
        ({"dim": 0}, "dim must be a whole number from 1 to 100, got 0"),
        ({"seed": -1}, "got -1"),
        ({"streams": ()}, "no stream is named"),
        ({"streams": ("river",)}, "stream 'river' is not known: choose from two-valleys, drift"),
        ({"learners": ("sgd",)}, "learner 'sgd' is not known"),
        ({"learners": ("ogd", "ogd")}, "learner 'ogd' is named twice"),
        ({"backend": "torch"}, "backend 'torch' is not known"),
    ],
)
def test_a_plan_that_cannot_be_played_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Plan(**options)


def test_progress_goes_from_nothing_to_all():
    told = []
    run(
        Plan(streams=("two-valleys",), learners=("ogd-inverse",), rounds=256, backend="numpy"),
        lambda *step: told.append(step),
    )
    assert [done for _, done, _ in told] == [0, 1, 2]
    assert {total for _, _, total in told} == {2}


def test_the_summary_is_strict_json(report):
    loaded = json.loads(json.dumps(summary(report), allow_nan=False))
    assert [stream["stream"] for stream in loaded["streams"]] == list(STREAMS)
    learner = loaded["streams"][0]["learners"][0]
    assert learner["learner"] == "ogd"
    assert math.isfinite(learner["total_loss"])


def test_the_summary_has_every_rate_that_was_tried(report):
    for contest, found in zip(report.contests, summary(report)["streams"], strict=True):
        for result, learner in zip(contest.results, found["learners"], strict=True):
            assert [(entry["rate"], entry["total_loss"]) for entry in learner["tried"]] == list(result.tried)


def test_samuel_is_given_the_rates_that_gradient_descent_is_tuned_over():
    learner = LEARNERS["samuel-ogd"].make(2, STREAMS["drift"].domain, None)
    assert learner.learning_rates == RATES
    assert all("samuel-ogd" in arena.learners for arena in STREAMS.values())


def test_short_runs_are_not_compiled_unless_asked_for():
    assert Plan(rounds=WORTH_COMPILING - 1).engine == "numpy"
    assert Plan(rounds=256, backend="numpy").engine == "numpy"


def test_thinning_keeps_both_ends():
    assert thinned(5000)[[0, -1]].tolist() == [0, 4999]
    assert len(thinned(5000)) == 1000
    assert thinned(3).tolist() == [0, 1, 2]


def test_averages_of_uneven_stretches_are_those_of_their_rounds():
    assert averaged(np.arange(5.0), stretches=2).tolist() == [0.5, 3.0]
