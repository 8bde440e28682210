"""The certificate is never broken: regret <= linearised <= measured <= guaranteed, on every interval.

Streams are random and adversarial; intervals include prefixes of blocks and those off the block grid.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from samuel.core import Tile, certificate
from samuel.core import weights as mw
from samuel.online import (
    OGD,
    Adagrad,
    Anytime,
    Ball,
    Fixed,
    Geometric,
    Interval,
    Lasting,
    LinearLoss,
    LogisticLoss,
    Recorded,
    RelativeOGD,
    Samuel,
    ScaleFreeOGD,
    SquaredLoss,
    Trace,
    play,
)
from samuel.online.certificates import tile_gains
from tests.online.catalogue import BASES, BOUNDED, WITH_BOUND

DIM, BOUND = 3, 10.0


def links(trace, first, last):
    """The chain's numbers, smallest first if all is well."""
    proof = trace.certificate(first, last)
    assert proof.against == "any fixed point"
    regret = trace.regret(first, last)
    return regret, proof.linearised, proof.measured, proof.guaranteed


def broken_links(trace, intervals):
    """Which links of the chain are broken on which intervals, beyond rounding."""
    found = []
    for first, last in intervals:
        chain = links(trace, first, last)
        slack = 1e-7 * (1 + abs(chain[1])) + 1e-12 * np.sum(np.abs(trace.gradients[first : last + 1]))
        found += [(first, last, i) for i in range(3) if chain[i] > chain[i + 1] + slack]
    return found


def every_interval(rounds):
    return itertools.combinations_with_replacement(range(rounds), 2)


