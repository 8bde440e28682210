"""`samuel demo`, `samuel run` and `samuel resume`: train networks into the folder of a run.

The options of `samuel run STUDY` are generated from the settings of the study.
"""

from __future__ import annotations

import inspect
import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from samuel_lab.cli.shared import BAD_INPUT, BUSY, FAILED, INTERRUPTED, AsJson, Quiet, app, fail, needs, wide_console

if TYPE_CHECKING:  # these import JAX, which takes seconds; `samuel play` and `--help` do not need it
    from samuel_lab.runs import Run
    from samuel_lab.studies.settings import BadSetting
    from samuel_lab.studies.study import Study
    from samuel_lab.trial.experiment import Experiment, Trial
    from samuel_lab.trial.training import Moment

NEEDED = ("jax", "flax", "optax", "orbax", "sklearn", "PIL")
STOPPING = "Stopping at the next step; press again to stop at once. Either way the run can be resumed."
EVERY = 10.0
"""Seconds between two lines of progress without a terminal."""


@app.command()
def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder of the runs.", show_default="samuel-demo, or -2, -3, ..."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Demonstrate SAMUEL: networks that learn digits, without and with a shift. Takes a minute or two.

    Two studies on data that come with scikit-learn, three seeds each. `digits-sweep`: SAMUEL without a learning rate
    beside a sweep of AdamW's. `digits`, the paper's online experiment: SAMUEL, the paper's algorithm and its twelve
    baselines, at rates searched for these data, before and after a shift. Prints the tables and writes `report.html`,
    which opens in any browser, offline too.
    """
    with needs(*NEEDED):
        from samuel_lab.studies.catalogue import DEMO
    folder = _free("samuel-demo") if out is None else out
    _begin({folder / study.name: study for study in DEMO}, folder / "report.html", as_json, quiet)


@app.command(
    name="run",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
    options_metavar="STUDY [OPTIONS]",
)
def run_command(context: typer.Context) -> None:
    """Run a study: `samuel run STUDY`; `samuel run --help` lists them, `samuel run STUDY --help` their options."""
    _studies()(args=context.args, prog_name="samuel run")


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of the run.")],
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Drop damaged metrics (a copy is kept) and compute what is missing again."),
    ] = False,
    device: Annotated[str | None, typer.Option(help="Device, if not the previous one.", metavar="auto|cpu|gpu")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run that was interrupted, was killed, or ran out of disk, from its last checkpoint.

    The results are those of an uninterrupted run, line for line.
    """
    with needs(*NEEDED):
        from samuel_lab.execution import choose_device
        from samuel_lab.runs import Run, RunError
        from samuel_lab.studies.catalogue import study_of
        from samuel_lab.studies.settings import BadSetting
    try:
        run = Run.open(folder)
        if not repair and _complete(run):
            finish([run], run.folder / "report.html", as_json, quiet)
            return
        study = study_of(run.config["study"], run.config["options"])
    except RunError as error:
        fail(str(error), BAD_INPUT)
    except BadSetting as error:
        fail(f"{folder}: {error}", BAD_INPUT)
    try:
        choose_device(device or study.device, study.deterministic)
    except BadSetting as error:  # nothing was done, so nothing is recorded
        fail(f"--device: {error}", BAD_INPUT)
    _carry_out(run, study, quiet, repair)
    finish([run], run.folder / "report.html", as_json, quiet)


def _complete(run: Run) -> bool:
    """Whether all trials are complete. A run that cannot be read is not: training it reports the error."""
    from samuel_lab.report.reading import read
    from samuel_lab.runs import RunError

    try:
        return read(run.folder).complete
    except RunError:
        return False


