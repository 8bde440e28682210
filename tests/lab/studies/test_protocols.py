"""The protocols, against the numbers of the paper: lengths, shifts, transitions, rates, trials. Nothing is trained."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel.core.cover import Geometric
from samuel_lab.data import Dataset, Split
from samuel_lab.studies import offline, shift
from samuel_lab.studies.compute import Compute
from samuel_lab.studies.offline import Cifar10, DigitsOffline, ImageNet, Sst2
from samuel_lab.studies.settings import BadSetting
from samuel_lab.studies.shift import Digits, Shift
from samuel_lab.studies.stability import ALPHAS, Stability

HERE = Path(__file__).parent
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def few_images(count=40):
    """Ten classes of images of CIFAR-10's shape, the same number of each; every image tells its class by its colour."""
    labels = np.arange(count, dtype=np.int32) % 10
    images = np.broadcast_to(20 * labels[:, None, None, None], (count, 32, 32, 3)).astype(np.uint8)
    return Dataset("stub", Split(images, labels), Split(images[:20], labels[:20]), CIFAR)


@dataclass(frozen=True)
class ShiftOfStubs(Shift):
    needs_data: ClassVar[str] = ""

    def dataset(self, progress):
        return few_images()


@dataclass(frozen=True)
class Cifar10OfStubs(Cifar10):
    needs_data: ClassVar[str] = ""

    def dataset(self, progress):
        return few_images()


def prepared(study):
    """The plan of a study, and its trials."""
    found = study.prepare()
    return found.plan, found.trials


def lengths_of_blocks(rounds, shortest):
    cover = Geometric(rounds, shortest)
    return [cover.length(slot) for slot in range(cover.slots(rounds))]


def test_the_shift_is_the_papers():
    study = Shift(data=HERE)
    assert study.scaled() == (25_600, 17_000, 200)
    assert lengths_of_blocks(25_600, 200) == [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600]
    assert study.first == ("dog", "frog", "horse", "ship", "truck")
    assert study.then == ("airplane", "automobile", "bird", "cat", "deer")
    assert study.rates == (0.05, 0.1, 0.25, 0.5, 1.0)
    assert (study.batch, study.windows, study.seeds) == (512, (100, 500, 1000), 3)
    assert study.network().classes == 5


def test_the_plan_of_the_shift_tells_all_of_it():
    plan, trials = prepared(ShiftOfStubs(width=4, seeds=2, methods=("samuel-linear", "samuel-full", "adam/cosine")))
    assert (plan["rounds"], plan["shift"], plan["unit"], plan["chance"]) == (25_600, 17_000, "round", 0.2)
    assert plan["windows"] == [100, 500, 1000]
    assert plan["model"]["parameters"] > 40_000
    assert (plan["data"]["train"], plan["data"]["test"]) == (40, 20)
    rows = {(row["trial"], row["seed"]): row for row in plan["trials"]}
    assert list(rows) == [(name, seed) for seed in (0, 1) for name in ("samuel-linear", "samuel-full", "adam/cosine")]
    assert [(trial.name, trial.seed) for trial in trials] == list(rows)
    assert rows["samuel-full", 0]["networks"] == rows["samuel-full", 0]["gradients"] == 40
    for name in ("samuel-full", "samuel-linear"):
        assert rows[name, 0]["levels"] == [200, 400, 800, 1600, 3200, 6400, 12_800, None]
        assert rows[name, 0]["rates"] == [0.05, 0.1, 0.25, 0.5, 1.0]
    assert rows["adam/cosine", 1]["levels"] is rows["adam/cosine", 1]["rates"] is None
    for trial in trials:
        assert trial.steps == 25_600
        assert trial.measures[-1] == 25_600


def test_batches_and_exams_are_of_the_classes_in_force():
    study = ShiftOfStubs(width=4, batch=20, rounds=100, shift=60)
    found = study.experiment(lambda *_: None)
    feed, colours = found.feed(0), {}
    for step in (0, 59, 60, 99):
        images, labels = feed.batch(step)
        colours[step] = {
            (int(label), round(float(image[0, 0, 0]), 3)) for image, label in zip(images, labels, strict=True)
        }
        assert {label for label, _ in colours[step]} == set(range(5))
    assert colours[0] == colours[59]
    assert colours[60] == colours[99]
    assert {colour for _, colour in colours[0]}.isdisjoint(colour for _, colour in colours[60])
    # What is measured when `shift` steps are complete was trained on the first classes.
    for step, like in ((0, 0), (60, 0), (61, 60), (100, 60)):
        ((images, labels, mask),) = found.exam(step)
        assert mask.sum() == 10
        seen = {(int(label), round(float(image[0, 0, 0]), 3)) for image, label in zip(images, labels, strict=True)}
        assert seen == colours[like]


