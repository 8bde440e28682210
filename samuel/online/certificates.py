"""Certificates: upper bounds on the regret on an interval, computed from the run.

The chain, for linear feedback and convex losses:

    regret  <=  sum <g, x> - min_u <sum g, u>        linearised: by convexity
            <=  min over experts (sum r + base)      measured: by the base learner's bound, for any decisions
            <=  min over experts (bound on sum r + base)   guaranteed: by the algorithm

An interval is cut into tiles, each a block or the beginning of one; the bounds of the tiles add up.
`measured` is never above the trivial bound `sum max_u <g, x - u>` of a tile, and rounds before the first block start
have only that. Sums are taken over each tile separately, in float64: differences of cumulative sums would lose small
gradients after a large one.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from samuel.core import Tile, certificate
from samuel.core.options import between, real_array
from samuel.online.domains import Ball, Box, Domain, Free

if TYPE_CHECKING:
    from samuel.online.bases.base import Group
    from samuel.online.learner import Rule
    from samuel.online.trace import Trace

ANY_POINT = "any fixed point"
EXPERTS = "the experts"


class TileCertificate(NamedTuple):
    """Bounds for one tile of an interval."""

    tile: Tile
    expert: int | None
    """The expert of the slot that gives the measured bound; None if that is the trivial bound."""
    measured: float
    guaranteed: float
    against: str


@dataclass(frozen=True)
class Certificate:
    """Bounds on the regret on an interval of a run. `float(certificate)` is the measured bound.

    Attributes:
        first: first round of the interval.
        last: last round of the interval.
        linearised: the regret against linearised losses, never below the regret of convex ones; nan if unknown.
        measured: an upper bound on it, from the gains the experts had and their base learners' bounds, or for
            convex losses the trivial one where that is smaller. Where `exp_concavity` was given, on the regret itself,
            and it may be smaller than `linearised`.
        guaranteed: an upper bound on that, which follows from the weights, without the sums of gains; infinite for
            SAMUEL's rivals, which have only the measured bound.
        trivial: the bound for any decisions, `sum max_u <g, x - u>`; infinite on unbounded domains.
        against: "any fixed point", or "the experts" if the base learner has no regret bound, or none under this
            feedback: the bounds are then on the regret against the best expert of each tile.
        tiles: the same for each tile of the interval.
    """

    first: int
    last: int
    linearised: float
    measured: float
    guaranteed: float
    trivial: float
    against: str
    tiles: tuple[TileCertificate, ...]

    def __float__(self) -> float:
        return self.measured


@dataclass(frozen=True)
class Comparison:
    """The comparators: all points of a domain, or one point."""

    domain: Domain
    dim: int
    point: np.ndarray | None = None

    @classmethod
    def of(cls, rule: Rule, comparator: Any = None, radius: float | None = None) -> Comparison:
        """The comparison a user asks for; ValueError if it makes no sense."""
        if comparator is not None:
            if radius is not None:
                raise ValueError("give a comparator or a radius, not both")
            point = real_array("comparator", comparator, float)
            if point.shape != (rule.dim,) or not np.isfinite(point).all():
                raise ValueError(f"comparator must be {rule.dim} finite numbers, got {comparator!r}")
            if not bool(rule.domain.contains(point)):
                raise ValueError(f"comparator {point} is not in the domain {rule.domain}")
            return cls(rule.domain, rule.dim, point)
        if radius is None:
            return cls(rule.domain, rule.dim)
        return cls(within(rule.domain, radius, rule.dim), rule.dim)

    @property
    def bounded(self) -> bool:
        """Whether the regret against all comparators is finite."""
        return self.point is not None or self.domain.bounded

    def lowest(self, gradients: np.ndarray) -> np.ndarray:
        """The comparator with the smallest linear loss."""
        if self.point is not None:
            return np.broadcast_to(self.point, gradients.shape)
        return np.asarray(self.domain.lowest(gradients))

    def reach(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Largest distance of points `(rounds, experts, d)` from any comparator: per coordinate, and in Euclidean
        norm."""
        if self.point is not None:
            away = np.abs(points - self.point)
            return np.max(away, axis=0), np.max(np.linalg.norm(away, axis=-1), axis=0)
        center = np.asarray(self.domain.center_point(self.dim))
        half = np.asarray(self.domain.widths(self.dim)) / 2
        widths = np.max(np.abs(points - center), axis=0) + half
        norm = np.max(np.linalg.norm(points - center, axis=-1), axis=0) + self.domain.diameter(self.dim) / 2
        return widths, np.minimum(norm, np.linalg.norm(widths, axis=-1))


