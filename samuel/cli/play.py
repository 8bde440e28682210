"""`samuel play`: learners play streams of losses, and a page reports what each lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from samuel.cli.shared import INTERRUPTED, AsJson, Quiet, app, fail, needs, writable
from samuel.studies.play.contest import (
    BACKENDS,
    FEWEST_ROUNDS,
    LEARNERS,
    MOST_DIM,
    MOST_ROUNDS,
    STREAMS,
    Contest,
    Plan,
    Report,
    run,
    summary,
)

Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write the report; folders are made as needed.")]


def _whole(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


@app.command(name="play")
def play_command(
    stream: Annotated[
        list[str] | None,
        typer.Option(help=f"What to play: {', '.join(STREAMS)}. Repeat for several.", show_default="all"),
    ] = None,
    learner: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Who plays: {', '.join(LEARNERS)}. Repeat for several.",
            show_default="a few that suit the stream",
        ),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(parser=_whole, metavar="<int>", help=f"Length of the run, from {FEWEST_ROUNDS} to {MOST_ROUNDS}."),
    ] = Plan.rounds,
    dim: Annotated[
        int | None,
        typer.Option(
            parser=_whole,
            metavar="<int>",
            help=f"Dimension of the regression, up to {MOST_DIM}.",
            show_default=str(Plan.dim),
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(parser=_whole, metavar="<int>", help="The same seed gives the same data of the regression."),
    ] = Plan.seed,
    backend: Annotated[
        str,
        typer.Option(help=f"What computes: {', '.join(BACKENDS)}; auto takes JAX for long runs where it is installed."),
    ] = Plan.backend,
    out: Out = Path("samuel-play/report.html"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let learners play streams of losses, print what each lost, and write a report.

    Learners that need a learning rate get the best of a list in hindsight; SAMUEL is told none.

    Examples:

    - `samuel play --stream drift --dim 20 --rounds 8192`
    - `samuel play --learner samuel --learner adagrad --out mine.html`
    - `samuel play --json --quiet > results.json`
    """
    streams = _distinct(stream) or tuple(STREAMS)
    if dim is not None and streams == ("two-valleys",):
        raise typer.BadParameter(f"{dim}: two-valleys has one dimension; --dim is for drift.", param_hint="--dim")
    options: dict[str, Any] = {"rounds": rounds, "seed": seed, "backend": backend}
    options |= {} if dim is None else {"dim": dim}
    try:
        plan = Plan(streams=streams, learners=_distinct(learner) or None, **options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _play(plan, out, as_json, quiet)


def _play(plan: Plan, out: Path, as_json: bool, quiet: bool) -> None:
    """Play a plan, print its results and write its report."""
    out = writable(out)
    page = _page()
    errors = Console(stderr=True)
    try:
        report = _run(plan, errors, quiet)
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


def _run(plan: Plan, console: Console, quiet: bool) -> Report:
    """Play a plan, with a progress bar on a terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("starting", total=None)
        return run(plan, lambda what, done, total: bar.update(task, description=what, completed=done, total=total))


def _print_tables(report: Report) -> None:
    console = Console()
    for contest in report.contests:
        console.print(_table(contest))
        console.print()
    short, long = report.contests[0].lengths
    console.print(
        f"Worst: the largest regret over intervals of {short} and {long} rounds. Bound: the certificate of that "
        "interval. Rate: the best of a list in hindsight.",
        style="dim",
    )


def _table(contest: Contest) -> Table:
    from samuel.studies.play.page import results_table

    table = results_table(contest)
    dims = "1 dimension" if contest.dim == 1 else f"{contest.dim} dimensions"
    title = f"{contest.label}: {contest.rounds} rounds, {dims}"
    shown = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(table.short):
        shown.add_column(head, justify="right" if place else "left", no_wrap=not place, vertical="bottom")
    for name, cells in table.rows:
        shown.add_row(name, *(f"[bold]{cell.text}[/bold]" if cell.best else cell.text for cell in cells))
    return shown


def _distinct(names: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names or ()))


def _page() -> Any:
    """The module that writes pages, or what to install where it cannot be loaded."""
    with needs("plotly", "jinja2", "markupsafe"):
        from samuel.studies.play import page
    return page
