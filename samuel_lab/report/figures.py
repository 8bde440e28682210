"""The figures of a study, each with a caption and a text alternative.

A method keeps its colour and dash in every figure: variants of SAMUEL are shades of orange, every optimizer has its
colour, and schedules differ in their dash. The colours are those of Okabe and Ito, distinguishable by colour-blind
readers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go

from samuel_lab.drawing import (
    MANY,
    Drawing,
    Line,
    blank,
    brightness,
    curves,
    heat_map,
    line,
    log_axis,
    mark,
    only_positive,
    the_rest,
    zoom,
)
from samuel_lab.report.gathering import DROP_INS, Method, Study
from samuel_lab.report.reading import Trial
from samuel_lab.report.summary import in_order_of_merit, schedule_accuracies, window_mean
from samuel_lab.report.sweep_figures import sweep_drawings
from samuel_lab.tables import number, thinned

POINTS = 400
"""Maximum number of points per line; longer lines are thinned."""
EVEN = 0.1
"""Weights that never differ from their prior by more than this share of it are not drawn."""
OURS = ("#d55e00", "#e69f00", "#9c4300")
"""Colours of the variants of SAMUEL."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
COLOURS = {"sgd": "#0072b2", "adagrad": "#009e73", "adam": "#cc79a7"}
OTHERS = ("#56b4e9", "#b89b00", "#7a6fbe", "#8c6d4f", "#5f7d8c")
"""Colours of further optimizers, and of methods that need no learning rate."""
GROUPS = {"samuel": "SAMUEL", "peer": "learning-rate-free", "search": "search", "stability": "SAMUEL"}

Styles = dict[str, dict[str, Any]]


def drawings(study: Study, name: str) -> list[Drawing]:
    """All figures of a study, in reading order; `name` begins their identifiers."""
    style, first = styles(study), drawn_at_first(study)
    drawn = [*sweep_drawings(study, style, name), accuracy(study, style, first, name)]
    if study.shift is not None:
        drawn += after_shift(study, style, first, name)
    if study.search is not None:
        drawn += [
            searched(study, study.search, style, first, name),
            sorted_schedules(study, study.search, style, first, name),
        ]
    drawn.append(rates(study, style, first, name))
    drawn += [losses(study, style, first, name, kind) for kind in ("loss", "test_loss")]
    for place, method in enumerate(weighted(study)):
        drawn += weights(study, method, f"{name}-{place}")
    return [drawing for drawing in drawn if drawing.figure.data]


def drawn_at_first(study: Study) -> frozenset[str]:
    """The methods drawn at first: the drop-ins, and the best of every other family; all methods, if they are few."""
    methods = [method for method in study.methods if not method.searches]
    if len(methods) <= MANY:
        return frozenset(method.trial for method in methods)
    ours = [method.trial for method in methods if method.trial in DROP_INS]
    best: dict[str, str] = {}
    for method in in_order_of_merit(study, methods):
        if method.trial not in ours:
            best.setdefault(family_of(method), method.trial)
    return frozenset([*ours, *list(best.values())[: max(3, MANY - len(ours))]])


def styles(study: Study) -> Styles:
    """Line style of every method."""
    found: Styles = {}
    seen: dict[str, int] = {}
    spare = iter(range(10_000))
    colours: dict[str, str] = {}
    for method in sorted(study.methods, key=lambda method: method.trial != "samuel"):
        if method.group == "samuel":
            place = seen["samuel"] = seen.get("samuel", -1) + 1
            found[method.trial] = {"color": OURS[place % len(OURS)], "dash": DASHES[place % len(DASHES)], "width": 3}
            continue
        # Schedules of one optimizer share a colour, and so do rows of the grid of a stability study.
        family = method.base or (family_of(method) if method.group == "stability" else method.trial)
        if family not in colours:
            colours[family] = COLOURS.get(family) or OTHERS[next(spare) % len(OTHERS)]
        # Families that share a colour continue its dashes, so that no two lines look alike.
        colour = colours[family]
        place = seen[colour] = seen.get(colour, -1) + 1
        found[method.trial] = {"color": colour, "dash": DASHES[place % len(DASHES)], "width": 1.75}
    return found


def weighted(study: Study) -> list[Method]:
    """The SAMUEL methods whose weights were recorded."""
    return [m for m in study.methods if m.group == "samuel" and m.first.weights is not None and m.first.started]


