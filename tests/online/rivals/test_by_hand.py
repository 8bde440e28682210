"""Every rival on a small example whose numbers are worked out in the comments.

Unless said otherwise: one dimension, decisions in [-1, 1] (diameter 2), gradients of size 1/2, and `gradient_bound`
1/2, so that gains are measured in units of 1/2 * 2 = 1, as they are.
"""

from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest

from samuel.online import (
    AFLH,
    CBCE,
    FLH,
    OGD,
    SACS,
    SAOL,
    Ader,
    FixedShare,
    Hedge,
    Interval,
    ParameterFree,
    Simplex,
    Sword,
)

LINE = Interval(-1.0, 1.0)
TWO = [OGD(0.4), OGD(0.2)]
"""A moves by 0.2 a round, B by 0.1."""


def decisions(learner, gradients):
    """The decision before each gradient, and the one after the last."""
    found = [float(learner.predict()[0])]
    for gradient in gradients:
        learner.update([gradient])
        found.append(float(learner.predict()[0]))
    return found


def close(found, expected):
    assert found == pytest.approx([float(number) for number in expected], abs=1e-12)


def test_saol():
    learner = SAOL(1, LINE, base=OGD(0.5), shortest=2, newborns="cold", gradient_bound=0.5)
    found = decisions(learner, [0.5] * 7)
    # Blocks of 2 rounds (eta = min(1/2, 2^-1/2) = 1/2), and of 4 from round 4 on (eta = 4^-1/2 = 1/2). Experts move
    # by -1/4 a round, from 0.
    # Rounds 0..3: one block after the other: 0, -1/4, 0, -1/4.
    # Rounds 4, 5: both blocks start together and stand together: 0, -1/4.
    # Round 6: the short one starts again at 0, the long one stands at -1/2; both weigh 1/2: -1/4.
    #   Gains: 1/2 (-1/4 - 0) = -1/8 and 1/2 (-1/4 + 1/2) = 1/8.
    # Round 7: weights 1/2 (1 - 1/16) = 15/32 and 1/2 (1 + 1/16) = 17/32, points -1/4 and -3/4:
    #   15/32 * -1/4 + 17/32 * -3/4 = -66/128.
    close(found, [0, -0.25, 0, -0.25, 0, -0.25, -0.25, Fraction(-66, 128)])


def test_saol_weighs_long_blocks_by_a_smaller_rate():
    learner = SAOL(1, LINE, learners=TWO, shortest=16, gradient_bound=0.5)
    found = decisions(learner, [0.5, 0.5])
    # Blocks of 16 rounds: eta = 1/4. Round 0: both at 0. Round 1: at -1/5 and -1/10, equal weights: -3/20; gains
    # 1/2 (-3/20 + 1/5) = 1/40 and -1/40. Round 2: weights 1 + 1/160 and 1 - 1/160, points -2/5 and -1/5.
    a, b = 1 + Fraction(1, 160), 1 - Fraction(1, 160)
    close(found, [0, -0.15, -(Fraction(2, 5) * a + Fraction(1, 5) * b) / 2])


def test_cbce_stakes_what_was_won():
    learner = CBCE(1, LINE, learners=TWO, gradient_bound=0.5)
    found = decisions(learner, [0.5, 0.5, -0.5, 0.5])
    # One block of 8 rounds, so that A and B have the same prior.
    # Round 0: both at 0, no gain. Round 1: A -1/5, B -1/10; nobody has any weight, so p = prior: -3/20. Gains A 1/40;
    #   B -1/40, of which nothing counts, as B has no weight.
    # Round 2: A -2/5, w = 1/40 / 3 > 0; B has none: -2/5. The gradient is -1/2: gains A 0, B -1/2 (-2/5 + 1/5) = 1/10.
    # Round 3: A -1/5, w = 1/40 / 4 = 1/160; B -1/10, w = 1/10 / 4 = 1/40: p = (1/5, 4/5), so -1/25 - 2/25 = -3/25.
    #   Gains A 1/2 (-3/25 + 1/5) = 1/25, B 1/2 (-3/25 + 1/10) = -1/100, which counts, as B has weight.
    # Round 4: A -2/5, sum of gains 13/200, wealth 1 + 1/25 * 1/160 = 4001/4000, w = 13/1000 * 4001/4000;
    #   B -1/5, sum 9/100, wealth 1 - 1/100 * 1/40 = 3999/4000, w = 9/500 * 3999/4000.
    a, b = Fraction(13, 1000) * Fraction(4001, 4000), Fraction(9, 500) * Fraction(3999, 4000)
    last = -(Fraction(2, 5) * a + Fraction(1, 5) * b) / (a + b)
    close(found, [0, -0.15, -0.4, -0.12, last])


