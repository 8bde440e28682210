"""The numbers of README's first tables, and of what is said about them, are those of the files that it names."""

import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import pytest

from samuel_lab.report.summary import ordinal
from samuel_lab.trial.methods import expand
from samuel_lab.trial.schedules import BASELINES

ADAM, MUON = "samuel-adam (one search)", "samuel (one search)"

ROOT = Path(__file__).parents[1]
ROWS = {
    "SAMUEL over Adam": ADAM,
    "SAMUEL over Adam, rule `patient`": "samuel-adam (one search, patient)",
    "SAMUEL over Muon": MUON,
    "SAMUEL over Muon, rule `patient`": "samuel (one search, patient)",
    "SAMUEL, the paper's Algorithm 1 fed with one gradient a round": "samuel-linear",
    "SAMUEL, the paper's Algorithm 2, five networks": "samuel-full",
    "SAMUEL, the paper's Algorithm 2, one gradient a step": "samuel-linear",
    "best of the 125, known in hindsight": "search:best",
    "median of them": "search:median",
    "AdaGrad, cosine": "adagrad/cosine",
    "AdaGrad, warm-up to 1.5 and cosine, searched": "adagrad/warmup-cosine@1.5",
    "Adam, constant": "adam/constant",
    "Adam, warm-up and cosine": "adam/warmup-cosine",
    "one of them, Adam with warm-up and cosine": "adam/warmup-cosine",
    "one of them, AdaGrad with warm-up to 1.5 and cosine": "adagrad/warmup-cosine@1.5",
    "one of them, Adam with a constant rate of 0.003": "adam/constant@0.003",
    "Adam, warm-up cosine at the usual 0.001": "adam/warmup-cosine",
    "AdamW 0.005, warm-up and cosine, weight decay 0.3": "adamw/warmup-cosine@0.005",
    "AdamW 0.01, linear, weight decay 0.3, SAMUEL's average": "adamw/linear@0.01+average",
    "AdamW, linear from 0.01 (Imagenette 0.003, SST-2 0.001), weight decay 0.3, SAMUEL's average": {
        "cifar10_25_epochs": "adamw/linear@0.01+average",
        "imagenette": "adamw/linear@0.003+average",
        "sst2": "adamw/linear@0.001+average",
    },
    "Muon 0.01, linear, weight decay 0.3, SAMUEL's average": "muonw/linear@0.01+average",
    "Muon, linear from 0.01, weight decay 0.3, SAMUEL's average": "muonw/linear@0.01+average",
    "D-Adapt AdamW": "dadapt-adamw",
    "DoG": "dog",
    "Mechanic": "mechanic",
    "MoMo": "momo",
    "Prodigy": "prodigy",
    "Schedule-Free AdamW": "schedule-free",
}
"""What README calls a method, and what the files call it, or each of them."""
TWELVE = set(expand(["baselines"]))
SEARCHED = {
    "adam/constant@0.003",
    "adam/cosine@0.03",
    "adam/warmup-cosine@0.05",
    "adam/exponential@0.05",
    "adagrad/constant@0.6",
    "adagrad/cosine@0.6",
    "adagrad/warmup-cosine@1.5",
    "sgd/constant@1.5",
    "sgd/cosine@0.9",
    "sgd/warmup-cosine@5",
    "sgd/exponential@6",
}
"""With the rate that shift_rates.json finds best, where that is not the paper's."""
AGAIN = {
    f"momentum/step@{rates}"
    for rates in ("0.0001:0.1:0.001", "0.0001:0.1:0.01", "0.001:0.1:0.001", "0.01:0.001:0.0001")
}
"""The best schedules of SST-2's search, trained with other seeds."""
LEFT_OUT = {
    "shift_full": set(),
    "shift_quarter": TWELVE | SEARCHED,
    "cifar10_25_epochs": {"search:worst", "adamw/warmup-cosine@0.005+average"},
    "imagenette": {
        "search:worst",
        "nesterov/step@0.02:0.08:0.008",
        "nesterov/step@0.01:0.04:0.008",
        "adamw/linear@0.001+average",
        "adamw/linear@0.01+average",
    },
    "sst2": {"search:worst"} | AGAIN,
}
"""What the files have and the tables need not: nobody who does well is forgotten by accident."""
SEVERAL = {
    "the best of the paper's 12 baselines at the paper's rates, column by column": TWELVE,
    f"the best of {len(SEARCHED)} of the 12 at rates searched for this comparison, column by column": SEARCHED,
}
"""Rows that are about several methods."""
SHIFT = ("window_100", "window_500", "window_1000", "best_before", "best_after")
OFFLINE = ("cifar10_25_epochs", "imagenette", "sst2")