def accuracy(study: Study, style: Styles, first: frozenset[str], name: str) -> Drawing:
    """Test accuracy of every method over the run."""
    axis = _Axis(study)
    figure = blank(axis.title, "test accuracy")
    methods = [method for method in study.methods if not method.searches]
    lines = _lines(axis, methods, style, lambda trial: trial.accuracy, first)
    curves(figure, lines, height=".2%")
    _in_percent(figure)
    mark(figure, axis.marks, axis.last)
    shifted = f" At {axis.where(study.shift)} the classes change without notice." if study.shift is not None else ""
    current = ", of the current classes" if shifted else ""
    return Drawing(
        f"{name}-accuracy",
        "Test accuracy",
        figure,
        f"Line chart of the test accuracy over {axis.length}.{shifted} At the end: {_ends(methods, 'accuracy')}.",
        f"Accuracy on test examples{current}. {_bands(study)}"
        + (" The vertical line is the shift." if shifted else _transitions(study))
        + the_rest(lines)
        + zoom(figure, lines, lower=0.25, upper=0.0),
    )


def after_shift(study: Study, style: Styles, first: frozenset[str], name: str) -> list[Drawing]:
    """Test accuracy right after the shift: SAMUEL beside each optimizer's schedules, and beside the best of each."""
    ours = [method for method in study.methods if method.group == "samuel" and method.trial in first]
    families: dict[str, list[Method]] = {}
    for method in study.methods:
        if method.group != "samuel" and not method.searches:
            families.setdefault(family_of(method), []).append(method)
    drawn = [
        _zoom(study, style, f"{name}-after-{place}", [*ours, *methods], family, "")
        for place, (family, methods) in enumerate(families.items())
    ]
    if len(families) != 1:
        window = _window(study)
        best = [_best_after(study, methods, window) for methods in families.values()]
        chosen = f" Of each group, the method with the best mean over these {window}: a choice in hindsight."
        zoom = _zoom(study, style, f"{name}-after-best", [*ours, *best], "the best of each", chosen if best else "")
        drawn.append(replace(zoom, half=len(families) % 2 == 1))
    return drawn


def losses(study: Study, style: Styles, first: frozenset[str], name: str, kind: str) -> Drawing:
    """Training or test loss of every method over the run."""
    axis = _Axis(study)
    what = {"loss": "training loss", "test_loss": "test loss"}[kind]
    figure = blank(axis.title, what)
    methods = [method for method in study.methods if not method.searches]
    lines = _lines(axis, methods, style, lambda trial: getattr(trial, kind), first, positive=True)
    curves(figure, lines)
    log_axis(figure, "y", *[getattr(trial, kind) for method in methods for trial in method.trials], [1.0])
    mark(figure, axis.marks, axis.last)
    mean = "Mean over the batches since the previous measurement" if kind == "loss" else "Mean over the test set"
    return Drawing(
        f"{name}-{kind.replace('_', '-')}",
        what.capitalize(),
        figure,
        f"Line chart of the {what} over {axis.length}, on a logarithmic scale. At the end: {_ends(methods, kind)}.",
        f"{mean}, on a logarithmic scale. {_bands(study)}{the_rest(lines)}{zoom(figure, lines, lower=0.0, upper=0.25)}",
    )


def rates(study: Study, style: Styles, first: frozenset[str], name: str) -> Drawing:
    """The learning rate that SAMUEL chose over time, beside the schedules of the others."""
    axis = _Axis(study)
    figure = blank(axis.title, "learning rate")
    shown = [method for method in study.methods if any(np.any(trial.rate > 0) for trial in method.trials)]
    lines = _lines(axis, shown, style, lambda trial: trial.rate, first, positive=True, logarithmic=True)
    curves(figure, lines)
    log_axis(figure, "y", np.concatenate([[np.nan], *(trial.rate for method in shown for trial in method.trials)]))
    mark(figure, axis.marks, axis.last)
    ours = [method for method in shown if method.group == "samuel"]
    spans = []
    for method in ours:
        used = np.concatenate([trial.rate[trial.rate > 0] for trial in method.trials])
        spans.append(f"{method.label} between {number(float(used.min()))} and {number(float(used.max()))}")
    chosen = f" Rates used: {'; '.join(spans)}." if spans else ""
    return Drawing(
        f"{name}-rates",
        "Learning rate in use",
        figure,
        f"Line chart of the learning rates of {len(shown)} methods over {axis.length}, on a logarithmic scale.{chosen}",
        "The rate that SAMUEL chose, beside fixed schedules, on a logarithmic scale; for several seeds the geometric "
        "mean, with a band of one standard deviation. Rates of different optimizers are not comparable: compare the "
        "shapes of curves of one optimizer."
        + the_rest(lines)
        # The last steps of a schedule that falls to 0 would take most of the axis.
        + zoom(figure, lines, lower=0.1, upper=0.0),
    )


