import tarfile
from pathlib import Path

import pytest

from samuel_lab.data.sources import open_source, state_of


def tree(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def archive_of(folder: Path) -> Path:
    with tarfile.open(folder.with_suffix(".tar"), "w") as tar:
        tar.add(folder, ".")
    return folder.with_suffix(".tar")


def both(folder: Path) -> list[Path]:
    return [folder, archive_of(folder)]


def test_a_folder_and_its_archive_have_the_same_names_and_contents(tmp_path):
    folder = tree(tmp_path / "it", "pets/train/cat/1.png", "pets/train/.DS_Store", "pets/val/cat/2.png", "pets/notes")
    (folder / "pets" / "val" / "dog").mkdir()
    for source in (open_source(path, ["train", "val"]) for path in both(folder)):
        assert source.names == (
            "train/",
            "train/cat/",
            "train/cat/1.png",
            "val/",
            "val/cat/",
            "val/cat/2.png",
            "val/dog/",
        )
        assert source.read("val/cat/2.png") == b"pets/val/cat/2.png"
        assert source.top() == {"train", "val"}


def test_other_folders_beside_the_right_one_do_not_hide_it(tmp_path):
    for path in both(tree(tmp_path / "it", "a/b/train.tsv", "cache/x.npy", "__MACOSX/y")):
        assert open_source(path, ["train.tsv"]).names == ("train.tsv",)


def test_two_folders_that_could_both_be_meant_are_told(tmp_path):
    for path in both(tree(tmp_path / "it", "one/train.tsv", "two/train.tsv")):
        with pytest.raises(ValueError, match="has one/ and two/ in it: give the path of one of them"):
            open_source(path, ["train.tsv"])


def test_where_nothing_wanted_is_there_are_no_names(tmp_path):
    for path in both(tree(tmp_path / "it", "one/two/three/four/train.tsv")):
        assert open_source(path, ["train.tsv"]).names == ()


def test_the_state_is_that_of_the_wanted_files_alone(tmp_path):
    folder = tree(tmp_path / "it", "train/cat/1.png", "other/file")
    before = state_of(folder, ["train"])
    tree(folder, "other/more")
    assert state_of(folder, ["train"]) == before
    tree(folder, "train/cat/2.png")
    assert state_of(folder, ["train"]) != before
