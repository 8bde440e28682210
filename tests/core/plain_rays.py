"""The rule of `samuel.core.rays` written plainly: every expert is a point, every weight a logarithm, nothing is shared.

A second opinion to test the rays against. It keeps one vector per anchor, per sum and per lagged sum, makes all
experts' points from them in every round, keeps every decision since the last restart to average over them, and every
gradient's square to see a leap. It takes its options from a `Rays` and uses none of its code.
"""

import math

import numpy as np

from samuel.core import Chosen, Watched
from samuel.core.rays import (
    CAUTION,
    COOLING,
    FADING,
    GROWN,
    KEPT,
    LATE,
    PATIENT,
    REACH,
    REBOUND,
    SETTLED,
    SHORT_CAUTION,
    SLOW,
    USUAL_ROUNDS,
    WATCHING,
)

ROUNDING = 1e-12
"""Gains up to this part of what they are the difference of are rounding."""
NO_END = 2**31


class Plain:
    """A base whose directions are the gradients themselves."""

    def direction(self, memory, gradient):
        return gradient, memory


class Adagrad:
    """A base that never forgets."""

    def direction(self, memory, gradient):
        memory = memory + gradient**2
        return gradient / (memory + 1e-12) ** 0.5, memory


class PlainRays:
    """The decisions of the rule with these options (a `Rays`), from `x` on; `step` takes the gradient at `x`."""

    def __init__(self, options, x, base):
        self.o, self.base = options, base
        self.lr = np.asarray(options.learning_rates)
        self.K, self.J, self.Q = options.cover.slots(NO_END), len(self.lr), options.Q
        self.fractions = 2.0 ** -np.arange(1, self.Q + 1)  # eta_q times the bound on the gains
        self.x = np.array(x, float)
        self.c = np.tile(self.x, (self.K, 1))  # anchors
        self.u = np.zeros_like(self.c)  # sums of unit-rate steps
        self.ubar = np.zeros_like(self.c)  # their moving averages
        self.memory = np.zeros_like(self.c)  # of the base, one per slot; all alike where it is shared

        self.round, self.since, self.shifts = 0, 0, 0
        self.older = 0  # by so many rounds blocks count as older, because of what was learned before a shift
        self.length = math.inf if options.horizon is None else options.horizon
        self.bound = {"rms": 1.0, "max": 0.0}.get(options.scale, options.scale)
        self.log_v = np.full((self.K, self.J, self.Q), -math.inf)
        self.log_ended, self.started = -math.inf, 0.0
        first = [k for k in range(self.K) if self.begins(k, 0)]
        rates = {k: np.ones(self.J, bool) for k in first}
        if options.short_rates == "above":
            whole = self.spread(first[-1], rates[first[-1]])
            for k in first[:-1]:
                rates[k] = self.above(whole @ self.lr / whole.sum())
        for k in first:
            self.log_v[k] = _log(self.spread(k, rates[k]))[:, None]
            self.started += self.Q * self.spread(k, rates[k]).sum()
        self.slow = math.log(self.long_rate())
        self.rate = float((self.shares() @ self.lr).sum())
        # Sums over each expert's block, for the scale and for the certificate.
        self.square, self.count = np.zeros((self.K, self.J)), np.zeros(self.K)
        self.measured, self.used, self.used_square = (np.zeros((self.K, self.J)) for _ in range(3))
        self.log_birth, self.bound_then = self.log_v.copy(), np.full(self.K, self.bound)
        self.log_total, self.unit = self.total(), np.ones((self.K, self.J))
        self.restarted, self.reset = np.zeros(self.K, bool), False
        self.squares, self.odd = [], False  # of the gradients since the last restart; whether the last one leapt
        self.path = [self.x.copy()]  # the decisions that are averaged
        self.average = self.x

    # Where everyone stands

    def points(self):
        """`x(k, j)` of every expert, `(slots, rates, d)`."""
        return self.c[:, None] - self.lr[:, None] * self.u[:, None]

    def judged_points(self):
        """Where they are judged: with a lag, except for the short blocks of a watched run."""
        behind = self.u.copy()
        for k in range(self.K):
            if not (isinstance(self.o.cover, Watched) and k < self.K - 1):
                behind[k] = self.ubar[k]
        return self.c[:, None] - self.lr[:, None] * behind[:, None]

    def weights(self):
        """`sum_q eta_q v` of every expert in units of the largest, and the logarithm of that unit."""
        top = self.log_v.max()
        return np.exp(self.log_v - top) @ self.fractions, top

    def shares(self):
        weights, _ = self.weights()
        return weights / weights.sum()

    def open(self):
        return np.isfinite(self.log_v).any((1, 2))

    def long(self):
        """The open slot with the longest block."""
        return int(np.flatnonzero(self.open())[-1])

    def long_rate(self):
        p = self.shares()[self.long()]
        return p @ self.lr / p.sum()

    def total(self):
        return float(np.logaddexp.reduce([*self.log_v.ravel(), self.log_ended]))

    # Time

    def begins(self, k, t):
        block = self.o.cover.block(k, t)
        return block is not None and block[0] == t

    def clock(self):
        """The time that blocks are laid out by: named rounds are those of the run, others count from a shift on."""
        return self.round if isinstance(self.o.cover, Chosen) else self.since

    def height(self):
        return min(1.0, REBOUND + (1 - REBOUND) * self.since / self.o.settle) if self.older else 1.0

    def decay(self, k):
        watched = isinstance(self.o.cover, Watched)
        if self.o.decay == "none" or not self.open()[k]:
            return 1.0
        if self.o.decay == "sqrt":
            return 1 / math.sqrt(1 + (self.since if watched else self.count[k] - 1) / COOLING)
        if watched:
            return 1 - self.since / self.length
        first, length = self.o.cover.block(k, self.clock())
        if length >= NO_END:
            length = self.o.horizon - first
        return max(0.0, 1 - (self.clock() - first) / length)

    # Priors

    def mass(self, k):
        """What the weights of all rates of a newborn slot sum to, next to the others."""
        if not isinstance(self.o.cover, Watched) or k == self.K - 1:
            return 1.0
        lengths = [self.o.cover.shortest * 2**i for i in range(self.K - 1)]
        return lengths[k] * min(1 / max(self.o.horizon or 0, USUAL_ROUNDS), WATCHING / sum(lengths))

    def above(self, rate):
        """The rates that newborns of short blocks carry beside a long block of this one."""
        return (self.lr > rate * (1 + ROUNDING)) & (self.lr <= REACH * rate)

    def spread(self, k, rates):
        """A slot's mass spread over some of the rates."""
        powers = np.where(rates, self.lr**self.o.prior, 0.0)
        return self.mass(k) * powers / powers.sum() if rates.any() else powers

    # A round

    def step(self, gradient):
        p = self.shares()
        leapt = self.leaps(gradient)
        points, judged = self.points(), self.judged_points()
        if self.o.reference == "long":
            ours = p[self.long()] @ judged[self.long()] / p[self.long()].sum()
        elif self.o.combine == "points":
            ours = np.einsum("kj,kjd->d", p, judged)
        else:
            ours = self.x
        gains = np.where(p > 0, (ours - judged) @ gradient, 0.0)
        size = np.linalg.norm(gradient) * (np.linalg.norm(ours) + np.linalg.norm(judged, axis=-1).max())
        gains[abs(gains) <= ROUNDING * size] = 0.0
        for_smaller = (judged[:, -1] - judged[:, 0]) @ gradient > 0
        self.judge(gains, (self.x - points) @ gradient, self.heard(for_smaller, gradient))

        p, factors = self.shares(), self.height() * np.array([self.decay(k) for k in range(self.K)])
        moves = np.zeros_like(self.u)
        for k in range(self.K):
            direction, self.memory[k] = self.base.direction(self.memory[k], gradient)
            moves[k] = factors[k] * direction
        self.u += moves
        self.ubar = self.o.lag * self.ubar + (1 - self.o.lag) * self.u
        self.rate = float((p @ self.lr) @ factors)
        if self.o.combine == "points":
            self.x = np.einsum("kj,kjd->d", p, self.points())
        else:
            self.x = self.x - (p @ self.lr) @ moves
        self.restart(p, leapt)
        self.log_total = self.total()

    def judge(self, gains, lost, heard):
        """Weights and sums after the round's gains; `lost` is what the decision really lost to each expert."""
        before = self.bound
        self.square, self.count = self.square + gains**2, self.count + 1
        if self.o.scale == "rms":
            caution = np.full((self.K, 1), CAUTION)
            if isinstance(self.o.cover, Watched):
                caution[:-1] = SHORT_CAUTION
            self.unit = caution * np.sqrt(self.square / self.count[:, None])
            used = np.clip(gains / np.where(self.unit > 0, self.unit, 1.0), -1, 1)
            if self.o.settle:
                used *= [[(1 + (n - 1 + self.older) / self.o.settle) ** -FADING] for n in self.count]
            if self.o.patience:
                used = np.clip(used * heard[:, None], -1, 1)
            self.log_v += np.log1p(used[..., None] * self.fractions)
        else:
            largest = abs(gains).max()
            used = gains * (min(1.0, self.bound / largest) if largest > 0 else 1.0)
            if self.bound > 0:
                self.log_v += np.log1p(used[..., None] * self.fractions / self.bound)
            if self.o.scale == "max":
                self.widen(largest)
        self.measured += lost
        self.used += used
        self.used_square += used**2
        self.bound_then = np.where(self.bound_then > 0, self.bound_then, before)

    def heard(self, for_smaller, gradient):
        """How much of the round is heard in each slot: at first little, if it speaks for smaller rates."""
        before, n = self.squares[:-1], self.since + 1
        begun_anew = self.round > self.since
        if not self.o.patience or begun_anew or not before or np.sum(gradient**2) > GROWN * np.mean(before):
            return np.ones(self.K)
        return np.where(for_smaller, PATIENT * n / (n + self.o.patience), 1.0)

    def widen(self, largest):
        """The bound doubles until it holds the gains: large rates end, small ones are born with the prior."""
        if self.bound == 0 or largest > self.bound * 2**self.Q:
            self.bound, shift = largest, (self.Q if self.bound else 0)
        else:
            shift = 0
            while self.bound < largest:
                self.bound, shift = 2 * self.bound, shift + 1
        for _ in range(shift):
            alive = np.isfinite(self.log_v).any(-1)
            prior = np.array([self.spread(k, np.ones(self.J, bool)) for k in range(self.K)]) * alive
            self.log_ended = np.logaddexp.reduce([*self.log_v[..., 0].ravel(), self.log_ended])
            self.log_v = np.concatenate([self.log_v[..., 1:], _log(prior)[..., None]], axis=-1)
            self.started += prior.sum()

    def leaps(self, gradient):
        """Whether this gradient is the second in a row that is far larger than those since the last restart."""
        square = float(np.sum(gradient**2))
        watched = self.o.alarm and SETTLED <= self.since <= (1 - LATE) * self.length
        most = self.o.alarm * self.usual_square() if watched else math.inf
        before, self.odd = self.odd, square > most
        self.squares.append(most if self.odd else square if math.isfinite(square) else 0.0)
        return before and self.odd

    def usual_square(self):
        """The mean of the squares so far, or that of the recent ones if it is larger."""
        recent = 0.0
        for n, square in enumerate(self.squares):
            recent += max(1 / (n + 1), 1 - SLOW) * (square - recent)
        return max(np.mean(self.squares), recent)

    # What ends

    def restart(self, p, leapt):
        long = self.long()
        mean_rate, now = self.long_rate(), math.log(self.long_rate())
        shift = self.o.takeover is not None and self.K > 1 and p[long].sum() < self.o.takeover
        if self.o.collapse is not None and self.since >= SETTLED:
            shift |= now < self.slow + math.log(self.o.collapse)
        self.slow = SLOW * self.slow + (1 - SLOW) * now
        self.round, self.since = self.round + 1, self.since + 1
        kept = 1.0 if leapt and not shift else KEPT
        shift = bool(shift or leapt)
        reset = shift or (isinstance(self.o.cover, Watched) and self.since >= self.length)
        if reset:
            self.older = min(self.o.experience or 0, self.older + self.since) if shift else 0
            self.since, self.shifts = 0, self.shifts + int(shift)
            self.squares, self.odd = [], False
        opening = np.array([self.begins(k, 0 if reset else self.clock()) for k in range(self.K)])
        ending = opening | reset

        anchors = np.array([self.birthplace(k, p, ending, reset) for k in range(self.K)])
        self.reweigh(ending, opening, reset, long, mean_rate, kept)
        self.c[ending], self.u[ending], self.ubar[ending] = anchors[ending], 0.0, 0.0
        self.memory[ending if self.o.base_state == "slots" else np.full(self.K, reset)] = 0.0
        if self.o.combine == "points" and ending.any():
            self.x = np.einsum("kj,kjd->d", self.shares(), self.points())

        for sums in (self.square, self.count, self.measured, self.used, self.used_square):
            sums[ending] = 0.0
        self.log_birth[ending], self.bound_then[ending] = self.log_v[ending], self.bound
        if reset:
            self.slow = math.log(self.long_rate())
            if self.o.horizon is not None:
                left = self.o.horizon - self.round
                self.length = left if left > 0 else self.o.horizon
        self.restarted, self.reset = ending, reset
        self.path = [self.x.copy()] if shift else [*self.path, self.x.copy()]
        self.average = self.mean(self.path)
        if reset and not shift:  # the end of the horizon: what was averaged is where the next average begins
            self.path = [self.average]

    def mean(self, path):
        """The average of decisions with weights that grow as a power of the time: C(n + power, n) for the n-th."""
        if self.o.average == 0:
            return path[-1]
        logs = [math.lgamma(n + self.o.average + 1) - math.lgamma(n + 1) for n in range(len(path))]
        return np.average(path, axis=0, weights=np.exp(np.array(logs) - max(logs)))

    def birthplace(self, k, p, ending, reset):
        """Where the newborns of a slot start: at the decision, at their own slot's mean, or at that of the others."""
        points, shares = self.points(), p.sum(-1)
        if self.o.newborns == "inherit" and shares[k] > 0 and not reset:
            return p[k] @ points[k] / shares[k]
        if self.o.newborns == "join" and self.o.combine == "points" and shares[~ending].sum() > 0:
            return np.einsum("kj,kjd->d", p[~ending], points[~ending]) / shares[~ending].sum()
        return self.x

    def reweigh(self, ending, opening, reset, long, mean_rate, kept):
        """The weights of the newborns."""
        everything = np.ones(self.J, bool)
        threshold = mean_rate
        if reset:  # the long slot will keep a part of what it knew
            prior = self.spread(long, everything)
            threshold = kept * mean_rate + (1 - kept) * (prior @ self.lr / prior.sum())
        above = self.above(threshold) if self.o.short_rates == "above" else everything
        longest = np.flatnonzero((self.open() & ~ending) | opening)[-1]  # from now on
        priors = {k: self.spread(k, everything if k == longest else above) for k in np.flatnonzero(opening)}
        old, weights, log_size = self.log_v.copy(), *self.weights()
        if self.by_prior():
            log_size = 0.0
        else:  # next to those that stay, or next to all that were open if nobody does
            staying = np.flatnonzero(self.open() & ~ending)
            staying = staying if staying.size else np.flatnonzero(self.open())
            others = weights[staying].sum() / sum(self.mass(k) for k in staying)
            log_size += math.log(others / self.fractions.sum())
        for k in np.flatnonzero(ending):
            new = np.full((self.J, self.Q), -math.inf)
            if k in priors:
                new = np.tile(_log(priors[k])[:, None] + log_size, self.Q)
                self.started += self.Q * priors[k].sum()
            if reset and not self.by_prior() and k == longest:
                profile = old[long] - np.logaddexp.reduce((old[long] + np.log(self.fractions)).ravel())
                known = profile + math.log(self.mass(k) * self.fractions.sum()) + log_size
                new = np.logaddexp(new + _log(1 - kept), known + math.log(kept))
            inherits = self.o.newborns == "inherit" and (self.by_prior() or not reset)
            self.log_v[k] = np.logaddexp(new, old[k]) if inherits else new
            if not inherits:
                self.log_ended = np.logaddexp.reduce([*old[k].ravel(), self.log_ended])

    def by_prior(self):
        """Whether a newborn's weight is its prior, so that the theorem holds, and not a share of the others'."""
        o = self.o
        restarts = any((o.takeover, o.collapse, o.alarm))
        return o.scale != "rms" and o.newborns != "join" and not restarts

    # The certificate

    def certificate(self):
        """How far the decisions were behind each expert in its block, and at most how far; nan for the closed."""
        limit, taking_part = self.measured.copy(), self.shares() > 0
        for k, j in np.argwhere(taking_part & (self.bound_then > 0)[:, None]):  # before, no weight has moved
            eta = self.fractions / self.bound_then[k]
            alive = eta * self.bound < 0.75  # powers of two apart: 1/2 is a rate in use, 1 is not any more
            bounds = (self.log_total - self.log_birth[k, j]) / eta + eta * self.used_square[k, j]
            limit[k, j] += self.unit[k, j] * (bounds[alive].min(initial=math.inf) - self.used[k, j])
        return np.where(taking_part, self.measured, math.nan), np.where(taking_part, limit, math.nan)


def _log(array):
    with np.errstate(divide="ignore"):
        return np.log(array)
