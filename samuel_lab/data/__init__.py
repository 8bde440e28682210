"""Data for studies: read safely, decoded once into a memory-mapped cache, and served in an order that is a function.

digits       scikit-learn's digits, with nothing to download
cifar10      CIFAR-10, from its binary files, an image folder, or an archive of either
folders      image folders shaped like ImageNet
sst2         SST-2, with a vocabulary from its training split
sources      the files of a folder or an archive, under the same names
unpack       archives, unpacked with nothing outside their folder
cache        decoded arrays on the disk, beside their checksums
decoding     image files to arrays, in worker processes
batches      which examples a step sees, and batches made on the device
pipeline     batches of images that are decoded while the network trains

Every loader gives NumPy arrays. This module holds the two records they give, and needs NumPy alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MIXED = 20220512
"""The seed of the order in which loaders give examples: on a disk they are often sorted by class, and any beginning of
a split should be mixed."""

Tell = Callable[[str, int, int], None]
"""What loaders call as they work: what they are doing, how much of it is done, and how much there is."""


@dataclass(frozen=True, eq=False)
class Split:
    """Examples and their labels, as arrays; they may be memory-mapped, and are not to be written to.

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
        """The examples of some classes, in the order they have, with labels renumbered from 0 in the order given.

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
        """At most so many examples of every class: the first ones, in the order they have.

        Args:
            count: how many of each class, at least 1.
        """
        if operator.index(count) < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        kept = [np.flatnonzero(self.labels == label)[:count] for label in np.unique(self.labels)]
        chosen = np.sort(np.concatenate(kept)) if kept else np.arange(0)
        return Split(np.asarray(self.inputs[chosen]), self.labels[chosen])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in two splits, the names of its classes, and what is known about it.

    Args:
        name: what it is called.
        train: the examples to learn from.
        test: the examples to be judged on.
        classes: the name of every label, in order.
        facts: anything JSON can hold: where it came from, counts, checksum, damaged files.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)


def permutation(count: int, *seeds: int) -> np.ndarray:
    """The numbers below `count` in an order that follows from the seeds, today and in later versions of NumPy.

    NumPy promises that the bits of a generator stay as they are, and not what `Generator.permutation` makes of them.

    Args:
        count: how many numbers.
        seeds: whole numbers that are not negative.

    >>> permutation(5, 0, 1).tolist(), permutation(5, 0, 2).tolist()
    ([3, 4, 2, 1, 0], [4, 3, 2, 0, 1])
    """
    bits = np.random.Philox(np.random.SeedSequence(seeds)).random_raw(count)
    return np.argsort(bits, kind="stable")
