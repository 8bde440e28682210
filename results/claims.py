"""The tables of docs/claims.md: the paper's claims beside what the files of this folder have.

A verdict follows from the figures and the length of the run:

    confirmed            what the paper says holds, at its scale or of what needs no scale
    holds at this scale  it holds in a shorter or smaller run
    not at this scale    it does not hold in a shorter or smaller run
    contradicted         it does not hold at the paper's scale, or cannot
    not reproduced       what the paper measured of others is not what we measured
    untested             nothing was run that could tell
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from samuel_lab.studies import paper
from samuel_lab.trial import schedules

RESULTS = Path(__file__).parent
PAPERS = ("samuel-full", "samuel-full (plain)")
"""Algorithms 1 and 2 as printed, over optax's AdaGrad and over one whose sum of squares begins at 0."""
LINEAR = ("samuel-linear", "samuel-linear (plain)")
PLAIN = {"samuel-full (plain)": ", plain AdaGrad", "samuel-linear (plain)": ", plain AdaGrad"}
SHIFTS = ("shift_full", "shift_quarter", "shift_eighth", "shift_fiftieth")
"""The online experiment, the longest runs first."""
HEADS = ("first 100 rounds", "first 500", "first 1,000", "best before", "best after")
BASELINES = [method for method in paper.TABLE_2 if method != "samuel-full"]
BASES = {"sgd": "SGD", "adagrad": "AdaGrad", "adam": "Adam"}


class Claim(NamedTuple):
    """A row of the table."""

    claim: str
    papers: str
    """The paper's figure."""
    ours: str
    scale: str
    """How long and how large our run was, and with how many seeds."""
    verdict: str


def load(name: str) -> Any:
    """A file of this folder."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def study(name: str) -> dict[str, Any] | None:
    """The one study of a file, or None where there is no such file."""
    if not (RESULTS / f"{name}.json").exists():
        return None
    (found,) = load(name)["studies"]
    return found


def values(found: dict[str, Any], method: str) -> dict[str, dict[str, Any]]:
    """The columns of a method that have a mean; empty where it has no row."""
    rows = {row["method"]: row["values"] for row in found["rows"]}
    return {key: value for key, value in rows.get(method, {}).items() if value["mean"] is not None}


def percent(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f}"


def seeded(scale: str, row: dict[str, dict[str, Any]] | None = None) -> str:
    """A scale, with how many seeds a row has, or one."""
    seeds = 1 if row is None else max(len(value["seeds"]) for value in row.values())
    return f"{scale}; {seeds} seed{'s' * (seeds > 1)}"


def verdict(holds: bool, whole: bool) -> str:
    """What a figure says of a claim."""
    if whole:
        return "confirmed" if holds else "contradicted"
    return "holds at this scale" if holds else "not at this scale"


def longest(methods: tuple[str, ...]) -> tuple[str, dict[str, Any], str]:
    """The longest shift in which one of some methods was trained."""
    for name in SHIFTS:
        found = study(name)
        for method in methods if found else ():
            if values(found, method):
                return name, found, method
    raise ValueError(f"no shift has a row of {methods}")


def shown(column: str) -> str:
    """A metric in words.

    >>> shown("window_100"), shown("best_after")
    ('first 100 rounds', 'best after')
    """
    known = dict(zip(paper.COLUMNS, HEADS, strict=True))
    return known.get(column, f"first {column.removeprefix('window_')} rounds")


def against_baselines(methods: tuple[str, ...]) -> tuple[dict[str, tuple[float, float]], Any, str]:
    """Each metric of a method and the best of the baselines in the same study, at the paper's rates."""
    _, found, method = longest(methods)
    ours, others = values(found, method), [values(found, baseline) for baseline in BASELINES]
    best = {key: max((row[key]["mean"] for row in others if key in row), default=None) for key in ours}
    return {key: (ours[key]["mean"], best[key]) for key in ours if best[key] is not None}, found, method


def lead(column: str) -> float:
    """By how many points SAMUEL is above the best baseline in the paper."""
    return paper.TABLE_2["samuel-full"][column].mean - max(paper.TABLE_2[one][column].mean for one in BASELINES)