scales = st.floats(65 / 25_600, 1)


@given(scales)
def test_rounds_shift_and_shortest_block_shrink_together_and_leave_eight_lengths(scale):
    rounds, change, shortest = Shift(data=HERE, scale=scale).scaled()
    assert rounds == pytest.approx(25_600 * scale, abs=0.5)
    assert change == pytest.approx(17_000 * scale, abs=0.5)
    assert 200 * rounds / 25_600 <= shortest < 200 * rounds / 25_600 + 1
    lengths = lengths_of_blocks(rounds, shortest)
    assert len(lengths) == 8
    assert lengths == [shortest * 2**level for level in range(8)]


@given(st.floats(0.5, 1), st.integers(1, 500))
def test_transitions_shrink_with_the_run(scale, steps_per_epoch):
    rounds, transitions = Cifar10(data=HERE, scale=scale).scaled(steps_per_epoch)
    assert rounds == pytest.approx(250 * scale * steps_per_epoch, abs=0.5)
    assert transitions == pytest.approx((rounds / 2, 0.8 * rounds), abs=1)


def test_a_scale_that_leaves_a_phase_without_a_step_is_refused():
    with pytest.raises(BadSetting, match="scale 0.001 leaves phases without a step: 0 steps") as caught:
        Cifar10(data=HERE, scale=0.001).scaled(1)
    assert caught.value.name == "scale"


windows = st.lists(st.integers(1, 3000), min_size=1, max_size=4, unique=True).map(sorted)


@given(st.integers(2, 30_000), st.integers(2, 10_000), windows)
def test_the_shift_is_measured_closely(change, after, windows):
    rounds = change + after
    found = shift.measures(rounds, change, windows)
    assert found[0] == 0
    assert found[-1] == rounds
    assert change in found
    assert all(late > early for early, late in itertools.pairwise(found))
    first = min(windows[0], after)
    assert set(range(change + 1, change + first + 1)) <= set(found)
    for window in windows:  # every window ends with a measurement, and has a hundred if it is so long
        end = change + min(window, after)
        assert end in found
        assert sum(change < step <= end for step in found) >= min(end - change, 100)
    assert len(found) <= 2 * 66 + first + 101 * len(windows)


def test_the_papers_windows_are_measured_every_round_then_every_fifth_then_every_tenth():
    found = np.array(shift.measures(25_600, 17_000, (100, 500, 1000)))
    gaps = {int(step): int(gap) for step, gap in zip(found[1:], np.diff(found), strict=True)}
    assert {gap for step, gap in gaps.items() if 17_000 < step <= 17_100} == {1}
    assert {gap for step, gap in gaps.items() if 17_101 < step < 17_500} == {5}
    assert {gap for step, gap in gaps.items() if 17_501 < step < 18_000} == {10}