def test_cbce_falls_back_on_a_prior_that_favours_early_starts():
    learner = CBCE(1, LINE, base=OGD(0.5), shortest=2, newborns="cold", gradient_bound=0.5)
    found = decisions(learner, [0.5] * 7)
    # Starts are counted from 1 in units of the shortest block: both blocks of round 4 are start 3, with a prior of
    # 1 / (9 * (1 + 1)) = 1/18; the short block of round 6 is start 4, with 1 / (16 * (1 + 2)) = 1/48.
    # Round 6: nobody has gained anything: p = (1/48, 1/18) / sum = (3/11, 8/11) on the points 0 and -1/2: -4/11.
    # Round 7: only the long block has gained: it alone counts, at -3/4.
    close(found, [0, -0.25, 0, -0.25, 0, -0.25, Fraction(-4, 11), -0.75])


def test_sacs():
    learner = SACS(1, LINE, learners=TWO, gradient_bound=0.5)
    found = decisions(learner, [0.5, 0.5, 0.5])

    # One block of 8 rounds. Round 1: A -1/5, B -1/10, equal: -3/20; gains 1/40 and -1/40.
    # Round 2: R = 1/40 and -1/40, C = 1/40 for both; A -2/5, B -1/5.
    def weight(total, size):
        return (exp(max(total + 1, 0) ** 2 / (3 * (size + 1))) - exp(max(total - 1, 0) ** 2 / (3 * (size + 1)))) / 2

    a, b = weight(1 / 40, 1 / 40), weight(-1 / 40, 1 / 40)
    second = -(0.4 * a + 0.2 * b) / (a + b)
    # Round 3: gains 1/2 (x + 2/5) and 1/2 (x + 1/5) of the decision x of round 2 are added; A -3/5, B -3/10.
    gain_a, gain_b = 0.5 * (second + 0.4), 0.5 * (second + 0.2)
    assert gain_a > 0 > gain_b
    a = weight(1 / 40 + gain_a, 1 / 40 + gain_a)
    b = weight(-1 / 40 + gain_b, 1 / 40 - gain_b)
    close(found, [0, -0.15, second, -(0.6 * a + 0.3 * b) / (a + b)])


def test_sacs_starts_one_block_at_a_time():
    learner = SACS(1, LINE, shortest=1, newborns="cold")
    # In rounds 1, 2, 3, ... (counted from 1) run the blocks of the levels whose bit is set in the round's number.
    for round in range(1, 33):
        running = [level for level, weight in enumerate(learner.weights()[:, 0]) if weight > 0]
        assert sum(2**level for level in running) == round
        learner.update([0.0])


def test_flh():
    learner = FLH(1, LINE, base=OGD(0.5), shortest=2, horizon=4, newborns="cold", gradient_bound=0.5)
    found = decisions(learner, [0.5] * 4)
    # a = 4^-1/2 = 1/2. The first expert stands at 0, -1/4, -1/2, -3/4, -1.
    # Round 2: a second one at 0 gets a half: -1/4. Gains 1/8 and -1/8, so p1 = 1 / (1 + exp(-1/2 (1/8 + 1/8))).
    p = 1 / (1 + exp(-1 / 8))
    third = -0.75 * p - 0.25 * (1 - p)
    # Round 3: points -3/4 and -1/4, whose gains differ by 1/2 * 1/2 = 1/4 whatever the decision.
    odds = p / (1 - p) * exp(1 / 8)
    p = odds / (1 + odds)
    # Round 4: a third one at 0 gets a third, the others keep two thirds; they stand at -1 and -1/2.
    close(found, [0, -0.25, -0.25, third, 2 / 3 * (-p - 0.5 * (1 - p))])


