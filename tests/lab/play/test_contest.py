import json
import math
from itertools import pairwise

import numpy as np
import pytest

from samuel.online import (
    OGD,
    AdagradFull,
    Ball,
    DriftingRegression,
    Interval,
    Recorded,
    Single,
    SquaredLoss,
    TwoValleys,
    play,
)
from samuel.online.play import WORTH_COMPILING
from samuel_lab.play import page
from samuel_lab.play.arenas import ALL, DEFAULT_STREAMS, STREAMS, arenas
from samuel_lab.play.cast import FAMILIES, LEARNERS, RATES, sweep
from samuel_lab.play.contest import run
from samuel_lab.play.figures import STYLES
from samuel_lab.play.measuring import Tiled, as_map, averaged, state_bytes, weights_by_age
from samuel_lab.play.plan import Plan
from samuel_lab.play.records import summary
from samuel_lab.tables import thinned


def the(report, stream):
    return next(contest for contest in report.contests if contest.stream == stream)


def learner(contest, name):
    return next(result for result in contest.results if result.learner == name)


def arena(name, **options):
    return STREAMS[name](Plan(streams=(name,), **options))


def test_every_stream_is_played_by_its_own_learners(report):
    assert tuple(contest.stream for contest in report.contests) == DEFAULT_STREAMS
    for contest in report.contests:
        assert tuple(result.learner for result in contest.results) == arena(contest.stream).learners


def test_every_learner_has_a_line_of_its_own():
    assert STYLES.keys() == LEARNERS.keys()
    assert len({(style["color"], style["dash"]) for style in STYLES.values()}) == len(STYLES)