@cache
def results(name):
    """The rows of a file by their method."""
    (study,) = json.loads((ROOT / "results" / f"{name}.json").read_text())["studies"]
    return {row["method"]: row for row in study["rows"]}


def table_after(text, page="README.md"):
    """The rows of a page's first table after a text: label and cells, as they are written."""
    content = (ROOT / page).read_text()
    lines = content[content.index(text) :].split("\n\n| ", 1)[1].split("\n\n", 1)[0].splitlines()
    rows = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines[2:]]
    assert len(rows) > 3
    return [(row[0].replace("**", ""), row[1:]) for row in rows]


def plain(cell):
    return cell.replace("**", "")


def check_bold(name, key, table):
    """Bold in a column, labels and cells: the best, and what is within a deviation of SAMUEL's seeds over Adam."""
    means = {label: mean_of(name, key, label) for label, cell in table if cell}
    level = max(means.values()) - (results(name)[ADAM]["values"][key]["deviation"] or 0)
    assert {label for label, cell in table if "**" in cell} == {label for label in means if means[label] >= level}


def mean_of(name, key, label):
    methods = SEVERAL.get(label) or {found(name, label)["method"]}
    return max(results(name)[method]["values"][key]["mean"] for method in methods)


def found(name, label):
    """The row of a file that README's label means, None if the file has none."""
    assert label in ROWS, f"README has a row {label!r} that this test does not know: add it to ROWS"
    method = ROWS[label] if isinstance(ROWS[label], str) else ROWS[label][name]
    return results(name).get(method)


def check_none_is_missing(name, labels):
    assert name != "shift_quarter" or set(SEVERAL) <= set(labels)
    shown = {row["method"] for label in labels if label not in SEVERAL and (row := found(name, label))}
    assert set(results(name)) - shown - LEFT_OUT[name] == set()


def written(value, digits):
    """A number as README writes it: in percent, with the deviation where there are several seeds."""
    text = f"{100 * value['mean']:.{digits}f}"
    return text if value["deviation"] is None else f"{text} ± {100 * value['deviation']:.{digits}f}"


@pytest.mark.parametrize(
    ("text", "name"), [("The whole of the paper's protocol, 25", "shift_full"), ("A quarter of it", "shift_quarter")]
)
def test_the_tables_of_the_shift(text, name):
    table = table_after(text)
    check_none_is_missing(name, [label for label, _ in table])
    for column, key in enumerate(SHIFT):
        check_bold(name, key, [(label, cells[column]) for label, cells in table])
    for label, cells in table:
        cells = [plain(cell) for cell in cells]
        if label in SEVERAL:
            rows = [results(name)[method]["values"] for method in SEVERAL[label]]
            assert cells[:5] == [f"{max(100 * row[key]['mean'] for row in rows):.1f}" for key in SHIFT], label
            counts = {len(row[key]["seeds"]) for row in rows for key in SHIFT}
            seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
        else:
            row = found(name, label)
            assert row is not None, f"{name}.json has no {label!r}"
            assert cells[:5] == [written(row["values"][key], 1) for key in SHIFT], label
            seeds = len(row["values"]["best_after"]["seeds"])
        assert cells[5:] == ([str(seeds)] if name == "shift_quarter" else []), label


