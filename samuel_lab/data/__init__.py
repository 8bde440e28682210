"""Data sets for studies: read safely, decoded once into a memory-mapped cache, served in a reproducible order.

digits       scikit-learn's digits, without a download
cifar10      CIFAR-10, from its binary files, an image folder, or an archive of either
folders      image folders shaped like ImageNet
sst2         SST-2, with a vocabulary from its training split
sources      the files of a folder or an archive, under the same names
unpack       safe extraction of archives
cache        decoded arrays on disk, with checksums
decoding     image files to arrays, in worker processes
batches      examples of a step, and batches assembled on the device
pipeline     batches of images decoded while the network trains

Loaders return NumPy arrays in the two records of this module, which needs NumPy only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MIXED = 20220512
"""Seed of the order in which loaders return examples: files are often sorted by class, and any prefix of a split should
be mixed."""

Progress = Callable[[str, int, int], None]
"""Progress callback of loaders: activity, amount done, total amount."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and their labels as arrays, possibly memory-mapped; read-only.

    Args:
        inputs: images, uint8 of shape (count, height, width, channels); or ids of tokens, int32 of shape
            (count, length), where 0 is padding.
        labels: int32 of shape (count,).

    >>> images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1)
    >>> split = Split(images, np.array([0, 1, 2, 0, 1, 2], np.int32))
    >>> len(split), split.only([2, 0]).labels.tolist(), split.only([2, 0]).inputs.ravel().tolist()
    (6, [1, 0, 1, 0], [0, 2, 3, 5])
    >>> split.first(1).labels.tolist()
    [0, 1, 2]
    """

    inputs: np.ndarray
    labels: np.ndarray

    def __post_init__(self):
        kind = (self.inputs.ndim, self.inputs.dtype)
        if kind not in ((4, np.uint8), (2, np.int32)):
            raise ValueError(
                "inputs must be uint8 images of shape (count, height, width, channels) or int32 tokens of shape "
                f"(count, length), got {self.inputs.dtype} of shape {self.inputs.shape}"
            )
        if self.labels.dtype != np.int32 or self.labels.shape != self.inputs.shape[:1]:
            raise ValueError(
                f"labels must be int32 of shape ({len(self.inputs)},), one for each input, got {self.labels.dtype} of "
                f"shape {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, classes: Sequence[int]) -> Split:
        """The examples of some classes in their order, with labels renumbered from 0 in the order given.

        Args:
            classes: which labels to keep.
        """
        classes = [operator.index(label) for label in classes]
        if not classes or len(set(classes)) < len(classes):
            raise ValueError(f"classes must be one or more different labels, got {classes}")
        present = set(np.unique(self.labels).tolist())
        missing = [label for label in classes if label not in present]
        if missing:
            raise ValueError(f"there is no example of class {missing[0]}; the classes here are {sorted(present)}")
        renumbered = np.full(max(present) + 1, -1, np.int32)
        renumbered[classes] = np.arange(len(classes))
        labels = renumbered[self.labels]
        kept = np.flatnonzero(labels >= 0)
        return Split(np.asarray(self.inputs[kept]), labels[kept])

    def first(self, count: int) -> Split:
        """The first examples of every class, in their order.

        Args:
            count: maximum number of each class, at least 1.
        """
        if operator.index(count) < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        kept = [np.flatnonzero(self.labels == label)[:count] for label in np.unique(self.labels)]
        chosen = np.sort(np.concatenate(kept)) if kept else np.arange(0)
        return Split(np.asarray(self.inputs[chosen]), self.labels[chosen])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: training and test split, class names and facts.

    Args:
        name: what it is called.
        train: training examples.
        test: test examples.
        classes: name of every label, in order.
        facts: JSON-serialisable: source, counts, checksum, damaged files.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)


def permutation(count: int, *seeds: int) -> np.ndarray:
    """A permutation of the numbers below `count` that follows from the seeds, for every version of NumPy.

    NumPy guarantees the bit stream of a generator, but not the result of `Generator.permutation`.

    Args:
        count: length of the permutation.
        seeds: non-negative integers.

    >>> permutation(5, 0, 1).tolist(), permutation(5, 0, 2).tolist()
    ([3, 4, 2, 1, 0], [4, 3, 2, 0, 1])
    """
    bits = np.random.Philox(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(bits, kind="stable")