def test_flh_for_exp_concave_losses_takes_gains_as_they_are():
    learner = FLH(1, LINE, learners=TWO, feedback="loss", exp_concavity=0.25)

    def loss(x):
        return float((4 * x[0] + 2) ** 2)

    # Round 0: both at 0, no gain. The gradients are not those of the loss, but what moves A and B as in the others.
    learner.update([0.5], loss=loss)
    # Round 1: A -1/5, B -1/10: -3/20. Losses: decision (4 * -3/20 + 2)^2 = 1.96, A 1.2^2 = 1.44, B 1.6^2 = 2.56.
    assert learner.predict()[0] == pytest.approx(-0.15)
    learner.update([0.5], loss=loss)
    # Round 2: p ~ exp(1/4 * (1.96 - loss)), gains 0.52 and -0.60 as they are; A -2/5, B -1/5.
    a, b = exp(0.13), exp(-0.15)
    assert learner.predict()[0] == pytest.approx(-(0.4 * a + 0.2 * b) / (a + b))


def test_flh_without_a_horizon_takes_rates_that_fall():
    learner = FLH(1, LINE, learners=TWO, gradient_bound=0.5)
    found = decisions(learner, [0.5, 0.5, 0.5])
    # One block. Round 1: A -1/5, B -1/10; gains 1/2 (x + 1/5) and 1/2 (x + 1/10), which differ by 1/20. After t = 2
    # rounds a = 2^-1/2. Round 2: A -2/5, B -1/5, gains differ by 1/10; after 3 rounds a = 3^-1/2.
    odds = exp(2**-0.5 / 20)
    second = -(0.4 * odds + 0.2) / (odds + 1)
    odds *= exp(3**-0.5 / 10)
    close(found, [0, -0.15, second, -(0.6 * odds + 0.3) / (odds + 1)])


def test_sacs_counts_what_was_gained_in_the_unit_of_now():
    learner = SACS(1, LINE, learners=TWO)
    found = decisions(learner, [0.5, 0.5, 5.0])
    # The unit is the largest gain so far. Round 1: -3/20, gains 1/40 and -1/40: in units of 1/40, 1 and -1.
    # Round 2: A -2/5, B -1/5.
    a, b = exp(4 / 6) - 1, 0.0  # (R + 1)^2 / (3 (C + 1)) with R = C = 1; B: R = -1, so nothing
    assert found[2] == pytest.approx(-(0.4 * a + 0.2 * b) / (a + b))
    # The decision is A's. Gains with a gradient of 5: A 0, B 5 (-2/5 + 1/5) = -1, the new unit: what was 1 and -1 is
    # 1/40 and -1/40. A moves by -2 and B by -1, both to the edge at -1.
    total, size = learner._state.weights
    assert total[0] == pytest.approx([1 / 40, -1 / 40 - 1])
    assert size[0] == pytest.approx([1 / 40, 1 / 40 + 1])


def test_aflh_drops_who_is_too_old():
    learner = AFLH(1, LINE, shortest=1)
    for round in range(1, 6):
        # Nobody gains anything, so the newcomer's 1/t keeps all shares equal, until one is dropped.
        shares = learner.weights()
        assert shares[shares > 0] == pytest.approx([1 / round] * round)
        learner.update([0.0])
    # Round 6: the expert of round 1 = 1 * 2^0 is older than 2^2 and is dropped; the four others had 1/5 each, which
    # makes 1/4 each of 5/6; the newcomer has 1/6.
    shares = learner.weights()
    assert sorted(shares[shares > 0]) == pytest.approx([1 / 6] + [5 / 24] * 4)


def test_hedge():
    # On a simplex of diameter sqrt(2) a gradient bound of 1/sqrt(2) makes the unit 1.
    learner = Hedge(2, Simplex(), rate=0.5, gradient_bound=1 / sqrt(2))
    for round in range(4):
        # Losses 1 and 0: the gains of the two experts differ by 1 in every round.
        assert learner.predict()[1] == pytest.approx(1 / (1 + exp(-0.5 * round)))
        learner.update([1.0, 0.0])


def test_hedge_without_a_rate_uses_that_of_its_theory():
    # Gains differ by 1; a = sqrt(2 log 2 / t) after t rounds, or sqrt(2 log 2 / 8) for a horizon of 8.
    known, unknown = (Hedge(2, Simplex(), horizon=n, gradient_bound=1 / sqrt(2)) for n in (8, None))
    for round in range(1, 4):
        for learner in (known, unknown):
            learner.update([1.0, 0.0])
        assert known.predict()[1] == pytest.approx(1 / (1 + exp(-sqrt(2 * log(2) / 8) * round)))
        assert unknown.predict()[1] == pytest.approx(1 / (1 + exp(-sqrt(2 * log(2) / round) * round)))


