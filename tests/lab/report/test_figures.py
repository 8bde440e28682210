import json
from dataclasses import replace

import numpy as np
import pytest

from samuel_lab.drawing import MANY, REST
from samuel_lab.report.figures import OURS, POINTS, drawings, drawn_at_first, styles
from samuel_lab.report.gathering import studies
from samuel_lab.report.reading import read
from tests.lab.report.folders import BASES, SCHEDULES, cut, shift_run


def the(recorded):
    (study,) = studies([recorded])
    return study


def drawn(recorded):
    return {drawing.name: drawing for drawing in drawings(the(recorded), "s")}


def lines(drawing):
    """The lines that the legend names, by what they belong to."""
    return {trace.meta["line"]: trace for trace in drawing.figure.data if trace.showlegend is not False and trace.meta}


def bands(drawing):
    found = {trace.meta["line"]: trace for trace in drawing.figure.data if trace.fill == "toself"}
    return {name: trace for name, trace in found.items() if name != REST}


def at_first(drawing):
    """Whose lines a reader sees before choosing others."""
    return {name for name, trace in lines(drawing).items() if trace.visible is not False and name != REST}


def all_lines(drawing):
    return {name: trace for name, trace in lines(drawing).items() if name != REST}


def values_of(recorded, name, kind="accuracy"):
    return np.array([getattr(trial, kind) for trial in recorded.trials if trial.trial == name])


def test_every_method_has_a_look_of_its_own(shifted):
    many = ["samuel", "samuel-linear", "samuel-full", *(f"{b}/{s}" for b in (*BASES, "wngrad") for s in SCHEDULES)]
    many += ["prodigy", "dog", "dowg", "schedule-free", "momo", "mechanic", "cocob"]
    example = the(shifted).methods[0]
    methods = []
    for name in many:
        group = "samuel" if name.startswith("samuel") else "baseline" if "/" in name else "peer"
        methods.append(replace(example, trial=name, group=group, trials=(replace(example.first, trial=name),)))
    looks = styles(replace(the(shifted), methods=tuple(methods)))
    assert len({(look["color"], look["dash"]) for look in looks.values()}) == len(many)
    assert [name for name, look in looks.items() if look["color"] in OURS] == many[:3]


def test_a_method_keeps_its_look_in_every_figure(shifted, searched):
    for recorded in (shifted, searched):
        looks = {}
        for drawing in drawn(recorded).values():
            for name, trace in all_lines(drawing).items():
                if name != "search":
                    looks.setdefault(name, set()).add((trace.line.color, trace.line.dash))
        assert {len(found) for found in looks.values()} == {1}


def test_every_figure_has_words_and_named_axes(shifted, searched, varied):
    for recorded in (shifted, searched, varied):
        found = drawn(recorded)
        assert len(found) >= 4
        for drawing in found.values():
            assert drawing.alt.endswith(".")
            assert drawing.caption.endswith(".")
            assert drawing.figure.layout.xaxis.title.text
            assert drawing.figure.layout.yaxis.title.text


def test_a_curve_is_the_mean_of_its_seeds_and_its_band_one_deviation(shifted):
    drawing = drawn(shifted)["s-accuracy"]
    values = values_of(shifted, "adam/cosine")
    line, band = lines(drawing)["adam/cosine"], bands(drawing)["adam/cosine"]
    assert np.array(line.y) == pytest.approx(values.mean(axis=0), rel=1e-6)
    assert line.x.tolist() == shifted.trials[0].steps.tolist()
    spread = values.std(axis=0, ddof=1)
    upper, lower = np.split(np.array(band.y), 2)
    assert upper == pytest.approx(values.mean(axis=0) + spread, rel=1e-5)
    assert lower[::-1] == pytest.approx(values.mean(axis=0) - spread, rel=1e-5)
    assert band.showlegend is False
    assert len(all_lines(drawing)) == len(bands(drawing)) == 13


def test_of_many_methods_samuel_and_the_best_of_each_family_are_drawn_and_the_rest_is_a_band(shifted):
    study, found = the(shifted), drawn(shifted)
    first = drawn_at_first(study)
    means = {name: values_of(shifted, name)[:, 9:13].mean() for name in all_lines(found["s-accuracy"])}
    best = {max((n for n in means if n.startswith(f"{base}/")), key=means.__getitem__) for base in BASES}
    assert first == {"samuel", *best}
    for name in ("s-accuracy", "s-rates", "s-loss", "s-test-loss"):
        assert at_first(found[name]) == first
    rest = lines(found["s-accuracy"])[REST]
    assert rest.name == "9 others, lowest to highest"
    others = np.array([values_of(shifted, name).mean(axis=0) for name in means if name not in first])
    high, low = np.split(np.array(rest.y), 2)
    assert high == pytest.approx(others.max(axis=0), rel=1e-5)
    assert low[::-1] == pytest.approx(others.min(axis=0), rel=1e-5)