def weights(study: Study, method: Method, name: str) -> list[Drawing]:
    """SAMUEL's weights over time, by block length and by learning rate, for the first seed."""
    axis, trial = _Axis(study), method.first
    used = thinned(len(trial.steps), POINTS)
    known = used[np.isfinite(trial.by_level[:, used]).all(axis=0)]
    if not len(known):
        return []
    at = axis.place(trial.steps[known])
    levels = ["whole run" if length is None else f"{length}" for length in trial.levels or ()]
    steps = trial.rate_names
    unit = study.plan.get("unit", "round")
    seed = f", seed {trial.seed}" if len(method.trials) > 1 else ""
    known_prior = trial.steps[known[0]] == 0
    drawn, even = [], []
    for kind, rows, found, what in (
        ("levels", levels, trial.by_level[:, known], f"{unit}s in a block"),
        ("learning-rates", steps, trial.by_rate[:, known], "learning rate"),
    ):
        if len(rows) < 2:
            continue  # a single row holds all of the weight
        of = "block length" if kind == "levels" else "learning rate"
        shares = _relative_to(found[:, :1], found) if known_prior else found
        if known_prior and np.max(np.abs(len(rows) * shares - 1)) < EVEN:
            even.append(of)  # one colour all over
            continue
        mean = shares.mean(axis=1)
        figure = heat_map(at, rows, shares, axis.title, what, axis.last)
        for place in axis.marks:
            figure.add_vline(x=place, line={"color": "#ffffff", "width": 1, "dash": "dot"})
        relative = ", divided by its prior and normalised" if known_prior else ""
        drawn.append(
            Drawing(
                f"{name}-{kind}",
                f"Weight of each {of}, {method.label}{seed}",
                figure,
                f"Heat map of the weight of {method.label} over {axis.length}, one row per {of}. Heaviest on average: "
                f"{rows[int(mean.argmax())]} ({what}) with {mean.max():.0%} of the weight.",
                f"Share of the weight on each {of}{relative}.{brightness(shares)}",
                half=True,
            )
        )
    said = "".join(f" The weight of every {of} stays within {EVEN:.0%} of its prior, and is not drawn." for of in even)
    return [replace(drawing, caption=drawing.caption + said) for drawing in drawn]


