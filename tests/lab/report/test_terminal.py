import io
import re

import pytest
from rich.console import Console

from samuel_lab.report.gathering import studies
from samuel_lab.report.reading import read
from samuel_lab.report.summary import results_table
from samuel_lab.report.terminal import compare, show, study_tables
from tests.lab.report.folders import cut, offline_run, shift_run


def printed(*what, width=100):
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    for part in what:
        console.print(part)
    return console.file.getvalue()


def tables(recorded):
    (study,) = studies([recorded])
    return study_tables(study)


def row(text, words):
    """What follows these words in their line."""
    line = next(line for line in text.splitlines() if words in line)
    return line.partition(words)[2].split()


def test_tables_fit_a_hundred_columns(shifted, searched, varied):
    for recorded in (shifted, searched, varied):
        text = printed(*tables(recorded))
        for trial in recorded.trials:
            if trial.group != "search":
                assert f" {trial.label} " in text  # in one piece
        assert "…" not in text


def test_on_a_narrow_terminal_numbers_stay_in_one_piece(shifted):
    text = printed(*tables(shifted), width=80)
    for line in printed(*tables(shifted)[:1], width=200).splitlines():
        for figure in re.findall(r"[\d.]+±[\d.]+", line):
            assert f" {figure} " in text


def test_the_best_is_bold(shifted):
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system="standard")
    console.print(tables(shifted)[0])
    bold = re.findall(r"\x1b\[1m\s*([\d.]+±[\d.]+)", console.file.getvalue())
    table = results_table(studies([shifted])[0])
    best = [cell.text.replace(" ", "") for _, cells in table.rows for cell in cells if cell.best]
    assert sorted(bold) == sorted(best)


def test_an_unfinished_run_is_marked_as_such(tmp_path):
    folder = shift_run(tmp_path / "run", methods=["samuel"], seeds=(0, 1))
    cut(folder, 30)
    assert "(not finished)" in printed(*tables(read(folder)))
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    show(console, [read(folder)])
    assert "Note: The run is not complete: 1 of 2 trials have ended." in console.file.getvalue()


def test_comparing_shows_settings_that_differ_and_no_others(tmp_path):
    one = read(shift_run(tmp_path / "one", methods=["samuel", "adam/cosine"], options={"samuel_base": "adam"}))
    two = read(shift_run(tmp_path / "two", methods=["samuel", "sgd/cosine"], options={"samuel_base": "sgd"}))
    text = printed(compare([one, two]))
    assert row(text, "samuel_base") == ["adam", "sgd"]
    assert "scale" not in text
    assert row(text, "SAMUEL  first 8 %")[-1] == "+0.00"
    assert "Only in one: Adam, cosine." in text
    assert "Only in two: SGD, cosine." in text


def test_comparing_tells_clear_differences_from_others(tmp_path):
    one = read(shift_run(tmp_path / "one", methods=["samuel"]))
    better = read(shift_run(tmp_path / "two", methods=["samuel"]))
    for trial in better.trials:
        trial.accuracy[trial.steps <= 128] -= 0.5
        trial.accuracy[trial.steps > 128] += 0.0001
    text = printed(compare([one, better]))
    before = next(line for line in text.splitlines() if "best before %" in line)
    after = next(line for line in text.splitlines() if "best after %" in line)
    assert before.split()[-2:] == ["−50.00", "clear"]
    assert after.split()[-1] == "+0.01"


def test_runs_alike_are_said_to_be(tmp_path):
    runs = [read(shift_run(tmp_path / name, methods=["samuel"], seeds=(0,))) for name in ("one", "two")]
    text = printed(compare(runs))
    assert "The runs have the same settings, versions and device." in text
    assert "+0.00" in text


def test_runs_of_different_studies_have_no_numbers_to_compare(tmp_path, shifted):
    other = read(offline_run(tmp_path / "other"))
    text = printed(compare([shifted, other]))
    assert "other is a run of digits-offline, not of digits: no numbers to compare." in text
    with pytest.raises(ValueError, match="at least two runs, got 1"):
        compare([shifted])
