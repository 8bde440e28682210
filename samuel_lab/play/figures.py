"""The figures of a contest, each with a caption and a text alternative.

Learners keep their colour and dash in every figure, and families have colours of their own: blue and green for single
learners, violet for fixed experts, pink and olive for the rivals, orange for SAMUEL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from samuel_lab.drawing import (
    COLOUR_BAR,
    MANY,
    REFERENCE,
    Drawing,
    Line,
    blank,
    brightest,
    brightness,
    curves,
    heat_map,
    log_axis,
    mark,
    only_positive,
    the_rest,
    zoom,
)
from samuel_lab.play import bounds_page
from samuel_lab.play.cast import FAMILIES, RATES
from samuel_lab.play.measuring import STRETCHES
from samuel_lab.play.records import Chain, Contest, Growth, Map, Result, Weights
from samuel_lab.tables import number

STYLES: dict[str, dict[str, Any]] = {
    "ogd": {"color": "#0072b2", "dash": "solid", "width": 2},
    "ogd-sqrt": {"color": "#0072b2", "dash": "dash", "width": 2},
    "ogd-inverse": {"color": "#56b4e9", "dash": "dash", "width": 2},
    "scale-free": {"color": "#0072b2", "dash": "dot", "width": 2},
    "adagrad": {"color": "#009e73", "dash": "solid", "width": 2},
    "adagrad-full": {"color": "#009e73", "dash": "dash", "width": 2},
    "adam": {"color": "#56b4e9", "dash": "solid", "width": 2},
    "rmsprop": {"color": "#56b4e9", "dash": "dot", "width": 2},
    "adadelta": {"color": "#009e73", "dash": "dot", "width": 2},
    "hedge": {"color": "#7a6fbe", "dash": "solid", "width": 2},
    "fixed-share": {"color": "#7a6fbe", "dash": "dash", "width": 2},
    "fixed-share-past": {"color": "#7a6fbe", "dash": "dot", "width": 2},
    "ader": {"color": "#7a6fbe", "dash": "longdash", "width": 2},
    "sword": {"color": "#7a6fbe", "dash": "dashdot", "width": 2},
    "flh": {"color": "#b89b00", "dash": "solid", "width": 2},
    "aflh": {"color": "#b89b00", "dash": "dash", "width": 2},
    "saol": {"color": "#cc79a7", "dash": "solid", "width": 2},
    "saol-cold": {"color": "#cc79a7", "dash": "dot", "width": 2},
    "saol-adagrad": {"color": "#cc79a7", "dash": "longdash", "width": 2},
    "sacs-adagrad": {"color": "#cc79a7", "dash": "8px 3px", "width": 2},
    "aflh-adagrad": {"color": "#b89b00", "dash": "longdash", "width": 2},
    "cbce-adagrad": {"color": "#cc79a7", "dash": "longdashdot", "width": 2},
    "cbce": {"color": "#cc79a7", "dash": "dash", "width": 2},
    "sacs": {"color": "#cc79a7", "dash": "dashdot", "width": 2},
    "parameter-free": {"color": "#b89b00", "dash": "dot", "width": 2},
    "samuel": {"color": "#d55e00", "dash": "solid", "width": 3},
    "samuel-blocks": {"color": "#e69f00", "dash": "longdashdot", "width": 2},
    "samuel-full-matrix": {"color": "#d55e00", "dash": "dashdot", "width": 3},
    "samuel-descent": {"color": "#d55e00", "dash": "longdash", "width": 2},
    "samuel-ogd": {"color": "#d55e00", "dash": "dash", "width": 3},
    "samuel-ogd-equal": {"color": "#d55e00", "dash": "dot", "width": 2},
    "samuel-cold": {"color": "#e69f00", "dash": "dash", "width": 2},
    "samuel-warm": {"color": "#e69f00", "dash": "solid", "width": 2},
}
"""Line style of each learner."""
COLUMNS = 3
"""Small figures side by side."""


def drawings(contest: Contest) -> list[Drawing]:
    """All figures of a contest, in reading order."""
    drawn = [cumulative_loss(contest)]
    if any(result.path is not None for result in contest.results):
        drawn.append(path(contest))
    if contest.growth is not None:
        drawn.append(growth(contest, contest.growth))
    drawn.append(regret_by_length(contest))
    drawn += bounds_page.drawings(contest, partial(_line, contest))
    drawn += maps(contest)
    if contest.chain is not None:
        drawn.append(certificates(contest, contest.chain))
    drawn += weights(contest)
    if any(result.tried for result in contest.results):
        drawn.append(rates(contest))
    return drawn


def shown(contest: Contest) -> set[str]:
    """The learners whose lines are drawn at first: all, or of many the best two of each family, and SAMUEL."""
    if len(contest.results) <= MANY:
        return {result.learner for result in contest.results}
    ranked = sorted(contest.results, key=lambda result: result.total)
    best = {r.learner for family in FAMILIES for r in [r for r in ranked if r.family == family][:2]}
    return best | {"samuel"}


def cumulative_loss(contest: Contest) -> Drawing:
    """Cumulative loss of every learner."""
    totals = [result.total for result in contest.results]
    log = min(totals) > 0 and max(totals) > 20 * min(totals)
    figure = blank("round", "loss so far")
    best = contest.best_fixed_cumulative
    if log:
        log_axis(figure, "y", *(result.cumulative for result in contest.results), *([] if best is None else [best]))
    heights = only_positive if log else np.asarray
    lines = [_line(contest, result, contest.at, heights(result.cumulative)) for result in _on_top(contest)]
    said = ""
    if best is not None:
        lines.append(_reference(contest.at, heights(best)))
        said = " The dotted line is the one fixed point that is best for the whole run."
    curves(figure, lines)
    _mark_changes(figure, contest)
    return Drawing(
        f"{contest.stream}-loss",
        "Loss so far",
        figure,
        f"Line chart of the loss so far over {contest.rounds} rounds. Total at the end: {_totals(contest)}; "
        f"best fixed point {number(contest.best_fixed)}.",
        f"The sum of all losses up to each round{', on a logarithmic scale' if log else ''}. Lower is "
        f"better.{said}{_changes(contest)}{_seeds(contest)}{the_rest(lines)}"
        + (zoom(figure, lines, lower=0.1, upper=0.0) if log else ""),
    )


def path(contest: Contest) -> Drawing:
    """Decisions of every learner."""
    kept = [(result, result.path) for result in _on_top(contest) if result.path is not None]
    lines = [_line(contest, result, contest.path_at, values) for result, values in kept]
    if contest.dim == 1:
        figure = blank("round", "decision x")
        title, what = "Decisions", "decisions"
        caption = "The decision of each round."
        if contest.optimum is not None:
            lines.append(_reference(contest.at, contest.optimum, "optimum", width=3, shape="hv"))
            caption = "The decision of each round, and the best point of the current segment (dotted)."
    else:
        figure = blank("round", "distance to the optimum")
        log_axis(figure, "y", *(values for _, values in kept))
        title, what = "Distance to the optimum", "distance to the optimum"
        caption = (
            "Distance of decisions from the best fixed point of the current segment between two changes, in "
            f"Euclidean distance, averaged over {max(1, contest.rounds // STRETCHES)} rounds."
        )
    curves(figure, lines)
    _mark_changes(figure, contest)
    last = ", ".join(f"{result.label} {number(float(values[-1]))}" for result, values in kept)
    alt = f"Line chart of the {what} over {contest.rounds} rounds. At the end: {last}."
    return Drawing(f"{contest.stream}-path", title, figure, alt, caption + _first_seed(contest) + the_rest(lines))


def growth(contest: Contest, grown: Growth) -> Drawing:
    """Total loss against the length of the run."""
    figure = blank("rounds in the run, T", "total loss")
    log_axis(figure, "y", *grown.totals.values(), grown.best_fixed)
    lines = [
        _line(contest, result, grown.rounds, grown.totals[result.label])
        for result in _on_top(contest)
        if result.label in grown.totals
    ]
    curves(figure, [*lines, _reference(grown.rounds, grown.best_fixed)], markers=True)
    log_axis(figure, "x", ticks=grown.rounds)
    factor = grown.rounds[-1] / grown.rounds[0]
    times = ", ".join(f"{label} {number(t[-1] / t[0])}" for label, t in grown.totals.items())
    return Drawing(
        f"{contest.stream}-growth",
        "Growth with the length of the run",
        figure,
        f"Total loss against the length of the run, both axes logarithmic, from {grown.rounds[0]} to "
        f"{grown.rounds[-1]} rounds. Factor by which the total loss grows: {times}.",
        f"Total loss of runs of several lengths. From the shortest run to the longest, which has {factor:g} "
        f"times as many rounds, total losses grow by these factors: {times}." + the_rest(lines),
    )


def regret_by_length(contest: Contest) -> Drawing:
    """The worst regret of every learner on intervals of each length."""
    figure = blank("rounds in the interval", "largest regret")
    log_axis(figure, "y", [worst.regret for result in contest.results for worst in result.worst])
    lengths = [worst.length for worst in contest.results[0].worst]
    lines = []
    for result in _on_top(contest):
        regrets = only_positive([worst.regret for worst in result.worst])
        label = result.label if result.exponent is None else f"{result.label}, {result.exponent:.2f}"
        lines.append(_line(contest, result, lengths, regrets, label))
    curves(figure, lines, markers=True)
    log_axis(figure, "x", ticks=lengths)
    hidden = any(worst.regret <= 0 for result in contest.results for worst in result.worst)
    length = contest.lengths[-1]
    values = ", ".join(f"{r.label} {number(r.worst_on(length).regret)}" for r in contest.results)
    grown = ", ".join(f"{r.label} {number(r.exponent)}" for r in contest.results)
    return Drawing(
        f"{contest.stream}-regret",
        "Regret on the worst interval of each length",
        figure,
        "Largest regret against the length of the interval, both axes logarithmic. On intervals of "
        f"{length} rounds: {values}. Growth exponents: {grown}.",
        "Regret against the best fixed point of the same interval, on the interval of that "
        "length where this is largest. Beside the name stands the growth exponent: with which power of the length it "
        f"grows, fitted to lengths of up to {contest.steady} rounds; 0.5 is like the root, 1 in proportion."
        + (" Regrets of 0 and below have no place on a logarithmic axis and are left out." if hidden else "")
        + _seeds(contest)
        + the_rest(lines),
    )


def maps(contest: Contest) -> list[Drawing]:
    """Regret on all intervals: of every learner, and of SAMUEL with its certificate."""
    drawn, chain = [], contest.chain
    if chain is not None:
        own = next(result for result in contest.results if result.learner == chain.learner)
        for what, name, found in (("Regret", "map", own.map), ("Certificate", "proof", chain.map)):
            largest = float(np.nanmax(found.values))
            drawn.append(
                Drawing(
                    f"{contest.stream}-{name}",
                    f"{what} on every interval, {chain.label}",
                    _one_map(contest, found),
                    f"Heat map over the start of an interval and its length of the {what.lower()} of {chain.label}, "
                    f"divided by the root of the length. Largest: {number(largest)}.",
                    (
                        "Regret against the best fixed point of each interval, divided by the root of its length, by "
                        "where the interval starts and how long it is."
                        if name == "map"
                        else "The certificate of the same intervals, computed from the run, on its own scale: an "
                        "upper bound on the regret."
                    )
                    + _first_seed(contest),
                    half=True,
                )
            )
    if len(contest.results) > 1:
        drawn.append(_all_maps(contest))
    return drawn


def _one_map(contest: Contest, found: Map) -> go.Figure:
    figure = blank("start of the interval", "rounds in it")
    figure.add_trace(_map_trace(found, showscale=True, zmin=0.0, zmax=_top([found])))
    figure.update_layout(hovermode="closest", height=360)
    figure.update_yaxes(type="category", showgrid=False)
    figure.update_xaxes(showgrid=False, range=[0, contest.rounds])
    return figure


def _map_trace(found: Map, **more: Any) -> go.Heatmap:
    return go.Heatmap(
        x=found.at.astype(np.float32),
        y=[f"{length}" for length in found.lengths],
        z=found.values,
        hovertemplate="from %{x:.0f}, %{y} rounds<br>%{z:.3~g} times the root of the length<extra></extra>",
        **({"colorscale": "Cividis", "colorbar": COLOUR_BAR} if more.get("showscale") else {}),
        **more,
    )


def _top(found: Sequence[Map]) -> float:
    """Upper end of the colour scale, so that a few intervals do not darken the rest."""
    values = np.concatenate([part.values[np.isfinite(part.values)] for part in found])
    return max(float(np.percentile(values, 99)), 1e-12)


def _all_maps(contest: Contest) -> Drawing:
    figure = _grid([result.label for result in contest.results], "start of the interval", "rounds in it")
    for place, result in enumerate(contest.results):
        figure.add_trace(_map_trace(result.map, coloraxis="coloraxis"), *_place(place))
    top = _top([result.map for result in contest.results])
    figure.update_layout(coloraxis={"colorscale": "Cividis", "cmin": 0.0, "cmax": top, "colorbar": _bar(figure)})
    figure.update_xaxes(range=[0, contest.rounds])
    for place in range(len(contest.results)):
        if place % COLUMNS:
            figure.update_yaxes(showticklabels=False, row=_place(place)[0], col=_place(place)[1])
    largest = ", ".join(f"{r.label} {number(float(np.nanmax(r.map.values)))}" for r in contest.results)
    return Drawing(
        f"{contest.stream}-maps",
        "Regret on every interval, learner by learner",
        figure,
        "Heat maps over the start of an interval and its length of the regret of every learner, divided by the root "
        f"of the length. Largest: {largest}.",
        "Regret divided by the root of the interval's length, with the same colours for all: blue for intervals on "
        "which a learner was hardly worse than the best fixed point, or better, yellow where it was far behind. "
        f"Bright columns are changes that it followed slowly. The brightest colour stands for {number(top)} and more."
        + _first_seed(contest),
    )


def _grid(titles: Sequence[str], x: str, y: str) -> go.Figure:
    """A grid of small figures with titles."""
    rows = -(-len(titles) // COLUMNS)
    height = 110 + 150 * rows
    grid = make_subplots(
        rows=rows,
        cols=min(COLUMNS, len(titles)),
        subplot_titles=titles,
        vertical_spacing=42 / (150 * rows) if rows > 1 else 0.0,
        horizontal_spacing=0.055,
    )
    figure = blank(x, y)
    grid.update_layout(figure.layout)
    grid.update_xaxes(title=None)
    grid.update_yaxes(title=None)
    grid.update_layout(height=height, hovermode="closest", showlegend=False, margin={"t": 70})
    grid.update_annotations(font={"size": 12})
    grid.update_xaxes(showgrid=False, zeroline=False, nticks=4, tickfont={"size": 10}, automargin=True)
    grid.update_yaxes(type="category", showgrid=False, zeroline=False, nticks=5, tickfont={"size": 10}, automargin=True)
    grid.update_xaxes(title={"text": x, "standoff": 4, "font": {"size": 11}}, row=rows, col=1)
    grid.update_yaxes(title={"text": y, "standoff": 4, "font": {"size": 11}}, col=1)
    return grid


def _bar(figure: go.Figure) -> dict[str, Any]:
    layout: Any = figure.layout
    height = layout.height - layout.margin.t
    return {**COLOUR_BAR, "len": 0.3, "y": 1 + 28 / height}


def _place(place: int) -> tuple[int, int]:
    return place // COLUMNS + 1, place % COLUMNS + 1


def certificates(contest: Contest, chain: Chain) -> Drawing:
    """Regret and the chain of bounds on it."""
    figure = blank("rounds in the interval", "regret, and bounds on it")
    lines = {
        "regret": (chain.regret, {"color": "#d55e00", "dash": "solid", "width": 3}),
        "linearised regret": (chain.linearised, {"color": "#e69f00", "dash": "solid", "width": 2}),
        "certificate, measured": (chain.measured, {"color": "#0072b2", "dash": "solid", "width": 2}),
        "certificate, guaranteed": (chain.guaranteed, {"color": "#56b4e9", "dash": "dash", "width": 2}),
        "trivial bound": (chain.trivial, REFERENCE),
    }
    log_axis(figure, "y", *(values for values, _ in lines.values()))
    lengths = np.asarray(chain.lengths)
    bounds = [Line(label, label, "", lengths, only_positive(y), style) for label, (y, style) in lines.items()]
    curves(figure, bounds, markers=True)
    log_axis(figure, "x", ticks=chain.lengths)
    longest = ", ".join(f"{label} {number(values[-1])}" for label, (values, _) in lines.items())
    return Drawing(
        f"{contest.stream}-certificates",
        f"Certificates of {chain.label}",
        figure,
        f"Regret of {chain.label} and bounds on it against the length of the interval, both axes "
        f"logarithmic. On {chain.lengths[-1]} rounds: {longest}.",
        f"{chain.label} on intervals of each length: the largest regret, and the largest value of each bound "
        "on it. The certificate comes from the run itself: measured from the gains of the experts, "
        "guaranteed by the algorithm. The trivial bound holds for any decisions. " + _below_trivial(chain),
    )


def weights(contest: Contest) -> list[Drawing]:
    """Weights of every learner over blocks and over experts."""
    found = [(result, result.weights) for result in contest.results if result.weights is not None]
    ours = next(
        (entry for entry in found if contest.chain is not None and entry[0].learner == contest.chain.learner), None
    )
    drawn = [] if ours is None else _own_weights(contest, *ours)
    blocks = [(result, w.by, w.levels, w.by_level) for result, w in found if w.by_level is not None]
    experts = [(result, "", w.experts, w.by_expert) for result, w in found if w.by_expert is not None]
    if len(blocks) > (ours is not None):
        drawn.append(
            _all_weights(
                contest,
                "blocks",
                "Weight on blocks, learner by learner",
                blocks,
                "Share of the weight on blocks of that many rounds; for FLH and AFLH, whose blocks have no fixed "
                "length, on blocks that are at least that many rounds old.",
            )
        )
    if len(experts) > (ours is not None):
        drawn.append(
            _all_weights(
                contest,
                "experts",
                "Weight on experts, learner by learner",
                experts,
                "Share of the weight on experts with that learning rate, on all blocks together; on a simplex the "
                "experts of Hedge and fixed share are its corners.",
            )
        )
    return drawn


def _own_weights(contest: Contest, result: Result, found: Weights) -> list[Drawing]:
    kinds = (
        (
            "levels",
            "level",
            found.levels,
            found.by_level,
            found.by,
            "Share of the weight on experts whose blocks have that many rounds. A level joins when the run is as long "
            "as one of its blocks.",
        ),
        (
            "learning-rates",
            "learning rate",
            found.experts,
            found.by_expert,
            "learning rate",
            "Share of the weight on experts with that learning rate, on all levels together.",
        ),
    )
    drawn = []
    for name, of, rows, shares, what, caption in kinds:
        if shares is not None:
            mean = shares.mean(axis=1)
            drawn.append(
                Drawing(
                    f"{contest.stream}-{name}",
                    f"Weight of each {of}, {result.label}",
                    heat_map(found.at, list(rows), shares, "round", what, contest.rounds),
                    f"Heat map of {result.label}'s weight over time, one row per {of}. Heaviest on average: "
                    f"{rows[int(mean.argmax())]} ({what}) with {mean.max():.0%} of the weight.",
                    caption + brightness(shares),
                    half=True,
                )
            )
    return drawn


def _all_weights(
    contest: Contest,
    name: str,
    title: str,
    found: Sequence[tuple[Result, str, tuple[str, ...], np.ndarray | None]],
    caption: str,
) -> Drawing:
    figure = _grid([result.label for result, *_ in found], "round", "rounds" if name == "blocks" else "expert")
    heaviest = []
    for place, (result, _, rows, values) in enumerate(found):
        assert values is not None
        assert result.weights is not None
        figure.add_trace(
            go.Heatmap(
                x=result.weights.at.astype(np.float32),
                y=list(rows),
                z=values,
                coloraxis="coloraxis",
                hovertemplate="round %{x:.0f}, %{y}<br>weight %{z:.1%}<extra></extra>",
            ),
            *_place(place),
        )
        mean = values.mean(axis=1)
        heaviest.append(f"{result.label} {rows[int(mean.argmax())]} with {mean.max():.0%}")
    bar = {**_bar(figure), "tickformat": ".0%"}
    top = max(brightest(values) for *_, values in found if values is not None)
    figure.update_layout(coloraxis={"colorscale": "Cividis", "cmin": 0.0, "cmax": top, "colorbar": bar})
    figure.update_xaxes(range=[0, contest.rounds])
    return Drawing(
        f"{contest.stream}-{name}",
        title,
        figure,
        f"Heat maps of the weight over time. Heaviest on average: {', '.join(heaviest)}.",
        caption + _first_seed(contest),
    )


def rates(contest: Contest) -> Drawing:
    """Total loss against the learning rate, for learners that need one."""
    figure = blank("learning rate", "total loss")
    tuned = [result for result in contest.results if result.tried]
    tried = sorted({rate for result in tuned for rate, _ in result.tried})
    positive = all(total > 0 for result in contest.results for _, total in (*result.tried, (0, result.total)))
    log_axis(figure, "x", ticks=RATES if tried == list(RATES) else tried[::2])
    if positive:
        log_axis(figure, "y", [total for result in contest.results for _, total in (*result.tried, (0, result.total))])
    best, lines = [], []
    for result in _on_top(contest):
        if result.tried:
            places, totals = zip(*result.tried, strict=True)
            lines.append(_line(contest, result, places, totals))
            best.append(f"{result.label} {number(result.total)} at {number(result.rate)}")
        else:
            lines.append(_line(contest, result, [tried[0], tried[-1]], [result.total] * 2))
    curves(figure, lines, markers=True)
    scale = "both axes logarithmic" if positive else "the rate on a logarithmic axis"
    return Drawing(
        f"{contest.stream}-rates",
        "Loss by learning rate",
        figure,
        f"Total loss against the learning rate, {scale}. Best: {', '.join(best)}.",
        "Total loss for every learning rate that was tried. Tables and other figures show each learner at its best "
        "rate, in hindsight. Horizontal lines are learners without a rate." + _seeds(contest) + the_rest(lines),
    )


def _on_top(contest: Contest) -> list[Result]:
    """The learners with SAMUEL's forms first, to be drawn on top."""
    return sorted(contest.results, key=lambda result: result.family != "samuel")


