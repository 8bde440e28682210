"""The paper's theorem and corollaries as numbers: bounds on a run, with every constant explicit.

On a block, for each rate `eta_q = 1 / (B 2^q)` and with `L = log(C_t / pi)`, `V = sum r^2` the certificate gives
`sum r <= L / eta_q + eta_q V`. Let `eta = sqrt(L / V)` be the best rate of all.

- If `eta >= eta_1`, then `V <= 4 B^2 L`, and `q = 1` gives at most `4 B L`.
- If `eta_Q <= eta < eta_1`, some `eta_q` is within a factor `sqrt(2)` of it, which gives `3 / sqrt(2) sqrt(L V)`.
- If `eta < eta_Q` (`Q` was too small for so long a block), `q = Q` gives at most `2 V / (B 2^Q)`.

So `R_1 <= max(4 B L, 3 / sqrt(2) sqrt(L V), 2 V / (B 2^Q))`; `B` is `2 G D` in the paper's notation, where `D`
bounds the norm of the points and not the diameter. An interval made of `n` tiles adds up to `4 n B L` and, by
Cauchy-Schwarz, `3 / sqrt(2) sqrt(n L V)`.

These numbers are what could be said before the run, but for the gradients; a certificate is tighter, since it uses
what was measured. They need a known scale (`gradient_bound`), linear feedback and averaging.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from samuel.online.bases.adagrad import Adagrad, diagonal_metric
from samuel.online.bases.adagrad_full import AdagradFull, ridge_of

if TYPE_CHECKING:
    from samuel.online.trace import Trace


class Bound(NamedTuple):
    """A bound on the regret over an interval, and what it is made of."""

    total: float
    weights: float
    """`R_1`: what choosing among the experts can cost."""
    base: float
    """`R_0`: what the best expert's base learner can cost; 0 for a bound against the experts."""
    gap: float
    """Rounds before the first block start, at their worst."""
    tiles: int
    """`n`: how many blocks the interval was cut into."""


def block_bound(log_count: float, square: float, bound: float, Q: int) -> float:
    """At most how far the decisions of one block can be behind an expert: `R_1` of the theorem's proof.

    Args:
        log_count: `L`, the logarithm of the number of pairs started so far (over the expert's prior).
        square: `V`, the sum of the squares of its gains.
        bound: `B`, the bound on the gains.
        Q: how many rates.

    >>> round(block_bound(log_count=5.0, square=100.0, bound=1.0, Q=10), 2)
    47.43
    """
    return max(_terms(log_count, square, bound, Q))


def _terms(log_count: float, square: float, bound: float, Q: int) -> tuple[float, float, float]:
    """The bound where the best rate is larger than all there are, where one fits, where it is smaller than all."""
    fitting = 3 / math.sqrt(2) * math.sqrt(log_count * square)
    return 4 * bound * log_count, fitting, 2 * square / (bound * 2.0**Q)


def theorem_1(trace: Trace, first: int, last: int) -> Bound:
    """Theorem 2: how far the decisions can be behind the experts on an interval, by its gradients alone.

    `V <= D_2^2 (tr G^(1/2))^2` with `G` the sum of `g g^T` over the interval: the smallest
    `d sum g^T H^-1 g` over matrices of trace `d` is `(tr G^(1/2))^2`.

    >>> import numpy as np
    >>> from samuel.online import Adagrad, Samuel, Ball, play, theory
    >>> gradients = np.random.default_rng(0).normal(size=(256, 2)) / 4
    >>> gradients /= np.maximum(1, np.linalg.norm(gradients, axis=1, keepdims=True))
    >>> trace = play(Samuel(2, Ball(1.0), base=Adagrad(), gradient_bound=1.0), gradients)
    >>> theory.theorem_1(trace, 0, 255).tiles
    6
    """
    _, diameter, matrix_root = _spread(trace, first, last)
    return _experts_bound(trace, first, last, diameter * matrix_root)


