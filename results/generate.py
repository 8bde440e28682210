"""Generate the tables of README.md and docs/, and README's picture, from the files in this folder.

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
PICTURE = ROOT / "docs" / "images" / "offline.svg"
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

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
    'Adam, warm-up and cosine, 0.05, averaged'
    """
    if method in LABELS:
        return LABELS[method]
    plain = method.removesuffix("+average")
    if plain in LABELS:
        return f"{LABELS[plain]}, averaged"
    pair, _, rates = plain.partition("@")
    base, _, schedule = pair.partition("/")
    parts = [BASES[base], schedule.replace("warmup-cosine", "warm-up and cosine")]
    parts += [rates.replace(":", ", ")] if rates else []
    parts += ["averaged"] if plain != method else []
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
    rows = sorted((row for row in found["rows"] if "patient" not in row["method"]), key=place_of)  # a removed rule
    tops = {key: best([row["values"].get(key) for row in rows]) for key in heads}

    def seeds(row: dict[str, Any]) -> str:
        return str(max(len(value["seeds"]) for value in row["values"].values()))

    places = any(row.get("rank_by_last") for row in rows)
    lines = []
    for row in rows:
        place = [str(row.get("rank_by_last") or "")] if places else []
        lines.append(
            [label(row["method"]), *(cell_of(row["values"].get(key), tops[key]) for key in heads), *place, seeds(row)]
        )
    head = ["accuracy, %", *heads.values(), *(["place in the search"] if places else []), "seeds"]
    return table(head, lines)


SHIFT_COLUMNS = {
    "window_100": "first 100 rounds",
    "window_500": "first 500",
    "window_1000": "first 1,000",
    "best_before": "best before",
    "best_after": "best after",
}


def adams(rows: dict[str, Any]) -> list[str]:
    """Adam with and without decoupled weight decay, at every rate and schedule that was tried."""
    return [method for method in rows if method.startswith(("adam/", "adamw/"))]


COMPARED: dict[str, Callable[[dict[str, Any]], Sequence[str]]] = {
    "SAMUEL": lambda rows: ["samuel"],
    "SAMUEL, previous version": lambda rows: ["samuel (one search)"],
    "Muon, linear from 0.01": lambda rows: ["muonw/linear@0.01+average"],
    "best Adam(W) tried": adams,
    "best rate-free tried": lambda rows: PEERS,
}
"""What README compares, and the methods of a study among which each is the best, also where only test data can tell."""


def best_of(rows: dict[str, Any], methods: Iterable[str], key: str) -> dict[str, Any] | None:
    """The largest of some methods' values, or None where none was trained."""
    values = [rows[method]["values"].get(key) for method in methods if method in rows]
    known = [value for value in values if value is not None and value["mean"] is not None]
    return max(known, key=lambda value: value["mean"], default=None)


def headline() -> str:
    """README's table: SAMUEL beside what searches found."""
    tasks = [
        ("shift_quarter", "window_100", "shift, 100 rounds"),
        ("shift_quarter", "best_after", "shift, best"),
        ("cifar10_25_epochs", "last_accuracy", "CIFAR-10"),
        ("imagenette", "last_accuracy", "Imagenette"),
        ("sst2", "last_accuracy", "SST-2"),
    ]
    trained = {name: rows_of(study(name)) for name, *_ in tasks}

    def searched(rows: dict[str, Any]) -> list[str]:
        return ["search:best"] if "search:best" in rows else [method for method in rows if of_twelve(method)]

    sizes = [sum(map(of_twelve, rows_of(study("shift_rates"))))]
    sizes += [len(study(name)["search"]["last_accuracy"]) for name, rows in trained.items() if "search:best" in rows]
    tried = [len(adams(rows)) for rows in trained.values()]
    runs = {"best Adam(W) tried": span(tried)}
    runs |= {
        "best rate-free tried": str(len(PEERS)),
        "best of the paper's search": span(sizes),
    }
    kinds = {**COMPARED, "best of the paper's search": searched}
    cells = {
        name: [best_of(trained[of], pick(trained[of]), key) for of, key, _ in tasks] for name, pick in kinds.items()
    }
    tops = [best(column) for column in zip(*cells.values(), strict=True)]
    return table(
        ["test accuracy, %", "runs tried", "seeds", *(head for *_, head in tasks)],
        [
            [name.replace("SAMUEL", "**SAMUEL**"), runs.get(name, "1"), seeds_of(row), *map(cell_of, row, tops)]
            for name, row in cells.items()
            if any(row)
        ],
    )


def picture() -> str:
    """README's picture: all schedules of three searches, and the rows of its table."""
    drawing = beside("draw")
    panels = []
    for title, name in {
        "CIFAR-10, 25 epochs": "cifar10_25_epochs",
        "Imagenette, 15 epochs": "imagenette",
        "SST-2, 25 epochs": "sst2",
    }.items():
        found, lines = study(name), {}
        for label, pick in COMPARED.items():
            value = best_of(rows_of(found), pick(rows_of(found)), "last_accuracy")
            if value is not None:
                lines[label] = 100 * value["mean"]
        panels.append(drawing.Panel(title, [100 * value for value in found["search"]["last_accuracy"]], lines))
    return drawing.draw(panels, [label for label in COMPARED if any(label in panel.lines for panel in panels)])