def online(claim: str, methods: tuple[str, ...], papers: str, columns: tuple[str, ...] = paper.COLUMNS) -> Claim:
    """Is it above all baselines, in every metric?"""
    pairs, found, method = against_baselines(methods)
    if len(columns) < len(paper.COLUMNS):
        pairs = {key: pairs[key] for key in columns}
    won = sum(mine > best for mine, best in pairs.values())
    (first, (mine, best)), *_ = pairs.items()
    trained = sum(bool(values(found, baseline)) for baseline in BASELINES)
    whole = found["rounds"] == 25_600 and trained == len(BASELINES)
    counted = f"{won} of {len(pairs)} metrics; " if len(pairs) > 1 else ""
    return Claim(
        claim,
        papers,
        f"{counted}{shown(first)} {percent(mine)} against {percent(best)} %{PLAIN.get(method, '')}",
        seeded(f"{found['rounds']:,} of 25,600 rounds, {trained} of 12 baselines", values(found, method)),
        verdict(won == len(pairs), whole),
    )


def reproduced() -> Claim:
    """Are the baselines as good as the paper's?"""
    found = study("shift_full")
    gaps = [gap for baseline in BASELINES for gap in gaps_of(found, baseline).values()]
    trained = sum(bool(values(found, baseline)) for baseline in BASELINES)
    return Claim(
        "The 12 baselines reach the accuracies of Table 2",
        "[Table 2](#online-the-baselines-are-below-the-papers)",
        f"{min(gaps):.1f} to {max(gaps):.1f} points lower",
        seeded(f"25,600 of 25,600 rounds, {trained} of 12 baselines"),
        "not reproduced",
    )


def gaps_of(found: dict[str, Any], method: str) -> dict[str, float]:
    """By how many points a baseline is below the paper's."""
    ours = values(found, method)
    return {
        key: paper.TABLE_2[method][key].mean - 100 * ours[key]["mean"] for key in paper.TABLE_2[method] if key in ours
    }


OFFLINE = {
    "cifar10": ("cifar10_25_epochs", "CIFAR-10", "25 of 250 epochs", 3),
    "imagenet": ("imagenette", "ImageNet", "Imagenette at 64 pixels, 15 of 100 epochs", None),
    "sst2": ("sst2", "SST-2", "25 of 25 epochs", None),
}
"""By study: file, name, scale, and the place in the search that the paper names."""


def offline(name: str) -> Claim:
    """Is Algorithm 2 as good as the best schedule, to within what it was behind in the paper?"""
    file, label, scale, place = OFFLINE[name]
    found, printed = study(file), paper.OFFLINE[name]
    method = next(method for method in PAPERS if values(found, method))
    ours, search = values(found, method)["last_accuracy"], values(found, "search:best")["last_accuracy"]["mean"]
    behind = 100 * (search - ours["mean"])
    rank = next(row for row in found["rows"] if row["method"] == method)["rank_by_last"]
    holds = behind <= printed.search - printed.samuel_mean or (place is not None and rank <= place)
    best = values(found, method)["best_accuracy"]["mean"]
    return Claim(
        f"{label}: one run of Algorithm 2 is about as good as the best of 125 schedules",
        f"{printed.samuel:.2f} ({printed.samuel_mean:.2f} over {printed.seeds} seeds) against {printed.search:.2f} %",
        f"{percent(ours['mean'])} (best on the way {percent(best)}) against {percent(search)} %, place {rank} of 125"
        f"{PLAIN.get(method, '')}",
        seeded(scale, values(found, method)),
        verdict(holds, name == "sst2"),
    )


def stability(file: str, label: str, epochs: int) -> Claim:
    """Do all 18 runs end alike?"""
    found = study(file)
    ends = [row["values"]["last_accuracy"]["mean"] for row in found["rows"]]
    spread = 100 * (max(ends) - min(ends))
    plain = {run["options"].get("experts_adagrad", "plain") for run in found["runs"]} == {"plain"}
    trained = round(found["rounds"] * found["batch"] / found["data"]["train"])
    model = found["model"]
    return Claim(
        f"{label}: {len(ends)} choices of history decays and step sizes end at nearly the same accuracy",
        "a figure without numbers",
        f"{percent(min(ends))} to {percent(max(ends))} %{', plain AdaGrad' * plain}",
        seeded(f"{model['name']}, {model['parameters']:,} parameters, {trained} of {epochs} epochs"),
        verdict(spread < 1, False),
    )


