import tarfile

import numpy as np
import pytest
from PIL import Image

from samuel_lab.data.folders import Files, image_folder

CLASSES = ("n01", "n02", "n03")


@pytest.fixture
def images(tmp_path, make_images):
    return make_images(tmp_path / "images", CLASSES, train=6, test=2, suffix=".JPEG", splits=("train", "val"))


def test_every_image_is_listed_once_with_the_label_of_its_folder(images):
    folder = image_folder(images)
    assert folder.classes == CLASSES
    assert sorted(folder.train.paths) == sorted(str(path) for path in images.glob("train/*/*"))
    for path, label in zip(folder.train.paths, folder.train.labels, strict=True):
        assert f"/train/{CLASSES[label]}/" in path
    assert len(folder.val) == 6
    assert folder.train.labels.dtype == np.int32
    assert (folder.facts["train"], folder.facts["test"]) == (18, 6)


def test_the_order_is_mixed_and_always_the_same(images):
    one, two = image_folder(images), image_folder(images)
    assert one.train.paths == two.train.paths
    assert len(set(one.train.labels[:9].tolist())) == 3


def test_the_second_split_may_be_called_test_and_splits_may_be_links(tmp_path, images):
    (images / "val").rename(images / "test")
    (images / "train").rename(tmp_path / "elsewhere")
    (images / "train").symlink_to(tmp_path / "elsewhere")
    folder = image_folder(images)
    assert (len(folder.train), len(folder.val)) == (18, 6)


def test_files_that_are_no_images_are_left_out_and_counted(images):
    (images / "train" / "n01" / "notes.txt").write_text("?")
    (images / "train" / "n01" / ".hidden.jpg").write_text("?")
    (images / "train" / "n01" / "deeper").mkdir()
    folder = image_folder(images)
    assert len(folder.train) == 18
    assert folder.facts["ignored_files"] == 2


def test_an_archive_is_unpacked_once_into_the_cache_and_again_if_files_are_gone(tmp_path, images):
    with tarfile.open(tmp_path / "images.tar.gz", "w:gz") as tar:
        tar.add(images, "some-images")
    heard = []
    options = {"cache": tmp_path / "cache", "progress": lambda *told: heard.append(told)}
    folder = image_folder(tmp_path / "images.tar.gz", **options)
    assert heard[-1][0] == "unpacking images.tar.gz"
    assert folder.facts["listing"] == image_folder(images).facts["listing"]
    assert folder.facts["source"] == str(tmp_path / "images.tar.gz")
    with Image.open(folder.train.paths[0]) as image:
        assert image.size == (32, 32)
    heard.clear()
    assert image_folder(tmp_path / "images.tar.gz", **options).train.paths == folder.train.paths
    assert heard == []
    (tmp_path / folder.train.paths[3]).unlink()
    with pytest.warns(UserWarning, match="files are missing"):
        assert image_folder(tmp_path / "images.tar.gz", **options).train.paths == folder.train.paths


def test_splits_with_other_classes_are_refused_by_name(images):
    (images / "val" / "n03").rename(images / "val" / "n04")
    with pytest.raises(ValueError, match="differ, by n03, n04"):
        image_folder(images)


def test_images_that_are_not_sorted_into_classes_are_refused_with_the_right_shape(images):
    for path in list(images.glob("val/*/*")):
        path.rename(images / "val" / f"{path.parent.name}-{path.name}")
    for path in images.glob("val/*/"):
        path.rmdir()
    with pytest.raises(ValueError, match=r"val has no folders of classes in it; .*train/CLASS/\*.jpg"):
        image_folder(images)


def test_missing_paths_and_splits_are_told_with_the_right_shape(tmp_path, images):
    with pytest.raises(FileNotFoundError, match="there is no .*nowhere; an image folder has train/CLASS"):
        image_folder(tmp_path / "nowhere")
    (images / "train").rename(images / "training")
    with pytest.raises(FileNotFoundError, match="no folder called train, it has val"):
        image_folder(images)


def test_first_keeps_at_most_so_many_files_of_each_class(images):
    some = image_folder(images).train.first(2)
    assert isinstance(some, Files)
    assert sorted(some.labels.tolist()) == [0, 0, 1, 1, 2, 2]
    assert all(CLASSES[label] in path for path, label in zip(some.paths, some.labels, strict=True))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        some.first(0)
