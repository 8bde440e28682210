"""The figures of a contest, each with a caption for all and a description for those who cannot see it.

Learners keep their colour and dash in every figure; the colours are those of Okabe and Ito, which colour-blind
readers can tell apart.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from samuel.studies.drawing import (
    REFERENCE,
    Drawing,
    blank,
    brightness,
    heat_map,
    line,
    log_axis,
    mark,
    only_positive,
)
from samuel.studies.play.contest import RATES, STRETCHES, Chain, Contest, Growth, Weights, grid
from samuel.studies.tables import number

STYLES: dict[str, dict[str, Any]] = {
    "ogd": {"color": "#0072b2", "dash": "solid", "width": 2},
    "ogd-sqrt": {"color": "#8a8a8a", "dash": "dashdot", "width": 2},
    "ogd-inverse": {"color": "#56b4e9", "dash": "dash", "width": 2},
    "adagrad": {"color": "#009e73", "dash": "solid", "width": 2},
    "samuel": {"color": "#d55e00", "dash": "solid", "width": 3},
    "samuel-ogd": {"color": "#d55e00", "dash": "dash", "width": 3},
    "samuel-ogd-equal": {"color": "#d55e00", "dash": "dot", "width": 2},
    "samuel-cold": {"color": "#e69f00", "dash": "dash", "width": 2},
    "samuel-inherit": {"color": "#cc79a7", "dash": "dashdot", "width": 2},
}
"""How the line of each learner looks."""


def drawings(contest: Contest) -> list[Drawing]:
    """All figures of a contest, in reading order."""
    drawn = [cumulative_loss(contest), path(contest)]
    if contest.growth is not None:
        drawn.append(growth(contest, contest.growth))
    drawn.append(regret_by_length(contest))
    if contest.chain is not None:
        drawn.append(certificates(contest, contest.chain))
    if contest.weights is not None:
        drawn += weights(contest, contest.weights)
    if any(result.tried for result in contest.results):
        drawn.append(rates(contest))
    return drawn


def cumulative_loss(contest: Contest) -> Drawing:
    """What every learner has lost so far."""
    totals = [result.total for result in contest.results]
    log = max(totals) > 20 * min(totals)
    figure = blank("round", "loss so far")
    if log:
        log_axis(figure, "y", [result.cumulative for result in contest.results], contest.best_fixed_cumulative)
    for result in contest.results:
        line(figure, contest.at, result.cumulative, result.label, STYLES[result.learner])
    line(figure, contest.at, contest.best_fixed_cumulative, "best fixed point", REFERENCE)
    _mark_changes(figure, contest)
    return Drawing(
        f"{contest.stream}-loss",
        "Loss so far",
        figure,
        f"Line chart of the loss so far over {contest.rounds} rounds. Total at the end: {_totals(contest)}; "
        f"best fixed point {number(contest.best_fixed)}.",
        f"The sum of all losses up to each round{', on a logarithmic scale' if log else ''}. Lower is "
        "better. The dotted line is the one fixed point that is best for the whole run; vertical lines mark "
        "the rounds in which the stream changes.",
    )


def path(contest: Contest) -> Drawing:
    """Where every learner was."""
    if contest.optimum is not None:
        figure = blank("round", "decision x")
        line(figure, contest.at, contest.optimum, "optimum", {**REFERENCE, "width": 3, "shape": "hv"})
        title, what = "Decisions", "decisions"
        caption = "The decision of each round, and the point that is best for the present stretch (dotted)."
    else:
        figure = blank("round", "distance to the optimum")
        log_axis(figure, "y", [result.path for result in contest.results])
        title, what = "Distance to the optimum", "distance to the optimum"
        caption = (
            "How far decisions are from the best fixed point of the present stretch between two changes, in "
            f"Euclidean distance, averaged over {max(1, contest.rounds // STRETCHES)} rounds."
        )
    for result in contest.results:
        line(figure, contest.path_at, result.path, result.label, STYLES[result.learner])
    _mark_changes(figure, contest)
    last = ", ".join(f"{result.label} {number(float(result.path[-1]))}" for result in contest.results)
    alt = f"Line chart of the {what} over {contest.rounds} rounds. At the end: {last}."
    return Drawing(f"{contest.stream}-path", title, figure, alt, caption)


def growth(contest: Contest, grown: Growth) -> Drawing:
    """Total loss against the length of the run."""
    figure = blank("rounds in the run, T", "total loss")
    log_axis(figure, "y", *grown.totals.values(), grown.best_fixed)
    for result in contest.results:
        totals = grown.totals[result.label]
        line(figure, grown.rounds, totals, result.label, STYLES[result.learner], markers=True)
    line(figure, grown.rounds, grown.best_fixed, "best fixed point", REFERENCE, markers=True)
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
        f"times as many rounds, total losses grow by these factors: {times}.",
    )


def regret_by_length(contest: Contest) -> Drawing:
    """The worst regret of every learner on intervals of each length."""
    figure = blank("rounds in the interval", "largest regret")
    log_axis(figure, "y", [worst.regret for result in contest.results for worst in result.worst])
    lengths = [worst.length for worst in contest.results[0].worst]
    for result in contest.results:
        regrets = only_positive([worst.regret for worst in result.worst])
        line(figure, lengths, regrets, result.label, STYLES[result.learner], markers=True)
    log_axis(figure, "x", ticks=lengths)
    hidden = any(worst.regret <= 0 for result in contest.results for worst in result.worst)
    length = contest.lengths[1]
    values = ", ".join(f"{r.label} {number(r.worst_on(length).regret)}" for r in contest.results)
    return Drawing(
        f"{contest.stream}-regret",
        "Regret on the worst interval of each length",
        figure,
        "Largest regret against the length of the interval, both axes logarithmic. On intervals of "
        f"{length} rounds: {values}.",
        "How much more was lost than by the best fixed point of the same interval, on the interval of that "
        f"length where this is largest. Intervals start every {grid(contest.rounds, lengths[0])} rounds, "
        "long ones every quarter of their length."
        + (" Regrets of 0 and below have no place on a logarithmic axis and are left out." if hidden else ""),
    )


def certificates(contest: Contest, chain: Chain) -> Drawing:
    """Regret, and the bounds on it that hold one above the other."""
    figure = blank("rounds in the interval", "regret, and bounds on it")
    lines = {
        "regret": (chain.regret, {"color": "#d55e00", "dash": "solid", "width": 3}),
        "linearised regret": (chain.linearised, {"color": "#e69f00", "dash": "solid", "width": 2}),
        "certificate, measured": (chain.measured, {"color": "#0072b2", "dash": "solid", "width": 2}),
        "certificate, guaranteed": (chain.guaranteed, {"color": "#56b4e9", "dash": "dash", "width": 2}),
        "trivial bound": (chain.trivial, REFERENCE),
    }
    log_axis(figure, "y", *(values for values, _ in lines.values()))
    for label, (values, style) in lines.items():
        line(figure, chain.lengths, only_positive(values), label, style, markers=True)
    log_axis(figure, "x", ticks=chain.lengths)
    longest = ", ".join(f"{label} {number(values[-1])}" for label, (values, _) in lines.items())
    return Drawing(
        f"{contest.stream}-certificates",
        f"What is proved about {chain.label}",
        figure,
        f"Regret of {chain.label} and bounds on it against the length of the interval, both axes "
        f"logarithmic. On {chain.lengths[-1]} rounds: {longest}.",
        f"{chain.label} on intervals of each length: the largest regret, and the largest value of each bound "
        "on it. The certificate comes from the run itself: measured from the gains of the experts, "
        "guaranteed by the algorithm. The trivial bound holds for any decisions whatever. " + _below_trivial(chain),
    )


def weights(contest: Contest, found: Weights) -> list[Drawing]:
    """Where SAMUEL's weight lay: on which level of blocks, and on which learning rate."""
    levels = [f"{length}" for length in found.lengths]
    steps = [number(rate) for rate in found.rates]
    mean_level, mean_rate = found.by_level.mean(axis=1), found.by_rate.mean(axis=1)
    return [
        Drawing(
            f"{contest.stream}-levels",
            f"Weight of each level, {found.label}",
            heat_map(found.at, levels, found.by_level, "round", "rounds in a block", contest.rounds),
            f"Heat map of {found.label}'s weight over time, one row per level. Heaviest on average: blocks "
            f"of {levels[int(mean_level.argmax())]} rounds with {mean_level.max():.0%} of the weight.",
            "Share of the weight that lies on experts whose blocks have that many rounds. A level joins when "
            "the run is as long as one of its blocks. " + brightness(found.by_level),
            half=True,
        ),
        Drawing(
            f"{contest.stream}-learning-rates",
            f"Weight of each learning rate, {found.label}",
            heat_map(found.at, steps, found.by_rate, "round", "learning rate", contest.rounds),
            f"Heat map of {found.label}'s weight over time, one row per learning rate. Heaviest on average: "
            f"{steps[int(mean_rate.argmax())]} with {mean_rate.max():.0%} of the weight.",
            "Share of the weight that lies on experts with that learning rate, on all levels together. "
            + brightness(found.by_rate),
            half=True,
        ),
    ]


def rates(contest: Contest) -> Drawing:
    """Total loss against the learning rate, for learners that need one."""
    figure = blank("learning rate", "total loss")
    log_axis(figure, "x", ticks=RATES)
    log_axis(figure, "y", [total for result in contest.results for _, total in (*result.tried, (0, result.total))])
    best = []
    for result in contest.results:
        if result.tried:
            tried, totals = zip(*result.tried, strict=True)
            line(figure, tried, totals, result.label, STYLES[result.learner], markers=True)
            best.append(f"{result.label} {number(result.total)} at {number(result.rate)}")
        else:
            line(figure, [RATES[0], RATES[-1]], [result.total] * 2, result.label, STYLES[result.learner])
    return Drawing(
        f"{contest.stream}-rates",
        "What a learning rate is worth",
        figure,
        f"Total loss against the learning rate, both axes logarithmic. Best: {', '.join(best)}.",
        "Total loss for every learning rate that was tried. Tables and other figures show each learner at "
        "its best rate, which one knows only after the run. Level lines belong to learners for which no "
        "rate was chosen.",
    )


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
