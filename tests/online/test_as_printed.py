"""`Samuel.as_printed` is the paper's Algorithm 1, line by line: by a transcription with nothing shared."""

import math

import numpy as np
import pytest

from samuel.online import OGD, Adagrad, Ball, Box, Free, Samuel

ROUNDING = 1e-10  # the package's Adagrad keeps every coordinate above 1e-12 of the largest


class AdagradOnABox:
    """Duchi et al. 2011, diagonal, from the middle of the box."""

    def __init__(self, rate, dim):
        self.rate, self.x, self.squares = rate, np.zeros(dim), np.zeros(dim)

    def step(self, gradient):
        self.squares += gradient**2
        moved = np.divide(gradient, np.sqrt(self.squares), out=np.zeros_like(gradient), where=self.squares > 0)
        self.x = np.clip(self.x - self.rate * moved, -1.0, 1.0)


class DescentOnABall:
    """Zinkevich 2003 with a fixed rate, from the middle of the ball of radius 2."""

    def __init__(self, rate, dim):
        self.rate, self.x = rate, np.zeros(dim)

    def step(self, gradient):
        x = self.x - self.rate * gradient
        self.x = x * min(1.0, 2.0 / max(np.linalg.norm(x), 1e-300))


def algorithm_1(loss, T, G, D, dim, experts, decide):
    """The pseudo-code; `experts` makes the copies of A for an interval, `decide` gives x from points and weights."""
    Q = math.ceil(4 * math.log(dim * T * D**2 * G**2))
    eta = {q: 1 / (2 * G * D * 2**q) for q in range(1, Q + 1)}
    levels = range(math.ceil(math.log2(T)) + 1)
    intervals = [(s, min(s + 2**i - 1, T), i) for i in levels for s in range(1, T + 1, 2**i)]
    algorithms = {(interval, a): make() for interval in intervals for a, make in enumerate(experts)}
    born = {q: min(0.5, eta[q]) for q in eta}
    w = {(interval, a, q): born[q] if interval[0] == 1 else 0.0 for interval, a in algorithms for q in eta}
    decisions = []
    for tau in range(1, T + 1):
        active = [(interval, a) for interval, a in algorithms if interval[0] <= tau <= interval[1]]
        points = {e: algorithms[e].x for e in active}
        W = sum(w[(*e, q)] for e in active for q in eta)
        x = decide({e: sum(w[(*e, q)] for q in eta) / W for e in active}, points)
        decisions.append(x)
        ours = loss(tau, x)[0]
        fed = {e: loss(tau, points[e]) for e in active}
        for e in active:
            for q in eta:
                w[(*e, q)] *= 1 + eta[q] * (ours - fed[e][0])
        for e in active:
            algorithms[e].step(fed[e][1])
        for (s, t, i), a, q in w:
            if not s <= tau + 1 <= t:
                w[(s, t, i), a, q] = 0.0
            elif tau + 1 == s:
                w[(s, t, i), a, q] = born[q]
    return np.array(decisions)


def absolute(targets):
    """Losses `|<c, x> - b|` of norm-bounded features."""

    def loss(tau, x):
        feature, target = targets[tau - 1]
        residual = feature @ x - target
        return abs(residual), np.sign(residual) * feature

    return loss


def problem(T, dim, seed):
    random = np.random.default_rng(seed)
    features = random.normal(size=(T, dim))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    hidden = np.where(np.arange(T)[:, None] < T // 2, 0.71, -0.53) * np.linspace(0.4, 1.0, dim)
    return absolute([(f, f @ h) for f, h in zip(features, hidden, strict=True)])


def played(learner, loss, T):
    decisions = []
    for tau in range(1, T + 1):
        decisions.append(learner.predict().copy())
        learner.update(loss=lambda x, tau=tau: loss(tau, x))
    return np.array(decisions)


def mean(p, points):
    return sum(p[e] * points[e] for e in p)


CASES = {
    "Adagrad on a box": (Box(-1.0, 1.0), math.sqrt(3), Adagrad(), AdagradOnABox),
    "gradient descent on a ball": (Ball(2.0), 2.0, OGD(), DescentOnABall),
}


@pytest.mark.parametrize("T", [32, 43])
@pytest.mark.parametrize("case", CASES)
def test_the_decisions_are_those_of_the_pseudo_code(case, T):
    domain, D, base, plain = CASES[case]
    rates = (0.05, 0.1, 0.25, 0.5, 1.0)
    loss, G = problem(T, 3, seed=T), 1.5
    learner = Samuel.as_printed(3, domain, T, G, base=base, learning_rates=rates)
    expected = algorithm_1(loss, T, G, D, 3, [lambda rate=rate: plain(rate, 3) for rate in rates], mean)
    assert played(learner, loss, T) == pytest.approx(expected, abs=ROUNDING)


def test_drawn_decisions_are_those_of_the_pseudo_code_given_the_draws():
    T, G, rates = 40, 1.5, (0.1, 1.0)
    loss = problem(T, 3, seed=5)
    learner = Samuel.as_printed(3, Box(-1.0, 1.0), T, G, learning_rates=rates, combine="sample", seed=3, record=True)
    drawn = played(learner, loss, T)
    shares, rounds = [], iter(drawn)

    def decide(p, points):
        x = next(rounds)
        # Experts of one interval each, in the order of lengths and rates, as the record has them.
        shares.append([p[e] for e in sorted(p, key=lambda e: (e[0][2], e[1]))])
        assert any(np.allclose(point, x, atol=ROUNDING) for e, point in points.items() if p[e] > 0)
        return x

    algorithm_1(loss, T, G, math.sqrt(3), 3, [lambda rate=rate: AdagradOnABox(rate, 3) for rate in rates], decide)
    trace = learner.trace()
    assert trace.weights.reshape(T, -1) == pytest.approx(np.array(shares), abs=ROUNDING)
    assert len({tuple(x) for x in drawn}) > T // 4


def test_the_certificate_holds_of_drawn_and_of_averaged_decisions():
    from samuel.online import DriftingRegression, play

    for combine in ("average", "sample"):
        learner = Samuel.as_printed(2, Ball(1.0), 64, 4.0, combine=combine)
        trace = play(learner, DriftingRegression(dim=2, period=32), rounds=64)
        for first, last in [(0, 63), (5, 20), (32, 63)]:
            certificate = trace.certificate(first, last)
            assert trace.regret(first, last) <= certificate.measured <= certificate.guaranteed


def test_the_interval_of_200_rounds_and_five_rates_make_the_papers_forty_experts():
    rates = (0.05, 0.1, 0.25, 0.5, 1.0)
    learner = Samuel.as_printed(1, Ball(1.0), 25_600, 2.0, learning_rates=rates, shortest=200)
    assert learner.weights().shape == (8, 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gradient_bound": 0}, "gradient_bound must be positive and finite, got 0"),
        ({"gradient_bound": 0.1}, r"gradient_bound=0.1 on Ball.*give at least 0.5"),
        ({"base": "adagrad"}, "base must be a base learner such as Adagrad.*'adagrad'"),
        ({"domain": Free()}, "bounds the gains on a bounded domain only"),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, got 0"),
        ({"shortest": 0}, "shortest must be a whole number of at least 1, got 0"),
        ({"combine": "best"}, "combine must be one of average, sample, got 'best'"),
    ],
)
def test_bad_input_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        Samuel.as_printed(**{"dim": 2, "domain": Ball(1.0), "horizon": 64, "gradient_bound": 4.0, **changes})