@given(st.integers(1, 50_000), st.integers(1, 500), st.data())
def test_offline_runs_are_measured_at_every_epoch_and_before_every_transition(rounds, steps_per_epoch, data):
    transitions = sorted(data.draw(st.sets(st.integers(1, rounds), max_size=3)))
    found = offline.measures(rounds, steps_per_epoch, transitions)
    assert found[0] == 0
    assert found[-1] == rounds
    assert set(transitions) <= set(found)
    assert all(late > early for early, late in itertools.pairwise(found))
    longest = max(late - early for early, late in itertools.pairwise(found))
    assert longest <= max(1, min(steps_per_epoch * 2, rounds // 20 + 1))


def test_cifar10_is_the_papers():
    study = Cifar10(data=HERE)
    assert (study.epochs, study.transitions, study.batch, study.base) == (250, (125, 200), 256, "adagrad")
    assert study.phases == ((0.0001, 0.001, 0.01, 0.1, 1.0),) * 3
    assert study.augment == "crop-flip"
    assert study.scaled(50_000 // 256) == (48_750, (24_375, 39_000))


def test_the_plan_of_cifar10_has_125_schedules_all_different():
    study = Cifar10OfStubs(width=4, batch=10, methods=("search", "samuel-full", "samuel", "adagrad/step@1:0.1:0.01"))
    plan, trials = prepared(study)
    assert (plan["rounds"], plan["transitions"], plan["steps_per_epoch"]) == (1000, [500, 800], 4)
    assert plan["chance"] == 0.1
    rows = {row["trial"]: row for row in plan["trials"]}
    schedules = [tuple(rates) for rates in rows["search"]["schedules"]]
    assert len(schedules) == len(set(schedules)) == 125 == rows["search"]["networks"]
    assert set(schedules) == set(itertools.product((0.0001, 0.001, 0.01, 0.1, 1.0), repeat=3))
    assert rows["samuel-full"]["networks"] == 5  # one for each rate
    assert {500, 800} <= set(trials[0].measures)


def test_a_search_is_made_with_the_first_seed_only():
    plan, _ = prepared(Cifar10OfStubs(width=4, batch=10, seeds=2, first_seed=4, methods=("search", "sgd/constant")))
    assert [(row["trial"], row["seed"]) for row in plan["trials"]] == [
        ("search", 4),
        ("sgd/constant", 4),
        ("sgd/constant", 5),
    ]


def test_imagenet_is_the_papers():
    study = ImageNet(data=HERE)
    assert (study.epochs, study.transitions, study.batch, study.base) == (100, (50, 75), 1024, "nesterov")
    assert study.phases == (
        (0.2, 0.4, 0.6, 0.8, 1.0),
        (0.02, 0.04, 0.06, 0.08, 0.1),
        (0.002, 0.004, 0.006, 0.008, 0.01),
    )
    assert study.scaled(1_281_167 // 1024) == (125_100, (62_550, 93_825))


def test_sst2_is_the_papers():
    study = Sst2(data=HERE)
    assert (study.epochs, study.transitions, study.batch) == (25, (15, 20), 64)
    assert (study.base, study.weight_decay) == ("momentum", 3e-6)
    assert study.phases == ((0.0001, 0.001, 0.01, 0.1, 1.0),) * 3
    assert study.scaled(67_349 // 64) == (26_300, (15_780, 21_040))


def test_stability_is_the_papers_eighteen_runs():
    plan, _ = prepared(Stability(task="digits-offline"))
    assert [(row["alphas"], row["etas"]) for row in plan["trials"]] == list(
        itertools.product((2, 3, 6), (5, 10, 15, 20, 25, 30))
    )
    assert len({row["trial"] for row in plan["trials"]}) == 18
    assert [row["networks"] for row in plan["trials"]] == [5 * row["alphas"] for row in plan["trials"]]
    assert {row["group"] for row in plan["trials"]} == {"stability"}
    assert all(len(decays) == count and max(decays) == 1 for count, decays in ALPHAS.items())


def test_the_experts_of_stability_have_these_decays_and_step_sizes():
    _, trials = prepared(Stability(task="digits-offline", step_sizes=(5, 30)))
    engines = {(trial.method.extra["alphas"], trial.method.extra["etas"]): trial.method.engine for trial in trials}
    assert {key: (sorted(set(engine.candidates["alpha"])), engine.Q) for key, engine in engines.items()} == {
        (2, 5): ([0.99, 1.0], 5),
        (2, 30): ([0.99, 1.0], 30),
        (3, 5): ([0.9, 0.99, 1.0], 5),
        (3, 30): ([0.9, 0.99, 1.0], 30),
        (6, 5): ([0.9, 0.97, 0.99, 0.997, 0.999, 1.0], 5),
        (6, 30): ([0.9, 0.97, 0.99, 0.997, 0.999, 1.0], 30),
    }


def test_compute_times_one_schedule_of_the_search_and_the_forms_of_samuel():
    plan, trials = prepared(Compute(task="digits-offline", steps=40))
    found = [(row["trial"], row["networks"], row["protocol_trials"]) for row in plan["trials"]]
    assert found == [("adagrad/constant", 1, 125), ("samuel-full", 5, 1), ("samuel-linear", 1, 1), ("samuel", 1, 1)]
    assert (plan["rounds"], plan["protocol_steps"], plan["transitions"]) == (40, 440, [20, 32])
    assert trials[0].measures == list(range(0, 41, 4))


def test_a_study_within_another_takes_its_task_and_what_it_is_told():
    study = Compute(task="digits-offline", epochs=8.0, transitions=(2.0, 4.0), batch=100, scale=0.5)
    assert study.inner == DigitsOffline(epochs=8.0, transitions=(2.0, 4.0), batch=100, scale=0.5)
    assert Compute(task="sst2", data=HERE).inner == Sst2(data=HERE)


def test_digits_has_the_proportions_of_the_shift():
    rounds, change, shortest = Digits().scaled()
    assert change / rounds == pytest.approx(17_000 / 25_600, abs=0.01)
    assert len(lengths_of_blocks(rounds, shortest)) == 8
    assert (Digits().first, Digits().then) == (tuple("56789"), tuple("01234"))
    assert Digits().method_names() == (
        "samuel",
        "samuel-untold",
        "samuel-adam",
        "samuel-linear",
        "samuel-full",
        *(
            f"{base}/{schedule}"
            for base in ("sgd", "adagrad", "adam")
            for schedule in ("constant", "cosine", "warmup-cosine", "exponential")
        ),
    )
