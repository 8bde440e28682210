"""One HTML page that reports a contest: self-contained, so that it can be kept, mailed and opened offline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from samuel.studies import drawing
from samuel.studies.drawing import Drawing, save
from samuel.studies.play.contest import LEARNERS, RATES, Contest, Report, Result
from samuel.studies.play.figures import drawings
from samuel.studies.tables import Cell, Table, number

__all__ = ["Section", "findings", "growth_table", "render", "results_table", "save", "section"]


@dataclass(frozen=True)
class Section:
    """What the page shows of one contest."""

    contest: Contest
    table: Table
    findings: tuple[str, ...]
    growth: Table | None
    drawings: tuple[Drawing, ...]


def render(report: Report) -> str:
    """The page as text: tables, figures and how to make it again."""
    sections = [section(contest) for contest in report.contests]
    return drawing.page(
        "play.html",
        [drawn for part in sections for drawn in part.drawings],
        report=report,
        sections=sections,
        learners=[LEARNERS[name] for name in LEARNERS if any(name in _names(s.contest) for s in sections)],
        rates=[f"{rate:g}" for rate in RATES],
    )


def section(contest: Contest) -> Section:
    """The tables, sentences and figures of one contest."""
    return Section(
        contest,
        results_table(contest),
        findings(contest),
        growth_table(contest),
        tuple(drawings(contest)),
    )


def results_table(contest: Contest) -> Table:
    """What every learner lost: in all, and on its worst intervals, with what is proved about those."""
    short, long = contest.lengths
    results = contest.results
    columns = [
        [Cell("none" if r.rate is None else f"{r.rate:g}") for r in results],
        _column(results, lambda r: r.total),
        *(
            column
            for length in (short, long)
            for column in (
                _column(results, lambda r, n=length: r.worst_on(n).regret, _where(length)),
                _column(results, lambda r, n=length: r.worst_on(n).certificate, _where(length)),
            )
        ),
        _column(results, lambda r: r.microseconds),
    ]
    rows = [(r.label, tuple(column[place] for column in columns)) for place, r in enumerate(results)]
    rows.append(("best fixed point", (Cell(""), Cell(number(contest.best_fixed)), *[Cell("")] * 5)))
    return Table(
        (
            "learner",
            "rate",
            "total loss",
            f"worst regret, {short} rounds",
            "its certificate",
            f"worst regret, {long} rounds",
            "its certificate",
            "µs a round",
        ),
        tuple(rows),
        (
            "",
            "rate",
            "total loss",
            f"worst {short}",
            "bound on it",
            f"worst {long}",
            "bound on it",
            "µs a round",
        ),
    )


def growth_table(contest: Contest) -> Table | None:
    """Total loss for runs of several lengths."""
    growth = contest.growth
    if growth is None:
        return None
    places = range(len(growth.rounds))
    lowest = [number(min(totals[place] for totals in growth.totals.values())) for place in places]
    rows = [
        (label, tuple(Cell(number(totals[i]), best=number(totals[i]) == lowest[i]) for i in places))
        for label, totals in growth.totals.items()
    ]
    rows.append(("best fixed point", tuple(Cell(number(growth.best_fixed[i])) for i in places)))
    return Table(("rounds", *(f"{rounds}" for rounds in growth.rounds)), tuple(rows))


def findings(contest: Contest) -> tuple[str, ...]:
    """What one sees in the numbers, in sentences made from them."""
    ranked = sorted(contest.results, key=lambda result: result.total)
    best = [result for result in ranked if number(result.total) == number(ranked[0].total)]
    said = [
        f"Lowest total loss: {number(best[0].total)}, by {_named(best)}. The best fixed point of the whole "
        f"run loses {number(contest.best_fixed)}."
    ]
    if len(best) < len(ranked):
        said[0] += f" Highest: {number(ranked[-1].total)}, by {_named(ranked[-1:])}."
    rivals = [result for result in ranked if not result.learner.startswith("samuel")]
    tried = [total for result in rivals for _, total in result.tried]
    # Every form of SAMUEL, in the order of the table: to name only the best would be a choice in hindsight.
    for ours in (result for result in contest.results if rivals and result.learner.startswith("samuel")):
        sentence = (
            f"{ours.label}, which is not told what rate to use, loses {number(ours.total)}: "
            f"{_compared(ours.total, rivals[0].total)} {_named(rivals[:1])}"
        )
        if tried:
            behind = sum(total > ours.total for total in tried)
            sentence += f", and less than {behind} of the {len(tried)} runs the others tried with a rate of the list"
        said.append(sentence + ".")
    return tuple(said)


def _names(contest: Contest) -> Iterable[str]:
    return [result.learner for result in contest.results]


def _column(
    results: tuple[Result, ...],
    value: Callable[[Result], float | None],
    hint: Callable[[Result], str] = lambda result: "",
) -> list[Cell]:
    values = [value(result) for result in results]
    known = [v for v in values if v is not None]
    lowest = number(min(known)) if known else None
    return [
        Cell(number(v), best=v is not None and number(v) == lowest, hint=hint(result))
        for v, result in zip(values, results, strict=True)
    ]


def _where(length: int) -> Callable[[Result], str]:
    def hint(result: Result) -> str:
        worst = result.worst_on(length)
        return f"rounds {worst.first} to {worst.last}"

    return hint


def _named(results: Iterable[Result]) -> str:
    return " and ".join(r.label if r.rate is None else f"{r.label} with rate {r.rate:g}" for r in results)


def _compared(ours: float, theirs: float) -> str:
    if number(ours) == number(theirs):
        return "as much as"
    if ours < theirs:
        return f"{number(theirs / ours)} times less than"
    return f"{number(ours / theirs)} times as much as"