def compute(file: str, label: str) -> Claim:
    """How much more device time does a search take? At least three quarters of what the paper's hours say at most."""
    found = study(file)
    rows = {row["method"]: row["device_hours"] for row in found["compute"]}
    search = next(hours for method, hours in rows.items() if "/" in method)
    ratio = search / next(rows[method] for method in PAPERS if method in rows)
    printed = [cost.search / cost.samuel for cost in paper.COMPUTE.values()]
    return Claim(
        f"{label}: SAMUEL needs 25 times less computation than the search",
        f"{min(printed):.0f} to {max(printed):.0f} times in its table of hours",
        f"{ratio:.0f} times",
        "measured time of a step, times the steps of the protocol",
        "confirmed" if ratio > 0.75 * max(printed) else "contradicted",
    )


def theorem() -> Claim:
    """Is the worst regret on intervals below a constant times its bound?"""
    file = load("table1")
    found = [
        row["intervals"][0]["regret_over_own_bound"]
        for stream in file["streams"]
        for row in stream["learners"]
        if row["learner"].startswith("samuel")
    ]
    return Claim(
        "Theorem and corollaries: on every interval the regret is of the order of Adagrad's",
        "proved up to constants",
        "[proved with constants](mathematics.md#3-the-theorem-with-its-constants); the worst regret is "
        f"{min(found):.2f} to {max(found):.2f} times [its unit](table1.md)",
        f"{file['streams'][0]['rounds']:,} rounds of {len(file['streams'])} kinds of streams; "
        f"{file['streams'][0]['seeds']} seeds",
        "confirmed",
    )


def valleys() -> Claim:
    """The example of the introduction."""
    (found,) = [stream for stream in load("play")["streams"] if stream["stream"] == "two-valleys"]
    losses = {row["learner"]: row["total_loss"] for row in found["learners"]}
    return Claim(
        "Example with two valleys: a total loss of order log T where the best fixed point loses T",
        "O(log T) against T",
        f"{losses['samuel-blocks']:.1f} against {found['best_fixed_point']:,.0f}",
        f"T = {found['rounds']:,}",
        "confirmed",
    )


BY_MATHEMATICS = (
    Claim(
        "Any adaptive method with a regret bound can be the expert, such as Adam or Adadelta",
        "stated",
        "true of methods with a bound; "
        "[Adam and Adadelta have none](mathematics.md#5-where-the-paper-is-loose-and-what-is-done-here)",
        "mathematics",
        "contradicted for the two",
    ),
    Claim(
        "Corollary for diagonal Adagrad: the bound has the coordinates of the sum of gradients",
        "stated",
        "gradients that cancel make it 0; "
        "[it needs the roots of sums of squares](mathematics.md#5-where-the-paper-is-loose-and-what-is-done-here)",
        "mathematics",
        "contradicted as printed",
    ),
    Claim(
        "Table 1: the bound with a full matrix improves on all above it",
        "the smallest of four",
        "with the factor of √d that the table leaves out it is [never below the row above](table1.md)",
        "mathematics",
        "contradicted",
    ),
    Claim(
        "The introduction's bound over partitions can be significantly lower than Adagrad's",
        "min over k and H₁ to H_k",
        "for given gradients k = 1 has the minimum, Adagrad's own (`theory.partition_bound`); more pieces bound the "
        "regret against a point for each",
        "mathematics",
        "contradicted as printed",
    ),
    Claim(
        "Remark: a cover of all intervals saves a factor of √log T",
        "stated",
        "implemented (`AllIntervals`); no run is long enough to tell √log T",
        "",
        "untested",
    ),
)


def claims() -> str:
    """The table of claims."""
    rows = [
        theorem(),
        *BY_MATHEMATICS,
        valleys(),
        reproduced(),
        online(
            "Shift: Algorithm 1 with 40 experts is above all 12 baselines in every metric",
            PAPERS,
            f"5 of 5 metrics, by {min(map(lead, paper.COLUMNS)):.2f} points or more",
        ),
        online(
            "Shift: it recovers fastest in the first 100 rounds",
            PAPERS,
            f"by {lead('window_100'):.1f} points",
            paper.COLUMNS[:1],
        ),
        online("Shift: the same with one gradient a round (our addition)", LINEAR, "not run"),
        *map(offline, OFFLINE),
        stability("stability_digits", "Digits", 20),
        stability("stability_cifar10", "CIFAR-10", 250),
        compute("compute_cifar10", "CIFAR-10"),
        compute("compute_digits", "Digits"),
        *(
            compute(file, label)
            for file, label in (("compute_imagenette", "Imagenette"), ("compute_sst2", "SST-2"))
            if study(file)
        ),
    ]
    return _table(
        ("claim", "verdict", "the paper", "ours", "our scale"),
        [(row.claim, f"**{row.verdict}**", row.papers, row.ours, row.scale) for row in rows],
    )


