"""Worst regret on intervals compared with its bounds: the paper's Table 1, on streams on which its rows differ.

All losses of these streams are linear, so that all methods see the same gradients, and a bound that depends on
gradients is the same number for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from samuel.online import Domain
from samuel.online.regret import Grid, growth_exponent

SHORTEST_FITTED = 32
"""Minimum length of intervals for exponents and ratios: on shorter ones no method has learned anything."""


@dataclass(frozen=True)
class Yardstick:
    """The order of a bound, without logarithms and constants: a formula, and the formula in words."""

    label: str
    about: str


YARDSTICKS: dict[str, Yardstick] = {
    "horizon": Yardstick("D₂ G √T", "the root of the length of the run"),
    "length": Yardstick("D₂ G √|I|", "the root of the length of the interval"),
    "norms": Yardstick("D₂ √(G Σ|g|)", "the root of the sum of the norms of its gradients"),
    "squares": Yardstick("D₂ √Σ|g|²", "the root of the sum of their squares"),
    "coordinates": Yardstick("Σᵢ Dᵢ |gᵢ|₂", "the sum of the roots of the sums of squares of each coordinate"),
    "matrix": Yardstick("D₂ tr (Σ g gᵀ)^½", "the trace of the root of the sum of their outer products"),
}
"""Orders of bounds: `D₂` is the diameter of the domain, `Dᵢ` its width, `G` the largest norm of a gradient."""


@dataclass(frozen=True)
class Row:
    """The theory of a learner.

    Attributes:
        bound: on the regret on an interval.
        source: publication.
        yardstick: the order of the bound; None without a bound on intervals.
        given: whether the learner is given the largest norm of a gradient.
        control: whether it is a control, not a row of the table.
    """

    bound: str
    source: str
    yardstick: str | None
    given: bool = True
    control: bool = False


ROWS: dict[str, Row] = {
    "flh": Row("Õ(√T)", "Hazan and Seshadhri 2007", "horizon"),
    "aflh": Row("Õ(√T)", "Hazan and Seshadhri 2007", "horizon"),
    "saol": Row("Õ(√|I|)", "Daniely and others 2015", "length"),
    "cbce": Row("Õ(√|I|)", "Jun and others 2017", "length"),
    "sacs": Row("Õ(√(G Σ|g|)) here", "Zhang and others 2019; Luo and Schapire 2015", "norms"),
    "parameter-free": Row("Õ(√Σ|g|²)", "Cutkosky 2020", "squares", given=False),
    "samuel-descent": Row("Õ(√Σ|g|²)", "the paper, Theorem 1, over scale-free descent", "squares"),
    "samuel-full-matrix": Row("Õ(√Σ|g|*²_H), √d hidden", "the paper, Corollary 1", "matrix"),
    "samuel-blocks": Row("Õ(Σᵢ |gᵢ|₂)", "the paper, Corollary 3", "coordinates"),
    "samuel-warm": Row("Õ(Σᵢ |gᵢ|₂)", "weights that start afresh, as in the paper", "coordinates", control=True),
    "saol-adagrad": Row("Õ(√|I|)", "the experts of SAMUEL, the weights of SAOL", "length", control=True),
    "hedge": Row("none: whole run only", "experts, no blocks", None, control=True),
    "adagrad": Row("none: whole run only", "no experts, the best rate in hindsight", None, given=False, control=True),
}
"""The rows of the table by learner: the paper's, those of its other theorems, and controls."""


@dataclass(frozen=True)
class Stretch:
    """Rounds `first..stop - 1` between two changes of the stream, and their kind."""

    kind: str
    first: int
    stop: int


