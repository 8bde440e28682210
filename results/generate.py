"""Generate the tables of README.md and docs/ from the files in this folder.

    python results/generate.py            write them
    python results/generate.py --check    exit with 1 where writing would change anything

A page has a table between two markers, which name the function below that makes it:

    <!-- table: shift_quarter -->
    <!-- end of table -->

To add a table: one function in `TABLES`, and its markers on the page where it belongs.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

SAMUEL = ("samuel", "samuel (one search)")
"""SAMUEL at its defaults, the newest rows first; older rows have one search for all parameters."""
PEERS = ("schedule-free", "prodigy", "dadapt-adamw", "mechanic", "momo", "dog")
TWELVE = [
    f"{base}/{schedule}"
    for base in ("sgd", "adagrad", "adam")
    for schedule in ("constant", "cosine", "warmup-cosine", "exponential")
]
LABELS = {
    "samuel": "SAMUEL",
    "samuel-untold": "SAMUEL, steps not given",
    "samuel-adam": "SAMUEL over Adam",
    "samuel (one search)": "SAMUEL, one search for all parameters",
    "samuel-adam (one search)": "SAMUEL over Adam, one search",
    "samuel-adagrad (one search)": "SAMUEL over AdaGrad, one search",
    "samuel-linear": "the paper's algorithm, one gradient a step",
    "samuel-linear (plain)": "the paper's algorithm, one gradient a step, AdaGrad from 0",
    "samuel-full": "the paper's algorithm, a network for each expert",
    "samuel-full (plain)": "the paper's algorithm, a network for each expert, AdaGrad from 0",
    "schedule-free": "Schedule-Free AdamW",
    "prodigy": "Prodigy",
    "dadapt-adamw": "D-Adapt AdamW",
    "mechanic": "Mechanic",
    "momo": "MoMo",
    "momo-adam": "MoMo-Adam",
    "dog": "DoG",
    "dowg": "DoWG",
    "cocob": "COCOB",
    "search:best": "best schedule of the search",
    "search:median": "median of the search",
    "search:worst": "worst of the search",
}
BASES = {
    "sgd": "SGD",
    "momentum": "SGD with momentum",
    "nesterov": "SGD with Nesterov momentum",
    "adagrad": "AdaGrad",
    "adam": "Adam",
    "adamw": "AdamW, weight decay 0.3",
    "muonw": "Muon, weight decay 0.3",
}


def load(name: str) -> Any:
    """A file of this folder."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def study(name: str) -> dict[str, Any]:
    """The one study of a file."""
    (found,) = load(name)["studies"]
    return found