def test_of_few_methods_all_are_drawn_and_there_is_no_band_of_the_rest(searched):
    found = drawn(searched)["s-accuracy"]
    assert len(at_first(found)) == len(the(searched).methods) - 1 <= MANY
    assert REST not in lines(found)


def test_the_axis_begins_where_the_lines_part(shifted):
    drawing = drawn(shifted)["s-accuracy"]
    low, high = drawing.figure.layout.yaxis.range
    values = np.concatenate([values_of(shifted, name).mean(axis=0) for name in at_first(drawing)])
    assert values.min() < low < 0.8 < np.median(values) < values.max() < high
    assert drawing.caption.endswith("double-click to see all.")


def test_samuel_is_drawn_on_top_and_bands_below_all_lines(shifted):
    traces = drawn(shifted)["s-accuracy"].figure.data
    assert traces[-1].meta["line"] == "samuel"  # the key reads from the top
    assert [trace.fill for trace in traces] == ["toself"] * 14 + [None] * 13


def test_after_the_shift_samuel_is_shown_beside_each_optimizer(shifted):
    found = drawn(shifted)
    zooms = [drawing for name, drawing in found.items() if "-after-" in name]
    assert [drawing.title for drawing in zooms] == [
        "After the shift: SAMUEL and SGD",
        "After the shift: SAMUEL and AdaGrad",
        "After the shift: SAMUEL and Adam",
        "After the shift: SAMUEL and the best of each",
    ]
    assert set(lines(zooms[0])) == {"samuel", *(f"sgd/{schedule}" for schedule in SCHEDULES)}
    # Only what was measured after the shift, with rounds counted from there.
    assert lines(zooms[0])["samuel"].x.tolist() == [2, 4, 6, 8]
    means = {name: values_of(shifted, name)[:, 9:13].mean() for name in all_lines(drawn(shifted)["s-accuracy"])}
    best = {base: max((n for n in means if n.startswith(f"{base}/")), key=means.__getitem__) for base in BASES}
    assert set(lines(zooms[3])) == {"samuel", *best.values()}


def test_learning_rates_stand_on_a_logarithmic_axis_beside_the_schedules(shifted):
    drawing = drawn(shifted)["s-rates"]
    assert drawing.figure.layout.yaxis.type == "log"
    assert len(all_lines(drawing)) == 13
    cosine = np.array(lines(drawing)["adam/cosine"].y)
    assert np.isnan(cosine[-1])  # a rate of 0 has no place there
    assert cosine[:-1] == pytest.approx(values_of(shifted, "adam/cosine", "rate")[0, :-1], rel=1e-5)


def test_the_last_rounds_of_a_schedule_do_not_press_the_others_into_a_corner(shifted):
    trials = [replace(trial, rate=np.append(trial.rate[:-1], 1e-12)) for trial in shifted.trials]
    low, high = drawn(replace(shifted, trials=tuple(trials)))["s-rates"].figure.layout.yaxis.range
    highest = max(np.nanmax(trial.rate) for trial in shifted.trials)
    assert 1e-6 * highest < 10**low < 0.1 * highest < 10**high < 2 * highest


def test_methods_that_show_no_rate_are_left_out_of_the_rates(searched):
    assert set(lines(drawn(searched)["s-rates"])) == {"samuel", "samuel-full", "adam/cosine"}


def test_weights_are_maps_of_levels_and_of_rates_over_time(shifted):
    found = drawn(shifted)
    levels, rates = found["s-0-levels"].figure.data[0], found["s-0-learning-rates"].figure.data[0]
    assert list(levels.y) == ["16", "32", "64", "whole run"]
    assert list(rates.y) == ["0.001", "0.01", "0.1"]
    for shown, recorded in ((levels, shifted.trials[0].by_level), (rates, shifted.trials[0].by_rate)):
        relative = recorded / recorded[:, :1]  # at step 0 nothing but the prior is known
        assert np.array(shown.z) == pytest.approx(relative / relative.sum(axis=0), rel=1e-5)
        assert np.array(shown.z)[:, 0] == pytest.approx(1 / len(recorded), rel=1e-5)


def test_a_map_of_one_level_is_left_out(shifted):
    trials = tuple(
        replace(trial, levels=trial.levels[-1:], weights=trial.weights.sum(axis=1, keepdims=True))
        if trial.levels
        else trial
        for trial in shifted.trials
    )
    found = drawn(replace(shifted, trials=trials))
    assert "s-0-learning-rates" in found
    assert "s-0-levels" not in found