@pytest.mark.parametrize("past", [False, True], ids=["equally", "as in the past"])
def test_fixed_share(past):
    learner = FixedShare(2, Simplex(), rate=0.5, share=0.1, past=past, gradient_bound=1 / sqrt(2))
    # Losses 1 and 0: v ~ p exp(a r), where the gains differ by 1; then 1/10 is given back.
    learner.update([1.0, 0.0])
    v = 1 / (1 + exp(-0.5))
    p = 0.9 * v + 0.1 * 0.5  # equally, or as in the past, which was equal
    assert learner.predict()[1] == pytest.approx(p)
    learner.update([1.0, 0.0])
    mean = (0.5 + v) / 2 if past else 0.5
    v = p / (p + (1 - p) * exp(-0.5))
    assert learner.predict()[1] == pytest.approx(0.9 * v + 0.1 * mean)


def test_ader():
    learner = Ader(1, LINE, horizon=14, gradient_bound=0.5)
    found = decisions(learner, [0.5, 0.5])
    # D = 2, G = 1/2, T = 14: steps 2^i * 4 * sqrt(7 / 28) = 2 * 2^i for i = 0..ceil(log2(9) / 2) = 2, so 2, 4 and 8;
    # with a gradient of 1/2 all experts stand at -1 from round 1 on.
    close(found, [0, -1, -1])
    assert learner.learning_rates == pytest.approx((2, 4, 8))
    # No gains: the weights are the prior, 1/2, 1/6 and 1/12 over their sum.
    assert learner.weights()[0] == pytest.approx([2 / 3, 2 / 9, 1 / 9])


def test_ader_weighs_by_its_rate_and_prior():
    learner = Ader(1, LINE, horizon=1400, gradient_bound=0.5)
    rates = np.array(learner.learning_rates)
    assert rates == pytest.approx(0.2 * 2.0 ** np.arange(6))
    found = decisions(learner, [0.5, 0.5])
    # Round 1: points -rate / 2, cut at -1, prior weights. Gains in units of G D = 1; then exp(sqrt(2 / T) gains).
    places = np.arange(1, 7)
    prior = 1 / (places * (places + 1.0))
    points = np.maximum(-rates / 2, -1)
    first = prior @ points / prior.sum()
    weights = prior * np.exp(sqrt(2 / 1400) * 0.5 * (first - points))
    points = np.maximum(points - rates / 2, -1)
    close(found, [0, first, weights @ points / weights.sum()])


def test_sword():
    learner = Sword(1, LINE, horizon=1024, gradient_bound=0.5, smoothness=0.25)
    # D = 2, L D / G = 1: step sizes D / G * 2^i / 32 up to 1 / (8 L) = 1/2: 1/8, 1/4, 1/2.
    assert np.array(learner.learning_rates) / 0.5 == pytest.approx([1 / 8, 1 / 4, 1 / 2])
    found = decisions(learner, [0.5, -0.25])
    # Round 0: all at 0. Two steps along 1/2: y = -1/16, -1/8, -1/4 and x = -1/8, -1/4, -1/2.
    #   No gains, no surprise: e = 1/8. Expected gains -1/2 x in units of G D = 1: 1/16, 1/8, 1/4; the moves cost
    #   2 (x / D)^2 = 1/128, 1/32, 1/8.
    x = np.array([-1 / 8, -1 / 4, -1 / 2])
    p = np.exp((-x / 2 - x**2 / 2) / 8)
    first = p @ x / p.sum()
    # Round 1: gradient -1/4, gains -1/4 (first - x); surprise: the range of gains less expected ones, halved, squared.
    gains = -0.25 * (first - x)
    wrong = gains + x / 2
    rate = min(1 / 8, 2 / (wrong.max() - wrong.min()))
    total = gains - x**2 / 2
    y = x / 2 + np.array([1 / 32, 1 / 16, 1 / 8])
    after = y + np.array([1 / 32, 1 / 16, 1 / 8])
    p = np.exp(rate * (total + 0.25 * after - (after - x) ** 2 / 2))
    close(found, [0, first, p @ after / p.sum()])