def corollary_1(trace: Trace, first: int, last: int) -> Bound:
    """Corollary 4: the regret against any fixed point on an interval, for full-matrix Adagrad experts.

    `(D_2^2 / (2 lr) + lr) sqrt(n) tr G^(1/2)` for the best of the learning rates, added to Theorem 2.
    """
    experts = _only(trace, AdagradFull, "corollary_1")
    _, diameter, matrix_root = _spread(trace, first, last)
    choice = theorem_1(trace, first, last)
    n, dim = choice.tiles, trace.rule.dim
    raised = 1 + dim * math.sqrt(ridge_of(trace.needed("gradient").dtype))
    errors = np.nan_to_num(trace.arrays["error"][trace.interval_slice(first, last)]).max(axis=(1, 2)).sum()
    bounds = [
        (diameter**2 / (2 * base.learning_rate) + base.learning_rate)
        * (math.sqrt(n) * matrix_root * raised + n * dim * math.sqrt(base.delta))
        + float(errors) / base.learning_rate
        for base in experts
    ]
    return _with_base(choice, min(bounds))


def corollary_3(trace: Trace, first: int, last: int) -> Bound:
    """Corollary 6: the regret against any fixed point on an interval, for diagonal Adagrad experts.

    `sum_i (D_i^2 / (2 lr) + lr) sqrt(n S_i)` for the best of the learning rates, with `S_i` the sum of `g_i^2`, added
    to `R_1` with `V <= (sum_i D_i sqrt(S_i))^2` (Minkowski's inequality).
    """
    experts = _only(trace, Adagrad, "corollary_3")
    widths = np.asarray(trace.rule.domain.widths(trace.rule.dim))
    squares, _, _ = _spread(trace, first, last)
    choice = _experts_bound(trace, first, last, float(widths @ np.sqrt(squares)))
    roots = diagonal_metric(choice.tiles * squares, 0.0)
    bounds = [
        np.sum((widths**2 / (2 * rate) + rate) * (roots + choice.tiles * math.sqrt(base.delta)))
        for base in experts
        for rate in [base.learning_rate]
    ]
    return _with_base(choice, float(min(bounds)))


class Partitions(NamedTuple):
    """The smallest bound over all partitions of a run into so many pieces."""

    totals: np.ndarray
    """For `k = 1, 2, ...` pieces, the sum over the pieces of the best `sqrt(sum |g|*_H^2)`."""
    pieces: tuple[tuple[tuple[int, int], ...], ...]
    """First and last rounds of the pieces that give it."""


def partition_bound(trace: Trace, most: int = 4, *, diagonal: bool = False, longest: int = 1024) -> Partitions:
    """The bound over partitions of a run: the best `k` pieces, with the best preconditioner for each.

        min over I_1 + .. + I_k = [1, T] and over H_1..H_k of the sum of sqrt(sum over I_j of <g, H_j^-1 g>)

    with `H_j >= 0` of trace `d`, from the introduction of Lu et al. (2022), without the factors that its O hides. The
    best `H` of a piece is proportional to `G^(1/2)`, `G` the sum of its `g g^T`, and gives `tr G^(1/2) / sqrt(d)`.
    Exact by dynamic programming over all intervals, for short runs.

    More pieces never give less, since `tr (G + G')^(1/2) <= tr G^(1/2) + tr G'^(1/2)`: the minimum over `k`, as
    printed, is Adagrad's. What more pieces buy is a harder comparison: the sum bounds the regret against a point *for
    each piece*, which may lose far less than one for all.

    Args:
        trace: the run; its gradients are all that is used.
        most: the largest number of pieces.
        diagonal: allow diagonal `H` only: `sum_i sqrt(S_i) / sqrt(d)`, `S_i` the sum of `g_i^2`.
        longest: refuse longer runs; time grows with the square of their length.

    >>> from samuel.online import Samuel, Ball, play, theory
    >>> gradients = np.zeros((32, 2))
    >>> gradients[:16, 0] = gradients[16:, 1] = 1.0  # all in one direction, then all in the other
    >>> found = theory.partition_bound(play(Samuel(2, Ball(1.0)), gradients), most=2)
    >>> found.totals.round(3).tolist(), found.pieces[1]
    ([5.657, 5.657], ((0, 15), (16, 31)))
    """
    gradients = np.asarray(trace.needed("gradient"), dtype=float)
    if gradients.ndim > 2:
        raise ValueError(f"this record holds {gradients.shape[1]} streams: pick one first, as in trace.one(0)")
    rounds = len(gradients)
    if rounds > longest:
        raise ValueError(f"the bound is for at most longest={longest} rounds, got a run of {rounds}")
    if not isinstance(most, int) or not 1 <= most <= rounds:
        raise ValueError(f"most must be a whole number from 1 to {rounds}, the rounds of the run, got {most!r}")
    costs = _costs_of_pieces(gradients, diagonal)
    totals, cuts = [costs[0]], []  # of the first so many rounds in k pieces
    for _ in range(1, most):
        with_last = totals[-1][:, None] + costs  # the last piece begins in the round of the row
        cuts.append(np.argmin(with_last, axis=0))
        totals.append(np.min(with_last, axis=0))
    found = []
    for k in range(most):
        edges = [rounds]
        for cut in reversed(cuts[:k]):
            edges.append(int(cut[edges[-1]]))
        edges = [0, *reversed(edges)]
        found.append(tuple((trace.first + start, trace.first + stop - 1) for start, stop in pairwise(edges)))
    return Partitions(np.array([total[rounds] for total in totals]), tuple(found))


