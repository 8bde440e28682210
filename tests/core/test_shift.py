"""The shift detector and the tail average, alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel.core.shift import ShiftDetector
from samuel.core.tail_average import TailAverage


def rounds_of_shifts(squares, detector=None, **options):
    detector = detector or ShiftDetector()
    state, found = detector.start(np.zeros(())), []
    for t, square in enumerate(squares):
        state, shifted = detector.advance(state, np.float64(square), **{k: v[t] for k, v in options.items()})
        if shifted:
            found.append(t)
    assert state.shifts == len(found)
    return found


STEADY = [1.0] * 60


def test_a_shift_takes_two_leaps_in_a_row():
    assert rounds_of_shifts([*STEADY, 20.0, 1.0, 20.0, 1.0]) == []
    assert rounds_of_shifts([*STEADY, 20.0, 20.0]) == [61]


def test_after_a_shift_the_new_size_is_the_usual_one():
    assert rounds_of_shifts([*STEADY, *[20.0] * 200]) == [61]


@pytest.mark.parametrize("early", [1, 10, 20])
def test_nothing_is_detected_in_the_first_rounds(early):
    assert rounds_of_shifts([*[1.0] * early, 1e6, 1e6, *[1e6] * 100]) == []


def test_gradients_that_grow_slowly_are_no_shift():
    assert rounds_of_shifts(1.02 ** np.arange(1000)) == []


def test_an_odd_gradient_leaves_little_behind():
    assert rounds_of_shifts([*STEADY, 1e12, *[1.0] * 10, 30.0, 30.0]) == [72]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_gradients_without_a_size_do_not_spoil_the_means(bad):
    assert rounds_of_shifts([*[1.0] * 40, bad, *[1.0] * 10, 20.0, 20.0]) == [52]


def test_what_is_left_out_or_not_watched_detects_nothing():
    leaps = [*STEADY, 20.0, 20.0]
    assert rounds_of_shifts(leaps, watching=[True] * 61 + [False]) == []
    assert rounds_of_shifts(leaps, usable=[True] * 61 + [False]) == []


@given(st.lists(st.floats(0.01, 100.0), min_size=40, max_size=120), st.integers(-20, 20))
def test_losses_times_a_constant_change_no_shift(squares, power):
    scaled = [square * 4.0**power for square in squares]
    assert rounds_of_shifts(squares) == rounds_of_shifts(scaled)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 1.0}, "threshold must be a finite number above 1, got 1.0"),
        ({"warmup": 0}, "warmup must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ShiftDetector(**options)


def averages(points, power, restarts=()):
    tail = TailAverage(power)
    state, mean = tail.start(np.zeros(())), points[0]
    for t, point in enumerate(points[1:]):
        state = tail.advance(state, restarted=t in restarts)
        mean = mean + state.pace * (point - mean)
        yield mean


def test_the_average_is_over_the_last_ninth_however_long_the_run_is():
    for length in (100, 1000, 10000):
        *_, last = averages(np.arange(length) / length, power=8.0)
        assert 1 - last == pytest.approx(1 / 10, rel=0.1)  # the mean age of t^8


def test_a_restart_begins_the_average_anew():
    points = np.concatenate([np.zeros(50), np.ones(3)])
    *_, last = averages(points, power=8.0, restarts={49})
    assert last == 1.0


def test_rounds_that_are_not_usable_leave_the_average():
    tail = TailAverage()
    state = tail.advance(tail.start(np.zeros(())))
    after = tail.advance(state, usable=False)
    assert after.pace == 0
    assert after.count == state.count


def test_a_power_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="power must be a finite number above 0, got 'much'"):
        TailAverage("much")
