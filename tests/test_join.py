"""results/join.py: rows of a report join a file of results."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

RESULTS = Path(__file__).parents[1] / "results"


@pytest.fixture(scope="module")
def joining():
    spec = importlib.util.spec_from_file_location("join", RESULTS / "join.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def study(*rows, **changes):
    facts = {"study": "cifar10", "rounds": 10, "batch": 4, "columns": ["last_accuracy"], "shift": None}
    facts |= {"transitions": [], "windows": [], "data": {"name": "images"}, "model": {"name": "network"}}
    return facts | {"rows": list(rows), "runs": [], "findings": ["old"], "notes": []} | changes


def row(method, *seeds):
    value = {"mean": sum(seeds) / len(seeds), "deviation": None, "seeds": list(seeds), "wanted": 1, "diverged": 0}
    return {"method": method, "label": method.upper(), "values": {"last_accuracy": value, "best_accuracy": value}}


def test_new_seeds_join_those_that_are_there_and_means_are_made_again(joining):
    old = study(row("adam", 0.5))
    joining.join(old, study(row("adam", 0.7)), [], set())
    (joined,) = old["rows"]
    found = joined["values"]["last_accuracy"]
    assert found == {"mean": 0.6, "deviation": 0.141421, "seeds": [0.5, 0.7], "wanted": 2, "diverged": 0}
    assert old["findings"] == []


def test_a_row_can_have_another_name_and_gets_its_place_in_the_search(joining):
    old = study(row("samuel", 0.5), search={"last_accuracy": [0.2, 0.6, 0.9], "best_accuracy": [0.9, 0.9, 0.9]})
    new = study(row("samuel (a)", 0.7), row("samuel (b)", 0.8), row("adam", 0.1))
    joining.join(old, new, [["samuel (*", "samuel (muon)", "SAMUEL over Muon"]], {"samuel (a)", "samuel (b)"})
    assert [one["method"] for one in old["rows"]] == ["samuel", "samuel (muon)"]
    joined = old["rows"][1]
    assert joined["label"] == "SAMUEL over Muon"
    assert joined["values"]["last_accuracy"]["seeds"] == [0.7, 0.8]
    assert (joined["rank_by_last"], joined["rank_by_best"]) == (2, 4)


def test_studies_of_another_length_are_refused(joining):
    with pytest.raises(ValueError, match="the report's rounds is 20, the file's 10"):
        joining.join(study(row("adam", 0.5)), study(row("adam", 0.7), rounds=20), [], set())


def test_a_report_joins_once(joining):
    run = {"name": "a", "created": "today"}
    old = study(row("adam", 0.5), runs=[run])
    with pytest.raises(ValueError, match="the run a of today is in the file already"):
        joining.join(old, study(row("adam", 0.7), runs=[run]), [], set())


def test_a_method_with_a_seed_that_diverged_has_no_mean_and_no_place(joining):
    search = {"last_accuracy": [0.2, 0.6], "best_accuracy": [0.2, 0.6]}
    lost = row("adam", 0.7)
    lost["values"]["last_accuracy"] |= {"mean": None, "seeds": [], "diverged": 1}
    old = study(row("adam", 0.5), search=search)
    joining.join(old, study(lost), [], set())
    (joined,) = old["rows"]
    assert joined["values"]["last_accuracy"]["mean"] is None
    assert (joined["rank_by_last"], joined["rank_by_best"]) == (None, None)
    json.dumps(joined, allow_nan=False)


@pytest.mark.parametrize("name", ["imagenette", "cifar10_25_epochs", "sst2", "shift_quarter"])
def test_means_deviations_and_places_in_the_files_follow_from_their_seeds(name):
    (found,) = json.loads((RESULTS / f"{name}.json").read_text())["studies"]
    for one in found["rows"]:
        for key, value in one["values"].items():
            if value["seeds"]:
                assert value["mean"] == pytest.approx(np.mean(value["seeds"]), rel=1e-5), (one["method"], key)
            if len(value["seeds"]) > 1:
                assert value["deviation"] == pytest.approx(np.std(value["seeds"], ddof=1), rel=1e-3), one["method"]
        if one.get("rank_by_last"):
            ours = one["values"]["last_accuracy"]["mean"]
            assert one["rank_by_last"] == 1 + sum(value > ours for value in found["search"]["last_accuracy"])
