"""Image folders shaped like ImageNet: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, with any number of classes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from samuel.studies.data import MIXED, Tell, permutation
from samuel.studies.data.cache import cached, file_state
from samuel.studies.data.decoding import SUFFIXES
from samuel.studies.data.unpack import unpack

FOLDERS = {"train": ("train",), "val": ("val", "test", "validation")}
"""What the folders of the two splits may be called."""
SHAPE = "an image folder has train/CLASS/*.jpg and val/CLASS/*.jpg (or test/CLASS), .jpeg and .png too"


@dataclass(frozen=True, eq=False)
class Files:
    """Image files and their labels, in a fixed order that is mixed.

    Args:
        paths: the files, with absolute paths.
        labels: int32, one for each.
    """

    paths: tuple[str, ...]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)

    def first(self, count: int) -> Files:
        """At most so many files of every class: the first ones, in the order they have.

        Args:
            count: how many of each class, at least 1.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        chosen = [np.flatnonzero(self.labels == label)[:count] for label in np.unique(self.labels)]
        kept = np.sort(np.concatenate(chosen)) if chosen else np.arange(0)
        return Files(tuple(self.paths[number] for number in kept), self.labels[kept])


@dataclass(frozen=True, eq=False)
class Folder:
    """An image folder: its files to learn from and to be judged on, its classes, and what is known about it.

    Args:
        train: the files to learn from.
        val: the files to be judged on.
        classes: the names of the folders, sorted: that of label 0 first.
        facts: anything JSON can hold.
    """

    train: Files
    val: Files
    classes: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)


def image_folder(
    path: str | os.PathLike[str], cache: str | os.PathLike[str] | None = None, *, tell: Tell | None = None
) -> Folder:
    """List the images of a folder shaped like ImageNet, or of an archive of one.

    An archive is unpacked once, into the cache. Files that are not called like images, and hidden ones, are left out
    and counted. No image is opened yet.

    Args:
        path: a folder with `train` and `val` (or `test`), in which every class has a folder; or an archive of it.
        cache: where an archive is unpacked to; see `samuel.studies.data.cache.cache_folder`.
        tell: called as work goes on; see `samuel.studies.data.Tell`.

    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for split in ("train", "val"):
    ...         for name in ("cat", "dog"):
    ...             os.makedirs(f"{folder}/{split}/{name}")
    ...             Image.new("RGB", (8, 8)).save(f"{folder}/{split}/{name}/1.png")
    ...     found = image_folder(folder)
    >>> found.classes, len(found.train), len(found.val)
    (('cat', 'dog'), 2, 2)
    """
    path = existing(path, SHAPE)
    if path.is_dir():
        return _listed(path, path)

    def build(folder: Path) -> dict[str, Any]:
        unpack(path, folder / "files", tell=tell)
        return {"listing": _listed(folder / "files", path).facts["listing"]}

    def whole(folder: Path, facts: Any) -> bool:
        try:
            return _listed(folder / "files", path).facts["listing"] == facts.get("listing")
        except (OSError, ValueError):
            return False

    key = {"path": str(path)}
    entry = cached("folder", key, file_state(path), build, cache=cache, whole=whole)
    return _listed(entry.folder / "files", path)


def existing(path: str | os.PathLike[str], right: str) -> Path:
    """A path as an absolute one, if there is something; if not, an error that says what should be there.

    Args:
        path: what the user gave.
        right: what would be right, in words.
    """
    found = Path(path).expanduser().absolute()
    if not found.exists():
        raise FileNotFoundError(f"there is no {found}; {right}; or give an archive of it (tar, tar.gz, tar.xz, zip)")
    return found


def inner_folder(folder: Path, wanted: Sequence[str]) -> Path:
    """The folder in which one of some names is: this one, or the only folder in it, and so on.

    Args:
        folder: where to begin.
        wanted: names of files or folders.
    """
    inner = folder
    while True:
        entries = {entry.name: entry for entry in os.scandir(inner) if not entry.name.startswith(".")}
        if any(name in entries for name in wanted):
            return inner
        folders = [entry for entry in entries.values() if entry.is_dir()]
        if len(folders) != 1:
            return folder
        inner = inner / folders[0].name


def split_folder(root: Path, split: str) -> Path:
    """The folder of a split, under any name it may have.

    Args:
        root: the folder they are in.
        split: "train" or "val".
    """
    for name in FOLDERS[split]:
        if (root / name).is_dir():
            return root / name
    present = ", ".join(sorted(entry.name for entry in os.scandir(root))[:10]) or "nothing"
    raise FileNotFoundError(f"{root} has no folder called {' or '.join(FOLDERS[split])}, it has {present}; {SHAPE}")


def class_files(folder: Path) -> tuple[dict[str, list[str]], int]:
    """The image files of every class of a split, sorted by name, and how many other files there are.

    Args:
        folder: with a folder for each class.
    """
    classes: dict[str, list[str]] = {}
    ignored = 0
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    for name in names:
        with os.scandir(folder / name) as entries:
            # Hidden files are an operating system's. What is a folder shows by its name having no such ending, which
            # saves asking the disk about a million files.
            visible = [entry.name for entry in entries if not entry.name.startswith(".")]
        classes[name] = sorted(file for file in visible if file.lower().endswith(SUFFIXES))
        ignored += len(visible) - len(classes[name])
        if not classes[name]:
            raise ValueError(f"class {name!r} is empty: there is no image (.jpg, .jpeg or .png) in {folder / name}")
    if not classes:
        raise ValueError(f"{folder} has no folders of classes in it; {SHAPE}")
    return classes, ignored


def split_files(root: Path, split: str) -> tuple[list[str], np.ndarray, tuple[str, ...], int]:
    """The files of a split in a fixed, mixed order, from the root on; their labels, the classes, and files ignored.

    Args:
        root: the folder that the splits are in.
        split: "train" or "val".
    """
    folder = split_folder(root, split)
    classes, ignored = class_files(folder)
    names = [f"{folder.name}/{name}/{file}" for name, files in classes.items() for file in files]
    labels = np.repeat(np.arange(len(classes), dtype=np.int32), [len(files) for files in classes.values()])
    order = permutation(len(names), MIXED)
    return [names[number] for number in order], labels[order], tuple(classes), ignored


def _listed(tree: Path, source: Path) -> Folder:
    root = inner_folder(tree, [name for names in FOLDERS.values() for name in names])
    train, train_labels, classes, ignored_train = split_files(root, "train")
    val, val_labels, val_classes, ignored_val = split_files(root, "val")
    if classes != val_classes:
        differing = sorted(set(classes) ^ set(val_classes))
        raise ValueError(
            f"the classes of the two splits of {source} differ, by {', '.join(differing[:5])}"
            f"{' ...' if len(differing) > 5 else ''}; both need the same folders"
        )
    listing = hashlib.sha256("\n".join(train + val).encode()).hexdigest()
    return Folder(
        train=Files(tuple(f"{root}/{name}" for name in train), train_labels),
        val=Files(tuple(f"{root}/{name}" for name in val), val_labels),
        classes=classes,
        facts={
            "source": str(source),
            "train": len(train),
            "test": len(val),
            "listing": listing,
            "ignored_files": ignored_train + ignored_val,
        },
    )