def test_families_share_no_colour():
    colours = {family: {STYLES[n]["color"] for n, c in LEARNERS.items() if c.family == family} for family in FAMILIES}
    assert sum(map(len, colours.values())) == len(set.union(*colours.values()))


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_can_be_played_where_its_arena_says(name):
    plan = Plan(streams=(name,), rounds=256, dim=3)
    (found,) = arenas(plan)
    stream = found.stream(0)
    found.domain.check(stream.dim)
    assert found.name == name
    assert found.rounds == 256
    assert 8 <= found.steady <= 256
    assert set(found.learners) <= set(LEARNERS)
    assert found.changes == tuple(sorted(set(found.changes)))
    assert all(0 <= change < 256 for change in found.changes)
    first, again, other = (found.stream(seed).data(0, 256) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert found.seeded != all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_new_streams_do_not_change_where_blocks_of_doubling_lengths_begin():
    for name in ("drift-recurring", "classes", "sparse", "advice", "quantile", "storms"):
        changes = arena(name, rounds=8192).changes[1:]
        assert changes
        assert all(change % 64 for change in changes)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_can_be_made_anywhere(name):
    contestant = LEARNERS[name]
    for stream in ("two-valleys", "drift", "advice", "sparse"):
        found = arena(stream, dim=3)
        made = contestant.make(found.stream(0).dim, found.domain, contestant.middle_rate, streams=2)
        assert made.streams == 2
        assert found.domain.contains(made.predict()).all()


@pytest.mark.parametrize("name", [name for name, contestant in LEARNERS.items() if contestant.tuned])
def test_all_rates_at_once_lose_what_each_loses_alone(name):
    contestant, domain = LEARNERS[name], Ball(2.0)
    stream = Recorded(SquaredLoss(), DriftingRegression(2, period=20, streams=2).data(0, 60))
    together = play(
        sweep(contestant, 2, domain, seeds=2), Tiled(stream, len(contestant.rates)), record="losses", backend="numpy"
    )
    for place in (0, len(contestant.rates) // 2, len(contestant.rates) - 1):
        alone = contestant.make(2, domain, contestant.rates[place], streams=2)
        losses = play(alone, stream, record="losses", backend="numpy").losses
        np.testing.assert_allclose(together.losses[:, 2 * place : 2 * place + 2], losses, rtol=1e-9, atol=1e-12)


def test_a_learner_without_a_rate_is_not_swept():
    with pytest.raises(ValueError, match="saol has no learning rate"):
        sweep(LEARNERS["saol"], 2, Ball(1.0), seeds=1)


def test_learners_with_a_rate_play_at_the_best_that_was_tried(report):
    for contest in report.contests:
        for result in contest.results:
            assert bool(result.tried) == LEARNERS[result.learner].tuned
            if result.tried:
                assert [rate for rate, _ in result.tried] == list(LEARNERS[result.learner].rates)
                assert result.total == pytest.approx(min(total for _, total in result.tried))
                assert dict(result.tried)[result.rate] == pytest.approx(result.total)
                assert result.middle_total == dict(result.tried)[1.0]
            else:
                assert result.rate is None
                assert result.middle_total is None


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


def test_every_link_of_the_chain_of_bounds_holds(report, seeded):
    for contest in (*report.contests, *seeded.contests):
        chain = contest.chain
        links = (chain.regret, chain.linearised, chain.measured, chain.guaranteed)
        for lower, upper in pairwise(links):
            assert np.all(np.array(lower) <= np.array(upper) + 1e-7)


def test_certificates_are_never_below_the_regret_they_bound(report, seeded):
    known = 0
    for contest in (*report.contests, *seeded.contests):
        for result in contest.results:
            for worst in result.worst:
                known += worst.certificate is not None
                assert worst.certificate is None or worst.first_regret <= worst.certificate + 1e-7
                assert worst.last - worst.first + 1 == worst.length
    assert known > 100


def test_the_map_of_certificates_lies_above_that_of_regrets(seeded):
    for contest in seeded.contests:
        regrets = learner(contest, "samuel").map
        proofs = contest.chain.map
        known = np.isfinite(regrets.values)
        assert known.any()
        assert (np.isfinite(proofs.values) == known).all()
        assert (proofs.values[known] >= regrets.values[known] - 1e-5).all()


def test_the_worst_of_a_map_is_the_worst_of_the_table(seeded):
    for contest in seeded.contests:
        for result in contest.results:
            for row, worst in zip(result.map.values, result.worst, strict=True):
                assert np.nanmax(row) * math.sqrt(worst.length) == pytest.approx(worst.first_regret, rel=1e-5, abs=1e-5)


def test_weights_are_shares_of_one(report, seeded):
    found = [r.weights for c in (*report.contests, *seeded.contests) for r in c.results if r.weights is not None]
    for weights in found:
        for part, names in ((weights.by_level, weights.levels), (weights.by_expert, weights.experts)):
            if part is not None:
                assert part.sum(axis=0) == pytest.approx(1.0, abs=1e-5)
                assert part.shape == (len(names), len(weights.at))
    with_blocks = {
        r.learner for c in seeded.contests for r in c.results if r.weights and r.weights.by_level is not None
    }
    assert with_blocks == {"flh", "aflh", "saol", "samuel-blocks"}
    with_experts = {
        r.learner for c in seeded.contests for r in c.results if r.weights and r.weights.by_expert is not None
    }
    assert with_experts == {"hedge", "samuel", "samuel-blocks"}


def test_weights_of_a_learner_with_too_many_experts_are_looked_at_now_and_then(monkeypatch):
    plan = Plan(streams=("drift",), learners=("flh",), rounds=256, dim=2, backend="numpy")
    (whole,) = run(plan).contests[0].results
    monkeypatch.setattr("samuel_lab.play.contest.HELD", 256 * 16)
    (sparing,) = run(plan).contests[0].results
    assert sparing.totals == pytest.approx(whole.totals)
    assert whole.worst[0].certificate is not None
    assert sparing.worst[0].certificate is None
    assert sparing.weights.levels == whole.weights.levels
    np.testing.assert_allclose(sparing.weights.by_level, whole.weights.by_level, atol=1e-6)


def test_weights_are_summed_over_blocks_of_about_the_same_age():
    made = LEARNERS["flh"].make(1, Interval(-1.0, 1.0), None)
    p = np.zeros((8, 1))
    p[:6, 0] = 1 / 6  # blocks that began at 0, 8, ..., 40: in round 47 they are 47, 39, ..., 7 rounds old
    found = weights_by_age(made.rule, 64, [(47, p)])
    assert found.levels == ("0+", "8+", "16+", "32+")
    assert found.by_level[:, 0] == pytest.approx([1 / 6, 1 / 6, 2 / 6, 2 / 6])


def test_curves_end_at_the_total(report, seeded):
    for contest in report.contests:
        assert contest.best_fixed_cumulative[-1] == pytest.approx(contest.best_fixed)
    for contest in (*report.contests, *seeded.contests):
        for result in contest.results:
            assert result.cumulative[-1] == pytest.approx(result.total)
            assert result.path is None or len(result.path) == len(contest.path_at)


def test_a_plan_is_played_with_its_own_seed_dimension_and_length():
    plan = Plan(streams=("drift",), learners=("ogd-inverse",), rounds=300, dim=2, seed=7, backend="numpy")
    (contest,) = run(plan).contests
    trace = play(
        LEARNERS["ogd-inverse"].make(2, Ball(2.0), None),
        DriftingRegression(2, period=37, seed=7),
        300,
        record="losses",
        backend="numpy",
    )
    assert contest.results[0].total == pytest.approx(float(trace.losses.sum()))
    assert (contest.dim, contest.rounds, contest.results[0].weights, contest.chain) == (2, 300, None, None)


def test_seeds_side_by_side_are_what_each_is_alone(seeded):
    for contest in seeded.contests[:2]:
        for name in ("saol", "samuel"):
            result = learner(contest, name)
            assert len(result.totals) == len(result.exponents) == 2
            for seed in range(2):
                plan = Plan(streams=(contest.stream,), learners=(name,), rounds=256, dim=2, seed=seed, backend="numpy")
                (alone,) = run(plan).contests[0].results
                assert result.totals[seed] == pytest.approx(alone.total, rel=1e-6)
            assert result.total == pytest.approx(np.mean(result.totals))
            assert result.spread == pytest.approx(abs(result.totals[0] - result.totals[1]) / math.sqrt(2))


def test_a_stream_without_chance_is_played_once():
    (contest,) = run(
        Plan(streams=("two-valleys",), learners=("ogd-inverse",), rounds=256, seeds=3, backend="numpy")
    ).contests
    assert contest.seeds == 1
    assert len(contest.results[0].totals) == 1


def test_processes_give_what_one_gives(seeded):
    options = {
        "streams": ("quantile", "advice"),
        "learners": ("ogd", "saol"),
        "rounds": 256,
        "dim": 2,
        "backend": "numpy",
    }
    told = []
    apart = run(Plan(**options, jobs=2), lambda *step: told.append(step))
    together = run(Plan(**options))
    assert [contest.stream for contest in apart.contests] == ["quantile", "advice"]
    for one, other in zip(apart.contests, together.contests, strict=True):
        assert [r.totals for r in one.results] == [r.totals for r in other.results]
        assert [r.worst for r in one.results] == [r.worst for r in other.results]
    assert [done for _, done, _ in told] == list(range(7))
    assert {total for _, _, total in told} == {6}


def test_of_a_run_too_long_for_memory_the_losses_are_kept_and_shorter_intervals_looked_at(monkeypatch):
    plan = Plan(streams=("drift",), learners=("ogd", "samuel"), rounds=512, dim=2, backend="numpy")
    whole = run(plan)
    monkeypatch.setattr("samuel_lab.play.contest.LONG", 512)
    monkeypatch.setattr("samuel_lab.play.contest.LONGEST", 64)
    long = run(plan)
    for result, known in zip(long.contests[0].results, whole.contests[0].results, strict=True):
        assert result.totals == pytest.approx(known.totals)
        assert [worst.regret for worst in result.worst] == pytest.approx(
            [w.regret for w in known.worst if w.length <= 64]
        )
        assert (result.path, result.weights, result.worst[0].certificate) == (None, None, None)
    assert long.contests[0].best_fixed is None
    assert long.contests[0].lengths == (64,)
    assert "best fixed point" not in dict(page.results_table(long.contests[0]).rows)
    assert "Drifting regression" in page.render(long)
    json.dumps(summary(long), allow_nan=False)


def test_growth_exponents_tell_a_learner_that_stops_learning_from_one_that_follows(report):
    contest = the(report, "two-valleys")
    assert learner(contest, "ogd").exponent == pytest.approx(0.0, abs=0.05)
    assert learner(contest, "ogd-inverse").exponent > 0.5


def test_state_bytes_count_what_a_stream_needs():
    one = Single(AdagradFull(1.0), dim=4, domain=Ball(1.0))
    many = Single(AdagradFull(1.0), dim=4, domain=Ball(1.0), streams=10)
    assert state_bytes(one) == state_bytes(many) == 8 * (4 + 16)


def test_memory_of_flh_grows_with_the_run_and_that_of_saol_hardly():
    def memory(rounds):
        plan = Plan(streams=("quantile",), learners=("flh", "saol"), rounds=rounds, backend="numpy")
        return [result.memory for result in run(plan).contests[0].results]

    short, long = memory(256), memory(1024)
    assert long[0] > 3 * short[0]
    assert long[1] < 1.5 * short[1]


def test_a_plan_says_how_to_play_it_again():
    assert Plan().command == "samuel play --rounds 4096 --dim 10 --seed 0"
    plan = Plan(streams=("two-valleys",), learners=("samuel", "ogd"), rounds=512, backend="numpy")
    assert plan.command == (
        "samuel play --stream two-valleys --rounds 512 --method samuel --method ogd --backend numpy"
    )
    everything = Plan(streams=ALL, learners=tuple(LEARNERS), seeds=5, rounds=8192)
    assert everything.command == "samuel play --all --rounds 8192 --dim 10 --seed 0 --seeds 5"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 255}, "rounds must be a whole number from 256 to 65536, got 255"),
        ({"rounds": 1e3}, "got 1000.0"),
        ({"dim": 0}, "dim must be a whole number from 1 to 100, got 0"),
        ({"seed": -1}, "got -1"),
        ({"seeds": 0}, "seeds must be a whole number from 1 to 100, got 0"),
        ({"jobs": 0}, "jobs must be a whole number from 1 to 256, got 0"),
        ({"streams": ()}, "no stream is named"),
        ({"streams": ("river",)}, "unknown stream 'river'; choose from two-valleys, drift"),
        ({"learners": ("sgd",)}, "unknown learner 'sgd'"),
        ({"learners": ("ogd", "ogd")}, "learner 'ogd' is named twice"),
        ({"backend": "torch"}, "unknown backend 'torch'"),
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
    assert [done for _, done, _ in told] == [0, 1, 2, 3]
    assert {total for _, _, total in told} == {3}


