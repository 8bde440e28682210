"""The figures of the paper: Lu, Xia, Arora and Hazan, "Adaptive Gradient Methods with Local Guarantees", 2022.

All are as printed in arXiv:2203.01400: `TABLE_2` from the online experiment, the offline figures from the text of that
section, `COMPUTE` from the appendix.
"""

from __future__ import annotations

from typing import NamedTuple

SOURCE = "https://arxiv.org/abs/2203.01400"


class Measured(NamedTuple):
    """Accuracy in percent: mean and standard deviation over three seeds."""

    mean: float
    deviation: float


COLUMNS = ("window_100", "window_500", "window_1000", "best_before", "best_after")
"""The metrics of Table 2, as columns of the study `shift`."""


def _row(*numbers: float) -> dict[str, Measured]:
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return {column: Measured(*pair) for column, pair in zip(COLUMNS, pairs, strict=True)}


TABLE_2: dict[str, dict[str, Measured]] = {
    "samuel-full": _row(79.73, 0.98, 87.31, 0.16, 89.21, 0.05, 97.47, 0.13, 94.79, 0.23),
    "sgd/constant": _row(62.44, 0.93, 73.57, 0.47, 81.33, 0.25, 96.29, 0.04, 93.87, 0.23),
    "sgd/cosine": _row(71.51, 1.77, 82.14, 0.45, 85.05, 0.32, 97.06, 0.05, 92.80, 0.45),
    "sgd/warmup-cosine": _row(71.48, 0.64, 83.27, 0.40, 86.12, 0.21, 97.26, 0.10, 93.27, 0.07),
    "sgd/exponential": _row(69.64, 0.77, 78.83, 0.58, 81.96, 0.44, 96.88, 0.03, 90.52, 0.22),
    "adagrad/constant": _row(63.02, 1.84, 77.02, 0.98, 81.34, 0.77, 96.26, 0.12, 93.49, 0.17),
    "adagrad/cosine": _row(76.71, 0.24, 84.13, 0.41, 86.95, 0.33, 97.41, 0.00, 94.02, 0.15),
    "adagrad/warmup-cosine": _row(74.17, 1.87, 84.23, 0.36, 86.81, 0.15, 97.06, 0.14, 93.25, 0.12),
    "adagrad/exponential": _row(74.68, 0.57, 82.42, 0.16, 85.06, 0.12, 97.22, 0.14, 91.44, 0.27),
    "adam/constant": _row(69.39, 0.41, 84.41, 0.19, 87.55, 0.14, 96.87, 0.05, 94.27, 0.02),
    "adam/cosine": _row(72.35, 1.54, 85.87, 0.32, 88.72, 0.16, 97.35, 0.12, 94.32, 0.16),
    "adam/warmup-cosine": _row(67.13, 1.48, 83.00, 0.43, 86.49, 0.22, 96.88, 0.09, 93.13, 0.43),
    "adam/exponential": _row(69.71, 0.83, 82.14, 0.36, 85.66, 0.27, 97.27, 0.02, 92.77, 0.32),
}
"""Table 2: SAMUEL (Algorithm 1 with forty experts) and the twelve baselines, by their names as methods."""


class Offline(NamedTuple):
    """An offline experiment: one run of SAMUEL against the best of 125 step schedules, in percent."""

    search: float
    samuel: float
    samuel_mean: float
    seeds: int
    """How many the mean is over."""


OFFLINE: dict[str, Offline] = {
    "cifar10": Offline(94.95, 94.76, 94.50, 10),
    "imagenet": Offline(76.32, 76.22, 76.15, 5),
    "sst2": Offline(86.12, 85.55, 85.58, 10),
}
"""By study. On CIFAR-10 SAMUEL "ranks in the top 3 of 125"."""


class Cost(NamedTuple):
    """TPU hours of the search over 125 schedules, and of one run of SAMUEL."""

    search: float
    samuel: float


COMPUTE: dict[str, Cost] = {
    "cifar10": Cost(91.6, 4.4),
    "imagenet": Cost(2116.6, 211.7),
    "sst2": Cost(25.0, 1.6),
}
"""By study."""
