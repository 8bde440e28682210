"""`samuel list`, `report`, `compare` and `watch`: studies and methods, and the results of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from samuel_lab.cli.run import NEEDED
from samuel_lab.cli.shared import BAD_INPUT, AsJson, Quiet, app, fail, needs, wide_console, writable

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, finished or not.")]


def _read(folders: list[Path]) -> list[Any]:
    from samuel_lab.report.reading import read
    from samuel_lab.runs import RunError

    try:
        return [read(folder) for folder in folders]
    except RunError as error:
        fail(str(error), BAD_INPUT)


@app.command()
def report(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File of the page.", show_default="report.html in the first run"),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a page with tables and figures from the folders of runs; nothing is trained.

    Runs of the same study and length share their tables. Unfinished runs are drawn as far as they are.
    """
    from samuel_lab.report import summary, terminal

    recorded = _read(runs)
    path = writable(runs[0] / "report.html" if out is None else out)
    with needs("plotly", "jinja2", "markupsafe"):
        from samuel_lab.report.page import write
    try:
        write(recorded, path)
    except OSError as error:
        fail(f"The report could not be written to {path}: {error.strerror or error}")
    if as_json:
        typer.echo(json.dumps(summary.as_json(recorded), indent=2, allow_nan=False))
    elif not quiet:
        terminal.show(wide_console(), recorded)
    typer.echo(f"Report: {path}", err=as_json)


@app.command()
def compare(runs: Runs) -> None:
    """Compare runs in the terminal: the settings that differ, and all results."""
    from samuel_lab.report import terminal

    if len(runs) < 2:
        raise typer.BadParameter("give at least two runs to compare", param_hint="RUN...")
    wide_console().print(terminal.compare(_read(runs)))


@app.command()
def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    once: Annotated[bool, typer.Option("--once", help="Show the current state and exit.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between updates.", min=0.1, max=60)] = 0.5,
) -> None:
    """Watch a run from another terminal: progress, rate in use, weights as bars, last accuracies."""
    from samuel_lab.report.watch import watch as show
    from samuel_lab.runs import RunError

    try:
        show(run, Console(highlight=False), once=once, interval=interval)
    except RunError as error:
        fail(str(error), BAD_INPUT)


@app.command(name="list")
def list_command(
    runs: Annotated[
        Path | None, typer.Argument(help="A folder: list the runs in it instead.", metavar="[FOLDER]")
    ] = None,
) -> None:
    """List the studies and methods, or the runs in a folder."""
    console = Console(highlight=False)
    if runs is not None:
        _list_runs(runs, console)
        return
    with needs(*NEEDED):
        from samuel_lab.studies.catalogue import STUDIES
        from samuel_lab.trial import methods, optimizers, schedules
    table = _table("Studies: samuel run STUDY", "study", "description", "needs --data")
    for kind in STUDIES.values():
        table.add_row(kind.name, kind.summary, kind.data_in_short())
    console.print(table)
    table = _table("Methods: --methods NAME,NAME,...", "name", "description")
    for name, label in {**{name: one[0] for name, one in methods.DROP_INS.items()}, **methods.PAPERS}.items():
        table.add_row(name, label)
    table.add_row("search", "every step schedule of an offline study; search@0.1 for those that begin with 0.1")
    table.add_row("baselines", ", ".join(methods.GROUPS["baselines"]))
    table.add_row("adamw-rates", ", ".join(methods.GROUPS["adamw-rates"]))
    table.add_row("peers", "all of the following")
    for peer in optimizers.PEERS.values():
        table.add_row(f"  {peer.name}", f"{peer.label}: {peer.about}")
    table.add_row(
        "BASE/SCHEDULE", "with or without @RATE, such as adam/cosine@0.003; +average evaluates SAMUEL's average"
    )
    console.print(table)
    table = _table("Bases and schedules", "name", "description")
    for base in optimizers.BASES.values():
        table.add_row(base.name, f"{base.label}: {base.about}")
    table.add_row("schedules", ", ".join([*schedules.SCHEDULES, "step"]))
    console.print(table)


def _table(title: str, *heads: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, no_wrap=not place)
    return table


def _list_runs(folder: Path, console: Console) -> None:
    """Print the runs in a folder as a table, and below it the errors of those that cannot be read."""
    from samuel_lab.report.reading import read, worker
    from samuel_lab.runs import RunError

    if not folder.is_dir():
        fail(f"{folder} is not a folder", BAD_INPUT)
    wrong: list[str] = []
    table = _table(f"Runs in {folder}", "run", "study", "trials", "state", "made by")
    for path in sorted(one.parent for one in folder.glob("*/config.json")):
        try:
            found = read(path)
        except RunError as error:
            table.add_row(path.name, "", "", "cannot be read", "")
            wrong.append(f"{path.name}: {error}")
            continue
        busy = worker(path)
        state = "complete" if found.complete else f"running (process {busy})" if busy else "can be resumed"
        done = f"{found.ended}/{len(found.trials)}"
        table.add_row(path.name, found.config["study"], done, state, found.config.get("command", ""))
    console.print(table)
    for line in wrong:
        console.print(line, soft_wrap=True, markup=False)
