"""`samuel table1`: the paper's Table 1 as an experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from samuel.cli.shared import INTERRUPTED, AsJson, Quiet, app, fail, needs, wide_console, writable
from samuel.studies.play.table1 import (
    FEWEST_ROUNDS,
    METHODS,
    MOST_ROUNDS,
    MOST_SEEDS,
    Plan,
    Report,
    run,
    summary,
)
from samuel.studies.play.table1_streams import FAMILIES


def _whole(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


@app.command(name="table1")
def table1_command(
    family: Annotated[
        list[str] | None,
        typer.Option(help=f"Which streams: {', '.join(FAMILIES)}. Repeat for several.", show_default="all"),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"Which rows: {', '.join(METHODS)}. Repeat for several.", show_default="all"),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(parser=_whole, metavar="<int>", help=f"Length of the run, from {FEWEST_ROUNDS} to {MOST_ROUNDS}."),
    ] = Plan.rounds,
    seeds: Annotated[
        int, typer.Option(parser=_whole, metavar="<int>", help=f"How many streams of each family, up to {MOST_SEEDS}.")
    ] = Plan.seeds,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where to write the report; folders are made as needed.")
    ] = Path("samuel-table1/report.html"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Put the paper's Table 1 to the test: worst regret on intervals beside the bound that theory states.

    Takes a few minutes; most of it is compiling.

    Examples:

    - `samuel table1 --family storms`
    - `samuel table1 --family changes --method flh --method samuel --rounds 32768`
    - `samuel table1 --json --quiet > table1.json`
    """
    try:
        plan = Plan(_distinct(family) or Plan.families, _distinct(method) or Plan.methods, rounds, seeds)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    out = writable(out)
    with needs("plotly", "jinja2", "markupsafe"):
        from samuel.studies.play import table1_page as page
    try:
        report = _run(plan, Console(stderr=True), quiet)
        page.save(out, page.render(report))
    except KeyboardInterrupt:
        fail("Interrupted. No report was written.", INTERRUPTED)
    except OSError as error:
        fail(f"The report could not be written to {out}: {error.strerror or error}")
    if as_json:
        typer.echo(json.dumps(summary(report), indent=2, allow_nan=False))
    elif not quiet:
        _print(report, page)
    typer.echo(f"Report: {out}", err=as_json)


def _run(plan: Plan, console: Console, quiet: bool) -> Report:
    """Play a plan, with a progress bar on a terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        return run(plan, lambda what, done, total: bar.update(task, description=what, completed=done, total=total))


def _print(report: Report, page: Any) -> None:
    console = wide_console()
    for experiment in report.experiments:
        section = page.section(experiment)
        for title, table in section.tables:
            console.print(_table(title, table))
            console.print()
        for sentence in section.findings:
            console.print(f"- {sentence}", markup=False)
        console.print()
    console.print(
        "Worst: the largest regret over intervals of so many rounds inside one stretch. |I|^ and T^: the power of the "
        "length of the interval, and of the run, that it grows with. /bound: the largest ratio of regret and bound, "
        "the latter without logarithms and constants.",
        style="dim",
    )


def _table(title: str, table: Any) -> Table:
    shown = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(table.short):
        shown.add_column(head, justify="right" if place else "left", no_wrap=not place, vertical="bottom")
    for name, cells in table.rows:
        shown.add_row(name, *(f"[bold]{cell.text}[/bold]" if cell.best else cell.text for cell in cells))
    return shown


def _distinct(names: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names or ()))