def _relative_to(prior: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Shares divided by their prior and normalised: the evidence of the run alone."""
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.nan_to_num(np.where(prior > 0, shares / prior, 0.0))
    return relative / relative.sum(axis=0)


def searched(study: Study, search: Method, style: Styles, first: frozenset[str], name: str) -> Drawing:
    """Test accuracy of every schedule of the search, and of the other methods."""
    axis = _Axis(study)
    figure = blank(axis.title, "test accuracy")
    trial = next(trial for trial in search.trials if trial.started)
    used = thinned(len(trial.steps), POINTS)
    opacity = max(0.3, min(0.6, 12 / search.searches))
    grey = []
    for place, schedule in enumerate(trial.schedules or ()):
        x, y = axis.place(trial.steps[used]), trial.accuracy[used, place]
        grey.append(Line(search.trial, "", GROUPS["search"], x, y, {}, drawn=False))
        line(
            figure,
            x,
            y,
            ", ".join(f"{rate:g}" for rate in schedule) if place else f"{search.searches} schedules",
            {"color": f"rgba(128,128,128,{opacity:.2f})", "width": 1},
            showlegend=place == 0,
            meta={"line": search.trial, "family": GROUPS["search"]},
            hovertemplate="rates " + ", ".join(f"{rate:g}" for rate in schedule) + "<br>%{y:.2%}<extra></extra>",
        )
    methods = [method for method in study.methods if not method.searches]
    lines = _lines(axis, methods, style, lambda trial: trial.accuracy, first)
    curves(figure, lines, height=".2%", band=False)
    _in_percent(figure)
    mark(figure, axis.marks, axis.last)
    last, _ = schedule_accuracies(search)
    return Drawing(
        f"{name}-search",
        f"{search.searches} schedules, and one run of SAMUEL",
        figure,
        f"Line chart of the test accuracy of all {search.searches} schedules of the search over {axis.length}, which "
        f"end between {last.min():.2%} and {last.max():.2%}. On top the other methods, at the end: "
        f"{_ends(methods, 'accuracy')}.",
        f"Every grey line is one schedule (seed {trial.seed}): one of the candidate rates for each phase. Schedules "
        f"with a common beginning share a network and a line. Hover over a line to see its rates.{_transitions(study)}"
        + zoom(figure, [*lines, *grey], lower=0.25, upper=0.0),
    )


def sorted_schedules(study: Study, search: Method, style: Styles, first: frozenset[str], name: str) -> Drawing:
    """The last accuracies of all schedules, sorted, and those of the other methods."""
    last, _ = schedule_accuracies(search)
    order = np.argsort(-last, kind="stable")
    figure = blank("schedules, best first", "last test accuracy")
    schedules = search.first.schedules or ()
    line(
        figure,
        np.arange(1, len(order) + 1),
        last[order],
        f"{search.searches} schedules",
        {"color": "#8a8a8a", "width": 1},
        mode="lines+markers",
        marker={"size": 4},
        meta={"line": search.trial, "family": GROUPS["search"]},
        text=[", ".join(f"{rate:g}" for rate in schedules[place]) for place in order],
        hovertemplate="rates %{text}<br>%{y:.2%}<extra></extra>",
    )
    methods, levels = [], []
    for method in study.methods:
        ends = [trial.accuracy[-1] for trial in method.trials if not method.searches and trial.ended]
        if ends and np.isfinite(np.mean(ends)):
            methods.append(method)
            x, y = np.array([0.5, len(order) + 0.5]), np.full(2, np.mean(ends))
            looks, drawn = style[method.trial], method.trial in first
            levels.append(Line(method.trial, method.label, family_of(method), x, y, looks, drawn=drawn))
    curves(figure, levels, height=".2%", band=False)
    _in_percent(figure)
    figure.update_xaxes(range=[0, len(order) + 1])
    schedules_line = Line(search.trial, "", GROUPS["search"], np.arange(len(order)), last[order], {})
    behind = "; ".join(
        f"{m.label} above {np.sum(last < np.mean([t.accuracy[-1] for t in m.trials if t.ended]))} of them"
        for m in methods
    )
    return Drawing(
        f"{name}-sorted",
        "Accuracy at the end, schedule by schedule",
        figure,
        f"The last test accuracies of {len(order)} schedules, sorted, from {last.max():.2%} to {last.min():.2%}. "
        f"{behind or 'No other method has ended'}.",
        "Each dot is a schedule; horizontal lines are methods that ran once, without a search."
        + zoom(figure, [schedules_line, *levels], lower=0.5, upper=0.0),
    )


def family_of(method: Method) -> str:
    """The heading under which a method is listed."""
    if method.group == "stability" and "alphas" in method.first.plan:
        return f"{method.first.plan['alphas']} decays"
    if method.group in GROUPS:
        return GROUPS[method.group]
    return method.label.partition(",")[0] if method.base else "others"


class _Axis:
    """The x axis of a study, in steps or epochs, from a start to an end."""

    def __init__(self, study: Study, start: int = 0, end: int | None = None) -> None:
        plan = study.plan
        self.start, self.end = start, plan["rounds"] if end is None else end
        epoch = int(plan.get("steps_per_epoch") or 0)
        self.by_epoch = epoch > 0 and plan.get("unit") == "step" and not start
        self.scale = epoch if self.by_epoch else 1
        self.title = "epoch" if self.by_epoch else plan.get("unit", "round")
        self.last = float(self.end - self.start) / self.scale
        places = [study.shift] if study.shift is not None else list(plan.get("transitions") or ())
        self.marks = [(place - start) / self.scale for place in places if start < place < self.end]
        self.length = f"{number(self.last) if self.by_epoch else round(self.last)} {self.title}s"

    def place(self, steps: np.ndarray) -> np.ndarray:
        return (steps - self.start) / self.scale

    def where(self, step: int | None) -> str:
        return f"{self.title} {0 if step is None else step / self.scale:g}"


def _zoom(study: Study, style: Styles, name: str, methods: Sequence[Method], family: str, said: str) -> Drawing:
    """Test accuracy of some methods right after the shift."""
    shift, window, unit = study.shift or 0, _window(study), study.plan.get("unit", "round")
    axis = _Axis(study, start=shift, end=shift + window)
    figure = blank(f"{unit}s since the shift", "test accuracy")
    everyone = frozenset(method.trial for method in methods)
    curves(figure, _lines(axis, methods, style, lambda trial: trial.accuracy, everyone), height=".2%")
    _in_percent(figure)
    figure.update_layout(height=340)
    figure.update_xaxes(range=[0, window])
    ours = any(method.group == "samuel" for method in methods)
    title = f"After the shift: {f'SAMUEL and {family}' if ours else family}"
    return Drawing(
        name,
        title,
        figure,
        f"Line chart of the test accuracy in the first {window} {unit}s after the shift. At their end: "
        f"{_ends(methods, 'accuracy', shift, shift + window)}.",
        f"The first {window} {unit}s on the new classes.{said} {_bands(study)}",
        half=True,
    )


def _best_after(study: Study, methods: Sequence[Method], window: int) -> Method:
    def mean(method: Method) -> float:
        found = [window_mean(trial.steps, trial.accuracy, study.shift or 0, window) for trial in method.trials]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else -np.inf

    return max(methods, key=mean)


def _lines(
    axis: _Axis,
    methods: Sequence[Method],
    style: Styles,
    values: Callable[[Trial], np.ndarray],
    first: frozenset[str],
    *,
    positive: bool = False,
    logarithmic: bool = False,
) -> list[Line]:
    """Means over seeds with bands of one standard deviation; SAMUEL's are first, to be drawn on top."""
    found = []
    for method in sorted(methods, key=lambda method: method.group != "samuel"):
        steps, mean, low, high = _over_seeds(method, values, axis, logarithmic)
        if not np.any(np.isfinite(mean)):
            continue
        if positive:
            mean, low, high = only_positive(mean), only_positive(low), only_positive(high)
        looks, drawn = style[method.trial], method.trial in first
        found.append(
            Line(method.trial, method.label, family_of(method), axis.place(steps), mean, looks, low, high, drawn)
        )
    return found


def _over_seeds(
    method: Method, values: Callable[[Trial], np.ndarray], axis: _Axis, logarithmic: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps, the mean over the seeds that reached them, and one standard deviation below and above."""
    found: dict[int, list[float]] = {}
    for trial in method.trials:
        for step, value in zip(trial.steps, values(trial), strict=True):
            if axis.start < step <= axis.end or (step == 0 == axis.start):
                found.setdefault(int(step), []).append(float(value))
    steps = np.array(sorted(found), dtype=np.int64)
    steps = steps[thinned(len(steps), POINTS)]
    mean, spread = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for place, step in enumerate(steps):
        numbers = np.array(found[int(step)])
        numbers = numbers[np.isfinite(numbers)]
        if logarithmic:
            numbers = np.log(numbers[numbers > 0])
        if len(numbers):
            mean[place] = numbers.mean()
        if len(numbers) > 1:
            spread[place] = numbers.std(ddof=1)
    low, high = mean - spread, mean + spread
    return (steps, np.exp(mean), np.exp(low), np.exp(high)) if logarithmic else (steps, mean, low, high)


def _in_percent(figure: go.Figure) -> None:
    """An axis for accuracies, which ends at 100 % even where a band does not."""
    figure.update_yaxes(tickformat="~%", minallowed=0.0, maxallowed=1.01)


def _window(study: Study) -> int:
    """The rounds shown after the shift: the shortest window with at least four measurements."""
    shift = study.shift or 0
    trials = [trial for method in study.methods for trial in method.trials if trial.started]
    for window in study.windows:
        if any(np.sum((t.steps > shift) & (t.steps <= shift + window)) >= 4 for t in trials):
            return window
    return max(study.windows, default=study.plan["rounds"] - shift)


def _bands(study: Study) -> str:
    counts = {len(method.trials) for method in study.methods if not method.searches} or {1}
    if counts == {1}:
        return "One seed."
    seeds = f"up to {max(counts)}" if len(counts) > 1 else max(counts)
    return f"Means over {seeds} seeds, with bands of one standard deviation."


def _transitions(study: Study) -> str:
    return " Vertical lines are the transitions between phases." if study.plan.get("transitions") else ""


def _ends(methods: Sequence[Method], kind: str, start: int = -1, end: int | None = None) -> str:
    """The last value of every method, or the last up to a step, in words."""
    said = []
    for method in methods:
        ends = []
        for trial in method.trials:
            inside = (trial.steps > start) & (trial.steps <= (trial.planned if end is None else end))
            values = getattr(trial, kind)[inside]
            if len(values) and np.isfinite(values[-1]):
                ends.append(values[-1])
        if ends:
            mean = float(np.mean(ends))
            said.append(f"{method.label} {mean:.1%}" if kind == "accuracy" else f"{method.label} {number(mean)}")
    return ", ".join(said) or "no measurements yet"