class Adversary:
    """Sends the gradient that hurts the present decision most, and turns round when the learner has followed."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)

    def gradients(self, learner, rounds):
        gradients, direction = [], self.random.normal(size=learner.dim)
        for _ in range(rounds):
            decision = learner.predict()
            if decision @ direction < np.min(decision) * np.sum(direction):
                direction = self.random.normal(size=learner.dim) * np.exp(self.random.normal())
            size = self.random.choice([0.01, 1.0, 3.0])
            gradient = np.clip(size * direction, -5, 5)
            learner.update(gradient)
            gradients.append(gradient)
        return np.stack(gradients)


def learner_for(base, domain, known, cover=None, **options):
    cover = Anytime(shortest=2) if cover is None else cover
    bound = BOUND if known else None
    return Samuel(DIM, domain, base=base, learning_rates=(0.1, 1.0), cover=cover, gradient_bound=bound, **options)


@pytest.mark.parametrize("known", [False, True], ids=["unknown scale", "known scale"])
@pytest.mark.parametrize("domain", BOUNDED)
@pytest.mark.parametrize("base", WITH_BOUND)
def test_chain_holds_on_every_interval_of_an_adversarial_run(base, domain, known):
    learner = learner_for(BASES[base], BOUNDED[domain], known, record=True)
    gradients = Adversary(seed=1).gradients(learner, 28)
    trace = play(learner_for(BASES[base], BOUNDED[domain], known), gradients, backend="numpy")
    np.testing.assert_allclose(trace.decisions, learner.trace().decisions, atol=1e-9)
    assert not broken_links(trace, every_interval(28))


streams = hnp.arrays(float, (20, DIM), elements=st.floats(-5, 5).map(lambda x: round(x, 3)))


@settings(max_examples=15)
@given(
    streams,
    st.sampled_from(WITH_BOUND),
    st.sampled_from(sorted(BOUNDED)),
    st.booleans(),
    st.sampled_from([Anytime(shortest=1), Anytime(shortest=3), Geometric(20, shortest=2)]),
    st.sampled_from(["warm", "cold", "inherit"]),
)
def test_chain_holds_on_any_linear_losses(gradients, base, domain, known, cover, newborns):
    learner = learner_for(BASES[base], BOUNDED[domain], known, cover, newborns=newborns)
    trace = play(learner, gradients, backend="numpy")
    assert not broken_links(trace, every_interval(20))
    mean_gain = np.sum(np.where(trace.weights > 0, trace.weights * trace.gains, 0.0), axis=(1, 2))
    assert np.max(np.abs(mean_gain)) < 1e-12  # sum p r = 0


@settings(max_examples=10)
@given(
    hnp.arrays(float, (16, DIM + 1), elements=st.floats(-2, 2).map(lambda x: round(x, 3))),
    st.sampled_from(["squared", "logistic"]),
    st.sampled_from(WITH_BOUND),
    st.sampled_from(sorted(BOUNDED)),
)
def test_chain_holds_on_curved_losses(numbers, kind, base, domain):
    features, target = numbers[:, :DIM], numbers[:, DIM]
    if kind == "logistic":
        stream = Recorded(LogisticLoss(), (features, np.where(target < 0, -1.0, 1.0)))
    else:
        stream = Recorded(SquaredLoss(), (features, target))
    trace = play(learner_for(BASES[base], BOUNDED[domain], False), stream, backend="numpy")
    assert not broken_links(trace, [(0, 15), (0, 6), (3, 15), (5, 11), (8, 9)])


def storm(rounds, seed=0):
    """A small pull under much noise, which turns round every 700 rounds: no decision is good in every round."""
    random = np.random.default_rng(seed)
    pull = np.where(np.arange(rounds) // 700 % 2 == 0, 0.3, -0.5)[:, None] * np.array([1.0, 0.2, 0.0])
    gradients = 0.3 * (pull + random.normal(size=(rounds, DIM)))
    return gradients / np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))


@pytest.mark.parametrize("known", [False, True], ids=["unknown scale", "known scale"])
@pytest.mark.parametrize("base", ["OGD", "ScaleFreeOGD", "Adagrad", "AdagradFull"])
def test_chain_holds_on_a_long_run_where_the_guarantee_says_something(base, known):
    """Long enough that the guarantee is below the trivial bound, so that it could be broken."""
    rounds = 2100
    learner = Samuel(DIM, Ball(1.0), base=BASES[base], learning_rates=(0.1, 1.0), gradient_bound=1.0 if known else None)
    trace = play(learner, storm(rounds))
    random = np.random.default_rng(5)
    ends = np.sort(random.integers(0, rounds, size=(60, 2)), axis=1)
    grid = [(0, rounds - 1), (0, 1023), (700, 1399), (1024, 1400), (1024, 2047), (1025, 2040)]
    assert not broken_links(trace, [(int(a), int(b)) for a, b in ends] + grid)
    whole = trace.certificate(1024, 2047)
    assert whole.guaranteed < 0.9 * whole.trivial
    assert whole.measured < whole.guaranteed


def one_way(rounds, spike, size):
    """A steady pull in one dimension, with a gradient of another size in one round."""
    gradients = 1 + 0.3 * np.random.default_rng(0).normal(size=(rounds, 1))
    gradients[spike] *= size
    return gradients


@pytest.mark.parametrize("size", [1e18, -1e18])
def test_chain_holds_after_a_gradient_of_another_world(size):
    learner = Samuel(1, Interval(-1.0, 1.0), base=OGD(), learning_rates=(0.001, 0.3, 3.0), newborns="cold")
    trace = play(learner, one_way(1100, spike=600, size=size), backend="numpy")
    starts = np.arange(540, 1000, 20)
    assert not broken_links(trace, [(int(a), min(int(a) + n, 1099)) for a in starts for n in (63, 127, 255)])
    for tile in trace.rule.cover.tile(608, 1099):
        own = trace.gains[tile.first : tile.last + 1, tile.slot].sum(axis=0)
        np.testing.assert_allclose(tile_gains(trace, tile)[0], own, atol=1e-9)


@st.composite
def wild_streams(draw, rounds=44):
    """Gradients with spikes of any size, outliers after quiet, and intervals in which nothing is lost."""
    gradients = draw(hnp.arrays(float, (rounds, DIM), elements=st.floats(-1, 1).map(lambda x: round(x, 3))))
    decades = st.dictionaries(st.integers(0, rounds - 1), st.sampled_from([-18, -6, -3, 1, 3, 6, 18]), max_size=6)
    for place, decade in draw(decades).items():
        gradients[place] *= 10.0**decade
    start, stop = sorted((draw(st.integers(0, rounds)), draw(st.integers(0, rounds))))
    gradients[start:stop] *= draw(st.sampled_from([0.0, 1e-5, 1.0, 1e5]))
    return gradients


@settings(max_examples=12)
@given(
    wild_streams(),
    st.sampled_from(WITH_BOUND),
    st.sampled_from(sorted(BOUNDED)),
    st.sampled_from([Anytime(shortest=1), Anytime(shortest=4), Geometric(44, shortest=2)]),
    st.sampled_from(["warm", "cold", "inherit"]),
)
def test_chain_holds_under_spikes_and_outliers_in_a_reused_buffer(gradients, base, domain, cover, newborns):
    learner = learner_for(BASES[base], BOUNDED[domain], False, cover, newborns=newborns, record=True)
    buffer = np.empty(DIM)
    for gradient in gradients:
        buffer[:] = gradient
        learner.update(buffer)
    trace = learner.trace()
    np.testing.assert_array_equal(trace.gradients, gradients)
    assert not broken_links(trace_of(trace, gradients), itertools.combinations_with_replacement(range(0, 44, 3), 2))


LONG_LIVED = {
    "default": {},
    "known scale": {"gradient_bound": BOUND},
    "every 3 rounds": {
        "learners": [RelativeOGD(0.1), RelativeOGD(2.0), Adagrad(0.5, delta=0.1), Adagrad(3.0)],
        "cover": Lasting(every=3),
    },
}


@settings(max_examples=20)
@given(
    wild_streams(),
    st.sampled_from(sorted(LONG_LIVED)),
    st.sampled_from([*BOUNDED.values(), Ball(2.0, (1.0, 0.0, -3.0))]),
)
def test_chain_holds_for_experts_that_never_start_anew(gradients, options, domain):
    trace = play(Samuel(DIM, domain, **LONG_LIVED[options]), gradients, backend="numpy")
    assert not broken_links(trace, itertools.combinations_with_replacement(range(44), 2))
    mean_gain = np.sum(trace.weights * trace.gains, axis=(1, 2)) / (1 + np.abs(trace.gains).max(axis=(1, 2)))
    assert np.max(np.abs(mean_gain)) < 1e-12  # sum p r = 0


@pytest.mark.parametrize("domain", BOUNDED)
def test_chain_holds_for_the_default_where_the_guarantee_says_something(domain):
    rounds = 2100
    trace = play(Samuel(DIM, BOUNDED[domain]), storm(rounds))
    ends = np.sort(np.random.default_rng(5).integers(0, rounds, size=(60, 2)), axis=1)
    assert not broken_links(trace, [(int(a), int(b)) for a, b in ends] + [(0, rounds - 1), (704, 1399), (1025, 2040)])
    proof = trace.certificate(0, rounds - 1)
    assert len(proof.tiles) == 1
    assert proof.measured < proof.guaranteed < 0.9 * proof.trivial


def trace_of(trace, gradients):
    """The record of linear losses, with the stream that regret is counted on."""
    stream = Recorded(LinearLoss(), (gradients,))
    arrays = trace.arrays | {"loss": np.sum(trace.decisions * gradients, axis=-1)}
    return Trace(trace.rule, arrays, stream)


def test_what_is_measured_is_never_above_what_is_trivially_true():
    trace = play(Samuel(DIM, Ball(1.0)), storm(300), backend="numpy")
    proofs = [trace.certificate(first, last) for first, last in every_interval(300) if (first * last) % 97 == 5]
    assert all(proof.measured <= proof.trivial + 1e-9 for proof in proofs)
    short = [proof.tiles for proof in proofs if proof.last - proof.first < 32]
    assert any(tile.expert is None and tile.tile.slot is not None for tiles in short for tile in tiles)


def test_full_feedback_has_a_certificate_too():
    random = np.random.default_rng(0)
    stream = Recorded(SquaredLoss(), (random.normal(size=(60, DIM)), random.normal(size=60)))
    for combine in ("average", "sample", "best"):
        learner = learner_for(Adagrad(), Ball(1.0), False, feedback="full", combine=combine)
        trace = play(learner, stream, backend="numpy")
        for first, last in every_interval(60):
            if (first + last) % 7 == 0:
                proof = trace.certificate(first, last)
                assert trace.regret(first, last) <= proof.measured + 1e-9
                assert proof.measured <= proof.guaranteed + 1e-9


def test_late_feedback_is_counted():
    """Gradients that come three rounds late: what the delay cost is in the certificate."""
    random, learner = np.random.default_rng(0), learner_for(ScaleFreeOGD(), Ball(1.0), False, record=True)
    waiting = []
    for _ in range(40):
        waiting.append((learner.ticket(), random.normal(size=DIM)))
        if len(waiting) > 3:
            ticket, gradient = waiting.pop(0)
            learner.update(gradient, ticket=ticket)
    trace = learner.trace()
    for first, last in every_interval(len(trace)):
        proof = trace.certificate(first, last)
        assert proof.linearised <= proof.measured + 1e-9 <= proof.guaranteed + 2e-9


# --- The tests above can fail: wrong formulas are caught. -----------------------------------------------------------


class EuclideanAdagrad(Adagrad):
    """Wrong: projects in Euclidean norm but claims Adagrad's bound."""

    def step(self, points, memory, gradients, learning_rate, domain):
        stepped = super().step(points, memory, gradients, learning_rate, _NoProjection())
        return stepped._replace(points=domain.project(stepped.points))