def _studies() -> typer.Typer:
    """The commands below `samuel run`, one for each study."""
    with needs(*NEEDED):
        from samuel_lab.studies.catalogue import STUDIES
    inner = typer.Typer(
        help="Run a study into a folder; `samuel resume` continues it after an interrupt or a kill.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    inner.callback()(lambda: None)
    for kind in STUDIES.values():
        inner.command(name=kind.name, help=_help(kind), short_help=kind.summary)(_command(kind))
    return inner


def _help(kind: type[Study]) -> str:
    text = kind.summary
    if kind.needs_data:
        text += f"\n\nNeeds `--data`: {kind.needs_data}."
    return text


def _command(kind: type[Study]) -> Callable[..., None]:
    """A function with a parameter for every setting of a study, for typer."""
    from samuel_lab.studies.settings import BadSetting, words

    def command(**given: Any) -> None:
        out, as_json, quiet = given.pop("out"), given.pop("as_json"), given.pop("quiet")
        try:
            study = kind.read({name: value for name, value in given.items() if value is not None})
        except BadSetting as error:
            raise _refused(error) from None
        folder = _free(f"runs/{kind.name}-1") if out is None else out
        _begin({folder: study}, folder / "report.html", as_json, quiet)

    parameters = []
    types = kind.kinds()
    for entry in fields(kind):
        flag, type_ = "--" + entry.name.replace("_", "-"), types[entry.name]
        shown = entry.metadata["shown"] or (None if entry.default is None else words(entry.default))
        choices = entry.metadata["choices"]
        if type_ is bool:
            annotation: Any = bool | None
            names = (f"{flag}/--no-{flag[2:]}",)
        else:
            annotation, names = str | None, (flag,)
        extra: dict[str, Any] = {} if type_ is bool else {"metavar": "<name>" if choices else _kind(type_)}
        text = entry.metadata["help"]
        text += f" One of {', '.join(choices)}." if choices else ""
        text += f" Default: {shown}." if shown else ""
        hidden = entry.name == "data" and not kind.takes_data
        detail = typer.Option(*names, help=text, show_default=False, hidden=hidden, **extra)
        parameters.append(_parameter(entry.name, Annotated[annotation, detail], None))
    place = typer.Option("--out", "-o", help="The folder of the run.", show_default=f"runs/{kind.name}-1, -2, ...")
    parameters += [
        _parameter("out", Annotated[Path | None, place], None),
        _parameter("as_json", AsJson, False),
        _parameter("quiet", Quiet, False),
    ]
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _kind(type_: Any) -> str:
    """The placeholder of a type on the command line."""
    text = str(type_)
    names = {"int": "<int>", "float": "<number>", "str": "<name>", "Path": "<path>"}
    found = next((shown for name, shown in names.items() if name in text), "<text>")
    return f"{found},..." if "tuple" in text else found


def _refused(error: BadSetting) -> typer.BadParameter:
    return typer.BadParameter(str(error), param_hint="--" + error.name.replace("_", "-"))


def _free(name: str) -> Path:
    """A path of that name, or with a number, that does not exist yet."""
    path, number = Path(name), 2
    stem = name.removesuffix("-1")
    while path.exists():
        path, number = Path(f"{stem}-{number}"), number + 1
    return path


def _begin(studies: Mapping[Path, Study], page: Path, as_json: bool, quiet: bool) -> None:
    """Run studies one after another, each in its folder, then print their results and write a common page."""
    from samuel_lab.execution import choose_device
    from samuel_lab.studies.settings import BadSetting

    first = next(iter(studies.values()))
    try:
        choose_device(first.device, first.deterministic)
    except BadSetting as error:
        raise _refused(error) from None
    runs = []
    for folder, study in studies.items():
        runs.append(_created(folder, study))
        _carry_out(runs[-1], study, quiet, fresh=True)
    finish(runs, page, as_json, quiet)


def _created(folder: Path, study: Study) -> Run:
    """The folder of a new run."""
    from samuel_lab.runs import Run, RunError
    from samuel_lab.studies.settings import words

    # The run may be resumed from another folder.
    paths = {key: str(path.absolute()) for key in ("data", "cache") if (path := getattr(study, key)) is not None}
    changed = {**study.changed(), **paths}
    flags = [_flag(f"--{key.replace('_', '-')} {shlex.quote(words(value))}") for key, value in changed.items()]
    try:
        return Run.create(folder, study.name, study.as_json() | paths, " ".join(["samuel run", study.name, *flags]))
    except RunError as error:
        fail(str(error), BAD_INPUT)


def _flag(text: str) -> str:
    """An option as text; yes and no become flags."""
    name, _, value = text.partition(" ")
    if value == "yes":
        return name
    return f"--no-{name[2:]}" if value == "no" else text


def _carry_out(run: Run, study: Study, quiet: bool, repair: bool = False, fresh: bool = False) -> None:
    """Train the incomplete trials of a run.

    A `fresh` run that fails before it has a plan is deleted, since it would fail again.
    """
    from samuel_lab.execution import execute, observers_of
    from samuel_lab.runs import BusyRun, ChangedPlan, DamagedRun, RunError
    from samuel_lab.studies.settings import BadSetting
    from samuel_lab.trial.training import Stop, Stopped

    console = Console(stderr=True, highlight=False)
    shown = _relative(run.folder)
    again = f"Continue it with: samuel resume {shown}"
    try:
        with (
            observers_of(run, study) as observers,
            Stop(lambda: print(STOPPING, file=sys.stderr)).on_signals() as stop,
            Display(console, quiet) as display,
        ):
            execute(
                run,
                study,
                stop=stop,
                progress=display.moment,
                data_progress=display.data,
                planned=display.planned,
                observers=observers,
                repair=repair,
            )
    except (Stopped, KeyboardInterrupt) as stopped:
        run.stopped("interrupted", str(stopped) or "interrupted")
        fail(f"Interrupted; the run can be resumed. {again}", INTERRUPTED)
    except BusyRun as error:
        fail(f"{error}. Watch it with: samuel watch {shown}", BUSY)
    except (RunError, OSError, ValueError, RuntimeError) as error:  # such as a device that is out of memory
        bad = isinstance(error, BadSetting)
        message = f"--{error.name.replace('_', '-')}: {error}" if bad else str(error)
        if fresh and not (run.folder / "plan.json").exists():
            shutil.rmtree(run.folder, ignore_errors=True)
            fail(message, BAD_INPUT if bad else FAILED)
        run.stopped("error", str(error))
        advised = bad or isinstance(error, DamagedRun | ChangedPlan)  # their messages name the remedy
        fail(message if advised else f"{message}\n{again}", BAD_INPUT if bad else FAILED)


def finish(runs: Sequence[Run], page: Path, as_json: bool, quiet: bool) -> None:
    """Print the results of complete runs, and write their page."""
    from samuel_lab.report import summary, terminal
    from samuel_lab.report.reading import read
    from samuel_lab.runs import RunError

    try:
        recorded = [read(run.folder) for run in runs]
    except RunError as error:
        fail(f"All trials are complete, and the results could not be read: {error}")
    if as_json:
        typer.echo(json.dumps(summary.as_json(recorded), indent=2, allow_nan=False))
    elif not quiet:
        terminal.show(wide_console(), recorded)
    for run in runs:
        typer.echo(f"Run: {_relative(run.folder)}", err=as_json)
    page = page.absolute()
    try:
        from samuel_lab.report.page import write
    except ModuleNotFoundError as error:  # machines that only train need not have it
        missing = (error.name or "").partition(".")[0]
        typer.echo(f"No report: {missing} is not installed. Run `samuel report` where it is.", err=True)
        return
    try:
        write(recorded, page)
    except OSError as error:
        fail(f"The report could not be written to {page}: {error.strerror or error}. Training is complete.")
    typer.echo(f"Report: {_relative(page)}", err=as_json)


def _relative(path: Path) -> Path:
    """A path relative to the current folder, if it is inside."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


class Display:
    """Progress on standard error: bars on a terminal, else a line every ten seconds."""

    def __init__(self, console: Console, quiet: bool) -> None:
        self.console, self.quiet = console, quiet
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self.all: TaskID | None = None
        self.one: TaskID | None = None
        self.trial: Trial | None = None
        self.trials = 0
        self.said = time.monotonic()

    def __enter__(self) -> Display:
        self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.stop()

    def data(self, what: str, done: int, total: int) -> None:
        """Display the progress of reading the data."""
        if self.one is None:
            self.one = self.bars.add_task(what, total=total, facts="")
        self.bars.update(self.one, description=what, completed=done, total=total)
        self._say(f"{what}: {done} of {total}")

    def planned(self, experiment: Experiment, done: int) -> None:
        """Display the size of the run."""
        self.trials = len(experiment.trials)
        if self.one is not None:
            self.bars.remove_task(self.one)
        self.all = self.bars.add_task("trials", total=self.trials, completed=done, facts="")
        self.one = self.bars.add_task("", total=experiment.plan["rounds"], facts="compiling")
        if not self.quiet and not self.console.is_terminal:
            self.console.print(
                f"{experiment.plan['title']}: {self.trials} trials of {experiment.plan['rounds']} steps."
            )

    def moment(self, moment: Moment) -> None:
        """Display the progress of training."""
        if self.one is None or self.all is None:  # before `planned`
            return
        facts = []
        if moment.rate is not None:
            facts.append(f"rate {moment.rate:.2g}")
        if moment.accuracy is not None:
            facts.append(f"accuracy {100 * moment.accuracy:5.1f} %")
        self.bars.update(self.all, completed=moment.number)
        description = f"{moment.trial.name}, seed {moment.trial.seed}"
        self.bars.update(
            self.one, description=description, completed=moment.step, total=moment.trial.steps, facts=", ".join(facts)
        )
        place = f"trial {moment.number + 1} of {self.trials}, {description}"
        self._say(f"{place}: step {moment.step} of {moment.trial.steps}, {', '.join(facts)}")

    def _say(self, text: str) -> None:
        """Print a line every ten seconds, if there is no terminal."""
        if self.quiet or self.console.is_terminal or time.monotonic() - self.said < EVERY:
            return
        self.said = time.monotonic()
        print(text, file=sys.stderr, flush=True)
