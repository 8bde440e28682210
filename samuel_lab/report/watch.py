"""Live view of a run in the terminal: progress, learning rate in use, weights as bars, last accuracies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samuel_lab.report.costs import duration
from samuel_lab.report.gathering import Method, studies
from samuel_lab.report.reading import Recorded, Trial, read, worker
from samuel_lab.runs import Run
from samuel_lab.tables import number

BAR = 40
"""Width of a progress bar."""
SHARE = 16
"""Width of the bar of a weight."""
PATIENCE = 4.0
"""Minimum wait between two reads, in multiples of the duration of a read."""


def watch(
    folder: str | Path,
    console: Console,
    once: bool = False,
    interval: float = 0.5,
    wait: Callable[[float], None] = time.sleep,
) -> bool:
    """Display a run until it is complete or Ctrl-C is pressed.

    Args:
        folder: the folder of the run.
        console: the terminal.
        once: display the current state and return.
        interval: seconds between updates.
        wait: called with the seconds to wait.

    Returns:
        Whether the run is complete.

    Raises:
        RunError: if it is not the folder of a run.
        DamagedRun: if one of its files is damaged.
    """
    folder = Path(folder)
    if once:
        seen, complete = look(folder)
        console.print(seen)
        return complete
    complete = False
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                began = time.monotonic()
                seen, complete = look(folder)
                live.update(seen, refresh=True)
                if complete:
                    break
                wait(max(interval, PATIENCE * (time.monotonic() - began)))
    except KeyboardInterrupt:
        pass
    return complete


def look(folder: Path) -> tuple[RenderableType, bool]:
    """The view of the current state of a run, and whether it is complete."""
    working = worker(folder)
    if working is not None and not (folder / "plan.json").exists():
        return Text(f"{Run.open(folder).config['study']}: preparing (process {working})"), False
    recorded = read(folder)
    return view(recorded, working), recorded.complete


def view(recorded: Recorded, working: int | None) -> RenderableType:
    """The view of a run.

    Args:
        recorded: the run.
        working: ID of the process that is training it; None if there is none.
    """
    parts: list[RenderableType] = [_head(recorded, working), _progress(recorded)]
    current = next((trial for trial in recorded.trials if not trial.ended), None)
    if current is not None:
        parts.append(_trial(current))
    (study,) = studies([recorded])
    parts.append(_accuracies(study.methods))
    parts += [Text(note, style="yellow") for note in recorded.notes if not note.startswith("The run is not complete")]
    return Group(*parts)


def _head(recorded: Recorded, working: int | None) -> Text:
    if recorded.complete:
        state, style = "complete", "green"
    elif working is not None:
        state, style = f"running (process {working})", "green"
    else:
        state = f"not running: continue with `samuel resume {recorded.folder}`"
        style = "yellow"
    return Text.assemble((f"{recorded.plan.get('title') or recorded.study}", "bold"), "  ", (state, style))


def _progress(recorded: Recorded) -> Table:
    total = sum(trial.planned for trial in recorded.trials)
    done = sum(trial.planned if trial.ended else trial.done for trial in recorded.trials)
    said = f"{recorded.ended} of {len(recorded.trials)} trials, {done} of {total} steps"
    left = time_left(recorded)
    if left is not None and left >= 1:
        said += f", about {duration(left)} left"
    return _bar("all", done, total, said)


def _trial(trial: Trial) -> RenderableType:
    said = f"step {trial.done} of {trial.planned}"
    pace = pace_of(trial)
    if pace:
        said += f", {number(1 / pace)} steps a second"
    if len(trial.rate) and np.isfinite(trial.rate[-1]):
        said += f", learning rate {number(float(trial.rate[-1]))}"
    parts: list[RenderableType] = [_bar(f"{trial.label}, seed {trial.seed}", trial.done, trial.planned, said)]
    if trial.weights is not None and trial.started and np.all(np.isfinite(trial.weights[-1])):
        levels = ["whole run" if length is None else f"{length}" for length in trial.levels or ()]
        rates = trial.rate_names
        parts.append(
            Columns(
                [_shares("block", levels, trial.by_level[:, -1]), _shares("rate", rates, trial.by_rate[:, -1])],
                padding=(0, 4),
            )
        )
    return Group(*parts)


def _bar(label: str, done: int, total: int, said: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(escape(label))
    grid.add_row(ProgressBar(total=max(total, 1), completed=done, width=BAR), escape(said))
    return grid


def _shares(head: str, rows: list[str], values: np.ndarray) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    table.add_column(head, justify="right")
    table.add_column("weight")
    table.add_column("", justify="right")
    for row, value in zip(rows, values, strict=True):
        table.add_row(row, Text("█" * round(SHARE * float(value)) or "▏", style="dark_orange3"), f"{value:.0%}")
    return table


def _accuracies(methods: tuple[Method, ...]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("method")
    for head in ("seeds", "at step", "last accuracy", "last training loss"):
        table.add_column(head, justify="right")
    for method in methods:
        started = [trial for trial in method.trials if trial.started]
        if not started:
            continue
        started = [trial for trial in started if trial.ended] or started
        # For a search, the best of its schedules.
        accuracy = [float(np.max(np.nan_to_num(trial.accuracy[-1]))) for trial in started]
        loss = [float(np.nanmin(trial.loss[-1])) for trial in started if np.any(np.isfinite(trial.loss[-1]))]
        ended = sum(trial.ended for trial in method.trials)
        table.add_row(
            escape(method.label),
            f"{ended} of {len(method.trials)}",
            f"{started[-1].done}",
            f"{100 * np.mean(accuracy):.2f} %",
            number(float(np.mean(loss))) if loss else "–",
        )
    return table


def pace_of(trial: Trial) -> float | None:
    """Seconds per step in the latest sections, with testing, without compilation; None if unknown."""
    times = trial.times
    used = ~times.compiled & (times.steps > 0)
    if not np.any(used):
        return None
    late = np.flatnonzero(used)[-20:]
    return float((times.train[late] + times.test[late]).sum() / times.steps[late].sum())


def time_left(recorded: Recorded) -> float | None:
    """Estimated seconds left, from the pace of each method so far; None if unknown."""
    paces: dict[str, float] = {}
    for trial in recorded.trials:
        pace = pace_of(trial)
        if pace is not None:
            paces[trial.trial] = pace
    if not paces:
        return None
    usual = float(np.median(list(paces.values())))
    left = [
        (trial.planned - trial.done) * paces.get(trial.trial, usual) for trial in recorded.trials if not trial.ended
    ]
    return float(sum(left))