def certify(
    trace: Trace, first: int, last: int, comparison: Comparison, exp_concavity: float | None = None
) -> Certificate:
    """The certificate of an interval; use `Trace.certificate`."""
    if exp_concavity is not None:
        between("exp_concavity", exp_concavity, 0.0, math.inf)
    rule: Any = trace.rule
    if not hasattr(rule, "cover") or not hasattr(rule, "groups"):
        raise ValueError(f"no certificate is known for {type(rule).__name__}: it has no experts to compare with")
    trivial = trivial_bounds(trace, first, last, comparison)
    tiles = tuple(
        _certify_tile(
            trace, tile, comparison, float(np.sum(trivial[tile.first - first : tile.last - first + 1])), exp_concavity
        )
        for tile in rule.cover.tile(first, last)
    )
    known = rule.feedback == "linear" and comparison.bounded
    linearised = linearised_regret(trace, first, last, comparison) if known else math.nan
    return Certificate(
        first,
        last,
        linearised=linearised,
        measured=sum(tile.measured for tile in tiles),
        guaranteed=sum(tile.guaranteed for tile in tiles),
        trivial=float(np.sum(trivial)),
        against=ANY_POINT if all(tile.against == ANY_POINT for tile in tiles) else EXPERTS,
        tiles=tiles,
    )


def linearised_regret(trace: Trace, first: int, last: int, comparison: Comparison) -> float:
    """`sum <g, x> - min_u <sum g, u>` over an interval, by rounds, to avoid cancellation of large terms."""
    gradients, decisions = _linear(trace, first, last)
    return float(np.sum(gradients * (decisions - comparison.lowest(np.sum(gradients, axis=0)))))


def trivial_bounds(trace: Trace, first: int, last: int, comparison: Comparison) -> np.ndarray:
    """`max_u <g, x - u>` in each round of an interval: the trivial bound."""
    gradients, decisions = _linear(trace, first, last)
    if not comparison.bounded:
        return np.full(len(gradients), math.inf)
    return np.sum(gradients * (decisions - comparison.lowest(gradients)), axis=-1)