class _NoProjection:
    def project_diagonal(self, point, metric):
        return point


def badly_scaled(rounds=1000):
    """A steep coordinate that pulls to the edge of the ball with noise; the wrong projection drags it off again,
    because it moves the flat coordinates as if they weighed as much."""
    signs = np.sign(np.random.default_rng(0).normal(size=(rounds, DIM)) + np.array([0.5, 3.0, 3.0]))
    return signs * np.array([1.0, 0.005, 0.005])


def run_alone(base, gradients):
    """One expert from the first round on, so that only the base learner's bound is at stake."""
    learner = Samuel(DIM, Ball(1.0), base=base, learning_rates=(1.0,), cover=Geometric(len(gradients), len(gradients)))
    return play(learner, gradients, backend="numpy")


def test_a_euclidean_projection_for_adagrad_on_a_ball_is_caught():
    prefixes = [(0, last) for last in range(20, 1000, 20)]
    assert not broken_links(run_alone(Adagrad(), badly_scaled()), prefixes)
    assert broken_links(run_alone(EuclideanAdagrad(), badly_scaled()), prefixes)


def test_a_bound_of_experts_with_a_past_that_forgets_the_past_is_caught(monkeypatch):
    """After a large gradient Adagrad takes small steps: its regret from then on is more than that of a newborn."""
    gradients = np.concatenate([[100.0], np.zeros(7), np.full(40, -1.0)])[:, None]
    trace = play(Samuel(1, Interval(-1.0, 1.0), learning_rates=(1.0,), cover=Lasting(8)), gradients, backend="numpy")
    assert not broken_links(trace, [(8, last) for last in range(8, 48)])
    right = Adagrad.later_bound
    monkeypatch.setattr(Adagrad, "later_bound", lambda self, memory, *given: right(self, (0 * memory[0],), *given))
    assert broken_links(trace, [(8, last) for last in range(8, 48)])