def rows_of(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Its rows by method."""
    return {row["method"]: row for row in found["rows"]}


def label(method: str) -> str:
    """A method as tables call it.

    >>> label("adam/warmup-cosine@0.05+average")
    "Adam, warm-up and cosine, 0.05, SAMUEL's average"
    """
    if method in LABELS:
        return LABELS[method]
    plain = method.removesuffix("+average")
    pair, _, rates = plain.partition("@")
    base, _, schedule = pair.partition("/")
    parts = [BASES[base], schedule.replace("warmup-cosine", "warm-up and cosine")]
    parts += [rates.replace(":", ", ")] if rates else []
    parts += ["SAMUEL's average"] if plain != method else []
    return ", ".join(parts)


def percent(value: dict[str, Any] | None, digits: int = 1) -> str:
    """A mean over seeds in percent, with the deviation where there are several."""
    if value is None or value["mean"] is None:
        return ""
    mean = f"{100 * value['mean']:.{digits}f}"
    return mean if value["deviation"] is None else f"{mean} ± {100 * value['deviation']:.{digits}f}"


def best(cells: Sequence[dict[str, Any] | None]) -> float:
    """The largest mean of some cells."""
    return max(cell["mean"] for cell in cells if cell is not None and cell["mean"] is not None)


def table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose first column is text and whose others are numbers."""
    rows = [head, ["---", *["---:"] * (len(head) - 1)], *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def study_table(name: str, columns: dict[str, str] | None = None) -> str:
    """All methods of a study, with the best of every column in bold."""
    found = study(name)
    heads = columns or {column["key"]: column["head"] for column in found["columns"] if "loss" not in column["key"]}
    rows = [row for row in found["rows"] if "patient" not in row["method"]]  # a rule that was removed
    tops = {key: best([row["values"].get(key) for row in rows]) for key in heads}

    def cell(row: dict[str, Any], key: str) -> str:
        value = row["values"].get(key)
        written = percent(value)
        return f"**{written}**" if value is not None and value["mean"] == tops[key] else written

    def seeds(row: dict[str, Any]) -> str:
        return str(max(len(value["seeds"]) for value in row["values"].values()))

    places = any(row.get("rank_by_last") for row in rows)
    lines = []
    for row in rows:
        place = [str(row.get("rank_by_last") or "")] if places else []
        lines.append([label(row["method"]), *(cell(row, key) for key in heads), *place, seeds(row)])
    head = ["accuracy, %", *heads.values(), *(["place in the search"] if places else []), "seeds"]
    return table(head, lines)


SHIFT_COLUMNS = {
    "window_100": "first 100 rounds",
    "window_500": "first 500",
    "window_1000": "first 1,000",
    "best_before": "best before",
    "best_after": "best after",
}


def headline() -> str:
    """README's table: SAMUEL beside what a search would have found, and what needs none."""
    tasks = [
        ("shift_quarter", "window_100", "after a shift"),
        ("shift_quarter", "best_after", "its best"),
        ("cifar10_25_epochs", "last_accuracy", "CIFAR-10"),
        ("imagenette", "last_accuracy", "Imagenette"),
        ("sst2", "last_accuracy", "SST-2"),
    ]

    def cells(pick: Callable[[dict[str, Any]], list[str]]) -> list[str]:
        found = []
        for name, key, _ in tasks:
            rows = rows_of(study(name))
            values = [rows[method]["values"].get(key) for method in pick(rows) if method in rows]
            values = [value for value in values if value is not None and value["mean"] is not None]
            top = max(values, key=lambda value: value["mean"], default=None)
            found.append(percent(top))
        return found

    def searched(rows: dict[str, Any]) -> list[str]:
        if "search:best" in rows:
            return ["search:best"]
        return [method for method in rows if method.split("@")[0] in TWELVE and "+" not in method]

    lines = [
        ["**SAMUEL**", *(f"**{cell}**" for cell in cells(lambda rows: newest(rows, SAMUEL)))],
        ["best of a search", *cells(searched)],
        ["best of six rate-free methods", *cells(lambda rows: list(PEERS))],
        ["Adam at 0.001, cosine", *cells(lambda rows: ["adam/warmup-cosine"])],
        ["Muon at 0.01, averaged", *cells(lambda rows: ["muonw/linear@0.01+average"])],
    ]
    return table(["test accuracy, %", *(head for *_, head in tasks)], lines)


def experts_adagrad() -> str:
    """The two kinds of AdaGrad of the paper's experts, after the shift of the digits."""
    rows, key = rows_of(study("digits")), "window_100"
    lines = [
        [label(name), *(percent(rows[method]["values"][key]) for method in (name, f"{name} (plain)"))]
        for name in ("samuel-full", "samuel-linear")
    ]
    return table(
        ["digits, first 100 rounds after the shift, %", "sum from 0.1 (`optax`)", "sum from 0 (`plain`)"], lines
    )


def newest(rows: dict[str, Any], names: Sequence[str]) -> list[str]:
    """The first of some methods that has a row."""
    return [name for name in names if name in rows][:1]


def recovery() -> str:
    """How fast a small network recovers from permuted labels."""
    lines = []
    for row in load("recovery")["optimizers"]:
        failed = sum(steps is None for steps in row["each"])
        steps = f"{row['steps']:.0f}" if not failed else f"not in {failed} of {len(row['each'])} runs"
        lines.append([row["name"], f"{100 * row['accuracy']:.2f}", steps])
    return table(["", "accuracy, %", "steps to recover"], lines)


def streams(name: str) -> str:
    """Total losses of learners on streams; bold is the best of those without a learning rate."""
    found = load(name)["streams"]
    losses = {
        (learner["learner"], stream["stream"]): learner
        for stream in found
        for learner in stream["learners"]
        if learner["total_loss"] is not None
    }
    tuned = {learner for (learner, _), row in losses.items() if row["rate"] is not None}
    lines = []
    for learner in dict.fromkeys(learner for learner, _ in losses):
        cells = []
        for stream in found:
            row = losses.get((learner, stream["stream"]))
            others = [
                one["total_loss"] for (of, at), one in losses.items() if at == stream["stream"] and of not in tuned
            ]
            written = "" if row is None else number(row["total_loss"])
            best_here = row is not None and learner not in tuned and row["total_loss"] == min(others)
            cells.append(f"**{written}**" if best_here else written)
        lines.append([f"{learner}, best rate in hindsight" if learner in tuned else learner, *cells])
    return table(["total loss", *(stream["stream"] for stream in found)], lines)


def unseen(half: str) -> str:
    """The default SAMUEL beside the best constant rate in hindsight, and among all methods that are told nothing."""
    lines = []
    for row in load("unseen")[half].values():
        losses = {name: mean(values) for name, values in row["losses"].items() if not name.startswith("samuel-")}
        others = {name: loss for name, loss in losses.items() if name != "samuel"}
        best = min(others, key=others.__getitem__, default=None)
        lines.append(
            [
                row["stream"],
                f"{row['rounds']:,}",
                number(mean(row["best_rate"]["loss"])),
                number(losses["samuel"]),
                f"{row['standing']['samuel']['ratio']:.2f}",
                f"{row['standing']['samuel']['place']} of {len(losses)}" if others else "",
                f"{best}: {number(others[best])}" if best else "",
            ]
        )
    head = ["total loss", "rounds", "best rate in hindsight", "SAMUEL", "ratio", "place", "best of the others"]
    return table(head, lines)


def unseen_summary() -> str:
    """On how many streams the target was reached: by today's default, and by SAMUEL over Adagrad on blocks."""
    lines = []
    for half, about in (("choose", "streams for choosing"), ("report", "streams for reporting")):
        for name in ("samuel", "samuel-blocks"):
            found = [row for row in load("unseen")[half].values() if name in row["standing"]]
            ratios = sorted(row["standing"][name]["ratio"] for row in found)
            ranked = [row["standing"][name]["place"] for row in found if len(row["losses"]) > 2]
            lines.append(
                [
                    f"{about}, {name}",
                    f"{sum(ratio <= 1.15 for ratio in ratios)} of {len(found)}",
                    f"{ratios[len(ratios) // 2]:.2f}",
                    f"{ratios[-1]:.2f}",
                    f"{sum(place <= 2 for place in ranked)} of {len(ranked)}" if ranked else "",
                ]
            )
    head = ["", "within 1.15 of the best rate", "median ratio", "largest", "first or second"]
    return table(head, lines)


def speeds() -> str:
    """Time of a round of every method, as multiples of Adagrad's."""
    found = load("rivals_speed")["methods"]
    (unit,) = (row for row in found if row["method"] == "adagrad")
    kinds = ("microseconds_by_hand", "microseconds_compiled")
    lines = [
        [
            row["method"] if row["rounds"] == unit["rounds"] else f"{row['method']}, {row['rounds']:,} rounds",
            *(number(row[kind] / unit[kind]) for kind in kinds),
        ]
        for row in sorted(found, key=lambda row: row["microseconds_compiled"])
    ]
    return table([f"time of a round, {unit['rounds']:,} rounds, Adagrad's = 1", "by hand", "compiled"], lines)


def online() -> str:
    """Rounds a second of SAMUEL in ten dimensions."""
    rows = [row for row in load("online")["ratios"] if row["dim"] == 10]
    lines = [[row["run"], f"{1 / row['seconds']:,.0f}", number(row["times_faster"])] for row in rows]
    return table(["d = 10, one core", "rounds a second", "times the plain loop"], lines)


def scaling() -> str:
    """What a step costs on many GPUs, on paper."""
    head = ["", "GPUs", "MB sent for matrices", "by `fully_shard`", "forward, backward", "AdamW"]
    head += ["SAMUEL: passes", "iterations", "exchange", "whole step over AdamW's"]
    fields = ["megabytes_sent", "megabytes_sent_by_fully_shard", "forward_backward_ms", "adamw_ms"]
    fields += ["passes_ms", "iterations_ms", "exchange_ms"]
    lines = []
    for network in load("scaling")["networks"]:
        name = f"{network['network']}, {network['iterations_tflop']:.0f} TFLOP of iterations"
        for row in network["steps"]:
            cells = [f"{row[field]:,.0f}" if row[field] >= 100 else f"{row[field]:.2g}" for field in fields]
            lines.append([name, str(row["gpus"]), *cells, f"{row['ratio']:.2f}"])
            name = ""
    return table(head, lines)


def regret_growth(stream: str, inside: str, lengths: Sequence[int]) -> str:
    """Worst regret on intervals of a stream of Table 1, and the power with which it grows."""
    (found,) = (one for one in load("table1")["streams"] if one["stream"] == f"table1-{stream}")
    (grid,) = (one for one in found["bounds"]["intervals"] if one["inside"] == inside)
    with_change = any(row["intervals"][0]["exponent_in_T"] is not None for row in found["learners"])
    lines = []
    for row in found["learners"]:
        (part,) = (one for one in row["intervals"] if one["inside"] == inside)
        cells = [number(part["worst_regret"][grid["lengths"].index(length)]) for length in lengths]
        cells.append(number(part["exponent"]))
        if with_change:
            cells.append(number(part["exponent_in_T"]))
        lines.append((part["worst_regret"][grid["lengths"].index(lengths[-1])], [row["label"], *cells]))
    head = ["worst regret", *(f"{length:,} rounds" for length in lengths), "power of the length"]
    head += ["after a change, power of T"] * with_change
    return table(head, [line for _, line in sorted(lines, key=lambda pair: -pair[0])])


def conformal(series: str) -> str:
    """Coverage, lowest coverage of a week and mean width of conformal intervals, a step and a day ahead."""
    rows = [row for row in load("conformal")["rows"] if row["series"] == series]
    horizons = sorted({row["ahead"] for row in rows})
    cells = {(row["method"], row["ahead"]): row for row in rows}
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        line = [method]
        for row in (cells[method, ahead] for ahead in horizons):
            infinite = f" ({100 * row['infinite']:.0f}% infinite)" if row["infinite"] >= 0.005 else ""
            line += [f"{row['coverage']:.3f}", f"{row['lowest_week']:.3f}", number(row["width"]) + infinite]
        lines.append(line)
    heads = [head for ahead in horizons for head in (f"{ahead} ahead: covered", "worst week", "width")]
    return table(["", *heads], lines)


def number(value: float) -> str:
    """A loss with three or more digits.

    >>> number(8.4563), number(-281.6), number(12488.3), number(6e14)
    ('8.46', '−282', '12,488', '6e+14')
    """
    if abs(value) >= 1e7:
        return f"{value:.0e}"
    written = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return written.replace("-", "\u2212")


def beside(name: str) -> Any:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, RESULTS / f"{name}.py")
    assert spec is not None, name
    assert spec.loader is not None, name
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES: dict[str, Callable[[], str]] = {
    "headline": headline,
    "shift_full": lambda: study_table("shift_full", SHIFT_COLUMNS),
    "shift_quarter": lambda: study_table("shift_quarter", SHIFT_COLUMNS),
    "shift_fiftieth": lambda: study_table("shift_fiftieth"),
    "cifar10": lambda: study_table("cifar10_25_epochs"),
    "imagenette": lambda: study_table("imagenette"),
    "sst2": lambda: study_table("sst2"),
    "digits": lambda: study_table("digits"),
    "digits_sweep": lambda: study_table("digits_sweep"),
    "digits_offline": lambda: study_table("digits_offline"),
    "experts_adagrad": experts_adagrad,
    "recovery": recovery,
    "rivals": lambda: streams("rivals"),
    "electricity": lambda: streams("play_electricity"),
    **beside("claims").TABLES,
    "unseen_summary": unseen_summary,
    "unseen_report": lambda: unseen("report"),
    "unseen_choose": lambda: unseen("choose"),
    "rivals_speed": speeds,
    "online": online,
    "table1_changes": lambda: regret_growth("changes", "stretch", (64, 512)),
    "scaling": scaling,
    "table1_calm": lambda: regret_growth("storms", "calm", (64, 1024)),
    "table1_sparse": lambda: regret_growth("sparse", "stretch", (128, 1024)),
    "conformal_price": lambda: conformal("price"),
    "conformal_demand": lambda: conformal("demand"),
    "conformal_water": lambda: conformal("water flow"),
}
"""The tables by the names that markers give them."""


def generated(text: str) -> str:
    """A page with all of its tables made anew."""

    def made(match: re.Match[str]) -> str:
        start, name, end = match.groups()
        if name not in TABLES:
            raise ValueError(f"there is no table {name!r}; choose from {', '.join(TABLES)}")
        return f"{start}{TABLES[name]()}{end}"

    return MARKED.sub(made, text)


def pages() -> list[Path]:
    """Every page that may have tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(RESULTS.glob("*.md"))]


def main() -> None:
    """Write the tables, or check that nothing would change."""
    stale = [(page, new) for page in pages() if (new := generated(page.read_text())) != page.read_text()]
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(f"{page.relative_to(ROOT)} is not what results/ has" for page, _ in stale) or 0)
    for page, new in stale:
        page.write_text(new)
        print(f"wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
