import os
import signal
from pathlib import Path

import numpy as np
import pytest

from samuel_lab.data.batches import Order
from samuel_lab.data.decoding import centre_crop, random_crop
from samuel_lab.data.folders import Files, image_folder
from samuel_lab.data.pipeline import Pipeline, centre_crops

SIZE = 16
SEED = 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory, make_images) -> Path:
    root = tmp_path_factory.mktemp("images")
    return make_images(root, ("cat", "dog"), train=12, test=5, size=24, suffix=".JPEG", splits=("train", "val"))


@pytest.fixture(scope="module")
def files(folder) -> Files:
    return image_folder(folder).train


def expected(files: Files, batch: int, step: int) -> tuple[np.ndarray, list[int]]:
    """The batch of a step, image by image, with no worker."""
    order = Order(len(files), batch, SEED)
    epoch = step // order.steps_per_epoch
    places = zip(order.indices(step), order.positions(step), strict=True)
    images = [random_crop(files.paths[index], SIZE, (SEED, epoch, position)) for index, position in places]
    return np.array(images), files.labels[order.indices(step)].tolist()


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_are_a_function_of_seed_and_step_for_any_number_of_workers(files, workers):
    with Pipeline(files, 7, SEED, SIZE, workers=workers, prefetch=2) as pipeline:
        assert pipeline.steps_per_epoch == 3
        for step in (0, 1, 2, 3, 1, 9, 10):  # also over the end of an epoch, back, and ahead
            images, labels = pipeline.batch(step)
            right = expected(files, 7, step)
            assert np.array_equal(images, right[0])
            assert labels.tolist() == right[1]
        assert images.dtype == np.uint8
        assert labels.dtype == np.int32
        assert pipeline.damaged == ()


def test_what_was_given_does_not_change_when_later_batches_are_decoded(files):
    with Pipeline(files, 6, SEED, SIZE, workers=1, prefetch=1) as pipeline:
        first, _ = pipeline.batch(0)
        before = first.copy()
        for step in range(1, 6):
            pipeline.batch(step)
        assert np.array_equal(first, before)


def test_the_parts_of_all_processes_make_up_the_batch(files):
    right, _ = expected(files, 8, 4)
    for part in range(2):
        with Pipeline(files, 8, SEED, SIZE, workers=1, prefetch=0, shard=(part, 2)) as pipeline:
            images, labels = pipeline.batch(4)
        assert np.array_equal(images, right[4 * part : 4 * part + 4])
        assert len(labels) == 4


def test_damaged_files_are_replaced_by_the_next_of_their_class_and_named(tmp_path, make_images):
    root = make_images(tmp_path, ("cat", "dog"), train=4, test=1, size=24, splits=("train", "val"))
    files = image_folder(root).train
    cats = [number for number in range(len(files)) if files.labels[number] == 0]
    for number in cats[1:3]:
        Path(files.paths[number]).write_text("I am a text")
    stand_in = {cats[1]: cats[3], cats[2]: cats[3]}
    order = Order(8, 8, SEED)
    right = [
        random_crop(files.paths[stand_in.get(index, index)], SIZE, (SEED, 1, position))
        for index, position in zip(order.indices(1).tolist(), order.positions(1).tolist(), strict=True)
    ]
    with Pipeline(files, 8, SEED, SIZE, workers=1, prefetch=0) as pipeline:
        for _ in range(2):  # when it is met, and when it is known
            images, labels = pipeline.batch(1)
            assert np.array_equal(images, right)
            assert labels.tolist() == files.labels[order.indices(1)].tolist()
        assert sorted(pipeline.damaged) == sorted(
            f"{files.paths[number]}: not a JPEG or PNG image" for number in cats[1:3]
        )
        for number in (cats[0], cats[3]):
            Path(files.paths[number]).write_text("I too")
        with pytest.raises(ValueError, match="every file of the class of .*cat.* is damaged"):
            pipeline.batch(2)


def test_a_file_that_is_gone_is_an_error_with_its_name_and_ends_the_pipeline(files):
    gone = Files((*files.paths[:-1], "/no/such/image.jpg"), files.labels)
    with Pipeline(gone, len(gone), SEED, SIZE, workers=1, prefetch=0) as pipeline:
        with pytest.raises(FileNotFoundError, match="/no/such/image.jpg"):
            pipeline.batch(0)
        with pytest.raises(ValueError, match="closed"):
            pipeline.batch(0)


def test_a_killed_worker_is_an_error_and_not_a_wait_for_ever(files):
    with Pipeline(files, 8, SEED, SIZE, workers=2, prefetch=1) as pipeline:
        pipeline.batch(0)
        assert pipeline._pool is not None
        os.kill(next(iter(pipeline._pool._processes)), signal.SIGKILL)
        with pytest.raises(RuntimeError, match="a worker process that decodes images ended unexpectedly"):
            _ = [pipeline.batch(step) for step in range(1, 1000)]


def test_workers_do_not_load_jax(files):
    with Pipeline(files, 4, SEED, SIZE, workers=1, prefetch=0) as pipeline:
        assert pipeline._pool is not None
        loaded = "'{}' in __import__('sys').modules"  # what a test imports, a worker that knows the test would too
        assert pipeline._pool.submit(eval, loaded.format("PIL")).result() is True
        assert pipeline._pool.submit(eval, loaded.format("jax")).result() is False


def test_without_training_images_are_the_centres(files):
    with Pipeline(files, 4, SEED, SIZE, training=False, workers=1, prefetch=0) as pipeline:
        images, _ = pipeline.batch(0)
    right = [centre_crop(files.paths[index], SIZE) for index in Order(len(files), 4, SEED).indices(0)]
    assert np.array_equal(images, right)


def test_impossible_options_and_steps_are_refused(files):
    for options, message in (
        ({"size": 0}, "size must be a whole number of at least 1, got 0"),
        ({"prefetch": -1}, "prefetch must be .* at least 0, got -1"),
        ({"workers": -2}, "workers must be .* at least 1, got -2"),
        ({"workers": 0}, "workers must be .* at least 1, got 0"),
        ({"shard": (0, 3)}, "does not split evenly"),
    ):
        with pytest.raises(ValueError, match=message):
            Pipeline(files, 4, **{"size": SIZE, **options})
    with Pipeline(files, 4, SEED, SIZE, workers=1, prefetch=0) as pipeline:
        with pytest.raises(ValueError, match="step must be at least 0, got -1"):
            pipeline.batch(-1)
        assert pipeline.batch(0)[0].shape == (4, SIZE, SIZE, 3)  # which did no harm


def test_centres_are_decoded_once_into_the_cache(tmp_path, folder):
    val, classes = image_folder(folder).val, image_folder(folder).classes
    heard = []
    options = {"cache": tmp_path, "progress": lambda *told: heard.append(told)}
    split, facts = centre_crops(val, classes, SIZE, **options)
    assert np.array_equal(split.inputs, [centre_crop(path, SIZE) for path in val.paths])
    assert split.labels.tolist() == val.labels.tolist()
    assert facts["damaged_count"] == 0
    assert heard
    heard.clear()
    again, _ = centre_crops(val, classes, SIZE, **options)
    assert isinstance(again.inputs, np.memmap)
    assert np.array_equal(again.inputs, split.inputs)
    assert heard == []
    assert centre_crops(val, classes, 8, **options)[0].inputs.shape == (10, 8, 8, 3)
