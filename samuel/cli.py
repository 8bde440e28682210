"""The `samuel` command: play learners against streams and write a report."""

from __future__ import annotations

import json
import os
import sys
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

import samuel
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

INTERRUPTED = 130
"""The exit code of a command that was ended by Ctrl-C."""
DEMO = Plan()
"""What `samuel demo` plays."""

app = typer.Typer(
    name="samuel",
    help="SAMUEL: the learning rate that tunes itself, with a guarantee on every stretch of the run.",
    epilog="`samuel demo` is the place to start: it needs no options and writes a page to look at.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Out = Annotated[Path, typer.Option("--out", "-o", help="Where to write the report; folders are made as needed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output, not as tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but where the report is.")]


def main() -> None:
    """Run the command line."""
    app()


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samuel {samuel.__version__}")
        raise typer.Exit


def _whole(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave."),
    ] = False,
) -> None:
    """SAMUEL: the learning rate that tunes itself, with a guarantee on every stretch of the run."""


@app.command()
def demo(
    out: Out = Path("samuel-demo/report.html"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """See SAMUEL at work: play two streams, print what was lost, write a report. Takes about twenty seconds.

    The report is one HTML file with interactive figures that opens in any browser, offline too.
    """
    _play(DEMO, out, as_json, quiet)


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
    out = _writable(out)
    page = _page()
    errors = Console(stderr=True)
    try:
        report = _run(plan, errors, quiet)
        page.save(out, page.render(report))
    except KeyboardInterrupt:
        errors.print("Interrupted. No report was written.")
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        errors.print(f"The report could not be written to {out}: {error.strerror or error}", soft_wrap=True)
        raise typer.Exit(1) from None
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


def _writable(out: Path) -> Path:
    """The absolute path of the report, if one can be written there."""
    out = Path(os.path.abspath(out))
    if out.is_dir():
        raise typer.BadParameter(
            f"{out} is a folder; name a file in it, such as {out / 'report.html'}", param_hint="--out"
        )
    if out.exists() and not out.is_file():
        raise typer.BadParameter(f"{out} is not a plain file", param_hint="--out")
    above = next(parent for parent in out.parents if parent.exists())
    if not above.is_dir():
        raise typer.BadParameter(f"{out} cannot be made: {above} is a file, not a folder", param_hint="--out")
    if not os.access(above, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{out} cannot be made: {above} is not writable", param_hint="--out")
    return out


def _page() -> Any:
    """The module that writes pages, or what to install where it cannot be loaded."""
    try:
        from samuel.studies.play import page
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("plotly", "jinja2", "markupsafe"):
            raise
        sys.exit(f'The report needs {missing}, which is not installed: pip install "samuel[studies]"')
    return page


if __name__ == "__main__":
    main()
