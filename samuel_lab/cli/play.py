"""`samuel play`: compare online learners on streams of losses, in tables and on a page."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from samuel_lab.cli.shared import (
    BAD_INPUT,
    INTERRUPTED,
    AsJson,
    Out,
    Quiet,
    app,
    distinct,
    fail,
    needs,
    results_on_terminal,
    whole_number,
    with_progress,
    writable,
)
from samuel_lab.play import arenas
from samuel_lab.play.arenas import ALL, DEFAULT_STREAMS, ONE_DIMENSION, STREAMS
from samuel_lab.play.cast import LEARNERS
from samuel_lab.play.contest import run
from samuel_lab.play.plan import BACKENDS, FEWEST_ROUNDS, MOST_DIM, MOST_ROUNDS, Plan
from samuel_lab.play.records import Contest, Report, summary

TASKS = ("regression", "classification", "quantile")
LEVEL, MOST_FEATURES = 0.5, 100
LARGEST_RADIUS = 1e6
"""Features have a deviation of about 1: larger coefficients are meaningless."""
WIDE = 140
"""Width of tables without a terminal."""
MISSING = {"refuse": "refuse", "skip": "skip", "past-mean": "past mean"}


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


@app.command(name="play")
def play_command(
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Stream: {', '.join(STREAMS)}. Repeat for several.", show_default=", ".join(DEFAULT_STREAMS)
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "--learner",
            help=f"Learner: {', '.join(LEARNERS)}. Repeat for several.",
            show_default="a selection for the stream",
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All methods on all streams but those of Table 1, where none are named.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help=f"Length of the run, from {FEWEST_ROUNDS} to {MOST_ROUNDS}; of a table, its first rows.",
            show_default=f"{Plan.rounds}; all rows of a table",
        ),
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help=f"Dimension of the decisions, up to {MOST_DIM}; {' and '.join(ONE_DIMENSION)} have one.",
            show_default=str(Plan.dim),
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(parser=whole_number, metavar="<int>", help="The same seed gives the same data."),
    ] = Plan.seed,
    seeds: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help="Number of seeds per stream; means and standard deviations are reported.",
        ),
    ] = Plan.seeds,
    csv: Annotated[
        Path | None,
        typer.Option(help="Play on this CSV file (also .gz, .bz2, .xz), row by row.", metavar="FILE"),
    ] = None,
    target: Annotated[str, typer.Option(help="The column of the file to forecast.", metavar="COLUMN")] = "",
    task: Annotated[
        str | None,
        typer.Option(help=f"Task: {', '.join(TASKS)}.", show_default="regression; for river, that of the data set"),
    ] = None,
    level: Annotated[
        float, typer.Option(parser=_number, metavar="<number>", help="Quantile to forecast, between 0 and 1.")
    ] = LEVEL,
    columns: Annotated[
        str, typer.Option(help="Columns to use as features.", metavar="A,B,...", show_default="all")
    ] = "",
    drop: Annotated[str, typer.Option(help="Columns to drop.", metavar="A,B,...", show_default="none")] = "",
    missing: Annotated[
        str,
        typer.Option(help=f"Treatment of missing values: {', '.join(MISSING)}."),
    ] = "refuse",
    separator: Annotated[str, typer.Option(help="Separator of cells; `tab` for a tab.", metavar="<char>")] = ",",
    decimal: Annotated[str, typer.Option(help="Decimal mark: a point or a comma.", metavar="<char>")] = ".",
    most_features: Annotated[
        int,
        typer.Option(
            parser=whole_number,
            metavar="<int>",
            help="Maximum number of features, one-hot encoding included.",
        ),
    ] = MOST_FEATURES,
    scale: Annotated[
        bool,
        typer.Option(help="Standardise columns by the rows before each row, or use them unchanged."),
    ] = True,
    river: Annotated[
        list[str] | None,
        typer.Option(
            help="Play on a data set that comes with river, such as Phishing. Repeat for several.", metavar="NAME"
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(
            parser=_number,
            metavar="<number>",
            help="Radius of the ball of decisions, for tables.",
            show_default="10 for classification, else 5",
        ),
    ] = None,
    backend: Annotated[
        str,
        typer.Option(help=f"Backend: {', '.join(BACKENDS)}; auto uses JAX for long runs if it is installed."),
    ] = Plan.backend,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            parser=whole_number,
            metavar="<int>",
            help="Number of streams played in parallel.",
            show_default="number of cores",
        ),
    ] = None,
    out: Out = Path("samuel-play/report.html"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare online learners on streams of losses; prints tables and writes a report.

    Learners that need a learning rate get the best of a list in hindsight; SAMUEL and its rivals get none.

    Examples:

    - `samuel play --stream drift --dim 20 --rounds 8192`
    - `samuel play --method samuel --method saol --seeds 5 --out mine.html`
    - `samuel play --csv electricity.csv.xz --target class --task classification`
    - `samuel play --stream table1-changes --stream table1-storms --stream table1-sparse --rounds 8192 --seeds 3`
    - `samuel play --all --seeds 5 --rounds 8192 --json > rivals.json`
    """
    options: dict[str, Any] = {"seed": seed, "seeds": seeds, "backend": backend}
    options |= {} if dim is None else {"dim": dim}
    streams = distinct(stream)
    if everything:
        streams = streams or (() if csv or river else ALL)
    elif not streams and not csv and not river:
        streams = DEFAULT_STREAMS
    if dim is not None and streams and all(name in ONE_DIMENSION for name in streams):
        raise typer.BadParameter(
            f"{dim}: {' and '.join(streams)} {'has' if len(streams) == 1 else 'have'} one dimension; --dim is for the "
            "other streams.",
            param_hint="--dim",
        )
    for name, value, usual in (("--dim", dim, None), ("--seeds", seeds, Plan.seeds)):
        if not streams and value != usual:
            raise typer.BadParameter(f"{value}: the table determines this; {name} is for --stream.", param_hint=name)
    if streams and rounds is not None:
        options["rounds"] = rounds
    methods = distinct(method) or (tuple(LEARNERS) if everything else None)
    try:
        separator = "\t" if separator in ("\\t", "tab") else separator
        reading = {"separator": separator, "decimal": decimal, "most_features": most_features, "scale": scale}
        tables = _tables(csv, river, target, task, level, columns, drop, missing, rounds, radius, reading)
        count = len(streams) + len(tables)
        if jobs is None:
            jobs = max(1, min(_cores(), count))
        plan = Plan(streams=streams, learners=methods, tables=tables, jobs=jobs, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _play(plan, out, as_json, quiet)


def _tables(
    csv: Path | None,
    river: list[str] | None,
    target: str,
    task: str | None,
    level: float,
    columns: str,
    drop: str,
    missing: str,
    rounds: int | None,
    radius: float | None,
    reading: dict[str, Any],
) -> tuple[arenas.Table, ...]:
    """The tables to play."""
    if not csv and not river:
        given = {
            "--target": target,
            "--task": task,
            "--columns": columns,
            "--drop": drop,
            "--radius": radius,
            "--level": None if level == LEVEL else level,
            "--missing": None if missing == "refuse" else missing,
            "--separator": None if reading["separator"] == "," else reading["separator"],
            "--decimal": None if reading["decimal"] == "." else reading["decimal"],
            "--most-features": None if reading["most_features"] == MOST_FEATURES else reading["most_features"],
            "--no-scale": None if reading["scale"] else "no",
        }
        for name, value in given.items():
            if value not in (None, ""):
                raise typer.BadParameter(f"{value}: {name} goes with --csv FILE or --river NAME.", param_hint=name)
        return ()
    if csv and not target:
        raise typer.BadParameter("--csv needs --target COLUMN, the column to forecast.", param_hint="--target")
    if target and not csv:
        raise typer.BadParameter(f"{target}: --target goes with --csv FILE.", param_hint="--target")
    if reading["decimal"] != "." and not csv:
        raise typer.BadParameter(f"{reading['decimal']}: --decimal goes with --csv FILE.", param_hint="--decimal")
    if task is not None and task not in TASKS:
        raise typer.BadParameter(f"unknown task {task!r}; choose from {', '.join(TASKS)}", param_hint="--task")
    if missing not in MISSING:
        raise typer.BadParameter(f"unknown value {missing!r}; choose from {', '.join(MISSING)}", param_hint="--missing")
    if rounds is not None and rounds < arenas.FEWEST_TABLE_ROUNDS:
        raise typer.BadParameter(
            f"{rounds}: at least {arenas.FEWEST_TABLE_ROUNDS} rounds are needed", param_hint="--rounds"
        )
    if radius is not None and not 0 < radius <= LARGEST_RADIUS:
        raise typer.BadParameter(
            f"{radius:g} is not a positive number of at most {LARGEST_RADIUS:g}", param_hint="--radius"
        )
    shared: Any = {
        "task": task,
        "level": level,
        "columns": _split(columns) or None,
        "drop": _split(drop),
        "missing": MISSING[missing],
        "rounds": rounds,
        "radius": radius,
        **reading,
    }
    found = [arenas.Table("csv", str(csv), target, **shared)] if csv else []
    found += [arenas.Table("river", name, **shared) for name in distinct(river)]
    return tuple(found)


def _play(plan: Plan, out: Path, as_json: bool, quiet: bool) -> None:
    """Play a plan, print its results and write its report."""
    out = writable(out)
    page = _page()
    errors = Console(stderr=True)
    try:
        for table in plan.tables:
            _read(table, errors, quiet)
        report: Report = with_progress(lambda progress: run(plan, progress), quiet)
        page.save(out, page.render(report))
    except KeyboardInterrupt:
        fail("Interrupted. No report was written.", INTERRUPTED)
    except OSError as error:
        fail(f"The report could not be written to {out}: {error.strerror or error}")
    if as_json:
        typer.echo(json.dumps({**summary(report), "report": str(out)}, indent=2, allow_nan=False))
    elif not quiet:
        _print_tables(report)
    typer.echo(f"Report: {out}", err=as_json)


def _read(table: arenas.Table, console: Console, quiet: bool) -> None:
    """Read a table before playing; exits if it is invalid."""
    hidden = quiet or not console.is_terminal
    try:
        with Progress(
            SpinnerColumn(), TextColumn("{task.description}"), console=console, transient=True, disable=hidden
        ) as bar:
            bar.add_task(f"reading {table.source}", total=None)
            arenas.table_arena(table)
    except (ValueError, FileNotFoundError) as error:
        fail(_as_options(str(error)), BAD_INPUT)


def _as_options(message: str) -> str:
    """A message of the library with the names of the command's options: `drop=['a']` becomes `--drop a`.

    >>> _as_options("say separator=';', missing='past mean', drop=['a'] or scale=False; allow more with most_features=")
    "say --separator ';', --missing past-mean, --drop a or --no-scale; allow more with --most-features"
    """

    def option(found: re.Match[str]) -> str:
        name, value = found["name"].replace("_", "-"), found["value"] or found["listed"] or ""
        if name in ("separator", "decimal") and value:
            return f"--{name} '{value}'"
        return f"--{name} {value.replace(' ', '-') if name == 'missing' else value}".rstrip()

    message = message.replace("scale=False", "--no-scale")
    names = "columns|decimal|drop|missing|most_features|separator|task"
    return re.sub(rf"\b(?P<name>{names})=(?:'(?P<value>[^']*)'|\['(?P<listed>[^']*)'\])?", option, message)


def _print_tables(report: Report) -> None:
    from samuel_lab.play.bounds_page import bounds_tables
    from samuel_lab.play.page import findings, recommendation

    console = Console(highlight=False)
    if not console.is_terminal:  # unlimited width in a file
        console = Console(highlight=False, width=max(console.width, WIDE))
    tables = [table.name for table in report.plan.tables]
    for contest in report.contests:
        console.print(_table(contest))
        console.print()
        if contest.stream in tables:  # of the user's own: how it was read, and what to take for it
            said = (contest.about, *findings(contest))
        else:
            said = tuple(filter(None, [recommendation(contest)]))
        for sentence in said:
            console.print(sentence, markup=False)
        if said:
            console.print()
        for titled in bounds_tables(contest):
            console.print(results_on_terminal(f"{contest.label}: {titled.title}", titled.table))
            console.print()
    console.print(
        "Rate: the best of a list in hindsight; at middle rate: the loss at the middle of the list. Worst: "
        "the largest regret over intervals of that many rounds. Exponent: the power of the length with which it grows. "
        "Memory: of the learner's state.",
        style="dim",
    )


def _table(contest: Contest) -> Table:
    from samuel_lab.play.page import results_table

    table = results_table(contest)
    dims = "1 dimension" if contest.dim == 1 else f"{contest.dim} dimensions"
    seeds = "" if contest.seeds == 1 else f", {contest.seeds} seeds"
    title = f"{contest.label}: {contest.rounds} rounds, {dims}{seeds}"
    return results_on_terminal(title, table)


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _page() -> Any:
    """The module that writes pages; exits with what to install if it cannot be imported."""
    with needs("plotly", "jinja2", "markupsafe"):
        from samuel_lab.play import page
    return page
