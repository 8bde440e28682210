"""`samuel table1`: the paper's Table 1 as an experiment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from samuel_lab.cli.shared import (
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
    wide_console,
    with_progress,
    writable,
)
from samuel_lab.play.table1 import (
    FEWEST_ROUNDS,
    METHODS,
    MOST_ROUNDS,
    MOST_SEEDS,
    Plan,
    Report,
    run,
    summary,
)
from samuel_lab.play.table1_streams import FAMILIES


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
        typer.Option(
            parser=whole_number, metavar="<int>", help=f"Length of the run, from {FEWEST_ROUNDS} to {MOST_ROUNDS}."
        ),
    ] = Plan.rounds,
    seeds: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="<int>", help=f"Number of streams of each family, up to {MOST_SEEDS}."
        ),
    ] = Plan.seeds,
    out: Out = Path("samuel-table1/report.html"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure the paper's Table 1: worst regret on intervals beside the bounds of theory.

    Takes a few minutes; most of it is compiling.

    Examples:

    - `samuel table1 --family storms`
    - `samuel table1 --family changes --method flh --method samuel --rounds 32768`
    - `samuel table1 --json --quiet > table1.json`
    """
    try:
        plan = Plan(distinct(family) or Plan.families, distinct(method) or Plan.methods, rounds, seeds)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    out = writable(out)
    with needs("plotly", "jinja2", "markupsafe"):
        from samuel_lab.play import table1_page as page
    try:
        report: Report = with_progress(lambda tell: run(plan, tell), quiet)
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


def _print(report: Report, page: Any) -> None:
    console = wide_console()
    for experiment in report.experiments:
        section = page.section(experiment)
        for title, table in section.tables:
            console.print(results_on_terminal(title, table))
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
