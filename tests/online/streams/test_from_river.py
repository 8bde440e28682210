"""Data sets of river as streams."""

import pickle
import sys

import numpy as np
import pytest

from samuel.online import Ball, Single, play
from samuel.online.bases.scale_free import ScaleFreeOGD
from samuel.online.losses import PinballLoss
from samuel.online.streams import RiverStream, river_datasets


@pytest.fixture
def datasets():
    return pytest.importorskip("river.datasets", reason="river is not installed: pip install river")


def test_without_river_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "river", None)
    for call in (river_datasets, lambda: RiverStream("Phishing")):
        with pytest.raises(ValueError, match="pip install river"):
            call()


def test_data_sets_that_need_no_download_are_listed_and_play(datasets):
    names = river_datasets()
    assert {"Bananas", "Phishing", "TrumpApproval"} <= set(names)
    assert not {"Elec2", "ImageSegments", "SolarFlare"} & set(names)
    for name in names:
        rows = min(300, getattr(datasets, name)().n_samples)
        stream = RiverStream(name, rows=rows, drop=["diet"] if name == "ChickWeights" else [])
        trace = play(Single(ScaleFreeOGD(1.0), dim=stream.dim, domain=Ball(3.0)), stream, record="losses")
        assert len(trace.losses) == rows - stream.warm_up
        assert np.isfinite(trace.losses).all()


def test_rows_are_those_of_river(datasets):
    stream = RiverStream("TrumpApproval", scale=False, intercept=False)
    pairs = list(datasets.TrumpApproval())
    assert stream.names == tuple(pairs[0][0])
    features, target = stream.data(0, stream.rounds)
    np.testing.assert_array_equal(features, [list(row.values()) for row, _ in pairs])
    np.testing.assert_array_equal(target, [approval for _, approval in pairs])


def test_true_and_false_are_the_classes(datasets):
    stream = RiverStream("Bananas")
    assert stream.classes == ("0", "1")
    truth = [1.0 if label else -1.0 for _, label in datasets.Bananas()]
    np.testing.assert_array_equal(stream.data(0, 5300)[1], truth)


def test_dates_count_in_days(datasets):
    features, _ = RiverStream("AirlinePassengers", scale=False).data(0, 2)
    assert features[1, 0] - features[0, 0] == 31  # January 1949


def test_a_data_set_can_be_given_as_it_is_and_for_another_task(datasets):
    endless = datasets.synth.Friedman(seed=1)
    stream = RiverStream(endless, "quantile", level=0.9, rows=200)
    assert (stream.loss, stream.dim) == (PinballLoss(0.9), 11)
    copy = pickle.loads(pickle.dumps(stream))
    np.testing.assert_array_equal(copy.data(0, 50)[0], stream.data(0, 50)[0])


@pytest.mark.parametrize(
    ("ask", "complaint"),
    [
        (lambda datasets: RiverStream("Elec2"), "'Elec2' has to be downloaded first.*need no download: .*Phishing"),
        (lambda datasets: RiverStream("Nothing"), "'Nothing' is not among .*need no download: .*Phishing"),
        (lambda datasets: RiverStream("base"), "'base' is not among"),
        (lambda datasets: RiverStream("ImageSegments"), "is made for multi-class classification.*Phishing"),
        (lambda datasets: RiverStream(datasets.synth.Friedman()), "Friedman has no end: .*rows="),
        (lambda datasets: RiverStream(7), "must be a name or a data set of river's, got 7"),
        (lambda datasets: RiverStream("Phishing", "ranking"), "task must be one of .*, got 'ranking'"),
        (lambda datasets: RiverStream("Phishing", rows=1), "rows must be a whole number of at least 2, got 1"),
        (lambda datasets: RiverStream("TrumpApproval", "classification"), "TrumpApproval: row 3, .*third class"),
        (lambda datasets: RiverStream("Phishing", drop=["pop"]), "no column 'pop', given as drop="),
    ],
)
def test_what_cannot_be_played_is_said(datasets, ask, complaint):
    with pytest.raises(ValueError, match=complaint):
        ask(datasets)
