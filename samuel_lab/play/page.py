"""One self-contained HTML page that reports a contest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from samuel_lab import drawing
from samuel_lab.drawing import Choice, Drawing, save
from samuel_lab.play.bounds_page import bounds_findings, bounds_tables
from samuel_lab.play.cast import FAMILIES, LARGE_RATES, LEARNERS, RATES, SMALL_RATES
from samuel_lab.play.figures import drawings, shown
from samuel_lab.play.records import Contest, Report, Result
from samuel_lab.tables import Cell, Table, Titled, column, number

__all__ = ["Section", "certificates_table", "findings", "growth_table", "render", "results_table", "save", "section"]


@dataclass(frozen=True)
class Section:
    """The section of one contest."""

    contest: Contest
    table: Table
    findings: tuple[str, ...]
    tables: tuple[Titled, ...]
    lines: tuple[Choice, ...]
    drawings: tuple[Drawing, ...]


def render(report: Report) -> str:
    """The page as HTML: tables, figures and the command that repeats it."""
    sections = [section(contest) for contest in report.contests]
    return drawing.page(
        "play.html",
        [drawn for part in sections for drawn in part.drawings],
        report=report,
        sections=sections,
        learners=[LEARNERS[name] for name in LEARNERS if any(name in _names(s.contest) for s in sections)],
        rates=[_listed(rates) for rates in (RATES, SMALL_RATES, LARGE_RATES)],
        compiled=any(contest.engine == "jax" for contest in report.contests),
    )


def section(contest: Contest) -> Section:
    """The tables, sentences and figures of one contest."""
    first = shown(contest)
    return Section(
        contest,
        results_table(contest),
        findings(contest),
        tuple(_tables(contest)),
        tuple(
            Choice(r.learner, r.label, FAMILIES[r.family], r.learner in first)  # pyright: ignore[reportArgumentType]
            for r in contest.results
        ),
        tuple(drawings(contest)),
    )


def _tables(contest: Contest) -> list[Titled]:
    """The tables below the results: certificates, runs of several lengths, and the bounds of Table 1."""
    found = []
    certificates, growth = certificates_table(contest), growth_table(contest)
    if certificates is not None:
        note = (
            "The certificate is a bound on the regret of that interval, computed from the run alone, without knowing "
            "the losses beyond their gradients"
        )
        seeds = f"; the first of {contest.seeds} seeds" if contest.seeds > 1 else ""
        found.append(Titled("certificates of the worst intervals", certificates, f"{note}{seeds}."))
    if growth is not None:
        note = f"Rates are those chosen for {contest.rounds} rounds. Best of each column in bold."
        found.append(Titled("total loss of runs of several lengths", growth, note))
    return found + bounds_tables(contest)


def results_table(contest: Contest) -> Table:
    """Total loss, worst regret and its growth, and cost of a round of every learner."""
    results, lengths = contest.results, contest.lengths
    tuned = any(result.tried for result in results)
    columns = [
        [Cell("none" if r.rate is None else f"{r.rate:g}", hint=_edge(r)) for r in results],
        column([r.total for r in results], more=[_plus_minus(r.spread) if contest.seeds > 1 else "" for r in results]),
        *([[Cell(number(r.middle_total)) for r in results]] if tuned else []),
        *(column([r.worst_on(n).regret for r in results], [_where(r, n) for r in results]) for n in lengths),
        [Cell("–" if r.exponent is None else f"{r.exponent:.2f}".replace("-", "−")) for r in results],
        column([r.microseconds for r in results]),
        [Cell(_size(r.memory)) for r in results],
    ]
    rows = [(r.label, tuple(column[place] for column in columns)) for place, r in enumerate(results)]
    if contest.best_fixed is not None:
        others = [Cell("")] * (len(columns) - 2)
        rows.append(("best fixed point", (Cell(""), Cell(number(contest.best_fixed)), *others)))
    middle = ["at the middle rate"] if tuned else []
    return Table(
        (
            "learner",
            "rate",
            "total loss" if contest.seeds == 1 else f"total loss, {contest.seeds} seeds",
            *middle,
            *(f"worst regret, {length} rounds" for length in lengths),
            "growth exponent",
            "µs a round",
            "memory",
        ),
        tuple(rows),
        (
            "",
            "rate",
            "total loss",
            *(["at middle rate"] if tuned else []),
            *(f"worst {length}" for length in lengths),
            "exponent",
            "µs a round",
            "memory",
        ),
    )


def certificates_table(contest: Contest) -> Table | None:
    """Worst regret on intervals of each length beside its certificate, for SAMUEL and its rivals.

    For a single learner little more than the trivial bound is known about an interval inside the run.
    """
    known = [
        r
        for r in contest.results
        if r.family in ("samuel", "strongly adaptive")
        and any(r.worst_on(length).certificate is not None for length in contest.lengths)
    ]
    if not known:
        return None
    heads = [head for n in contest.lengths for head in (f"worst regret, {n} rounds", "its certificate")]
    rows = [
        (
            result.label,
            tuple(
                Cell(number(value), hint=_where(result, length))
                for length in contest.lengths
                for value in (_first_regret(result, length), result.worst_on(length).certificate)
            ),
        )
        for result in known
    ]
    return Table(("learner", *heads), tuple(rows))


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


def recommendation(contest: Contest) -> str | None:
    """Which learner to take, by what was measured: of those without a learning rate the one that lost least.

    None if there was no choice.
    """
    untold = sorted((result for result in contest.results if result.rate is None), key=lambda result: result.total)
    if len(untold) < 2:
        return None
    best = untold[0]
    said = f"Recommended here: {best.label}, which lost least of those without a learning rate: {number(best.total)}."
    for result in untold[1:]:
        if result.learner == "samuel" and number(result.total) != number(best.total):
            said += f" SAMUEL at its defaults trails: {number(result.total)}, {_compared(result.total, best.total)} it."
    return said


def findings(contest: Contest) -> tuple[str, ...]:
    """Findings: sentences made from the numbers."""
    ranked = sorted(contest.results, key=lambda result: result.total)
    best = [result for result in ranked if number(result.total) == number(ranked[0].total)]
    said = [f"Lowest total loss: {number(best[0].total)}, by {_named(best)}."]
    if contest.best_fixed is not None:
        said[0] += f" The best fixed point of the whole run loses {number(contest.best_fixed)}."
    if len(best) < len(ranked):
        said[0] += f" Highest: {number(ranked[-1].total)}, by {_named(ranked[-1:])}."
    rivals = [result for result in ranked if result.family != "samuel"]
    ours = [result for result in contest.results if result.family == "samuel"]
    untold = [result for result in rivals if result.rate is None]
    if ours and untold and rivals[0].rate is not None:
        said.append(
            f"Of the others without a learning rate, {_named(untold[:1])} loses least: {number(untold[0].total)}."
        )
    tried = [total for result in rivals for _, total in result.tried]
    # Every variant of SAMUEL: naming only the best would be a choice in hindsight.
    for result in ours if rivals else ():
        sentence = (
            f"{result.label}, without a learning rate, loses {number(result.total)}: "
            f"{_compared(result.total, rivals[0].total)} {_named(rivals[:1])}"
        )
        if tried:
            behind = sum(total > result.total for total in tried)
            sentence += f", and less than {behind} of the {len(tried)} runs the others tried with a rate of the list"
        said.append(sentence + ".")
    advice = recommendation(contest)
    if advice:
        said.append(advice)
    if len(ranked) > 1:
        said += [_worst_said(contest, length) for length in contest.lengths]
    return (*said, *bounds_findings(contest))


def _worst_said(contest: Contest, length: int) -> str:
    """The smallest worst regret on intervals of a length, and the rank of SAMUEL."""

    def regret(result: Result) -> float:
        return result.worst_on(length).regret

    ranked = sorted(contest.results, key=regret)
    best = [result for result in ranked if number(regret(result)) == number(regret(ranked[0]))]
    said = f"Smallest worst regret on {length} rounds: {number(regret(best[0]))}, by {_named(best)}"
    ours = [result for result in ranked if result.family == "samuel"]
    if ours and ours[0] not in best:
        said += f"; the best SAMUEL, {ours[0].label}, is number {ranked.index(ours[0]) + 1} of {len(ranked)} "
        said += f"with {number(regret(ours[0]))}"
    return said + "."


def _names(contest: Contest) -> Iterable[str]:
    return [result.learner for result in contest.results]


def _plus_minus(spread: float) -> str:
    return f" ± {number(spread, digits=2)}"


def _edge(result: Result) -> str:
    """A warning if the best rate is at an end of the list."""
    ends = (result.tried[0][0], result.tried[-1][0]) if result.tried else ()
    return "at the end of the list: a rate beyond it may be better" if result.rate in ends else ""


def _size(memory: int) -> str:
    """Bytes formatted for readers.

    >>> _size(80), _size(6112), _size(3_000_000)
    ('80 B', '6.0 KiB', '2.9 MiB')
    """
    if memory < 1024:
        return f"{memory} B"
    return f"{memory / 1024:.1f} KiB" if memory < 2**20 else f"{memory / 2**20:.1f} MiB"


def _listed(rates: Iterable[float]) -> str:
    return ", ".join(f"{rate:g}" for rate in rates)


def _first_regret(result: Result, length: int) -> float:
    """The regret that the certificate bounds: that of the first seed."""
    return result.worst_on(length).first_regret


def _where(result: Result, length: int) -> str:
    worst = result.worst_on(length)
    return f"rounds {worst.first} to {worst.last}"


def _named(results: Iterable[Result]) -> str:
    return " and ".join(r.label if r.rate is None else f"{r.label} with rate {r.rate:g}" for r in results)


def _compared(ours: float, theirs: float) -> str:
    if number(ours) == number(theirs):
        return "as much as"
    if min(ours, theirs) <= 0:  # linear losses may be negative, and then a ratio says nothing
        return f"{number(abs(ours - theirs))} {'less' if ours < theirs else 'more'} than"
    if number(theirs / ours) == "1.00":
        return "about as much as"
    if ours < theirs:
        return f"{number(theirs / ours)} times less than"
    return f"{number(ours / theirs)} times as much as"