@dataclass(frozen=True)
class Comparison:
    """Which bounds a stream sets apart.

    Attributes:
        turn: kinds and rounds of the stretches, which recur in this order; the first is reported first.
        gradient_bound: `G`, the largest norm of a gradient.
        loose: the bounds that are larger here.
        tight: the bounds that are smaller.
    """

    turn: tuple[tuple[str, int], ...]
    gradient_bound: float
    loose: tuple[str, ...]
    tight: tuple[str, ...]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of stretches."""
        return tuple(dict.fromkeys(kind for kind, _ in self.turn))

    def stretches(self, rounds: int) -> tuple[Stretch, ...]:
        """The stretches of a run; the last one may be cut short.

        >>> comparison = Comparison((("calm", 4), ("storm", 2)), 1.0, ("length",), ("squares",))
        >>> [(part.kind, part.first, part.stop) for part in comparison.stretches(9)]
        [('calm', 0, 4), ('storm', 4, 6), ('calm', 6, 9)]
        """
        found: list[Stretch] = []
        while not found or found[-1].stop < rounds:
            for kind, length in self.turn:
                first = found[-1].stop if found else 0
                if first < rounds:
                    found.append(Stretch(kind, first, min(rounds, first + length)))
        return tuple(found)


@dataclass(frozen=True)
class Group:
    """The intervals inside stretches of one kind, and what bounds are made of there.

    Attributes:
        kind: which stretches.
        lengths: rounds of the intervals.
        yardsticks: for each yardstick, its largest value on intervals of each length, mean over the seeds.
        exponents: the power of the length that each of them grows with; None where there are too few lengths.
        first: so many rounds at the start of a stretch are looked at for the growth with `T`.
        runs: the lengths of runs that are compared for it; each run is the beginning of the next.
    """

    kind: str
    lengths: tuple[int, ...]
    yardsticks: dict[str, tuple[float, ...]]
    exponents: dict[str, float | None]
    first: int
    runs: tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """What was measured of a learner on the intervals inside stretches of one kind. Means over the seeds.

    Attributes:
        kind: which stretches.
        lengths: rounds of the intervals.
        worst: the largest regret on intervals of each length.
        deviation: standard deviation of it over the seeds; 0 for one.
        exponent: the power of the length that it grows with; None where there are too few lengths.
        ratios: the largest ratio of the regret on an interval to each yardstick there, over all intervals of at least
            `SHORTEST_FITTED` rounds (of the longest ones, where there are none so long).
        after: the mean regret on the first rounds of the stretches in the second half of a run of `Group.runs` rounds.
        exponent_in_T: the power of the length of the run that it grows with.
    """

    kind: str
    lengths: tuple[int, ...]
    worst: tuple[float, ...]
    deviation: tuple[float, ...]
    exponent: float | None
    ratios: dict[str, float]
    after: tuple[float | None, ...]
    exponent_in_T: float | None


class Field:
    """What is known of a stream before a learner plays it: intervals, their best fixed points and their yardsticks.

    Args:
        comparison: which bounds it sets apart.
        domain: where decisions lie.
        gradients: `(rounds, seeds, dim)`.
    """

    def __init__(self, comparison: Comparison, domain: Domain, gradients: np.ndarray) -> None:
        self.comparison, self.domain, self.gradients = comparison, domain, gradients
        self.stretches = comparison.stretches(len(gradients))
        self._starts = {kind: self._starts_inside(kind) for kind in comparison.kinds}
        """First rounds of the intervals by kind and length."""
        self._best = {kind: self._each(kind, self._best_of) for kind in comparison.kinds}
        self._yardsticks = {kind: self._each(kind, self._yardsticks_of) for kind in comparison.kinds}
        self.groups = tuple(self._group(kind) for kind in comparison.kinds if self._starts[kind])

    def measure(self, losses: np.ndarray) -> tuple[Measured, ...]:
        """The regret of a learner with these losses, `(rounds, seeds)`, on the intervals of each kind."""
        return tuple(self._measured(group, losses) for group in self.groups)

    def _starts_inside(self, kind: str) -> dict[int, np.ndarray]:
        """Starts inside the stretches of a kind: from each stretch's own on, a quarter of the length apart."""
        found = {}
        for length in Grid(len(self.gradients)).lengths:
            starts = np.concatenate(
                [
                    np.arange(part.first, part.stop - length + 1, max(1, length // 4))
                    for part in self.stretches
                    if part.kind == kind
                ]
                or [np.zeros(0, int)]
            )
            if len(starts):
                found[length] = starts
        return found

    def _each(self, kind: str, of: Callable[[np.ndarray, int], Any]) -> dict[int, Any]:
        return {length: of(starts, length) for length, starts in self._starts[kind].items()}

    def _best_of(self, starts: np.ndarray, length: int) -> np.ndarray:
        """What the best fixed points lose on intervals of one length, `(intervals, seeds)`."""
        total = _sums(self.gradients, starts, length)
        return np.sum(total * np.asarray(self.domain.lowest(total)), axis=-1)

    def _yardsticks_of(self, starts: np.ndarray, length: int) -> dict[str, np.ndarray]:
        """What bounds are made of, on intervals of one length: `(intervals, seeds)` each."""
        gradients = self.gradients
        rounds, _, dim = gradients.shape
        diameter, widths = self.domain.diameter(dim), np.asarray(self.domain.widths(dim))
        largest = self.comparison.gradient_bound
        norms = _sums(np.linalg.norm(gradients, axis=-1), starts, length)
        squares = _sums(gradients**2, starts, length)
        eigenvalues = np.linalg.eigvalsh(_sums(gradients[..., :, None] * gradients[..., None, :], starts, length))
        return {
            "horizon": np.full_like(norms, diameter * largest * math.sqrt(rounds)),
            "length": np.full_like(norms, diameter * largest * math.sqrt(length)),
            "norms": diameter * np.sqrt(largest * norms),
            "squares": diameter * np.sqrt(np.sum(squares, axis=-1)),
            "coordinates": np.sqrt(squares) @ widths,
            # Rounding leaves the eigenvalues that are 0 a little above or below it.
            "matrix": diameter * np.sum(np.sqrt(np.where(eigenvalues > 1e-12 * length, eigenvalues, 0.0)), axis=-1),
        }

    def _group(self, kind: str) -> Group:
        yardsticks, rounds = self._yardsticks[kind], len(self.gradients)
        lengths = tuple(yardsticks)
        largest = {
            name: tuple(float(yardsticks[length][name].max(axis=0).mean()) for length in lengths) for name in YARDSTICKS
        }
        shortest = min(length for part, length in self.comparison.turn if part == kind)
        return Group(
            kind,
            lengths,
            largest,
            {name: exponent(lengths, values) for name, values in largest.items()},
            first=2 ** int(math.log2(shortest // 2)),
            runs=(rounds // 4, rounds // 2, rounds),
        )

    def _measured(self, group: Group, losses: np.ndarray) -> Measured:
        starts, best, yardsticks = (found[group.kind] for found in (self._starts, self._best, self._yardsticks))
        regret = {length: _sums(losses, starts[length], length) - best[length] for length in group.lengths}
        worst = np.array([regret[length].max(axis=0) for length in group.lengths])
        means = worst.mean(axis=1).tolist()
        long = [length for length in group.lengths if length >= SHORTEST_FITTED] or group.lengths[-1:]
        ratios = {
            name: np.max([(regret[length] / yardsticks[length][name]).max(axis=0) for length in long], axis=0)
            for name in YARDSTICKS
        }
        after = tuple(self._after_changes(group, losses, rounds) for rounds in group.runs)
        return Measured(
            group.kind,
            group.lengths,
            tuple(means),
            tuple(worst.std(axis=1, ddof=min(1, losses.shape[1] - 1)).tolist()),
            exponent(group.lengths, means),
            {name: float(ratio.mean()) for name, ratio in ratios.items()},
            after,
            None if None in after else exponent(group.runs, after, shortest=1),
        )

    def _after_changes(self, group: Group, losses: np.ndarray, rounds: int) -> float | None:
        """The mean regret on the first rounds of the stretches of the second half of a run; None for fewer than two."""
        starts = np.array(
            [
                part.first
                for part in self.stretches
                if part.kind == group.kind
                and rounds // 2 <= part.first
                and part.first + group.first <= min(part.stop, rounds)
            ]
        )
        if len(starts) < 2:
            return None
        return float(np.mean(_sums(losses, starts, group.first) - self._best_of(starts, group.first)))


def _sums(values: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Sums over intervals of one length; rounds along the first axis."""
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    sums = total[starts + length] - total[starts]
    return np.maximum(sums, 0.0) if (values >= 0).all() else sums  # rounding may leave a sum of squares below 0


def exponent(lengths: Sequence[int], values: Sequence[float | None], shortest: int = SHORTEST_FITTED) -> float | None:
    """The power of the length that values grow with, from some length on; None for fewer than two, or none positive.

    >>> exponent([8, 32, 128], [9.0, 2.0, 4.0])
    0.5
    """
    pairs = [(n, value) for n, value in zip(lengths, values, strict=True) if n >= shortest and value is not None]
    if len(pairs) < 2:
        return None
    power = growth_exponent(*zip(*pairs, strict=True))
    return None if math.isnan(power) else round(power, 4) + 0.0  # not -0.0