def _costs_of_pieces(gradients: np.ndarray, diagonal: bool) -> np.ndarray:
    """`tr G^(1/2) / sqrt(d)` of the rounds from a row up to a column, the column's not included; inf for none."""
    rounds, dim = gradients.shape
    costs = np.full((rounds + 1, rounds + 1), math.inf)
    for first in range(rounds):
        part = gradients[first:]
        if diagonal:
            values = np.cumsum(part**2, axis=0)
        else:
            values = np.linalg.eigvalsh(np.cumsum(part[:, :, None] * part[:, None, :], axis=0))
        costs[first, first + 1 :] = np.sqrt(np.maximum(values, 0.0)).sum(-1) / math.sqrt(dim)
    return costs


def _experts_bound(trace: Trace, first: int, last: int, root_of_squares: float) -> Bound:
    rule = _known_scale(trace)
    tiles = list(rule.cover.tile(first, last))
    served = [tile for tile in tiles if tile.slot is not None]
    n, gap = len(served), rule.bound * (len(tiles) - len(served))
    started = float(trace.needed("started")[last - trace.first])
    log_count = math.log(started / min(rule.prior))
    too_large, fitting, too_small = _terms(log_count, root_of_squares**2, rule.bound, rule.Q)
    weights = n * too_large + math.sqrt(n) * fitting + too_small
    return Bound(weights + gap, weights, 0.0, gap, n)


def _with_base(choice: Bound, base: float) -> Bound:
    return choice._replace(total=choice.weights + base + choice.gap, base=base)


def _spread(trace: Trace, first: int, last: int) -> tuple[np.ndarray, float, float]:
    """`S_i`, the Euclidean diameter, and `tr G^(1/2)` of an interval."""
    gradients = trace.needed("gradient")[trace.interval_slice(first, last)].astype(float)
    singular_values = np.linalg.svd(gradients, compute_uv=False)
    return (
        np.sum(gradients**2, axis=0),
        trace.rule.domain.diameter(trace.rule.dim),
        float(np.sum(singular_values)),
    )


def _known_scale(trace: Trace) -> Any:
    rule: Any = trace.rule
    if not getattr(rule, "bound", 0.0) or rule.feedback != "linear" or rule.combine != "average":
        raise ValueError(
            "the theorem speaks of SAMUEL with a known gradient_bound, linear feedback and averaging; otherwise "
            "ask for trace.certificate(first, last)"
        )
    if rule.cover.lasting:
        raise ValueError(
            f"the theorem speaks of experts that start with a block, and those of {rule.cover} never start anew: play "
            "Samuel(base=Adagrad()); otherwise ask for trace.certificate(first, last)"
        )
    if np.any(trace.needed("used") != 1.0):
        raise ValueError(
            f"a gradient exceeded gradient_bound={rule.bound / rule.domain.diameter(rule.dim):g}, so the theorem's "
            "condition does not hold; the certificate does"
        )
    return rule


def _only(trace: Trace, kind: type, name: str) -> Any:
    """The experts, all of one kind."""
    rule: Any = trace.rule
    for base in getattr(rule, "experts", ()):
        if type(base) is not kind:
            raise ValueError(f"{name} is about {kind.__name__} experts, got {base!r}")
    return _known_scale(trace).experts
