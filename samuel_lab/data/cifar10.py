"""CIFAR-10: 60,000 images of 32 x 32 pixels in ten classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from samuel_lab.data import MIXED, Dataset, Progress, Split, permutation
from samuel_lab.data.cache import cached
from samuel_lab.data.decoding import decode_files
from samuel_lab.data.folders import SPLITS, split_files
from samuel_lab.data.sources import Source, existing, open_source, state_of

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""In the official order."""
SIDE = 32
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of an image in the binary files: label, then the red, green and blue planes."""
BINARY = {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)}
PICKLED = ("data_batch_1", "test_batch", "batches.meta")
WANTED = (*BINARY["train"], *BINARY["test"], *SPLITS)
RIGHT = (
    "CIFAR-10 is the folder of its binary files (data_batch_1.bin ... test_batch.bin) or their archive "
    "cifar-10-binary.tar.gz, or an image folder with train/airplane/*.png ... test/truck/*.png"
)


def cifar10(
    path: str | os.PathLike[str],
    cache: str | os.PathLike[str] | None = None,
    *,
    verify: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Read CIFAR-10, from its official binary files, from an image folder, or from an archive of either.

    It is decoded once, into the cache, and memory-mapped from there. Both splits are in a fixed random order. The
    Python version is a pickle, which can run code when it is read, and is refused.

    Args:
        path: a folder with `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or `cifar-10-binary.tar.gz`;
            a folder with `train/airplane/*.png` (or .jpg) and so on, and `test/...`; or an archive of it.
        cache: the folder of the cache; see `samuel_lab.data.cache.cache_folder`.
        verify: check the checksums of the cache too.
        progress: progress callback; see `samuel_lab.data.Progress`.

    >>> cifar10("no/such/folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no ...no/such/folder; CIFAR-10 is the folder of its binary files (data_batch_1.bin ...
    """
    path = existing(path, RIGHT)

    def build(folder: Path) -> dict[str, Any]:
        source = open_source(path, WANTED, progress=progress)
        if not source.names:
            raise _refused(path)
        return _from_binary(source, folder, progress) if _is_binary(source) else _from_images(source, folder, progress)

    entry = cached("cifar10", {"path": str(path)}, state_of(path, WANTED), build, cache=cache, verify=verify)
    arrays = entry.arrays
    return Dataset(
        name="CIFAR-10",
        train=Split(arrays["train_inputs"], np.array(arrays["train_labels"])),
        test=Split(arrays["test_inputs"], np.array(arrays["test_labels"])),
        classes=CLASSES,
        facts={"source": str(path), **entry.facts, "checksum": entry.checksum},
    )


def _refused(path: Path) -> ValueError:
    """The error for a path without a readable CIFAR-10."""
    if open_source(path, PICKLED).names:
        return ValueError(
            f"{path} is the Python version of CIFAR-10, which is a pickle: reading one can run any program, so "
            f"samuel does not. Get the binary version, cifar-10-binary.tar.gz, from the same place"
        )
    return ValueError(f"{path} does not look like CIFAR-10: {RIGHT}")


def _is_binary(source: Source) -> bool:
    return not source.top().isdisjoint(name for names in BINARY.values() for name in names)


def _from_binary(source: Source, folder: Path, progress: Progress | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"form": "binary files", "damaged_count": 0, "damaged": []}
    for split, names in BINARY.items():
        records = np.concatenate([_records(source, name) for name in names])
        records = records[permutation(len(records), MIXED)]
        images = records[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        facts[split] = _save(folder, split, np.ascontiguousarray(images), records[:, 0])
        if progress:
            progress(f"reading CIFAR-10, {split}", len(records), len(records))
    return facts


def _records(source: Source, name: str) -> np.ndarray:
    path = source.describe(name)
    if name not in source.names:
        raise FileNotFoundError(f"{path} is missing; {RIGHT}")
    content = np.frombuffer(source.read(name), np.uint8)
    if not len(content) or len(content) % RECORD:
        raise ValueError(f"{path} is damaged: {len(content)} bytes are not a number of records of {RECORD} bytes")
    records = content.reshape(-1, RECORD)
    wrong = np.flatnonzero(records[:, 0] >= len(CLASSES))
    if len(wrong):
        raise ValueError(
            f"{path} is damaged, or not of CIFAR-10: record {wrong[0]} has the label {records[wrong[0], 0]}, and "
            f"labels are from 0 to 9"
        )
    return records


def _from_images(source: Source, folder: Path, progress: Progress | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"form": "image files"}
    damaged = []
    for split, found in (("train", split_files(source, "train")), ("test", split_files(source, "val"))):
        names, labels, classes, _ = found
        _refuse_other_classes(classes, source.path, split)
        files = [source.file(name) for name in names]
        out = folder / f"{split}_inputs.npy"
        what = f"CIFAR-10, {split}"
        labels, damage = decode_files(
            names, files, labels, classes, SIDE, out, crop=False, what=what, progress=progress
        )
        np.save(folder / f"{split}_labels.npy", labels)
        facts[split] = len(labels)
        damaged.append(damage)
    facts["damaged_count"] = sum(damage["damaged_count"] for damage in damaged)
    facts["damaged"] = [name for damage in damaged for name in damage["damaged"]]
    return facts


def _refuse_other_classes(classes: Sequence[str], source: Path, split: str) -> None:
    if tuple(classes) != CLASSES:
        missing, other = sorted(set(CLASSES) - set(classes)), sorted(set(classes) - set(CLASSES))
        parts = [f"{', '.join(missing[:10])} missing"] * bool(missing) + [f"{', '.join(other[:10])} too many"] * bool(
            other
        )
        raise ValueError(f"the classes of {source}, {split}, are not CIFAR-10's ten: {'; '.join(parts)}")


def _save(folder: Path, split: str, images: np.ndarray, labels: np.ndarray) -> int:
    np.save(folder / f"{split}_inputs.npy", images)
    np.save(folder / f"{split}_labels.npy", labels.astype(np.int32))
    return len(labels)
