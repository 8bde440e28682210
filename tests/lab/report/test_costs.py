import json

import pytest

from samuel_lab.report.costs import compute_table, cost_findings, costs, costs_json, search_cost_table
from samuel_lab.report.gathering import studies
from samuel_lab.report.reading import read
from tests.lab.report.folders import change, offline_run


def the(recorded):
    (study,) = studies([recorded])
    return study


def test_a_step_is_timed_without_compiling_and_training_with_it(searched):
    cost = costs(the(searched))[0]
    assert cost.step == pytest.approx(0.001)
    assert cost.training == pytest.approx(90 * 0.001 + 2.0)
    assert cost.testing == pytest.approx(0.09)


def test_a_search_is_timed_when_all_its_networks_train(tmp_path):
    folder = offline_run(tmp_path / "run")
    lines = [json.loads(line) for line in (folder / "times.jsonl").read_text().splitlines()]
    for line in lines:
        if line["trial"] == "search":  # a step takes 1, 2 and 5 s in the three phases
            line["train_seconds"] = line["steps"] * {30: 1.0, 60: 2.0, 90: 5.0}[-(-line["step"] // 30) * 30]
    (folder / "times.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    cost = next(cost for cost in costs(the(read(folder))) if cost.method.searches)
    assert cost.step == pytest.approx(5.0)
    assert cost.training == pytest.approx(30 * 1.0 + 30 * 2.0 + 30 * 5.0)


def test_work_is_divided_between_networks_or_experts(searched):
    rows = {label: [cell.text for cell in cells] for label, cells in compute_table(the(searched)).rows}
    # SAMUEL's 4 levels x 3 rates share one gradient; the other form takes one for each.
    assert rows["SAMUEL"][:4] == ["1", "12", "1.00 ms", "83.3 µs"]
    assert rows["SAMUEL full"][:4] == ["12", "12", "12.0 ms", "1.00 ms"]
    assert rows["Adam, cosine"][:4] == ["1", "1", "1.00 ms", "1.00 ms"]
    assert rows["search"][:4] == ["8", "8", "8.00 ms", "1.00 ms"]


def test_device_hours_count_every_device(tmp_path):
    folder = offline_run(tmp_path / "run")
    change(folder / "environment.json", sessions=[{"device": "NVIDIA H200", "devices": 4}])
    study = the(read(folder))
    rows = {label: [cell.text for cell in cells] for label, cells in search_cost_table(study).rows}
    assert rows["search"][0] == "4 × NVIDIA H200"
    assert rows["search"][2] == "8"
    told = {entry["method"]: entry for entry in costs_json(study)}
    assert told["search"]["device_hours"] == pytest.approx((2.0 + 0.72) * 4 / 3600, rel=1e-4)
    assert told["samuel"]["device_hours"] == pytest.approx((2.0 + 0.09) * 4 / 3600, rel=1e-4)


def test_without_a_search_there_is_no_table_of_its_cost(shifted):
    assert search_cost_table(the(shifted)) is None
    assert cost_findings(the(shifted)) == []


def test_a_study_of_a_few_steps_projects_its_protocol(tmp_path):
    folder = offline_run(tmp_path / "run")
    plan = json.loads((folder / "plan.json").read_text())
    kept = [entry for entry in plan["trials"] if entry["trial"] in ("samuel", "samuel-full", "adam/cosine")]
    for entry in kept:
        entry["protocol_trials"] = 125 if entry["trial"] == "adam/cosine" else 1
    names = [entry["trial"] for entry in kept]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    lines = [line for line in lines if json.loads(line)["trial"] in names]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    change(folder / "plan.json", trials=kept, protocol_steps=36_000)
    study = the(read(folder))
    rows = {label: [cell.text for cell in cells] for label, cells in search_cost_table(study).rows}
    # 36,000 steps of 1 ms are 36 s; 125 of these are 1.25 hours.
    assert rows["Adam, cosine"][1:] == ["36.0 s", "125", "36.0 s", "1.25"]
    assert rows["SAMUEL full"][1:] == ["7.20 min", "1", "36.0 s", "0.120"]
    assert cost_findings(study) == [
        "Adam, cosine takes 1.25 device hours, SAMUEL 0.0100: 125 times less.",
        "Adam, cosine takes 1.25 device hours, SAMUEL full 0.120: 10.4 times less.",
    ]


def test_untimed_methods_have_no_costs(tmp_path):
    folder = offline_run(tmp_path / "run")
    (folder / "times.jsonl").unlink()
    study = the(read(folder))
    assert compute_table(study) is None
    assert search_cost_table(study) is None
