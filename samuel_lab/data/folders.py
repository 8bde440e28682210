"""Image folders in the layout of ImageNet: `train/CLASS/*.JPEG` and `val/CLASS/*.JPEG`, any number of classes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from samuel_lab.data import MIXED, Progress, permutation
from samuel_lab.data.cache import cached, file_state
from samuel_lab.data.decoding import SUFFIXES
from samuel_lab.data.sources import Source, existing, open_source
from samuel_lab.data.unpack import unpack

FOLDERS = {"train": ("train",), "val": ("val", "test", "validation")}
"""Accepted names of the folders of the two splits."""
SPLITS = tuple(name for names in FOLDERS.values() for name in names)
SHAPE = "an image folder has train/CLASS/*.jpg and val/CLASS/*.jpg (or test/CLASS), .jpeg and .png too"


@dataclass(frozen=True, eq=False)
class Files:
    """Image files and their labels, in a fixed random order.

    Args:
        paths: absolute paths of the files.
        labels: int32, one for each.
    """

    paths: tuple[str, ...]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.paths)

    def first(self, count: int) -> Files:
        """The first files of every class, in their order.

        Args:
            count: maximum number of each class, at least 1.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        chosen = [np.flatnonzero(self.labels == label)[:count] for label in np.unique(self.labels)]
        kept = np.sort(np.concatenate(chosen)) if chosen else np.arange(0)
        return Files(tuple(self.paths[number] for number in kept), self.labels[kept])


@dataclass(frozen=True, eq=False)
class Folder:
    """An image folder: training and test files, class names and facts.

    Args:
        train: training files.
        val: test files.
        classes: names of the folders, sorted; the first has label 0.
        facts: JSON-serialisable.
    """

    train: Files
    val: Files
    classes: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)


def image_folder(
    path: str | os.PathLike[str], cache: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
) -> Folder:
    """List the images of a folder in the layout of ImageNet, or of an archive of one.

    An archive is unpacked once, into the cache. Hidden files and files without the suffix of an image are skipped and
    counted. No image is opened yet.

    Args:
        path: a folder with `train` and `val` (or `test`), each with a folder for every class; or an archive of it.
        cache: where an archive is unpacked; see `samuel_lab.data.cache.cache_folder`.
        progress: progress callback; see `samuel_lab.data.Progress`.

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
        unpack(path, folder / "files", progress=progress)
        return {"listing": _listed(folder / "files", path).facts["listing"]}

    def whole(folder: Path, facts: Any) -> bool:
        try:
            return _listed(folder / "files", path).facts["listing"] == facts.get("listing")
        except (OSError, ValueError):
            return False

    key = {"path": str(path)}
    entry = cached("folder", key, file_state(path), build, cache=cache, whole=whole)
    return _listed(entry.folder / "files", path)


def split_files(source: Source, split: str) -> tuple[list[str], np.ndarray, tuple[str, ...], int]:
    """The files of a split in a fixed random order, their labels, the classes, and the number of skipped files.

    Args:
        source: with a folder for each split, which has one for each class.
        split: "train" or "val".
    """
    folder = next((name for name in FOLDERS[split] if f"{name}/" in source.names), None)
    if folder is None:
        present = ", ".join(sorted(source.top())) or "no such thing"
        raise FileNotFoundError(
            f"{source.path} has no folder called {' or '.join(FOLDERS[split])}, it has {present}; {SHAPE}"
        )
    classes: dict[str, list[str]] = {}
    ignored = 0
    for name in source.names:
        split_name, _, rest = name.partition("/")
        class_name, _, file = rest.partition("/")
        if split_name != folder or not rest:
            continue
        if name.endswith("/") and not file:
            classes.setdefault(class_name, [])
        elif file and "/" not in file and file.lower().endswith(SUFFIXES):
            classes.setdefault(class_name, []).append(name)
        else:
            ignored += 1
    if not classes:
        raise ValueError(f"{source.describe(folder)} has no folders of classes in it; {SHAPE}")
    for class_name, members in classes.items():
        if not members:
            where = source.describe(f"{folder}/{class_name}")
            raise ValueError(f"class {class_name!r} is empty: there is no image (.jpg, .jpeg or .png) in {where}")
    ordered = sorted(classes)
    names = [name for class_name in ordered for name in sorted(classes[class_name])]
    labels = np.repeat(np.arange(len(ordered), dtype=np.int32), [len(classes[name]) for name in ordered])
    order = permutation(len(names), MIXED)
    return [names[number] for number in order], labels[order], tuple(ordered), ignored


def _listed(tree: Path, source: Path) -> Folder:
    found = open_source(tree, SPLITS)
    root = found.root
    train, train_labels, classes, ignored_train = split_files(found, "train")
    val, val_labels, val_classes, ignored_val = split_files(found, "val")
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
