import io
import json
import pickle
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from samuel_lab.data.cifar10 import CLASSES, cifar10


def binary_files(folder, count=4, seed=0):
    """CIFAR-10 as its authors give it, shorter: the first byte of a record is the label, then red, green, blue."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        records = rng.integers(0, 256, (count, 3073), np.uint8)
        records[:, 0] = rng.integers(0, 10, count)
        records.tofile(folder / name)
    return folder


def as_sorted_pairs(split):
    return sorted((image.tobytes(), int(label)) for image, label in zip(split.inputs, split.labels, strict=True))


def test_binary_files_are_read_with_colours_and_labels_where_they_belong(tmp_path):
    folder = binary_files(tmp_path / "cifar-10-batches-bin")
    data = cifar10(folder, cache=tmp_path / "cache")
    expected = []
    for number in range(1, 6):
        for record in ((folder / f"data_batch_{number}.bin").read_bytes(),):
            for first in range(0, len(record), 3073):
                red, green, blue = (record[first + 1 + 1024 * c : first + 1 + 1024 * (c + 1)] for c in range(3))
                pixels = bytes(byte for pixel in zip(red, green, blue, strict=True) for byte in pixel)
                expected.append((pixels, record[first]))
    assert data.train.inputs.shape == (20, 32, 32, 3)
    assert as_sorted_pairs(data.train) == sorted(expected)
    assert data.test.inputs.shape == (4, 32, 32, 3)
    assert data.classes[0] == "airplane"
    assert data.classes[9] == "truck"
    assert json.loads(json.dumps(data.facts)) == data.facts
    assert (data.facts["train"], data.facts["test"]) == (20, 4)


def test_the_official_archive_gives_the_same_as_its_folder(tmp_path):
    folder = binary_files(tmp_path / "cifar-10-batches-bin")
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
        tar.add(folder, "cifar-10-batches-bin")
    of_folder = cifar10(tmp_path, cache=tmp_path / "cache")  # the folder above it is as good
    of_archive = cifar10(tmp_path / "cifar-10-binary.tar.gz", cache=tmp_path / "cache")
    assert of_folder.facts["checksum"] == of_archive.facts["checksum"]


@pytest.fixture
def images(tmp_path, make_images):
    return make_images(tmp_path / "images", CLASSES)


def packed(folder, archive):
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as file:
            for path in sorted(folder.rglob("*.png")):
                file.write(path, f"cifar/{path.relative_to(folder)}")
    else:
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(folder, "./")
    return archive


@pytest.mark.parametrize("form", ["folder", "images.tar.xz", "images.zip"])
def test_image_folders_and_their_archives_give_the_same_images_with_their_labels(tmp_path, images, form):
    source = images if form == "folder" else packed(images, tmp_path / form)
    data = cifar10(source, cache=tmp_path / "cache")
    assert data.train.inputs[:, 0, 0, 0].tolist() == data.train.labels.tolist()
    expected = sorted(
        (np.asarray(Image.open(images / "train" / name / f"{number:04d}.png")).tobytes(), label)
        for label, name in enumerate(CLASSES)
        for number in range(2)
    )
    assert as_sorted_pairs(data.train) == expected
    assert len(data.test) == 10


def test_any_beginning_of_a_split_is_mixed_and_always_the_same(tmp_path, make_images):
    folder = make_images(tmp_path / "images", CLASSES, train=20)
    one, two = (cifar10(folder, cache=tmp_path / name) for name in ("a", "b"))
    assert np.array_equal(one.train.inputs, two.train.inputs)
    assert len(set(one.train.labels[:60].tolist())) == 10


def test_it_is_decoded_once_and_again_when_a_file_changes(tmp_path, images):
    heard = []
    options = {"cache": images / "cache", "progress": lambda *told: heard.append(told)}  # even in the folder itself
    cifar10(images, **options)
    assert heard[-1] == ("decoding CIFAR-10, test", 10, 10)
    heard.clear()
    cifar10(images, **options)
    assert heard == []
    Image.new("RGB", (32, 32), (255, 255, 255)).save(images / "train" / "cat" / "0000.png")
    again = cifar10(images, **options)
    assert heard
    assert (again.train.inputs == 255).all(axis=(1, 2, 3)).sum() == 1


def test_the_version_that_is_a_pickle_is_refused_with_the_one_to_get(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(pickle.dumps({b"data": [1]}))
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        tar.add(folder, folder.name)
    for source in (folder, tmp_path / "cifar-10-python.tar.gz"):
        with pytest.raises(ValueError, match=r"is a pickle.*cifar-10-binary.tar.gz"):
            cifar10(source, cache=tmp_path / "cache")


def test_binary_files_of_another_length_or_with_other_labels_are_refused(tmp_path):
    folder = binary_files(tmp_path / "bin")
    (folder / "data_batch_3.bin").write_bytes(bytes(3073 * 2 + 5))
    with pytest.raises(ValueError, match=r"data_batch_3.bin is damaged: 6151 bytes .* 3073"):
        cifar10(folder, cache=tmp_path / "cache")
    (folder / "data_batch_3.bin").write_bytes(bytes(3073) + b"\x0a" + bytes(3072))
    with pytest.raises(ValueError, match="data_batch_3.bin .* record 1 has the label 10"):
        cifar10(folder, cache=tmp_path / "cache")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(FileNotFoundError, match="data_batch_3.bin is missing"):
        cifar10(folder, cache=tmp_path / "cache")


def test_other_classes_are_refused_by_name(tmp_path, images):
    (images / "train" / "cat").rename(images / "train" / "unicorn")
    with pytest.raises(ValueError, match="train, are not CIFAR-10's ten: cat missing; unicorn too many"):
        cifar10(images, cache=tmp_path / "cache")


def test_an_empty_class_is_refused_by_name(tmp_path, images):
    shutil.rmtree(images / "test" / "ship")
    (images / "test" / "ship").mkdir()
    (images / "test" / "ship" / ".DS_Store").write_text("hidden")
    for source in (images, tmp_path / "it.tar"):
        if source.suffix:
            with tarfile.open(source, "w") as tar:
                tar.add(images, "cifar")
        with pytest.raises(ValueError, match="class 'ship' is empty"):
            cifar10(source, cache=tmp_path / "cache")


def test_a_folder_with_something_else_is_told_what_would_be_right(tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "readme.txt").write_text("nothing here")
    with pytest.raises(ValueError, match="does not look like CIFAR-10: .*data_batch_1.bin"):
        cifar10(tmp_path / "other", cache=tmp_path / "cache")
    with pytest.raises(FileNotFoundError, match="there is no .*nowhere; CIFAR-10 is"):
        cifar10(tmp_path / "nowhere", cache=tmp_path / "cache")


def test_a_missing_split_is_named(tmp_path, images):
    shutil.rmtree(images / "test")
    with pytest.raises(FileNotFoundError, match="no folder called val or test or validation, it has train"):
        cifar10(images, cache=tmp_path / "cache")


def test_images_of_another_size_are_refused_by_name(tmp_path, images):
    Image.new("RGB", (32, 31)).save(images / "train" / "dog" / "0001.png")
    with pytest.raises(ValueError, match=r"train/dog/0001.png has 32 x 31 pixels instead of 32 x 32"):
        cifar10(images, cache=tmp_path / "cache")


def test_a_few_damaged_images_are_left_out_named_and_counted(tmp_path, make_images):
    images = make_images(tmp_path / "images", CLASSES, train=20)
    (images / "train" / "frog" / "0003.png").write_text("I am a text")
    half = (images / "train" / "deer" / "0000.png").read_bytes()
    (images / "train" / "deer" / "0000.png").write_bytes(half[: len(half) // 2])
    data = cifar10(images, cache=tmp_path / "cache")
    assert len(data.train) == 198
    assert data.train.inputs[:, 0, 0, 0].tolist() == data.train.labels.tolist()
    assert data.facts["damaged_count"] == 2
    assert [name.split(":")[0] for name in sorted(data.facts["damaged"])] == [
        "train/deer/0000.png",
        "train/frog/0003.png",
    ]
    assert "not a JPEG or PNG image" in str(data.facts["damaged"])


def test_many_damaged_images_are_refused(tmp_path, images):
    for name in ("cat", "dog"):
        (images / "train" / name / "0000.png").write_bytes(b"")
    with pytest.raises(ValueError, match="CIFAR-10, train: 2 of 20 images are damaged: train/.*0000.png"):
        cifar10(images, cache=tmp_path / "cache")


def test_files_of_other_formats_are_not_opened_whatever_they_are_called(tmp_path, images):
    content = io.BytesIO()
    Image.new("RGB", (32, 32)).save(content, "GIF")
    for number in range(2):
        (images / "train" / "cat" / f"{number:04d}.png").write_bytes(content.getvalue())
    with pytest.raises(ValueError, match="not a JPEG or PNG image"):
        cifar10(images, cache=tmp_path / "cache")