def test_a_map_of_weights_that_stay_at_their_prior_is_left_out_and_said(shifted):
    even = np.broadcast_to([0.2, 0.3, 0.5], (len(shifted.trials[0].steps), 4, 3)) / 4
    weights = even * np.linspace([1.0, 1.0, 1.0], [0.5, 1.0, 1.5], len(even))[:, None]
    trials = tuple(replace(trial, weights=weights) if trial.levels else trial for trial in shifted.trials)
    found = drawn(replace(shifted, trials=trials))
    assert "s-0-levels" not in found
    assert "The weight of every block length stays within 10% of its prior" in found["s-0-learning-rates"].caption


def test_of_the_papers_algorithms_the_better_one_is_drawn_at_first(shifted):
    study = the(shifted)
    ours = next(method for method in study.methods if method.trial == "samuel")
    papers = [
        replace(ours, trial=name, trials=tuple(replace(t, trial=name, accuracy=t.accuracy * gain) for t in ours.trials))
        for name, gain in (("samuel-linear", 0.9), ("samuel-full", 0.5))
    ]
    first = drawn_at_first(replace(study, methods=(*study.methods, *papers)))
    assert {"samuel", "samuel-linear"} <= first
    assert "samuel-full" not in first


def test_a_sweep_is_a_curve_and_samuel_a_point_and_both_are_in_the_key(tmp_path):
    rates = ("0.001", "0.01", "0.1")
    folder = shift_run(tmp_path / "run", methods=["samuel", *(f"adamw/cosine@{rate}" for rate in rates)])
    drawing = drawn(read(folder))["s-sweep-best-before"]
    assert {name: (trace.name, len(trace.x)) for name, trace in lines(drawing).items()} == {
        "samuel": ("SAMUEL", 1),
        "adamw/cosine@0.001": ("adamw, cosine", 3),
    }


def test_every_schedule_of_a_search_is_a_faint_line_below_the_others(searched):
    traces = drawn(searched)["s-search"].figure.data
    grey = [trace for trace in traces if trace.meta["line"] == "search"]
    assert list(traces[:8]) == grey
    assert [trace.showlegend for trace in grey] == [True] + [False] * 7
    trial = next(trial for trial in searched.trials if trial.trial == "search")
    assert np.array(grey[3].y) == pytest.approx(trial.accuracy[:, 3], rel=1e-5)
    assert "rates 1, 0.1, 0.1" in grey[3].hovertemplate
    ordered = lines(drawn(searched)["s-sorted"])["search"]
    assert np.all(np.diff(ordered.y) <= 0)
    assert ordered.text[0] == "0.1, 0.1, 0.1"


def test_offline_runs_are_shown_in_epochs(searched):
    drawing = drawn(searched)["s-accuracy"]
    assert drawing.figure.layout.xaxis.title.text == "epoch"
    assert lines(drawing)["samuel"].x.tolist() == list(range(10))
    assert [shape.x0 for shape in drawing.figure.layout.shapes] == [3, 6]


def test_trials_of_a_stability_study_lie_on_top_of_each_other(varied):
    assert len(lines(drawn(varied)["s-accuracy"])) == 6


def test_long_curves_are_thinned_and_keep_their_ends(shifted):
    count = 3 * POINTS
    trial = next(trial for trial in shifted.trials if trial.trial == "samuel")
    longer = replace(
        trial,
        steps=np.arange(count),
        **{name: np.linspace(0.1, 0.9, count) for name in ("accuracy", "loss", "test_loss", "rate")},
        weights=np.stack([np.linspace(1, 1 + place, count) for place in range(12)], axis=1).reshape(count, 4, 3),
    )
    plan = {**shifted.plan, "rounds": count - 1, "shift": None, "windows": []}
    found = drawn(replace(shifted, plan=plan, trials=(longer,)))
    line = lines(found["s-accuracy"])["samuel"]
    assert len(line.x) == POINTS
    assert (line.x[0], line.x[-1]) == (0, count - 1)
    assert len(found["s-0-levels"].figure.data[0].x) == POINTS


def test_what_an_unfinished_run_has_measured_is_drawn(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel", "adam/cosine"], seeds=(0, 1))
    cut(folder, 5)
    found = drawn(read(folder))
    assert lines(found["s-accuracy"])["samuel"].x.tolist() == [0, 16, 32, 48, 64]
    assert not bands(found["s-accuracy"])
    assert not any("-after-" in name for name in found)
    cut(folder, 0)
    assert drawn(read(folder)) == {}


def test_figures_are_strict_json(shifted, searched):
    for recorded in (shifted, searched):
        for drawing in drawn(recorded).values():
            json.loads(drawing.figure.to_json(), parse_constant=pytest.fail)