def test_what_is_said_of_the_searched_rates():
    tried = {baseline: {} for baseline in TWELVE}
    for method, row in results("shift_rates").items():
        baseline, _, rate = method.partition("@")
        if baseline in TWELVE:
            tried[baseline][float(rate)] = sum(value["mean"] for value in row["values"].values())
    best = {baseline: max(rates, key=rates.get) for baseline, rates in tried.items()}
    times = {"/".join(pair): round(best["/".join(pair)] / rate) for pair, rate in BASELINES.items()}
    others = {baseline for baseline in TWELVE if times[baseline] != 1}
    assert {f"{baseline}@{best[baseline]:g}" for baseline in others} == SEARCHED
    assert sum(best[baseline] in (min(rates), max(rates)) for baseline, rates in tried.items()) == 1
    quarter = {method: row["values"] for method, row in results("shift_quarter").items()}
    better = [
        method
        for method in SEARCHED
        if all(quarter[method][key]["seeds"][0] > quarter[method.partition("@")[0]][key]["seeds"][0] for key in SHIFT)
    ]
    least, most = min(times[baseline] for baseline in others), max(times.values())
    about = (ROOT / "results" / "README.md").read_text()
    assert f"{len(others)} of the 12 do best there with {least} to {most} times the paper's rate, one of them" in about
    assert f"The {len(others)} were trained at a quarter: with the first seed {len(better)} are" in about


def mean(rows, method, key):
    return 100 * rows[method]["values"][key]["mean"]


def test_what_the_first_screen_says_of_the_shift():
    full, quarter = results("shift_full"), results("shift_quarter")
    first = {method: mean(full, method, "window_100") for method in full}
    baselines = [method for method in full if not method.startswith("samuel")]
    after = {method: mean(quarter, method, "best_after") for method in quarter}
    ours = after[ADAM]
    place = 1 + sum(value > ours for value in after.values())
    searched = [len(quarter[method]["values"]["best_after"]["seeds"]) for method in SEARCHED]
    peers = [method for method in expand(["peers"]) if method in quarter]
    assert len(peers) == 6
    muon = MUON
    over_muon = {key: mean(quarter, muon, key) for key in SHIFT}
    control = {key: over_muon[key] - mean(quarter, "muonw/linear@0.01+average", key) for key in SHIFT}
    readme, about = ((ROOT / name).read_text() for name in ("README.md", "results/README.md"))
    others = TWELVE | SEARCHED | set(peers)
    nearest = {key: max(mean(quarter, method, key) for method in others) for key in SHIFT}
    for said in (
        f"{first[ADAM]:.0f} % in the first 100 rounds after the shift, where the best of four baselines has "
        f"{max(first[method] for method in baselines):.0f} %",
        f"in the best accuracy after the shift D-Adapt AdamW is {after['dadapt-adamw'] - ours:.1f} points ahead",
        f"with {over_muon['best_after']:.1f} % at best after the shift, where the best of all these has "
        f"{nearest['best_after']:.1f} %, and with {over_muon['window_100']:.1f} % in the first 100 rounds, "
        f"where the best of them has {nearest['window_100']:.1f} %, a deviation less",
        f"Over Adam the first 100 rounds have {mean(quarter, ADAM, 'window_100'):.1f} %",
        "(one rate, one seed) SAMUEL over Muon is ahead in four columns, by "
        f"{control['window_100']:.1f}, {control['window_500']:.1f}, {control['window_1000']:.1f} and "
        f"{control['best_after']:.1f} points, and {-control['best_before']:.1f} behind in the best before the shift",
    ):
        assert said in readme
    lead = over_muon["window_100"] - nearest["window_100"]
    assert lead == pytest.approx(100 * quarter[muon]["values"]["window_100"]["deviation"], rel=0.1)
    for said in (
        f"SAMUEL is {ordinal(place)} of {len(after)} by the mean, "
        f"{after['dadapt-adamw'] - ours:.2f} points behind D-Adapt and "
        f"{after['adamw/linear@0.01+average'] - ours:.2f} behind AdamW with SAMUEL's average",
        f"Adam at a constant 0.003, the best of the 12 there, is {ours - after['adam/constant@0.003']:.2f} behind it",
        f"more than one seed of {searched.count(1)} of the searched rates",
    ):
        assert said in about
    assert max(TWELVE | SEARCHED, key=after.get) == "adam/constant@0.003"
    assert len(baselines) == 4
    for key in SHIFT:
        assert all(mean(full, method, key) < mean(full, ADAM, key) for method in baselines)
        assert all(mean(quarter, method, key) < mean(quarter, ADAM, key) for method in TWELVE | SEARCHED)
        assert nearest[key] < over_muon[key]
    over_adam = [(key, peer) for key in SHIFT for peer in peers if mean(quarter, peer, key) > mean(quarter, ADAM, key)]
    assert over_adam == [("best_after", "dadapt-adamw")]