def test_parameter_free():
    learner = ParameterFree(1, LINE)
    found = decisions(learner, [2.0, 2.0, -2.0])
    # Gradients in units of the longest: 1, 1, -1. Only the level of 8 rounds runs, lengths are in units of 1 (half of
    # the domain), and there is nothing above that a share could be taken of.
    # Round 0: everything is 0. The direction goes to 0 - sqrt(2) * 1 / 1, cut to -1.
    # Round 1: the bettor has staked nothing: 0. It is given the slope 1 * -1 = -1: curvature 1 + 1 = 2, and the part
    #   that it stakes goes to 0 + 2 / (2 - log 3) * 1 / 2 > 1/2, cut to 1/2. The direction stays at -1.
    # Round 2: a half of a wealth of 1 in direction -1: -1/2. The slope -1 * -1 = 1 halves the wealth; with
    #   1 / (1 - 1/2) = 2, curvature 2 + 4 = 6, part 1/2 - 2 / (2 - log 3) * 2 / 6 < 0:
    #   it would rather go back, but not beyond 0.
    assert 0.5 - 2 / (2 - log(3)) * 2 / 6 < 0
    close(found, [0, 0, -0.5, 0])


def test_parameter_free_levels_correct_each_other():
    learner = ParameterFree(1, LINE, shortest=1, newborns="cold")
    found = decisions(learner, [1.0] * 7)
    # Level 0 starts in every round and so does nothing. Level 1 runs from round 2, level 2 from round 4, for 4 rounds.
    # Rounds 4..7, level 2: given 1, it goes 0, 0, then stakes 1/2 (as above), in direction -1, and after another slope
    #   of -1: wealth 1 + 1/2; -1 / (1 + 1/2) = -2/3, curvature 2 + 4/9, part at most 1/2: 1/2. So 3/4.
    # Level 1 starts in rounds 4 and 6: in its second round it has staked nothing yet. So the decision is level 2's.
    close(found[4:], [0, 0, -0.5, -0.75])


def test_parameter_free_levels_pass_on_what_does_not_push_outwards():
    learner = ParameterFree(1, Interval(-0.25, 0.25), shortest=4)
    found = decisions(learner, [1.0, 1.0, 1.0])
    # Lengths are in units of 1/4, half of the domain, and at most 1/2 long. Rounds 0 and 1: 0. Round 2: a stake of 1/2
    # in units of 1/4: -1/8. Round 3: wealth 3/2, part 1/2: 3/4 of 1/4.
    close(found, [0, 0, -1 / 8, -3 / 16])
    # On and on in the same direction the point would leave the domain: it stays at its edge, and the part of the
    # gradient that pushes outwards is not passed on, so that the wealth does not grow any more.
    for _ in range(200):
        learner.update([1.0])
        assert learner.predict()[0] >= -0.25
    wealth = float(np.exp(learner._state.length.log_wealth).max())
    assert wealth < 30
    # Then a few gradients the other way are enough to leave the edge.
    for _ in range(12):
        learner.update([-1.0])
    assert learner.predict()[0] > -0.25


def test_parameter_free_starts_anew_where_it_is_when_all_levels_do():
    learner = ParameterFree(1, LINE, shortest=2)
    before = None
    for round in range(1, 17):
        before = learner.predict()
        learner.update([1.0 if round < 9 else -0.1])
        if round in (4, 8, 16):  # a level opens, and every level starts with it
            assert learner.predict() == pytest.approx(before)
    assert learner.predict()[0] != 0


def test_newborns_start_at_the_decision_or_at_the_centre():
    for kind in (SAOL, CBCE, SACS, FLH, AFLH):
        warm, cold = (kind(1, LINE, base=OGD(0.5), shortest=4, newborns=newborns) for newborns in ("warm", "cold"))
        for learner in (warm, cold):
            for _ in range(4):
                learner.update([0.25])
        # A second block starts after 4 rounds, in which the only expert went from 0 to -1/2. There are no gains.
        points = {learner: learner.rule.points(learner._state)[learner.weights() > 0][:, 0] for learner in (warm, cold)}
        assert points[cold].max() == 0
        assert points[warm].max() <= -0.375  # the decision of the last round, or the point that came of it


def test_memory_of_the_past_brings_an_expert_back_sooner():
    rounds = [[1.0, 0.0, 1.0]] * 40 + [[0.0, 1.0, 1.0]] * 40 + [[1.0, 0.0, 1.0]] * 5
    plain, past = (FixedShare(3, Simplex(), share=0.01, rate=1.0, past=past) for past in (False, True))
    for losses in rounds:
        plain.update(losses)
        past.update(losses)
    assert past.predict()[1] > plain.predict()[1]
    assert np.isclose(past.predict().sum(), 1)
