"""Scikit-learn's digits: a small real data set without a download."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from samuel_lab.data import Dataset, Progress, Split, permutation

TEST_SHARE = 0.2


def digits(seed: int = 0, *, progress: Progress | None = None) -> Dataset:
    """Handwritten digits, 1,797 images of 8 x 8 pixels with values from 0 to 16, one channel, ten classes.

    The test split is a fifth of every class, chosen by the seed.

    Args:
        seed: of the split and the order.
        progress: progress callback; see `samuel_lab.data.Progress`.

    >>> data = digits()
    >>> data.train.inputs.shape, data.test.inputs.shape, data.train.inputs.dtype, int(data.train.inputs.max())
    ((1438, 8, 8, 1), (359, 8, 8, 1), dtype('uint8'), 16)
    """
    from sklearn.datasets import load_digits  # imported late: takes a second

    loaded: Any = load_digits()
    images = loaded.images.astype(np.uint8)[..., None]
    labels = loaded.target.astype(np.int32)
    order = permutation(len(labels), seed)
    for_test = np.zeros(len(labels), bool)
    for label in range(10):
        members = order[labels[order] == label]
        for_test[members[: round(TEST_SHARE * len(members))]] = True
    train, test = order[~for_test[order]], order[for_test[order]]
    if progress:
        progress("digits", len(labels), len(labels))
    return Dataset(
        name="digits",
        train=Split(images[train], labels[train]),
        test=Split(images[test], labels[test]),
        classes=tuple(str(label) for label in range(10)),
        facts={
            "source": "sklearn.datasets.load_digits",
            "train": len(train),
            "test": len(test),
            "checksum": hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest(),
        },
    )