def test_what_the_first_screen_says_of_runs_without_a_shift():
    imagenette, sst2, cifar10 = (
        {method: mean(results(name), method, "last_accuracy") for method in results(name)}
        for name in ("imagenette", "sst2", "cifar10_25_epochs")
    )
    adamw = [imagenette[f"adamw/linear@{rate}+average"] for rate in ("0.001", "0.003", "0.01")]
    muon, searched = MUON, "muonw/linear@0.01+average"
    gains = [study[muon] - study[ADAM] for study in (cifar10, imagenette, sst2)]
    behind = [study[searched] - study[muon] for study in (cifar10, imagenette)]
    peers = [peer for peer in expand(["peers"]) if peer in cifar10]
    best = max(peers, key=imagenette.get)
    assert best == "schedule-free"
    readme = (ROOT / "README.md").read_text()
    for said in (
        f"CIFAR-10 ends at {cifar10[muon]:.1f} % over Muon and {cifar10[ADAM]:.1f} % over Adam, where the best of "
        f"125 step schedules has {cifar10['search:best']:.1f} % and the best method without a rate "
        f"{max(cifar10[peer] for peer in peers):.1f} %",
        f"ends at {imagenette[muon]:.1f} % over Muon; the best of 125 schedules has {imagenette['search:best']:.1f} %, "
        f"the best method without a rate or a schedule, Schedule-Free AdamW, {imagenette[best]:.1f} %",
        f"SST-2 (an LSTM) ends at {sst2[muon]:.1f} % over Muon and {sst2[ADAM]:.1f} % over Adam; the best of 125 "
        f"schedules has {sst2['search:best']:.1f} %",
        f"ends at {imagenette[ADAM]:.1f} %, below plain Adam with warm-up and cosine at the usual 0.001 "
        f"({imagenette['adam/warmup-cosine']:.1f} %)",
        f"So does Muon at 0.01 on CIFAR-10, by {behind[0]:.1f} points",
        f"Over Muon SAMUEL gains {gains[0]:.1f}, {gains[1]:.1f} and {gains[2]:.1f} points",
        f"ends {behind[0]:.1f} and {behind[1]:.1f} points above SAMUEL over it on CIFAR-10 and Imagenette (three seeds",
        f"AdamW at 0.001, 0.003 and 0.01 ends at {adamw[0]:.1f}, {adamw[1]:.1f} and {adamw[2]:.1f} %: all three above "
        "SAMUEL over Adam, and below Schedule-Free AdamW and SAMUEL over Muon",
    ):
        assert said in readme
    assert imagenette[ADAM] < min(adamw)
    assert max(adamw) < imagenette["schedule-free"] < imagenette[muon]
    assert all(sst2[peer] < sst2[ADAM] < sst2[muon] for peer in peers)