def test_the_summary_is_strict_json(report, seeded):
    for found in (report, seeded):
        loaded = json.loads(json.dumps(summary(found), allow_nan=False))
        assert [stream["stream"] for stream in loaded["streams"]] == [contest.stream for contest in found.contests]
        for stream, contest in zip(loaded["streams"], found.contests, strict=True):
            for entry, result in zip(stream["learners"], contest.results, strict=True):
                assert entry["learner"] == result.learner
                assert entry["total_loss"] == result.total
                assert entry["total_loss_by_seed"] == list(result.totals)
                assert entry["memory_bytes"] == result.memory > 0
                assert [(tried["rate"], tried["total_loss"]) for tried in entry["tried"]] == list(result.tried)


def test_samuel_is_given_the_rates_that_gradient_descent_is_tuned_over():
    learner = LEARNERS["samuel-ogd"].make(2, Ball(2.0), None)
    assert learner.learning_rates == RATES == LEARNERS["ogd"].rates
    assert all("samuel-ogd" in arena(name).learners for name in DEFAULT_STREAMS)


def test_short_runs_are_not_compiled_unless_asked_for():
    assert Plan().engine(WORTH_COMPILING - 1) == "numpy"
    assert Plan(backend="numpy").engine(WORTH_COMPILING) == "numpy"