def total_over_started(judge):
    """`L - log C` after rounds in which a bad expert of little weight loses far more than the bound allows for.

    The mean gain is 0, as it is under linear feedback with averaging.
    """
    prior = np.array([0.95, 0.05])
    weights = mw.restart(mw.begin(prior, 1, 6, bound=1.0), np.array([True]), prior)
    for _ in range(12):
        p = mw.shares(weights)
        gains = 1.9 * float(weights.bound) * np.array([[p[0, 1], -p[0, 0]]])
        weights, judged = judge(weights, gains)
        weights = mw.widen(weights, judged.largest, prior)
    return float(mw.log_total(weights) - np.log(weights.started))


def test_gains_clipped_one_by_one_are_caught():
    """Clipping each gain by itself biases the mixture: the total outgrows what was started."""

    def one_by_one(weights, gains):
        bound = float(weights.bound)
        after, judged = mw.judge(weights, np.clip(gains, -bound, bound))
        return after, judged._replace(largest=np.max(np.abs(gains)))

    assert total_over_started(mw.judge) <= 1e-9
    assert total_over_started(one_by_one) > 1e-3


def turncoat():
    """64 rounds in which a bold expert wins, then 64 in which a cautious one does."""
    return np.concatenate([np.full(64, -1.0), np.tile([1.0, -1.0], 32)])[:, None]


def test_inheriting_without_adding_the_prior_is_caught(monkeypatch):
    def heirs():
        experts = [OGD(1e-3), OGD(2.0)]
        learner = Samuel(
            1, Interval(-1.0, 1.0), learners=experts, cover=Fixed(64), newborns="inherit", gradient_bound=1.0
        )
        return play(learner, turncoat(), backend="numpy")

    assert not broken_limits(heirs(), [(0, 63), (64, 127)])

    right = mw.restart

    def without_prior(weights, starts, prior, inherit=False):
        return right(weights, starts, prior * 1e-12 if inherit else prior, inherit)

    monkeypatch.setattr(mw, "restart", without_prior)
    assert broken_limits(heirs(), [(0, 63), (64, 127)])


def broken_limits(trace, tiles):
    """Experts whose total gain on a tile exceeds the algorithm's bound on it."""
    return [
        (first, slot)
        for first, last in tiles
        for slot in range(trace.gains.shape[1])
        if (trace.rule.cover.block(slot, first) or (None,))[0] == first
        for gains, limits in [tile_gains(trace, Tile(slot, first, last))]
        if (gains > limits + 1e-9).any()
    ]


def test_a_forgotten_square_in_the_bound_is_caught(monkeypatch):
    right = certificate.gain_bound
    trace = play(learner_for(ScaleFreeOGD(), Ball(1.0), True, Anytime(shortest=64)), storm(700)[:512])
    tiles = [(64, 127), (128, 255), (256, 511)]
    assert not broken_limits(trace, tiles)
    monkeypatch.setattr(
        certificate,
        "gain_bound",
        lambda L, log_prior, rates, square, slack: right(L - L, log_prior, rates, 0 * square, slack),
    )
    assert broken_limits(trace, tiles)