def test_what_is_said_of_muon_in_short_runs():
    runs = json.loads((ROOT / "results" / "research_muon.json").read_text())["runs"]

    def last(study, judged, place, **facts):
        (run,) = (
            run
            for run in runs
            if run["run"]["study"] == study and all(run["run"].get(key) == fact for key, fact in facts.items())
            if judged in run["metrics"]
        )
        return run["metrics"][judged][place]

    plain = {"base": "muon", "weight_decay": 0.3}
    rates = [
        last("imagenet", "last ninth", 0, method=f"muonw/linear@{rate}", averages=True)
        for rate in ("0.003", "0.01", "0.03")
    ]
    ours = last("imagenet", "decision", 0, samuel=plain, seed=100)
    assert ours < min(rates)
    readme = (ROOT / "README.md").read_text()
    assert f"{rates[0]:.1f} and {rates[2]:.1f} % where SAMUEL has {ours:.1f} %" in readme
    after = last("shift", "decision", 4, samuel=plain)
    assert f"Muon with Adam's lag and no experience had {after:.1f} % at best after the shift" in readme


def in_pytorch():
    """What each optimizer of the PyTorch benchmark ends with, in %, its two seeds as they are written."""
    ends = {}
    for run in json.loads((ROOT / "results" / "torch_cifar.json").read_text())["runs"]:
        ends.setdefault(run["name"], {})[run["seed"]] = f"{100 * run['accuracy'][-1]:.1f}"
    return {name: (of_seeds[0], of_seeds[1]) for name, of_seeds in ends.items()}


def test_what_is_said_of_pytorch():
    ends = {name: " and ".join(two) for name, two in in_pytorch().items()}
    said = (
        f"SAMUEL over AdamW ends at {ends['Samuel, told the number of steps']} %, AdamW with warm-up and cosine at "
        f"the usual 0.001 at {ends['AdamW 0.001, warm-up and cosine']} %; over Muon SAMUEL ends at "
        f"{ends['Samuel over Muon, told the number of steps']} %, Muon itself with warm-up to 0.01 and cosine at "
        f"{ends['Muon 0.01, warm-up and cosine']} %"
    )
    assert said in (ROOT / "README.md").read_text()


def test_the_table_of_pytorch():
    table = table_after("## What to expect", "docs/pytorch.md")
    known = {
        "Samuel, `horizon=steps`": "Samuel, told the number of steps",
        'Samuel, `horizon=steps`, `rule="patient"`': "Samuel, patient, told the number of steps",
        "Samuel, no horizon": "Samuel",
        'Samuel over [`"muon"`](#muon), `horizon=steps`': "Samuel over Muon, told the number of steps",
        'Samuel over `"muon"`, `horizon=steps`, `rule="patient"`': (
            "Samuel over Muon, patient, told the number of steps"
        ),
    }
    ends = {name: ", ".join(two) for name, two in in_pytorch().items()}
    assert {known.get(label, label): plain(cells[0]) for label, cells in table} == ends


