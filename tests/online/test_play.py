"""Playing: compiled and plain give the same numbers, and only what is asked for is kept."""

import importlib
import tracemalloc
import warnings

import numpy as np
import pytest

from samuel.online import (
    OGD,
    Ball,
    DriftingRegression,
    Interval,
    Recorded,
    Samuel,
    Single,
    SquaredLoss,
    TwoValleys,
    play,
)

playing = importlib.import_module("samuel.online.play")  # the name in the package is the function
STREAM = DriftingRegression(dim=4, period=100)


def test_compiled_and_plain_give_the_same_numbers():
    plain, compiled = (play(Samuel(4, Ball(2.0)), STREAM, 333, backend=backend) for backend in ("numpy", "jax"))
    assert plain.arrays.keys() == compiled.arrays.keys()
    for name in plain.arrays:
        np.testing.assert_allclose(compiled.arrays[name], plain.arrays[name], rtol=1e-7, atol=1e-9, err_msg=name)
    assert plain.certificate(37, 300).measured == pytest.approx(compiled.certificate(37, 300).measured)


def test_a_record_of_gigabytes_is_announced(monkeypatch):
    # The limit and not the run is made small: a run of gigabytes takes minutes.
    monkeypatch.setattr(playing, "LARGE_RECORD", 100_000)
    with pytest.warns(playing.LargeRecord, match=r"takes 0\.0 GB; record='decisions'"):
        play(Samuel(4, Ball(2.0)), STREAM, 400, backend="numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(Samuel(4, Ball(2.0)), STREAM, 400, record="decisions", backend="numpy")


def test_float32_stays_float32():
    for backend in ("numpy", "jax"):
        trace = play(Samuel(4, Ball(2.0), dtype="float32"), STREAM, 40, backend=backend)
        assert {array.dtype for array in trace.arrays.values()} == {np.dtype("float32")}, backend


def test_a_run_may_be_played_in_pieces_off_the_beat_of_the_blocks():
    whole = play(Samuel(4, Ball(2.0)), Recorded(STREAM.loss, STREAM.data(0, 100)))
    learner, parts = Samuel(4, Ball(2.0)), []
    for start, stop in ((0, 3), (3, 8), (8, 29), (29, 100)):
        piece = Recorded(STREAM.loss, STREAM.data(start, stop))
        parts.append(play(learner, piece, backend="jax" if start != 8 else "numpy"))
    np.testing.assert_allclose(np.concatenate([part.decisions for part in parts]), whole.decisions, atol=1e-9)
    assert parts[2].first == 8
    assert parts[2].certificate(16, 23).measured == pytest.approx(whole.certificate(16, 23).measured)


def test_what_is_not_recorded_is_not_kept_and_says_so():
    light = play(Samuel(4, Ball(2.0)), STREAM, 64, record="losses")
    assert set(light.arrays) == {"loss"}
    assert light.regret(0, 63) > 0
    with pytest.raises(ValueError, match="gradient was not recorded.*record='all'"):
        light.certificate(0, 63)
    middle = play(Samuel(4, Ball(2.0)), STREAM, 64, record="decisions")
    assert middle.linearised_regret(3, 50) >= middle.regret(3, 50)


def test_a_long_run_keeps_a_number_a_round_and_no_more():
    learner = Samuel(1, Interval(-1.0, 1.0))
    tracemalloc.start()
    trace = play(learner, TwoValleys(200_000), record="losses")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(trace) == 200_000
    assert peak < 40e6  # all weights of all rounds would take 200,000 x 15 x 6 x 8 bytes = 144 MB


def test_streams_are_the_same_however_they_are_cut():
    whole = STREAM.data(0, 500)
    for start, stop in ((0, 1), (99, 101), (150, 420)):
        for part, all_of_it in zip(STREAM.data(start, stop), whole, strict=True):
            assert np.array_equal(part, all_of_it[start:stop])


def test_progress_is_shown_when_asked_for(capsys):
    play(Samuel(1, Interval(-1.0, 1.0)), TwoValleys(100), progress=True)
    assert "100/100" in capsys.readouterr().err


def test_the_worst_interval_is_the_worst_of_all():
    trace = play(Single(OGD(0.1), 4, Ball(2.0)), STREAM, 120, backend="numpy")
    worst = trace.worst(length=16)
    assert worst.last - worst.first == 15
    assert worst.regret == pytest.approx(max(trace.regret(a, a + 15) for a in range(105)))
    with pytest.raises(ValueError, match="at most 120.*got 121"):
        trace.worst(length=121)


@pytest.mark.parametrize(("first", "last"), [(-1, 5), (5, 4), (0, 120)])
def test_an_interval_outside_the_run_is_named(first, last):
    trace = play(Single(OGD(0.1), 4, Ball(2.0)), STREAM, 120, backend="numpy")
    with pytest.raises(ValueError, match=f"first={first}, last={last}"):
        trace.regret(first, last)


def test_several_streams_are_asked_one_at_a_time():
    stream = Recorded(SquaredLoss(), DriftingRegression(dim=2, streams=3).data(0, 20))
    trace = play(Samuel(2, Ball(1.0), streams=3), stream)
    with pytest.raises(ValueError, match=r"3 streams.*trace.one"):
        trace.regret(0, 9)
    assert trace.one(2).regret(0, 9) == pytest.approx(
        float(trace.losses[:10, 2].sum()) - best_loss(stream, 2, slice(0, 10)), abs=1e-6
    )


def best_loss(stream, number, rounds):
    from scipy.optimize import minimize

    features, target = (array[rounds, number] for array in stream.arrays)
    result = minimize(
        lambda x: np.sum((features @ x - target) ** 2),
        np.zeros(2),
        constraints={"type": "ineq", "fun": lambda x: 1 - x @ x},
        tol=1e-12,
    )
    return result.fun
