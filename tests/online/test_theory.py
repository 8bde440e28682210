"""The paper's theorem and corollaries, with explicit constants, against measured runs."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel.core import certificate
from samuel.online import Adagrad, AdagradFull, Anytime, Ball, Box, Samuel, play, theory
from samuel.online.certificates import tile_gains


def run(base=None, rounds=600, domain=None, seed=0):
    random = np.random.default_rng(seed)
    drift = np.where(np.arange(rounds) // 150 % 2 == 0, 0.4, -0.4)[:, None] * np.array([1.0, -0.5])
    gradients = drift + 0.2 * random.normal(size=(rounds, 2))
    gradients /= np.maximum(1.0, np.linalg.norm(gradients, axis=1, keepdims=True))
    learner = Samuel(2, domain or Ball(1.0), base=base, gradient_bound=1.0, cover=Anytime(shortest=2))
    return play(learner, gradients)


INTERVALS = [(0, 599), (0, 99), (150, 299), (151, 420), (301, 302), (64, 127), (255, 599)]


@given(st.floats(0.5, 20), st.floats(0, 1e5), st.floats(0.1, 10), st.integers(1, 20))
def test_the_closed_form_of_a_block_is_never_below_the_best_rate(log_count, square, bound, Q):
    rates = certificate.rates_alive(np.array(bound), np.array(bound), Q)
    exact = certificate.gain_bound(np.array(log_count), np.array(0.0), rates, np.array(square), np.array(0.0))
    assert exact <= theory.block_bound(log_count, square, bound, Q) * (1 + 1e-9)


def test_the_papers_constants():
    """`8 G D L` and `2.13 sqrt(L V)` with `B = 2 G D`."""
    G, D, L = 3.0, 2.0, 7.0
    assert theory.block_bound(L, 0.0, 2 * G * D, Q=30) == pytest.approx(8 * G * D * L)
    assert theory.block_bound(L, 1e9, 2 * G * D, Q=60) <= 2.13 * math.sqrt(L * 1e9)


@pytest.mark.parametrize("interval", INTERVALS)
def test_theorem_1_bounds_the_regret_against_the_experts(interval):
    trace = run()
    proof = trace.certificate(*interval)
    behind = sum(
        tile_gains(trace, tile.tile)[0].max() if tile.tile.slot is not None else tile.measured for tile in proof.tiles
    )
    assert behind <= theory.theorem_1(trace, *interval).total


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("domain", [Ball(1.0), Box(-0.7, 0.7)], ids=str)
def test_corollary_1_bounds_the_regret_with_full_matrices(interval, domain):
    trace = run(AdagradFull(), domain=domain)
    bound = theory.corollary_1(trace, *interval)
    assert trace.regret(*interval) <= bound.total
    assert bound.total == pytest.approx(bound.weights + bound.base + bound.gap)


@pytest.mark.parametrize("interval", INTERVALS)
def test_corollary_3_bounds_the_regret_with_diagonal_matrices(interval):
    trace = run(Adagrad(), domain=Box(-0.7, 0.7))
    assert trace.regret(*interval) <= theory.corollary_3(trace, *interval).total


@pytest.mark.parametrize(("corollary", "base"), [(theory.corollary_1, AdagradFull()), (theory.corollary_3, Adagrad())])
def test_the_corollaries_are_no_tighter_than_the_certificates_they_follow_from(corollary, base):
    trace = run(base)
    for interval in INTERVALS:
        assert trace.certificate(*interval).guaranteed <= corollary(trace, *interval).total + 1e-9


def test_where_the_theorem_does_not_speak_it_says_so():
    gradients = np.ones((20, 2))
    with pytest.raises(ValueError, match="known gradient_bound"):
        theory.theorem_1(play(Samuel(2, Ball(1.0)), gradients), 0, 19)
    with pytest.raises(ValueError, match="exceeded gradient_bound=0.1"):
        theory.theorem_1(play(Samuel(2, Ball(1.0), base=Adagrad(), gradient_bound=0.1), gradients), 0, 19)
    with pytest.raises(ValueError, match="those of Lasting.* never start anew"):
        theory.theorem_1(play(Samuel(2, Ball(1.0), gradient_bound=2.0), gradients), 0, 19)
    with pytest.raises(ValueError, match="AdagradFull experts, got Adagrad"):
        theory.corollary_1(run(Adagrad()), 0, 19)


def test_every_expert_has_its_own_delta():
    learner = Samuel(
        1, Box(-1.0, 1.0), learners=[Adagrad(1e-6), Adagrad(1.0, delta=1e8)], gradient_bound=1.0, cover=Anytime(400)
    )
    trace = play(learner, np.ones((400, 1)))
    assert trace.regret(0, 399) <= theory.corollary_3(trace, 0, 399).total


def test_a_recorded_trace_will_do():
    learner = Samuel(2, Box(-1.0, 1.0), base=AdagradFull(), gradient_bound=2.0, record=True)
    for t in range(40):
        learner.update([math.sin(t), math.cos(3 * t)])
    assert math.isfinite(theory.corollary_1(learner.trace(), 0, 39).total)


def partitions(rounds, k):
    """Every way to cut so many rounds into k pieces."""
    for cuts in itertools.combinations(range(1, rounds), k - 1):
        yield list(itertools.pairwise((0, *cuts, rounds)))


@pytest.mark.parametrize("diagonal", [False, True])
def test_the_bound_over_partitions_is_the_smallest_of_all_partitions(diagonal):
    gradients = np.random.default_rng(3).normal(size=(9, 3)) * np.repeat([[1, 5, 0.1], [4, 0.1, 2]], [4, 5], axis=0)
    found = theory.partition_bound(play(Samuel(3, Ball(1.0)), gradients), most=9, diagonal=diagonal)

    def cost(first, stop):
        part = gradients[first:stop]
        roots = np.sqrt((part**2).sum(0)) if diagonal else np.linalg.svd(part, compute_uv=False)
        return roots.sum() / math.sqrt(3)

    for k in range(1, 10):
        expected = min(sum(cost(a, b) for a, b in pieces) for pieces in partitions(9, k))
        assert found.totals[k - 1] == pytest.approx(expected)
        pieces = found.pieces[k - 1]
        assert [round for a, b in pieces for round in range(a, b + 1)] == list(range(9))
        assert sum(cost(a, b + 1) for a, b in pieces) == pytest.approx(expected)
    assert (np.diff(found.totals) >= -1e-9).all()


def test_no_preconditioner_of_that_trace_is_better_for_a_piece():
    random = np.random.default_rng(0)
    gradients = random.normal(size=(12, 3)) * [1.0, 3.0, 0.2]
    best = theory.partition_bound(play(Samuel(3, Ball(1.0)), gradients), most=1).totals[0]
    for _ in range(200):
        root = random.normal(size=(3, 3))
        H = root @ root.T
        H *= 3 / np.trace(H)
        assert best <= np.sqrt(np.einsum("ti,ij,tj->", gradients, np.linalg.inv(H), gradients)) + 1e-9
    left, values, _ = np.linalg.svd(gradients.T, full_matrices=False)
    H = left * (3 * values / values.sum()) @ left.T
    assert best == pytest.approx(np.sqrt(np.einsum("ti,ij,tj->", gradients, np.linalg.inv(H), gradients)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most": 0}, "most must be a whole number from 1 to 600.*got 0"),
        ({"most": 601}, "most must be a whole number from 1 to 600.*got 601"),
        ({"longest": 100}, "at most longest=100 rounds, got a run of 600"),
    ],
)
def test_the_bound_over_partitions_refuses_what_makes_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        theory.partition_bound(run(), **options)