def test_what_is_said_of_the_best_schedules_of_sst2():
    (study,) = json.loads((ROOT / "results" / "sst2.json").read_text())["studies"]
    searched = study["search"]
    names = ["momentum/step@" + ":".join(f"{rate:g}" for rate in rates) for rates in searched["schedules"]]
    best = max(searched["last_accuracy"])
    assert {name for name, last in zip(names, searched["last_accuracy"], strict=True) if last == best} == AGAIN
    ends = [end for name in AGAIN for end in results("sst2")[name]["values"]["last_accuracy"]["seeds"]]
    assert len(ends) == 8
    readme, about = ((ROOT / name).read_text() for name in ("README.md", "results/README.md"))
    again = f"{100 * sum(ends) / len(ends):.1f} % on average"
    assert f"trained again with two other seeds each, end at {again}" in readme
    assert f"have {100 * min(ends):.1f} to {100 * max(ends):.1f} % with seeds 1 and 2, {again}" in about
    ours, theirs = (mean(results("sst2"), method, "best_accuracy") for method in (MUON, "search:best"))
    assert (
        f"the runs over Muon have {ours:.1f} % on average, and the best of the 125 schedules {theirs:.1f} %.)" in readme
    )
    of_seeds = [100 * end for end in results("sst2")[MUON]["values"]["last_accuracy"]["seeds"]]
    level = f"SAMUEL over Muon has {sum(of_seeds[1:]) / 2:.1f} %"
    assert f"With these two seeds {level}; it is behind with the first." in readme
    assert f"{level} with those two seeds and {of_seeds[0]:.1f} % with seed 0" in about
    assert of_seeds[0] < 100 * best


def test_what_is_said_of_experience():
    found = json.loads((ROOT / "results" / "research_rebound.json").read_text())
    runs = found["experience, from one state at the shift"]

    def gains(place):
        """What 1,000 rounds of experience win over 100, with each seed."""
        of = {(run["experience"], run["seed"]): run["metrics"][place] for run in runs}
        return [of[1000, seed] - of[100, seed] for seed in (100, 101)]

    first, best = gains(0), gains(4)
    assert first[1] > 0
    said = (
        f"an experience of 1,000 rounds instead of 100 is worth {sum(best) / 2:.1f} points in the best accuracy of "
        f"the first 1,000 rounds after the shift; in the first 100 it costs {-first[0]:.1f} points with one seed and "
        "nothing with the other"
    )
    assert said in (ROOT / "README.md").read_text()


def test_the_table_of_offline_studies():
    table = table_after("**Nothing changes.** Accuracy")
    for place, name in enumerate(OFFLINE):
        check_none_is_missing(name, [label for label, _ in table])
        check_bold(name, "last_accuracy", [(label, cells[2 * place]) for label, cells in table])
        for label, cells in table:
            accuracy, rank = map(plain, cells[2 * place : 2 * place + 2])
            row = found(name, label)
            if row is None:
                assert (accuracy, rank) == ("", ""), (label, name)
                continue
            assert accuracy == written(row["values"]["last_accuracy"], 2), (label, name)
            place_among = row.get("rank_by_last")
            assert rank == (ordinal(place_among) if place_among else ""), (label, name)


def test_the_table_of_the_twelve_baselines():
    rows = {row["label"]: row for method, row in results("shift_quarter").items() if method in TWELVE | {ADAM}}
    table = table_after("## The 12 baselines", "results/README.md")
    assert {label for label, _ in table} == set(rows)
    for label, cells in table:
        values = [rows[label]["values"][key] for key in SHIFT]
        assert cells == [*(written(value, 1) for value in values), str(len(values[-1]["seeds"]))]


def test_the_picture_of_the_searches_is_that_of_the_files():
    spec = importlib.util.spec_from_file_location("draw", ROOT / "results" / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    assert draw.PICTURE.read_text() == draw.draw()


def test_what_is_said_of_the_picture_of_the_searches():
    for name, above in (("cifar10_25_epochs", 0), ("imagenette", 0), ("sst2", 11)):
        (study,) = json.loads((ROOT / "results" / f"{name}.json").read_text())["studies"]
        ours = results(name)[MUON]["values"]["last_accuracy"]["mean"]
        assert sum(value > ours for value in study["search"]["last_accuracy"]) == above, name
    assert "on SST-2 too, where it is below 11 of the dots" in (ROOT / "README.md").read_text()


def anchors(page):
    """What can be linked to on a page: its headings as GitHub writes them into addresses."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ["README.md", "results/README.md", "results/research.md"])
def test_links_lead_somewhere(page):
    page = ROOT / page
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    assert links
    for link in links:
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), link
        assert not anchor or anchor in anchors(found), link
