import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import samuel
from samuel_lab import cli
from samuel_lab.play.arenas import STREAMS
from samuel_lab.play.cast import LEARNERS
from samuel_lab.studies.offline import DigitsSweep
from samuel_lab.studies.shift import Digits
from samuel_lab.trial.methods import GROUPS

QUICK = ("--rounds", "256", "--dim", "2", "--backend", "numpy", "--jobs", "1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    return tmp_path


def call(*words):
    return CliRunner().invoke(cli.app, [str(word) for word in words])


def command(*words, code="from samuel_lab.__main__ import main; main()"):
    """The same in a process of its own."""
    root = str(Path(samuel.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": root, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    words = [sys.executable, "-c", code, *words]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=120, check=False)


def flat(text):
    """Text without the frame and the line ends that a terminal puts into it."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_demo_is_a_sweep_and_a_shift_of_digits_in_a_folder_of_its_own(here, monkeypatch):
    begun, pages = [], []
    monkeypatch.setattr("samuel_lab.cli.run._carry_out", lambda run, study, *_, **__: begun.append((run, study)))
    monkeypatch.setattr("samuel_lab.cli.run.finish", lambda runs, page, *_: pages.append((len(runs), page)))
    for folder in ("samuel-demo", "samuel-demo-2", "samuel-demo-3"):
        result = call("demo")
        assert result.exit_code == 0, result.output
        (first, sweep), (second, shift) = begun
        assert [first.folder.absolute(), second.folder.absolute()] == [
            here / folder / "digits-sweep",
            here / folder / "digits",
        ]
        assert [run.config["command"] for run, _ in begun] == ["samuel run digits-sweep", "samuel run digits"]
        assert (sweep, shift) == (DigitsSweep(), Digits())
        assert [(count, page.absolute()) for count, page in pages] == [(2, here / folder / "report.html")]
        begun.clear()
        pages.clear()
    assert sweep.seeds == shift.seeds == 3
    assert {"samuel", "samuel-untold", *GROUPS["adamw-rates"]} <= set(sweep.method_names())
    assert {"samuel", "samuel-full", *GROUPS["baselines"]} <= set(shift.method_names())


def test_two_studies_make_one_page(here, monkeypatch):
    small = {"seeds": 1, "scale": 0.1, "width": 4, "methods": ("samuel-adam", "adamw-rates")}
    monkeypatch.setattr("samuel_lab.studies.catalogue.DEMO", [DigitsSweep(**small), Digits(**small)])
    result = call("demo", "--out", "shown")
    assert result.exit_code == 0, result.output
    assert "in a sweep of 6 rates of AdamW, warm-up cosine" in flat(result.output)
    assert re.search(r"SAMUEL over Adam: \d(st|nd|rd|th) of 7 in accuracy at the end", flat(result.output))
    page = (here / "shown" / "report.html").read_text()
    assert "digits-sweep-0-sweep-last-accuracy" in page
    assert "digits-1-sweep-window-26" in page


def test_play_in_a_process_of_its_own(here):
    done = command("play", *QUICK, "--stream", "two-valleys", "--learner", "ogd", "--learner", "samuel")
    assert done.returncode == 2  # --dim has nothing to apply to
    quick = ("--rounds", "256", "--backend", "numpy", "--stream", "two-valleys", "--learner", "samuel")
    done = command("play", *quick)
    assert (done.returncode, done.stderr) == (0, "")
    assert "SAMUEL" in done.stdout
    assert files(here) == ["samuel-play/report.html"]


def test_play_prints_json_and_nothing_else_on_standard_output(here):
    result = call("play", *QUICK, "--learner", "samuel", "--learner", "ogd-inverse", "--json", "--out", "a/b.html")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [stream["stream"] for stream in found["streams"]] == ["two-valleys", "drift"]
    for stream in found["streams"]:
        assert [learner["learner"] for learner in stream["learners"]] == ["samuel", "ogd-inverse"]
        assert all(learner["total_loss"] > 0 for learner in stream["learners"])
    assert found["report"] == str(here / "a" / "b.html")
    assert found["command"].startswith("samuel play --rounds 256 --dim 2 --seed 0 --method samuel")
    assert result.stderr == f"Report: {here / 'a' / 'b.html'}\n"


def test_quiet_says_only_where_the_report_is(here):
    result = call("play", *QUICK, "--stream", "drift", "--learner", "ogd-inverse", "--quiet")
    assert result.exit_code == 0, result.output
    assert result.output == f"Report: {here / 'samuel-play' / 'report.html'}\n"


def test_the_seed_and_the_order_of_learners_are_kept(here):
    def totals(*words):
        result = call("play", *QUICK, "--stream", "drift", "--json", *words)
        (stream,) = json.loads(result.stdout)["streams"]
        return [(learner["learner"], learner["total_loss"]) for learner in stream["learners"]]

    ours = ("--learner", "ogd-inverse", "--learner", "adagrad", "--learner", "ogd-inverse")
    once = totals(*ours)
    assert [name for name, _ in once] == ["ogd-inverse", "adagrad"]
    assert totals(*ours) == once
    assert totals(*ours, "--seed", "1") != once


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--rounds", "255"), "rounds must be a whole number from 256 to 65536, got 255"),
        (("--rounds", "many"), "'many' is not a whole number"),
        (("--rounds", "1e3"), "'1e3' is not a whole number"),
        (("--dim", "0"), "dim must be a whole number from 1 to 100, got 0"),
        (("--dim", "3", "--stream", "two-valleys"), "3: two-valleys has one dimension"),
        (("--seed", "-4"), "got -4"),
        (("--stream", "river"), "unknown stream 'river'; choose from two-valleys, drift"),
        (("--seeds", "0"), "seeds must be a whole number from 1 to 100, got 0"),
        (("--jobs", "0"), "jobs must be a whole number from 1 to 256, got 0"),
        (
            ("--dim", "3", "--stream", "two-valleys", "--stream", "quantile"),
            "two-valleys and quantile have one dimension",
        ),
        (("--target", "price"), "price: --target goes with --csv FILE"),
        (("--level", "0.9"), "0.9: --level goes with --csv FILE"),
        (("--level", "0"), "0.0: --level goes with --csv FILE"),
        (("--decimal", ","), ",: --decimal goes with --csv FILE"),
        (("--river", "Phishing", "--decimal", ","), ",: --decimal goes with --csv FILE"),
        (("--separator", ";"), ";: --separator goes with --csv FILE"),
        (("--no-scale",), "--no-scale goes with --csv FILE"),
        (("--missing", "skip"), "skip: --missing goes with --csv FILE"),
        (("--csv", "a.csv", "--target", "y", "--seeds", "5"), "5: the table determines this; --seeds is for --stream"),
        (("--csv", "a.csv", "--target", "y", "--dim", "5"), "5: the table determines this; --dim is for --stream"),
        (("--radius", "2"), "--radius goes with --csv FILE or --river NAME"),
        (("--csv", "a.csv"), "--csv needs --target COLUMN, the column to forecast"),
        (("--csv", "a.csv", "--target", "y", "--task", "guessing"), "unknown task 'guessing'; choose from regression,"),
        (("--csv", "a.csv", "--target", "y", "--missing", "guess"), "unknown value 'guess'; choose from refuse, skip,"),
        (("--csv", "a.csv", "--target", "y", "--radius", "-1"), "-1 is not a positive number"),
        (("--csv", "a.csv", "--target", "y", "--radius", "1e300"), "1e+300 is not a positive number of at most 1e+06"),
        (("--csv", "a.csv", "--target", "y", "--rounds", "3"), "3: at least 64 rounds are needed"),
        (("--level", "high"), "'high' is not a number"),
        (("--learner", "sgd"), "unknown learner 'sgd'; choose from ogd,"),
        (("--backend", "torch"), "unknown backend 'torch'; choose from auto, jax, numpy"),
        (("--colour", "red"), "--colour"),
    ],
)
def test_bad_values_are_refused_before_any_work(here, monkeypatch, words, message):
    monkeypatch.setattr("samuel_lab.cli.play.run", lambda *_: pytest.fail("work was done"))
    result = call("play", *words)
    assert result.exit_code == 2
    assert message in flat(result.stderr)
    assert "Traceback" not in result.output
    assert files(here) == []


def weather(rows=300):
    """A file in which the rain follows the wind, until it follows the cold instead."""
    lines = ["sky,wind,cold,rain"]
    for t in range(rows):
        wind, cold = (t * 7) % 11, (t * 5) % 13
        lines.append(f"{('clear', 'grey')[t % 2]},{wind},{cold},{wind if t < rows // 2 else cold}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("regression", ()),
        ("quantile", ("--level", "0.9", "--drop", "sky")),
        ("classification", ("--columns", "wind,cold", "--rounds", "128", "--radius", "3")),
    ],
)
def test_a_file_is_played_row_by_row(here, task, words):
    text = weather()
    if task == "classification":
        head, *rows = text.splitlines()
        words_of = [row.rpartition(",") for row in rows]
        text = "\n".join([head, *(f"{row},{'wet' if int(rain) > 5 else 'dry'}" for row, _, rain in words_of)]) + "\n"
    (here / "weather.csv").write_text(text)
    base = ("play", "--csv", "weather.csv", "--target", "rain", "--task", task, *words, "--backend", "numpy")
    result = call(*base, "--method", "samuel", "--method", "ogd", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (stream,) = found["streams"]
    assert stream["stream"] == "csv"
    assert stream["rounds"] == (128 if task == "classification" else 290)
    assert stream["dim"] == {"regression": 5, "quantile": 3, "classification": 3}[task]
    assert [learner["learner"] for learner in stream["learners"]] == ["samuel", "ogd"]
    assert found["command"].startswith(f"samuel play --csv weather.csv --target rain --task {task}")
    again = call(*found["command"].split()[1:], "--json")
    assert [each["total_loss"] for each in json.loads(again.stdout)["streams"][0]["learners"]] == [
        each["total_loss"] for each in stream["learners"]
    ]


@pytest.mark.parametrize(
    ("content", "words", "message"),
    [
        (None, (), "there is no file bad.csv"),
        (b"", (), "bad.csv is empty; its first line must name the columns"),
        (b"wind,cold\n1,2\n2,3\n", (), "there is no column 'rain', the target"),
        (b"wind,rain\n1,2\n", (), "bad.csv"),
        (b"wind,rain\n1,2\nmuch,3\n3,4\n", (), "line 3, column 'wind': 'much' is not a number"),
        (b"wind,rain\n1,2\n1,3\n1,4\n1,5\n", (), "column 'wind'"),
        (b"wind,rain\n1,2\n\xff,3\n3,4\n", (), "line 3, byte 1 of the line is 0xff, which is not UTF-8"),
        (b"wind,rain\n1,2\n,3\n3,4\n", (), "'wind'"),
        (b"wind,rain\n1,2\n2,3,4\n3,4\n", (), "line 3 has 3 cells, and the header 2"),
        (weather().encode(), ("--drop", "snow"), "there is no column 'snow', given as --drop"),
        (weather().encode(), ("--task", "classification"), "bad.csv"),
        (weather().encode(), ("--task", "quantile", "--level", "2"), "level must lie between 0 and 1, got 2"),
        (
            (",".join(f"c{i}" for i in range(200)) + ",rain\n" + 3 * (",".join(["1"] * 201) + "\n")).encode(),
            (),
            "200 features",
        ),
        (weather().replace(",", ";").encode(), (), "--separator ';'"),
        (b"wind;rain\n1,5;3\n2,5;4\n", ("--separator", ";"), "if it is a decimal comma, say --decimal ','; if"),
        ("\n".join(weather().splitlines()[:60]).encode(), (), "rounds are too few to play; at least 64 are needed"),
    ],
    ids=[
        "absent", "empty", "no-target", "one-row", "text-in-a-number", "constant", "not-utf8", "missing-value",
        "ragged", "unknown-column", "many-classes", "level", "200-columns",
        "semicolons", "decimal-commas", "few-rows",
    ],
)  # fmt: skip
def test_a_bad_file_is_an_error_that_says_what_is_wrong(here, content, words, message):
    if content is not None:
        (here / "bad.csv").write_bytes(content)
    result = call("play", "--csv", "bad.csv", "--target", "rain", *words)
    assert result.exit_code == 2
    assert message in flat(result.stderr)
    assert "Traceback" not in result.output
    assert files(here) == ([] if content is None else ["bad.csv"])


def test_a_file_with_semicolons_is_played_and_the_command_says_so(here):
    (here / "weather.csv").write_text(weather().replace(",", ";"))
    words = (
        "--separator",
        ";",
        "--no-scale",
        "--most-features",
        "50",
        "--method",
        "ogd",
        "--backend",
        "numpy",
        "--json",
    )
    result = call("play", "--csv", "weather.csv", "--target", "rain", *words)
    assert result.exit_code == 0, result.output
    assert "--separator ';' --most-features 50 --no-scale" in json.loads(result.stdout)["command"]


def test_a_file_with_decimal_commas_and_an_index_is_played_and_what_became_of_it_is_said(here):
    lines = weather().splitlines()
    rows = [f"{t};{row.replace(',', ',5;', 3).replace(',5', '', 1)}" for t, row in enumerate(lines[1:])]
    (here / "weather.csv").write_text("\n".join([";" + lines[0].replace(",", ";"), *rows]) + "\n")
    words = ("--separator", ";", "--decimal", ",", "--method", "ogd", "--backend", "numpy", "--json")
    result = call("play", "--csv", "weather.csv", "--target", "rain", *words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert "--separator ';' --decimal ," in found["command"]
    about = "Words, a feature for each: sky (2). Left out: the first column, an index without a name."
    assert about in found["streams"][0]["about"]


def test_the_terminal_says_how_a_file_was_read_and_which_learner_lost_least(here):
    (here / "weather.csv").write_text(weather())
    learners = ("--method", "ogd", "--method", "samuel", "--backend", "numpy")
    result = call("play", "--csv", "weather.csv", "--target", "rain", *learners)
    assert result.exit_code == 0, result.output
    assert "Words, a feature for each: sky (2)." in flat(result.stdout)
    assert "Lowest total loss: " in flat(result.stdout)
    assert "SAMUEL, without a learning rate, loses " in flat(result.stdout)


def test_a_data_set_of_river_is_played_by_name(here):
    pytest.importorskip("river", reason="river is not installed")
    words = ("--rounds", "128", "--method", "saol", "--backend", "numpy", "--json")
    result = call("play", "--river", "Phishing", *words)
    assert result.exit_code == 0, result.output
    (stream,) = json.loads(result.stdout)["streams"]
    assert (stream["stream"], stream["rounds"], stream["dim"]) == ("river-Phishing", 128, 10)
    unknown = call("play", "--river", "Fishing", *words)
    assert unknown.exit_code == 2
    assert "'Fishing' is not among the data sets that come with river" in flat(unknown.stderr)


def test_the_price_of_electricity_is_played_from_its_file(here):
    file = Path(samuel.__file__).parents[2] / "shared" / "data" / "electricity.csv.xz"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    words = ("--csv", file, "--target", "class", "--task", "classification", "--rounds", "512")
    result = call("play", *words, "--method", "samuel-ogd", "--backend", "numpy", "--json")
    assert result.exit_code == 0, result.output
    (stream,) = json.loads(result.stdout)["streams"]
    assert (stream["rounds"], stream["dim"]) == (512, 7)
    # Guessing loses log 2 a round.
    assert stream["learners"][0]["total_loss"] < 0.9 * 512 * 0.693


def test_streams_are_played_in_processes_of_their_own(here):
    words = ("--rounds", "256", "--backend", "numpy", "--stream", "two-valleys", "--stream", "quantile")
    done = command("play", *words, "--method", "samuel", "--jobs", "2", "--json", "--out", str(here / "a.html"))
    assert done.returncode == 0, done.stderr
    assert [stream["stream"] for stream in json.loads(done.stdout)["streams"]] == ["two-valleys", "quantile"]
    assert files(here) == ["a.html"]


def test_a_place_where_no_report_can_be_is_refused_before_any_work(here, monkeypatch):
    monkeypatch.setattr("samuel_lab.cli.play.run", lambda *_: pytest.fail("work was done"))
    (here / "folder").mkdir()
    (here / "file").write_text("mine")
    os.mkfifo(here / "pipe")
    for out, message in (
        ("folder", "folder is a folder; give a file in it, such as"),
        ("file/report.html", "file is a file, not a folder"),
        ("pipe", "pipe is not a plain file"),
    ):
        result = call("play", "--out", out)
        assert result.exit_code == 2
        assert message in flat(result.stderr)
    assert files(here) == ["file"]
    assert (here / "file").read_text() == "mine"


def test_a_report_that_cannot_be_written_is_an_error_without_a_traceback(here, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = call("play", *QUICK, "--stream", "drift", "--learner", "ogd-inverse")
    assert result.exit_code == 1
    assert "could not be written" in result.stderr
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.output
    assert files(here) == []


def test_an_interrupt_ends_with_130_and_leaves_nothing(here):
    code = """
import os, signal
from samuel_lab.cli import main, play
signal.signal(signal.SIGINT, signal.default_int_handler)  # the tests may have been started with it ignored
run = play.run
play.run = lambda plan, progress: run(plan, lambda *_: os.kill(os.getpid(), signal.SIGINT))
main()
"""
    done = command("play", *QUICK, "--out", str(here / "report.html"), code=code)
    assert done.returncode == 130
    assert "Interrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert files(here) == []


def test_the_version_is_shown():
    result = call("--version")
    assert (result.exit_code, result.output) == (0, f"samuel {samuel.__version__}\n")


def test_help_names_every_command_and_every_choice(here):
    for word in ("demo", "run", "resume", "watch", "report", "compare", "list", "play"):
        assert f" {word} " in flat(call("--help").output)
    assert "play" in call().output
    text = flat(call("play", "--help").output)
    for word in (*STREAMS, *LEARNERS, "--rounds", "--dim", "--seed", "--out", "--json", "--quiet"):
        assert word in text


@pytest.mark.parametrize(
    ("words", "missing", "hint"),
    [
        (("demo",), "typer", "The samuel command needs typer"),
        (("demo",), "jax", "This needs jax"),
        (("run", "digits"), "flax", "This needs flax"),
        (("play",), "plotly", "This needs plotly"),
    ],
    ids=["typer", "jax", "flax", "plotly"],
)
def test_what_is_not_installed_is_named(here, words, missing, hint):
    code = f"import sys; sys.modules[{missing!r}] = None; from samuel_lab.__main__ import main; main()"
    done = command(*words, code=code)
    assert done.returncode == 1
    assert hint in done.stderr
    assert 'pip install "samuel-optim[lab]"' in done.stderr
    assert "Traceback" not in done.stderr
    assert files(here) == []
