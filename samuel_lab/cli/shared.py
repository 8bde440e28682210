"""The application, and shared options, exit codes and error messages of its commands."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

import samuel

FAILED = 1
"""Exit code of a failed command; a failed run can be resumed."""
BAD_INPUT = 2
"""Exit code of bad input: nothing was done."""
BUSY = 3
"""Exit code if another process is training the run."""
INTERRUPTED = 130
"""Exit code after Ctrl-C; a run can be resumed."""

app = typer.Typer(
    name="samuel",
    help="SAMUEL: the learning rate that tunes itself, with a guarantee on every stretch of the run.",
    epilog="Start with `samuel demo`: it needs no options and writes a page. "
    "Exit codes: 0 done, 1 failed, 2 bad input, 3 another process is training this run, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output, not as tables.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but where the results are.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="File of the report; folders are created as needed.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"samuel {samuel.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """SAMUEL: the learning rate that tunes itself, with a guarantee on every stretch of the run."""


def needs(*packages: str) -> contextlib.AbstractContextManager[None]:
    """Exit with what to install if one of these packages is missing."""

    @contextlib.contextmanager
    def guard() -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in packages:
                raise
            sys.exit(f'This needs {missing}, which is not installed: pip install "samuel-optim[lab]"')

    return guard()


def writable(out: Path) -> Path:
    """The absolute path of a file, checked to be writable."""
    out = Path(os.path.abspath(out))
    if out.is_dir():
        raise typer.BadParameter(
            f"{out} is a folder; give a file in it, such as {out / 'report.html'}", param_hint="--out"
        )
    if out.exists() and not out.is_file():
        raise typer.BadParameter(f"{out} is not a plain file", param_hint="--out")
    above = next(parent for parent in out.parents if parent.exists())
    if not above.is_dir():
        raise typer.BadParameter(f"{out} cannot be made: {above} is a file, not a folder", param_hint="--out")
    if not os.access(above, os.W_OK | os.X_OK):
        raise typer.BadParameter(f"{out} cannot be made: {above} is not writable", param_hint="--out")
    return out


def fail(message: str, code: int = FAILED) -> NoReturn:
    """Exit with a message on standard error."""
    Console(stderr=True, highlight=False, markup=False).print(message, soft_wrap=True)
    raise typer.Exit(code)


def wide_console() -> Console:
    """Console for tables: as wide as the terminal; without one, wide enough for them."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=max(console.width, 100))


def whole_number(text: str | int) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def distinct(names: list[str] | None) -> tuple[str, ...]:
    """The given names without duplicates."""
    return tuple(dict.fromkeys(names or ()))


def with_progress(run: Callable[[Callable[[str, int, int], None]], Any], quiet: bool) -> Any:
    """Call `run` with a progress callback that draws a bar on a terminal; returns its result."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal) as bar:
        task = bar.add_task("starting", total=None)
        return run(lambda what, done, total: bar.update(task, description=what, completed=done, total=total))


def results_on_terminal(title: str, table: Any) -> Table:
    """A table of `samuel_lab.tables` for the terminal, the best in bold."""
    shown = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for place, head in enumerate(table.short):
        shown.add_column(head, justify="right" if place else "left", no_wrap=not place, vertical="bottom")
    for name, cells in table.rows:
        shown.add_row(name, *(f"[bold]{cell.text}[/bold]" if cell.best else cell.text for cell in cells))
    return shown