def place_of(row: dict[str, Any]) -> int:
    """Where a row stands in the table of a study: SAMUEL, the paper's algorithm, searches, what has no rate, others."""
    method = row["method"]
    kinds = [
        method.startswith("samuel") and not method.startswith(("samuel-linear", "samuel-full")),
        method.startswith("samuel"),
        method.startswith("search:"),
        "/" not in method,
        method.startswith(("muon", "adamw")),
        method in TWELVE,
        True,
    ]
    return kinds.index(True)


def seeds_of(cells: Iterable[dict[str, Any] | None]) -> str:
    """How many seeds the cells of a row are means of."""
    return span([len(cell["seeds"]) for cell in cells if cell is not None])


def span(counts: Sequence[int]) -> str:
    """The smallest and the largest of some counts.

    >>> span([3, 1, 2]), span([3, 3])
    ('1–3', '3')
    """
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}\u2013{max(counts)}"


def cell_of(value: dict[str, Any] | None, top: float) -> str:
    """A value in percent, in bold where it is the best of its column."""
    return f"**{percent(value)}**" if value is not None and value["mean"] == top else percent(value)


def of_twelve(method: str) -> bool:
    """Whether a method is one of the paper's twelve baselines, at its rate or at another."""
    return method.split("@")[0] in TWELVE and "+" not in method


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


def recovery() -> str:
    """How fast a small network recovers from permuted labels."""
    lines = []
    for row in load("recovery")["optimizers"]:
        failed = sum(steps is None for steps in row["each"])
        steps = f"{row['steps']:.0f}" if not failed else f"not in {failed} of {len(row['each'])} runs"
        lines.append(
            [row["name"].replace("samuel", "SAMUEL").replace("adam", "Adam"), f"{100 * row['accuracy']:.2f}", steps]
        )
    return table(["", "accuracy, %", "steps to recover"], lines)


SMALL_TASKS = {"digits": "digits", "shift": "digits, labels permuted half-way", "text": "bytes of source code"}


def small_tasks() -> str:
    """Test loss at the end of small tasks in PyTorch, and the steps until a shift is recovered from."""
    runs = load("small_tasks")["runs"]
    methods = list(dict.fromkeys(run["method"] for run in runs))

    def mean(task: str, method: str, key: str) -> float | None:
        found = [run[key] for run in runs if (run["task"], run["method"]) == (task, method)]
        return None if None in found else sum(found) / len(found)

    def sweep(kind: str, task: str, key: str) -> tuple[str, str]:
        values = {m: mean(task, m, key) for m in methods if m.startswith(f"{kind}@")}
        known = {m: value for m, value in values.items() if value is not None}
        best = min(known, key=lambda m: known[m])
        return f"{known[best]:.{0 if key == 'recovery' else 3}f}", best.partition("@")[2]

    lines = []
    for name, written in (
        ("samuel", "SAMUEL"),
        ("samuel, averaged", "SAMUEL, averaged"),
        ("samuel-untold", "SAMUEL, steps not given"),
        ("samuel-adam", "SAMUEL over Adam"),
        ("samuel-adam-untold", "SAMUEL over Adam, steps not given"),
    ):
        losses = [f"{mean(task, name, 'loss'):.3f}" for task in SMALL_TASKS]
        lines.append([written, *losses, f"{mean('shift', name, 'recovery'):.0f}"])
    for kind, written in (("adamw", "AdamW, best of 5 rates"), ("muon", "Muon, best of 4 rates")):
        cells = [sweep(kind, task, "loss") for task in SMALL_TASKS] + [sweep(kind, "shift", "recovery")]
        lines.append([written, *(f"{value} ({rate})" for value, rate in cells)])
    return table(["test loss", *SMALL_TASKS.values(), "steps to recover"], lines)


def memories(head: str, rows: Iterable[tuple[float, int, Sequence[float]]]) -> str:
    """First 100 and 500 rounds and best after a shift, in percent, for each memory; the seeds side by side."""
    found: dict[float, list[tuple[int, Sequence[float]]]] = {}
    for memory, seed, values in rows:
        found.setdefault(memory, []).append((seed, values))
    lines = []
    for memory in sorted(found):
        seeds = sorted(found[memory])
        lines.append(
            [f"memory {memory:,.0f}", *(" / ".join(f"{values[i]:.1f}" for _, values in seeds) for i in range(3))]
        )
    return table([head, "first 100", "first 500", "best after"], lines)