def table_2() -> str:
    """The paper's Table 2 beside ours at a quarter of its length."""
    found = study("shift_quarter")
    lines = []
    for method, printed in paper.TABLE_2.items():
        mine = next((values(found, name) for name in (method, f"{method} (plain)") if values(found, name)), {})
        cells = [
            f"{printed[key].mean:.1f} / {percent(mine[key]['mean']) if key in mine else '—'}" for key in paper.COLUMNS
        ]
        base, _, schedule = method.partition("/")
        label = f"{BASES[base]}, {schedule.replace('warmup-cosine', 'warm-up and cosine')}" if schedule else "SAMUEL"
        lines.append([label, *cells])
    return _table(("accuracy, %: the paper's / ours", *HEADS), lines, numbers=True)


def gaps() -> str:
    """By how many points the baselines are below the paper's."""
    lines = []
    for name, said in (("shift_full", "full length"), ("shift_quarter", "a quarter of it")):
        found = study(name)
        trained = [gaps_of(found, baseline) for baseline in BASELINES if values(found, baseline)]
        cells = []
        for key in paper.COLUMNS:
            points = [row[key] for row in trained]
            cells.append(f"{min(points):.0f} to {max(points):.0f}")
        lines.append([f"{said}, {len(trained)} of 12", *cells])
    return _table(("points below the paper's", *HEADS), lines, numbers=True)


def searched_rates() -> str:
    """A sentence on the baselines at the best rates that were tried."""
    means: dict[str, dict[float, float]] = {}
    for row in study("shift_rates")["rows"]:
        method, _, rate = row["method"].partition("@")
        if rate:
            columns = [value["mean"] for value in row["values"].values()]
            means.setdefault(method, {})[float(rate)] = sum(columns) / len(columns) if None not in columns else -1.0
    best = {method: max(tried, key=tried.__getitem__) for method, tried in means.items()}
    factors = [best[method] / schedules.BASELINES[tuple(method.split("/"))] for method in BASELINES]
    larger = [factor for factor in factors if factor > 1.5]
    quarter = study("shift_quarter")
    points = [
        paper.TABLE_2[method]["window_100"].mean - 100 * values(quarter, name)["window_100"]["mean"]
        for method in BASELINES
        if values(quarter, name := f"{method}@{best[method]:g}")
    ]
    return (
        f"{len(larger)} of the 12 baselines do best with {min(larger):.0f} to {max(larger):.0f} times the paper's "
        f"rate, of {min(map(len, means.values()))} to {max(map(len, means.values()))} rates tried at a sixteenth of "
        f"the length. At a quarter of it, {len(points)} with their best rates are still {min(points):.0f} to "
        f"{max(points):.0f} points below the paper's in the first 100 rounds.\n"
    )


def algorithm_2() -> str:
    """Sentences on what Algorithm 2 did in our runs."""
    parts = []
    for name, (file, label, scale, _) in OFFLINE.items():
        found, printed = study(file), paper.OFFLINE[name]
        method = next(method for method in PAPERS if values(found, method))
        mine, search = (values(found, one)["last_accuracy"]["mean"] for one in (method, "search:best"))
        parts.append(
            f"on {label} ({scale}) it ends {100 * (search - mine):.1f} points behind the best schedule, in the paper "
            f"{printed.search - printed.samuel_mean:.2f}"
        )
    return f"Algorithm 2 is not level with the best schedule in our runs: {'; '.join(parts)}.\n"


def _table(head: tuple[str, ...], rows: Any, numbers: bool = False) -> str:
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rows))


TABLES = {
    "claims": claims,
    "table_2": table_2,
    "gaps": gaps,
    "searched_rates": searched_rates,
    "algorithm_2": algorithm_2,
}
"""The tables by the names that markers give them."""