def _linear(trace: Trace, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Gradients and decisions of an interval, in float64."""
    part = trace.interval_slice(first, last)
    return trace.needed("gradient")[part].astype(float), trace.needed("decision")[part].astype(float)


def base_bounds(trace: Trace, tile: Tile, comparison: Comparison, exp_concavity: float | None = None) -> np.ndarray:
    """The regret bound of every expert of a tile's block by its base learner, one number per expert."""
    rule: Any = trace.rule
    part = trace.interval_slice(tile.first, tile.last)
    if rule.feedback == "loss":
        return np.full(sum(len(group.learning_rates) for group in rule.groups), math.inf)
    if "expert_gradients" in trace.arrays:
        gradients = trace.arrays["expert_gradients"][part, tile.slot]
    else:
        gradients = (trace.arrays["fed"] if "fed" in trace.arrays else trace.needed("gradient"))[part, None, :]
    widths, diameter = _distances(trace, tile, comparison)
    bounds = []
    for place, group in enumerate(rule.groups):
        own = gradients if gradients.shape[1] == 1 else gradients[:, group.place]
        wide, far = (side if len(side) == 1 else side[group.place] for side in (widths, diameter))
        given = own, np.asarray(group.learning_rates), wide, far
        if rule.cover.lasting:
            bounds.append(group.base.later_bound(_memory(trace, tile, place), *given))
        elif "hint" in trace.arrays:
            bounds.append(group.base.hinted_bound(given[0], trace.arrays["hint"][part, None], given[1], far))
        elif exp_concavity is None or not rule.domain.bounded:
            bounds.append(group.base.bound(*given))
        else:
            bounds.append(group.base.exp_concave_bound(*given, _gains_of(trace, tile, group), exp_concavity))
    total = np.concatenate(bounds)
    total = np.where(np.isnan(total), math.inf, total)  # an expert with gradients that are not finite
    if "error" in trace.arrays:
        rates = np.concatenate([group.learning_rates for group in rule.groups])
        total = total + np.sum(trace.arrays["error"][part, tile.slot], axis=0) / rates
    return total


def _memory(trace: Trace, tile: Tile, group: int) -> tuple[np.ndarray, ...]:
    """What a group of experts remembered when a tile began."""
    names = (f"memory {group} {i}" for i in itertools.count())
    return tuple(
        trace.arrays[name][tile.first - trace.first, tile.slot]
        for name in itertools.takewhile(trace.arrays.__contains__, names)
    )


def _gains_of(trace: Trace, tile: Tile, group: Group) -> np.ndarray:
    """`<g, x - x(e)>` of each expert of a group; 0 if the gradient is its own."""
    part = trace.interval_slice(tile.first, tile.last)
    if "gains" not in trace.arrays or "expert_gradients" in trace.arrays:
        return np.zeros((tile.last - tile.first + 1, len(group.learning_rates)))
    gains = trace.arrays["gains"][part, tile.slot, group.place].astype(float)
    return gains + trace.arrays["excess"][part, None] if "excess" in trace.arrays else gains


def _certify_tile(
    trace: Trace, tile: Tile, comparison: Comparison, trivial: float, exp_concavity: float | None
) -> TileCertificate:
    if tile.slot is None:
        return TileCertificate(tile, None, trivial, trivial, ANY_POINT)
    base = base_bounds(trace, tile, comparison, exp_concavity)
    if not hasattr(trace.rule, "experts"):  # a single base learner is its only expert
        gains = limits = np.zeros(1)
    else:
        gains, limits = tile_gains(trace, tile)
    if "excess" in trace.arrays:  # excess loss of a sampled or late decision over the one that gains refer to
        part = trace.interval_slice(tile.first, tile.last)
        gains, limits = (side + float(np.sum(trace.arrays["excess"][part])) for side in (gains, limits))
    if np.isfinite(gains + base).any():
        expert = int(np.argmin(gains + base))
        measured, guaranteed = float((gains + base)[expert]), float(np.min(limits + base))
        if trivial < measured:
            return TileCertificate(tile, None, trivial, guaranteed, ANY_POINT)
        return TileCertificate(tile, expert, measured, guaranteed, ANY_POINT)
    # No bound for the base learner: the regret against the best expert of the block.
    healthy = np.isfinite(gains)
    if not healthy.any():
        return TileCertificate(tile, None, math.inf, math.inf, EXPERTS)
    expert = int(np.argmax(np.where(healthy, gains, -math.inf)))
    return TileCertificate(tile, expert, float(gains[expert]), float(np.max(limits[healthy])), EXPERTS)


def tile_gains(trace: Trace, tile: Tile) -> tuple[np.ndarray, np.ndarray]:
    """`sum r` of every expert on a tile, and the algorithm's bound on it; infinite for experts that diverged."""
    rule: Any = trace.rule
    part = trace.interval_slice(tile.first, tile.last)
    gains = trace.needed("gains")[part, tile.slot].astype(float)
    fine = np.isfinite(gains)  # not diverged
    if "used" not in trace.arrays:  # a rival: no bound follows from its weights
        total = np.where(fine.all(axis=0), np.sum(gains, axis=0, where=fine), math.inf)
        return total, np.full(total.shape, math.inf)
    fine &= trace.needed("p")[part, tile.slot] > 0
    gains = np.where(fine, gains, 0.0)
    used = gains * trace.arrays["used"][part, None]
    slack = np.sum(gains - used, axis=0)
    log_total = np.asarray(trace.needed("log_total")[part], dtype=float)
    limits = slack + _used_bound(used, trace.needed("bound")[part], log_total, np.log(rule.prior), rule.Q)
    healthy = fine.all(axis=0)
    return np.where(healthy, np.sum(gains, axis=0), math.inf), np.where(healthy, limits, math.inf)


def _used_bound(
    used: np.ndarray, bounds: np.ndarray, log_total: np.ndarray, log_prior: np.ndarray, Q: int
) -> np.ndarray:
    """The algorithm's bound on the sum of every expert's used gains over a tile.

    One step size serves the rounds from the tile's start, or from a fall of the scale, in which it was born, for as
    long as it lives. Where none lives all the time, the tile is cut at falls, wherever that makes the sum smallest.

    Args:
        used: `r'` of each round, `(rounds, experts)`.
        bounds: `B` at the beginning of each round; 0 as long as it was unknown, and then no weight moved.
        log_total: `L` after each round.
        log_prior: `log pi` of each expert.
        Q: how many step sizes.
    """
    bounds = bounds.astype(float)
    known = int(np.argmax(bounds > 0)) if np.any(bounds > 0) else len(bounds)
    if known == len(bounds):
        return np.zeros(used.shape[1])
    falls = 1 + np.flatnonzero(bounds[1:] < bounds[:-1])
    starts = [known, *(int(fall) for fall in falls)]
    best = {known: np.zeros(used.shape[1])}
    for stop in [*starts[1:], len(bounds)]:
        sums = []
        for start in [start for start in starts if start < stop]:
            span = bounds[start:stop]
            with np.errstate(over="ignore"):  # a step size may be infinite, and is then not used
                rates = certificate.rates_alive(span[0], span.max(), Q, span.min())
                if start > known:  # only those born in the fall began with the prior
                    rates = np.where(rates * bounds[start - 1] > 0.75, rates, np.nan)
            square = np.sum(used[start:stop] ** 2, axis=0)
            limit = certificate.gain_bound(log_total[stop - 1], log_prior[:, None], rates, square, np.zeros(()))
            sums.append(best[start] + limit)
        best[stop] = np.min(sums, axis=0)
    return best[len(bounds)]


def _distances(trace: Trace, tile: Tile, comparison: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """`D_i` and `D_2` of the base learners' bounds, `(experts or 1, d)` and `(experts or 1,)`."""
    domain, dim = trace.rule.domain, trace.rule.dim
    if domain.bounded:
        return np.asarray([domain.widths(dim)]), np.asarray([domain.diameter(dim)])
    if not comparison.bounded:
        raise ValueError(
            f"the domain {domain} is unbounded, so a certificate needs comparators: give comparator=... or radius=..."
        )
    part = trace.interval_slice(tile.first, tile.last)
    points = (
        trace.arrays["points"][part, tile.slot] if "points" in trace.arrays else trace.needed("decision")[part, None]
    )
    return comparison.reach(points.astype(float))


def within(domain: Domain, radius: float, dim: int) -> Domain:
    """The points of an unbounded domain within a radius of the origin; ValueError if that makes no sense."""
    if not isinstance(radius, int | float | np.number) or not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be positive and finite, got {radius!r}")
    if isinstance(domain, Free):
        return Ball(radius)
    if isinstance(domain, Box) and not domain.bounded:
        pairs = [(max(low, -radius), min(high, radius)) for low, high in domain.bounds(dim)]
        if any(low >= high for low, high in pairs):
            raise ValueError(f"radius={radius} is too small: {domain} has no points so close to the origin")
        return Box(*zip(*pairs, strict=True))
    raise ValueError(f"radius is for unbounded domains; {domain} is bounded already")