def memory_over_adam() -> str:
    """What remembering rates does after a shift, an eighth of the protocol."""
    rows = [
        (0, run["seed"], [run["decision"][i] for i in (0, 1, 4)])
        for run in load("research_rule")["runs"]
        if run["what"] == "the complete rule, decay 0.3" and run["task"] == "shift at 0.125"
    ]
    for run in load("research_alarm")["runs"]:
        memory = run["after_an_alarm"].get("as_if_rounds_old")
        if memory and run["scale"] == 0.125:
            keys = ("window_100", "window_500", "best_after")
            rows.append((memory, run["seed"], [100 * run[key] for key in keys]))
    return memories("over Adam, an eighth of the protocol, seed 100 / 101", rows)


def memory_over_muon() -> str:
    """The same over Muon, from one state at the shift, in 1,000 rounds after it."""
    rows = load("research_rebound")["experience, from one state at the shift"]
    return memories(
        "over Muon, a quarter of the protocol, seed 100 / 101",
        [(row["experience"], row["seed"], [row["metrics"][i] for i in (0, 1, 4)]) for row in rows],
    )


def step_times() -> str:
    """Time of a training step in PyTorch beside AdamW's."""
    columns = {
        "Samuel over Muon, told": "SAMUEL",
        "Samuel over Muon, not told": "steps not given",
        "Samuel over Adam, told": "over Adam",
        "torch.optim.Muon + AdamW": "`torch.optim.Muon`",
    }
    lines = []
    for name in ("torch_step_gpu", "torch_step_cpu"):
        if not (RESULTS / f"{name}.json").exists():
            continue
        found = load(name)
        for network in found["networks"]:
            ratios = {row["name"]: f"{row['over_adamw']:.2f}" for row in network["steps"]}
            size = f"{network['network']}, {network['parameters'] / 1e6:.0f} million parameters, {found['device']}"
            lines.append([size, *(ratios.get(column, "") for column in columns)])
    if not lines:
        return "Not measured with the current version; `results/torch_step_gpu.json` would be shown here.\n"
    return table(["time of a training step, fused AdamW = 1", *columns.values()], lines)


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
        lines.append([f"{learner}, best rate" if learner in tuned else learner, *cells])
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
    head += ["SAMUEL: passes", "iterations", "exchange", "whole step, AdamW = 1"]
    fields = ["megabytes_sent", "megabytes_sent_by_fully_shard", "forward_backward_ms", "adamw_ms"]
    fields += ["passes_ms", "iterations_ms", "exchange_ms"]
    lines = []
    for network in load("scaling")["networks"]:
        name = f"{network['network']} parameters"
        for row in network["steps"]:
            cells = [f"{row[field]:,.0f}" if row[field] >= 100 else f"{row[field]:.2g}" for field in fields]
            lines.append([name, str(row["gpus"]), *cells, f"{row['ratio']:.2f}"])
            name = ""
    return table(head, lines)


def torch_dtypes() -> str:
    """Accuracy and memory with parameters and state in float32 and bfloat16."""
    lines = []
    runs = load("torch_dtypes")["runs"]
    for kind in dict.fromkeys((run["parameters"], run["state"]) for run in runs):
        cells: list[str] = []
        of_kind = [run for run in runs if (run["parameters"], run["state"]) == kind]
        for given in (True, False):
            some = [run for run in of_kind if (run["steps"] is not None) == given]
            losses = " and ".join(f"{run['loss']:.3f}" for run in some)
            accuracies = " and ".join(f"{100 * run['accuracy']:.1f} %" for run in some)
            cells += [f"{losses}; {accuracies}", f"{some[0]['copies']:.2f}"]
        lines.append([*kind, *cells])
    return table(["parameters", "state", "`steps=` given", "copies", "not given", "copies"], lines)


def scaling_speeds() -> str:
    """What the table of many GPUs assumes of the hardware."""
    speeds = load("scaling")["speeds"]
    lines = [
        ["tokens on each GPU", f"{speeds['tokens']:,}"],
        ["training, at 6 operations for each parameter and token", f"{speeds['training'] / 1e12:.0f} TFLOP/s"],
        ["the five iterations that orthogonalise", f"{speeds['iterations'] / 1e12:.0f} TFLOP/s"],
        ["memory", f"{speeds['memory'] / 1e12:.1f} TB/s"],
        [f"links among the {speeds['node']} GPUs of a node", f"{speeds['within'] / 1e9:.0f} GB/s"],
        ["links between nodes", f"{speeds['between'] / 1e9:.0f} GB/s"],
        ["latency of a message", f"{1e6 * speeds['message']:.0f} µs"],
    ]
    return table(["", "speed"], lines)


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
    "small_tasks": small_tasks,
    "memory_over_adam": memory_over_adam,
    "memory_over_muon": memory_over_muon,
    "step_times": step_times,
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
    "torch_dtypes": torch_dtypes,
    "scaling_speeds": scaling_speeds,
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
    """Write the tables and pictures, or check that nothing would change."""
    made = {page: generated(page.read_text()) for page in pages()} | {PICTURE: picture()}
    stale = [path for path, text in made.items() if text != path.read_text()]
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(f"{path.relative_to(ROOT)} is not what results/ has" for path in stale) or 0)
    for path in stale:
        path.write_text(made[path])
        print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
