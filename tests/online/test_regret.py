"""The map of regret over starts and lengths says what `Trace.regret` and `Trace.certificate` say, all at once."""

import math

import numpy as np
import pytest

from samuel.online import (
    OGD,
    AbsoluteLoss,
    Adagrad,
    Adam,
    Ball,
    Box,
    DriftingRegression,
    Free,
    LinearLoss,
    LogisticLoss,
    PinballLoss,
    Recorded,
    Samuel,
    ScaleFreeOGD,
    Simplex,
    Single,
    SquaredLoss,
    play,
)
from samuel.online.regret import Grid, growth_exponent, hindsight, regret_map

ROUNDS, DIM = 90, 3
LOSSES = [LinearLoss(), SquaredLoss(), LogisticLoss(), AbsoluteLoss(), PinballLoss(0.8)]
DOMAINS = [Ball(1.0), Box(-1.0, 0.5), Simplex()]


def name(thing):
    return type(thing).__name__


def stream_of(loss, rounds=ROUNDS, seed=0, streams=()):
    """A stream whose best point changes half-way."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rounds, *streams, DIM))
    sign = np.where(np.arange(rounds) < rounds // 2, 1.0, -1.0).reshape(-1, *[1] * len(streams))
    target = sign * features[..., 0] + 0.3 * random.normal(size=(rounds, *streams))
    if isinstance(loss, LinearLoss):
        return Recorded(loss, (features + sign[..., None],))
    return Recorded(loss, (features, np.where(target < 0, -1.0, 1.0) if isinstance(loss, LogisticLoss) else target))


def played(loss, domain=DOMAINS[0], base=None, **options):
    learner = Samuel(DIM, domain, base=base or Adagrad(), learning_rates=(0.1, 1.0))
    return play(learner, stream_of(loss), backend="numpy", **options)


def intervals(regrets):
    """Every interval of a map: its length, its first round, and where it stands."""
    for place, (length, firsts) in enumerate(zip(regrets.lengths, regrets.firsts, strict=True)):
        for at, first in enumerate(firsts):
            yield length, int(first), place, at


# --- The map --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_the_map_holds_the_regret_of_every_interval(loss, domain):
    trace = played(loss, domain, record="losses")
    regrets = regret_map(trace)
    assert regrets.lengths == (8, 16, 32, 64)
    random = np.random.default_rng(1)
    every = list(intervals(regrets))
    for length, first, place, at in [every[i] for i in random.choice(len(every), size=12, replace=False)]:
        expected = trace.regret(first, first + length - 1)
        assert regrets.regret[place][at] == pytest.approx(expected, rel=1e-7, abs=1e-7)


def test_the_worst_interval_is_the_one_that_the_trace_finds():
    trace = played(SquaredLoss())
    regrets = regret_map(trace)
    for length in regrets.lengths:
        worst, expected = regrets.worst(length), trace.worst(length, every=max(1, length // 4))
        assert worst.regret == pytest.approx(expected.regret, rel=1e-7)
        assert (worst.first, worst.last) == (expected.first, expected.last)


def test_a_run_that_goes_on_keeps_its_numbering():
    learner = Samuel(DIM, Ball(1.0))
    play(learner, stream_of(SquaredLoss(), rounds=30, seed=5), backend="numpy")
    trace = play(learner, stream_of(SquaredLoss()), backend="numpy")
    regrets = regret_map(trace, certificates=True)
    assert trace.first == 30
    assert regrets.firsts[0][0] == 30
    worst = regrets.worst(32)
    assert trace.regret(worst.first, worst.last) == pytest.approx(worst.regret)
    place = int(np.flatnonzero(regrets.firsts[2] == worst.first)[0])
    assert trace.certificate(worst.first, worst.last).measured == pytest.approx(regrets.measured[2][place])


def test_hindsight_serves_every_learner_of_a_stream():
    stream, domain = stream_of(AbsoluteLoss()), Ball(1.0)
    best = hindsight(stream, domain)
    assert all((gaps <= 1e-8 * (1 + losses)).all() for gaps, losses in zip(best.gaps, best.losses, strict=True))
    for learner in (Samuel(DIM, domain), Single(OGD(0.1), DIM, domain)):
        trace = play(learner, stream, backend="numpy")
        here, there = regret_map(trace, best), regret_map(trace)
        for one, other in zip(here.regret, there.regret, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)


def test_several_streams_are_looked_at_one_by_one():
    stream = stream_of(SquaredLoss(), streams=(2,))
    trace = play(Samuel(DIM, Ball(1.0), streams=2), stream, backend="numpy")
    with pytest.raises(ValueError, match=r"trace\.one\(0\)"):
        regret_map(trace)
    with pytest.raises(ValueError, match="holds 2 streams"):
        hindsight(stream, Ball(1.0))
    second = trace.one(1)
    assert regret_map(second).worst(16).regret == pytest.approx(second.worst(16, every=4).regret)


def test_an_unbounded_domain_needs_a_radius_where_the_best_point_is_infinitely_far_away():
    trace = play(Samuel(DIM, Free()), stream_of(LogisticLoss()), backend="numpy")
    with pytest.raises(ValueError, match="radius="):
        regret_map(trace)
    regrets = regret_map(trace, certificates=True, radius=2.0)
    worst = regrets.worst(32)
    assert trace.regret(worst.first, worst.last, radius=2.0) == pytest.approx(worst.regret)
    assert all((bound >= regret).all() for bound, regret in zip(regrets.measured, regrets.regret, strict=True))


def test_the_grid_can_be_coarse():
    assert Grid(10_000).lengths[-1] == 8192
    assert len(Grid(10_000).starts_of(8)) == 257
    assert len(Grid(10_000, starts=32).starts_of(8)) == 33
    assert Grid(100, shortest=10).lengths == (10, 20, 40, 80)
    assert regret_map(played(LinearLoss()), shortest=30, starts=5).lengths == (30, 60)


# --- Certificates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [Adagrad(), ScaleFreeOGD()], ids=name)
@pytest.mark.parametrize("domain", DOMAINS, ids=name)
@pytest.mark.parametrize("loss", LOSSES, ids=name)
def test_no_regret_is_above_its_certificate(loss, domain, base):
    regrets = regret_map(played(loss, domain, base), certificates=True)
    for regret, measured, guaranteed in zip(regrets.regret, regrets.measured, regrets.guaranteed, strict=True):
        assert (regret <= measured + 1e-7).all()
        assert (measured <= guaranteed + 1e-7).all()


def test_certificates_are_left_out_where_there_are_none():
    trace = played(SquaredLoss(), base=Adam(), record="all")
    regrets = regret_map(trace, certificates=True)
    assert np.isnan(regrets.measured[-1]).all()  # a certificate against the experts only
    assert regret_map(trace).measured is None
    with pytest.raises(ValueError, match="record='all'"):
        regret_map(played(SquaredLoss(), record="losses"), certificates=True)


# --- Growth ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_exponent_of_a_power_is_that_power(power):
    lengths = np.array([8, 16, 32, 64])
    assert growth_exponent(lengths, 3.0 * lengths**power) == pytest.approx(power, abs=1e-12)


def test_the_exponent_is_the_slope_of_least_squares():
    lengths, worst = [8, 16, 64, 512], [3.0, 2.0, 9.0, 11.0]
    slope = np.polyfit(np.log(lengths), np.log(worst), 1)[0]
    assert growth_exponent(lengths, worst) == pytest.approx(slope)


@pytest.mark.parametrize("worst", [[1.0, 0.0], [1.0, -2.0], [1.0, math.nan], [1.0, math.inf]], ids=str)
def test_there_is_no_exponent_where_a_worst_regret_is_not_positive(worst):
    assert math.isnan(growth_exponent([8, 16], worst))


def test_a_decision_that_never_moves_has_regret_in_proportion_to_the_length():
    gradients = np.tile([1.0, 0.0, 0.0], (512, 1))
    still = Single(OGD(1e-12), DIM, Ball(1.0))
    regrets = regret_map(play(still, gradients, backend="numpy"))
    assert regrets.exponent() == pytest.approx(1.0, abs=1e-6)
    assert regrets.exponent(shortest=32, longest=128) == pytest.approx(1.0, abs=1e-6)


# --- Bad input ------------------------------------------------------------------------------------------------------


def test_questions_that_make_no_sense_are_refused():
    trace = played(SquaredLoss())
    regrets = regret_map(trace)
    with pytest.raises(ValueError, match="one of 8, 16, 32, 64, got 10"):
        regrets.worst(10)
    with pytest.raises(ValueError, match="shortest=33, longest=64 leaves 1"):
        regrets.exponent(shortest=33, longest=64)
    with pytest.raises(ValueError, match="taken over 40 rounds, the run has 90"):
        regret_map(trace, hindsight(stream_of(SquaredLoss()), Ball(1.0), 40))
    with pytest.raises(ValueError, match="shortest=100"):
        regret_map(trace, shortest=100)
    with pytest.raises(ValueError, match="starts must be a whole number of at least 1, got 0"):
        regret_map(trace, starts=0)
    with pytest.raises(ValueError, match="rounds must be from 1 to 90, got 91"):
        hindsight(trace.stream, Ball(1.0), 91)
    with pytest.raises(ValueError, match="not dim = 3"):
        hindsight(trace.stream, Ball(1.0, center=(0.0, 0.0)))
    with pytest.raises(ValueError, match="radius"):
        regret_map(trace, radius=-1.0)
    with pytest.raises(ValueError, match="two different positive lengths"):
        growth_exponent([8, 8], [1.0, 2.0])
    with pytest.raises(ValueError, match="one worst regret"):
        growth_exponent([8, 16], [1.0])


def test_a_run_known_by_its_gradients_only_has_no_map():
    learner = Samuel(DIM, Ball(1.0), record=True)
    for _ in range(10):
        learner.update(np.ones(DIM))
    with pytest.raises(ValueError, match="not known as functions"):
        regret_map(learner.trace())


def test_a_long_run_is_looked_at_in_windows_and_nothing_changes(monkeypatch):
    stream = DriftingRegression(dim=2, period=50)
    whole = hindsight(stream, Ball(1.0), 500)
    monkeypatch.setattr("samuel.online.regret.WINDOW", 64)
    ranges = []
    monkeypatch.setattr(DriftingRegression, "data", _watched(DriftingRegression.data, ranges))
    parts = hindsight(stream, Ball(1.0), 500, longest=128)
    assert max(stop - start for start, stop in ranges) <= 128
    assert parts.grid.lengths == (8, 16, 32, 64, 128)
    for losses, expected in zip(parts.losses, whole.losses, strict=False):
        np.testing.assert_allclose(losses, expected, rtol=1e-7)


def _watched(data, ranges):
    def watched(stream, start, stop):
        ranges.append((start, stop))
        return data(stream, start, stop)

    return watched


def test_one_huge_loss_does_not_spoil_the_regret_of_other_intervals():
    features, targets = np.ones((64, 1)), np.zeros(64)
    targets[3] = 1e9
    stream = Recorded(SquaredLoss(), (features, targets))
    trace = play(Single(OGD(0.1), 1, Box(-1.0, 1.0)), stream, backend="numpy")
    regrets = regret_map(trace)
    for length, firsts, found in zip(regrets.lengths, regrets.firsts, regrets.regret, strict=True):
        for first, regret in zip(firsts, found, strict=True):
            exact = trace.regret(int(first), int(first) + length - 1)
            assert regret == pytest.approx(exact, rel=1e-9, abs=1e-9 if first > 3 else 1e4)


@pytest.mark.parametrize(
    "other", [DriftingRegression(dim=2, period=50, seed=1), Recorded(LinearLoss(), (np.ones((64, 2)),))], ids=name
)
def test_hindsight_of_another_stream_is_refused(other):
    trace = play(Samuel(2, Ball(1.0)), DriftingRegression(dim=2, period=50), 64, backend="numpy")
    with pytest.raises(ValueError, match="hindsight was taken of another stream"):
        regret_map(trace, hindsight(other, Ball(1.0), 64))


def test_hindsight_on_another_domain_is_refused():
    stream = DriftingRegression(dim=2, period=50)
    trace = play(Samuel(2, Ball(1.0)), stream, 64, backend="numpy")
    with pytest.raises(ValueError, match="hindsight was taken on"):
        regret_map(trace, hindsight(stream, Ball(2.0), 64))