def _line(contest: Contest, result: Result, x: Any, y: Any, label: str | None = None) -> Line:
    """The line of a learner."""
    family = FAMILIES[result.family]  # pyright: ignore[reportArgumentType]
    style, drawn = STYLES[result.learner], result.learner in shown(contest)
    return Line(result.learner, label or result.label, family, np.asarray(x), np.asarray(y), style, drawn=drawn)


def _reference(x: Any, y: Any, label: str = "best fixed point", **style: Any) -> Line:
    """A line that belongs to no learner."""
    return Line("reference", label, "", np.asarray(x), np.asarray(y), REFERENCE | style)


def _changes(contest: Contest) -> str:
    return " Vertical lines mark the rounds in which the stream changes." if len(contest.changes) > 1 else ""


def _seeds(contest: Contest) -> str:
    return f" Means over {contest.seeds} seeds." if contest.seeds > 1 else ""


def _first_seed(contest: Contest) -> str:
    return f" The first of {contest.seeds} seeds." if contest.seeds > 1 else ""


def _mark_changes(figure: go.Figure, contest: Contest) -> None:
    mark(figure, contest.changes[1:], contest.rounds)


def _totals(contest: Contest) -> str:
    return ", ".join(f"{result.label} {number(result.total)}" for result in contest.results)


def _below_trivial(chain: Chain) -> str:
    pairs = zip(chain.lengths, chain.measured, chain.trivial, strict=True)
    below = [length for length, measured, trivial in pairs if measured < trivial]
    if not below:
        return "Here the measured certificate is below it on none of these lengths."
    on = "all these lengths" if len(below) == len(chain.lengths) else f"lengths of {', '.join(map(str, below))} rounds"
    return f"Here the largest measured certificate is below the largest trivial bound on {on}."
