"""Every study that needs data, on a little of the real data and at a tiny fraction of its protocol.

A few real images and phrases are taken from the archives, so that decoding takes no time; what the loaders do with all
of them is in `data/`.
"""

import io
import json
import math
import tarfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from samuel_lab import cli
from samuel_lab.report.reading import read

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"
TRAIN, TEST = 12, 4
"""Images of each class."""


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A folder for archives, caches and runs."""
    return tmp_path_factory.mktemp("small-scale")


def archive(name):
    if not (SHARED / name).is_file():
        pytest.skip(f"{name} is not in {SHARED}, the folder of real data beside the repository")
    return SHARED / name


def some_images(source, target):
    """An archive of the first images of each class."""
    taken = {}
    with tarfile.open(archive(source), "r|xz") as whole, tarfile.open(target, "w") as few:
        for member in whole:
            split, *rest = member.name.split("/")
            if not member.isfile() or len(rest) != 2:
                continue
            taken[split, rest[0]] = number = taken.get((split, rest[0]), 0) + 1
            if number <= (TRAIN if split == "train" else TEST):
                few.addfile(member, whole.extractfile(member))
    return target


@pytest.fixture(scope="module")
def cifar(room):
    return some_images("cifar10-jpeg.tar.xz", room / "cifar10.tar")


@pytest.fixture(scope="module")
def imagenette(room):
    return some_images("imagenette-128px.tar.xz", room / "imagenette.tar")


@pytest.fixture(scope="module")
def phrases(room):
    """The first phrases of SST-2."""
    with tarfile.open(archive("sst2.tar.xz"), "r:xz") as whole, tarfile.open(room / "sst2.tar", "w") as few:
        for name, lines in (("train.tsv", 161), ("dev.tsv", 41)):
            text = b"".join(whole.extractfile(f"sst2/{name}").readlines()[:lines])
            member = tarfile.TarInfo(f"sst2/{name}")
            member.size = len(text)
            few.addfile(member, io.BytesIO(text))
    return room / "sst2.tar"


@pytest.fixture
def run(room, monkeypatch):
    """Runs a study with the command, and reads what it left."""
    monkeypatch.setenv("SAMUEL_CACHE", str(room / "cache"))

    def run(study, data, *words):
        folder = room / study
        words = ("run", study, "--out", folder, "--seeds", 1, "--json", *words)
        words += () if data is None else ("--data", data)
        result = CliRunner().invoke(cli.app, [str(word) for word in words])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)
        assert (folder / "report.html").exists()
        recorded = read(folder)
        assert recorded.complete
        for trial in recorded.trials:
            assert not trial.diverged, trial.label
            assert trial.steps[-1] == trial.planned
            assert all(map(math.isfinite, trial.test_loss.ravel()))
            assert all(0 <= accuracy <= 1 for accuracy in trial.accuracy.ravel())
        return recorded

    return run


def names(recorded):
    return [trial.trial for trial in recorded.trials]


TINY = ("--width", 4, "--batch", 8)


def test_shift(run, cifar):
    found = run("shift", cifar, *TINY, "--scale", 0.001, "--methods", "samuel-linear")
    assert (found.plan["rounds"], found.plan["shift"], found.plan["windows"]) == (26, 17, [9])
    assert (found.plan["data"]["train"], found.plan["data"]["test"]) == (10 * TRAIN, 10 * TEST)
    assert set(found.trials[0].steps) >= {0, *range(17, 27)}
    assert found.trials[0].weights.sum(axis=(1, 2)) == pytest.approx(1, abs=1e-4)


def test_cifar10(run, cifar):
    found = run("cifar10", cifar, *TINY, "--scale", 0.002, "--methods", "adagrad/step@0.1:0.01:0.001")
    assert (found.plan["rounds"], found.plan["transitions"]) == (8, [4, 6])
    assert found.trials[0].rate.tolist() == [0.1] * 5 + [0.01] * 2 + [0.001] * 2
    assert len(found.plan["data"]["classes"]) == 10


def test_imagenet(run, imagenette):
    words = ("--size", 32, "--workers", 1, "--scale", 0.005, "--methods", "nesterov/step@0.2:0.02:0.002")
    found = run("imagenet", imagenette, *TINY, *words)
    assert (found.plan["rounds"], found.plan["transitions"]) == (8, [4, 6])
    assert found.trials[0].rate.tolist() == [0.2] * 5 + [0.02] * 2 + [0.002] * 2
    assert (found.plan["data"]["train"], found.plan["data"]["test"]) == (10 * TRAIN, 10 * TEST)


def test_sst2(run, phrases):
    small = ("--embedding", 4, "--hidden", 4, "--length", 12, "--batch", 16)
    words = ("--rates", "0.01,0.1", "--scale", 0.04, "--methods", "samuel-full,samuel-linear")
    found = run("sst2", phrases, *small, *words)
    assert (found.plan["rounds"], found.plan["transitions"]) == (10, [6, 8])
    assert (found.plan["data"]["train"], found.plan["data"]["test"]) == (160, 40)
    assert found.trials[0].networks == 2


def test_stability(run):
    words = ("--task", "digits-offline", "--scale", 0.05, "--decays", 1, "--step-sizes", 5, "--placement", "scan")
    found = run("stability", None, *TINY, *words)
    assert [(trial.plan["alphas"], trial.plan["etas"], trial.networks) for trial in found.trials] == [(1, 5, 5)]


def test_compute(run):
    found = run("compute", None, "--task", "digits-offline", "--steps", 8, *TINY)
    assert names(found) == ["adagrad/constant", "samuel-full", "samuel-linear", "samuel"]
    assert [trial.plan["protocol_trials"] for trial in found.trials] == [125, 1, 1, 1]
    for trial in found.trials:
        assert trial.times.steps.sum() == 8
        assert not trial.times.compiled[-1]  # so that there is a step to be timed