def test_thinning_keeps_both_ends():
    assert thinned(5000, 1000)[[0, -1]].tolist() == [0, 4999]
    assert len(thinned(5000, 1000)) == 1000
    assert thinned(3, 1000).tolist() == [0, 1, 2]


def test_averages_of_uneven_stretches_are_those_of_their_rounds():
    assert averaged(np.arange(5.0), stretches=2).tolist() == [0.5, 3.0]


def test_a_column_of_a_map_holds_the_worst_that_starts_in_it():
    starts = np.arange(0, 505, 4)  # two in every column of a run of 512 rounds
    found = as_map(512, (8,), (starts,), (np.where(starts == 100, 1.0, 0.0),))
    assert found.values.shape == (1, 64)
    assert found.values[0, 12] == pytest.approx(1 / math.sqrt(8))
    assert np.nansum(found.values) == pytest.approx(1 / math.sqrt(8))


def test_a_map_is_empty_where_an_interval_would_end_after_the_run():
    starts = np.array([0, 128, 256])
    found = as_map(512, (256,), (starts,), (np.array([16.0, 32.0, 48.0]),))
    assert found.values[0, :16].tolist() == [1.0] * 16
    assert found.values[0, 16:32].tolist() == [2.0] * 16
    assert found.values[0, 32] == 3.0
    assert np.isnan(found.values[0, 33:]).all()
