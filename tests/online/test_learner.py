"""What users of a learner rely on beyond the common contract."""

import copy
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import samuel.online.samuel as learner_module
from samuel.online import (
    OGD,
    ONS,
    Adagrad,
    AdagradFull,
    Adam,
    AllIntervals,
    Anytime,
    Ball,
    Box,
    Chosen,
    DriftingRegression,
    Fixed,
    Free,
    HalfLine,
    Hedge,
    Interval,
    NoHealthyExpert,
    Recorded,
    Samuel,
    ScaleFreeOGD,
    Simplex,
    Single,
    SquaredLoss,
    play,
)
from samuel.online.comparators import best_fixed_point
from tests.online.catalogue import BASES, LEARNERS

RANDOM = np.random.default_rng(0)
GRADIENTS = RANDOM.normal(size=(100, 3))


@pytest.mark.parametrize("name", BASES)
def test_one_expert_that_never_restarts_is_its_base_learner(name):
    one = play(Samuel(3, Ball(1.0), learners=[BASES[name]], cover=Chosen()), GRADIENTS, backend="numpy")
    alone = play(Single(BASES[name], 3, Ball(1.0)), GRADIENTS, backend="numpy")
    np.testing.assert_allclose(one.decisions, alone.decisions, atol=1e-12)


@pytest.mark.parametrize("base", [ScaleFreeOGD(), Adagrad(), Adam(epsilon=0.0)])
@pytest.mark.parametrize("domain", [Ball(1.0), Simplex(), Free()], ids=str)
@pytest.mark.parametrize("factor", [1000.0, 1e-6])
def test_multiplying_all_losses_changes_no_decision(base, domain, factor):
    decisions = [
        play(Samuel(3, domain, base=base, learning_rates=(0.1, 1.0)), scale * GRADIENTS, backend="numpy").decisions
        for scale in (1.0, factor)
    ]
    assert np.max(np.abs(decisions[0] - decisions[1])) < 1e-6


def test_an_expert_that_overflows_is_taken_out_and_the_others_go_on():
    learner = Samuel(1, Free(), base=OGD(), learning_rates=(0.1, 1e308))
    for _ in range(50):
        learner.update(100 * (learner.predict() - 1.0))
        assert np.isfinite(learner.predict()).all()
    assert learner.weights()[..., 0].sum() > 0.99


def test_when_no_expert_is_left_there_is_an_error_and_the_learner_is_unchanged():
    learner = Samuel(1, Free(), base=OGD(), learning_rates=(1e308,), cover=Fixed(1000))
    before = pickle.dumps(learner._state)
    with pytest.raises(NoHealthyExpert):
        learner.update([1e10])
    assert pickle.dumps(learner._state) == before
    learner.update([0.0])
    for backend in ("numpy", "jax"):
        with pytest.raises(NoHealthyExpert):
            play(learner, np.full((5, 1), 1e10), backend=backend)
        assert learner.round == 1


def followed(outliers, rounds=1000, seed=0, **options):
    """The loss of following a target that turns round, where the gradients of some rounds are 10,000 times as large."""
    random, total = np.random.default_rng(seed), 0.0
    learner = Samuel(1, Interval(-1.0, 1.0), learning_rates=(0.001, 0.3, 3.0), **options)
    for t in range(rounds):
        away = learner.predict() - (0.6 if t // 300 % 2 else -0.5) - 0.3 * random.normal(size=1)
        total += float(away @ away)
        learner.update(2 * away * (1e4 if t in outliers else 1.0))
    return total


@pytest.mark.parametrize("options", [{}, {"base": ScaleFreeOGD()}, {"newborns": "warm"}], ids=str)
@pytest.mark.parametrize("outliers", [{20}, {20, 300, 301, 600, 800}], ids=["one", "five"])
def test_outliers_do_not_end_the_learning_of_weights(outliers, options):
    assert followed(outliers, **options) < 1.04 * followed(set(), **options)


def test_experts_that_agree_for_long_do_not_make_rounding_the_scale():
    learner = Samuel(3, Ball(1.0), base=OGD(), learning_rates=(0.5, 1.0), record=True)
    for t in range(200):
        learner.update(
            np.array([1.0, 0.3, 0.7]) * (1.0 if t < 150 or t % 3 else -1.0)
        )  # all at the edge; then they part
    assert np.min(learner.trace().arrays["bound"][2:]) > 1e-3


def test_warm_newborns_start_at_the_decision_cold_ones_at_the_centre_heirs_at_their_slots_mean():
    runs = {}
    for newborns in ("warm", "cold", "inherit"):
        learner = Samuel(3, Ball(1.0), newborns=newborns, cover=Fixed(10), learning_rates=(0.1, 1.0))
        for gradient in GRADIENTS[:9]:
            learner.update(gradient + 1)
        weights = learner.weights()
        before = learner.predict()
        learner.update(np.zeros(3))
        runs[newborns] = (learner, before, weights)
    assert not runs["cold"][0].predict().any()
    for newborns in ("warm", "inherit"):
        learner, before, _ = runs[newborns]
        np.testing.assert_allclose(learner.predict(), before, atol=1e-12)
    np.testing.assert_allclose(runs["warm"][0].weights(), [[0.5, 0.5]])
    _, _, old = runs["inherit"]
    assert np.argmax(runs["inherit"][0].weights()) == np.argmax(old)


@pytest.mark.parametrize("newborns", ["warm", "cold", "inherit"])
@pytest.mark.parametrize("domain", [Ball(1.0), Box(-0.5, 0.5), Free()], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_quick_round_is_the_reference_but_quicker(newborns, domain, dtype):
    """A learner that records takes the reference's way through every round."""
    options = {"newborns": newborns, "learning_rates": (0.1, 1.0), "dtype": dtype, "cover": Anytime(shortest=3)}
    quick, reference = Samuel(3, domain, **options), Samuel(3, domain, **options, record=True)
    for size, gradient in zip(np.exp(np.linspace(0, 4, 100)), GRADIENTS, strict=True):
        for learner in (quick, reference):
            learner.update(size * gradient)
        np.testing.assert_allclose(quick.predict(), reference.predict(), atol=1e-11 if dtype == "float64" else 1e-4)
        np.testing.assert_allclose(quick.weights(), reference.weights(), atol=1e-11 if dtype == "float64" else 1e-4)
        assert quick.predict().dtype == dtype


@pytest.mark.parametrize("domain", [Ball(1.0), Ball(0.5), Box(-0.5, 0.5)], ids=str)
def test_the_quick_round_of_experts_that_never_start_anew_is_the_reference(domain, monkeypatch):
    played = []
    quick_round = learner_module.long_lived_round

    def counted(*given):
        played.append(quick_round(*given))
        return played[-1]

    monkeypatch.setattr(learner_module, "long_lived_round", counted)
    quick, reference = Samuel(3, domain), Samuel(3, domain, record=True)
    for size, gradient in zip(np.exp(np.linspace(0, 4, 100)), GRADIENTS, strict=True):
        for learner in (quick, reference):
            learner.update(size * gradient)
        np.testing.assert_allclose(quick.predict(), reference.predict(), atol=1e-11)
        np.testing.assert_allclose(quick.weights(), reference.weights(), atol=1e-11)
    assert sum(state is not None for state in played) > 60
    assert quick._state.weights.started == pytest.approx(reference._state.weights.started)


def test_all_intervals_have_an_expert_from_every_round():
    learner = Samuel(3, Ball(1.0), cover=AllIntervals(12), base=ScaleFreeOGD())
    trace = play(learner, GRADIENTS[:12], backend="numpy")
    assert [len(trace.certificate(a, 11).tiles) for a in range(12)] == [1] * 12
    assert [(row > 0).sum() for row in trace.weights.sum(-1)] == list(range(1, 13))


def test_thousands_of_streams_at_once():
    gradients = RANDOM.normal(size=(30, 2000, 3))
    learner = Samuel(3, Ball(1.0), streams=2000)
    trace = play(learner, gradients)
    alone = play(Samuel(3, Ball(1.0)), gradients[:, 1234], backend="numpy")
    np.testing.assert_allclose(trace.decisions[:, 1234], alone.decisions, atol=1e-9)
    one = trace.one(1234)
    assert one.certificate(0, 29).measured == pytest.approx(alone.certificate(0, 29).measured)
    assert one.regret(3, 20) == pytest.approx(alone.regret(3, 20))


def test_late_feedback_with_no_delay_is_plain_feedback():
    plain, late = Samuel(3, Ball(1.0)), Samuel(3, Ball(1.0))
    for gradient in GRADIENTS[:30]:
        plain.update(gradient)
        late.update(gradient, ticket=late.ticket())
    assert np.array_equal(plain.predict(), late.predict())


def test_late_feedback_may_come_in_any_order_and_each_ticket_is_good_once():
    learner = Samuel(3, Ball(1.0))
    tickets = [learner.ticket() for _ in range(3)]
    for ticket in (tickets[2], tickets[0]):
        learner.update(GRADIENTS[0], ticket=ticket)
    with pytest.raises(ValueError, match=r"ticket 0; waiting: \[1\]"):
        learner.update(GRADIENTS[0], ticket=tickets[0])
    assert learner.round == 2


def test_a_ticket_is_good_for_the_learner_that_made_it():
    learner, other = Samuel(3, Ball(1.0)), Samuel(3, Ball(1.0))
    learner.ticket()
    with pytest.raises(ValueError, match="another learner"):
        learner.update(GRADIENTS[0], ticket=other.ticket())
    for number in (0, True, np.int64(0)):
        with pytest.raises(ValueError, match="ticket must be one"):
            learner.update(GRADIENTS[0], ticket=number)
        with pytest.raises(ValueError, match="ticket must be one"):
            learner.forget(number)
    assert learner.round == other.round == 0


def late_losses(delay, **options):
    """The loss of a run whose gradients come so many rounds late."""
    stream = DriftingRegression(dim=4, period=150)
    learner, waiting, total = Samuel(4, Ball(2.0), base=Adagrad(), **options), [], 0.0
    for t in range(600):
        features, target = (array[0] for array in stream.data(t, t + 1))
        error = features @ learner.predict() - target
        total += error**2
        waiting.append((learner.ticket(), 2 * error * features))
        if len(waiting) > delay:
            ticket, gradient = waiting.pop(0)
            learner.update(gradient, ticket=ticket)
    return total


def test_newborns_are_warm_by_themselves_where_feedback_comes_late():
    assert late_losses(5) < 1.1 * late_losses(5, newborns="warm") < 0.5 * late_losses(5, newborns="inherit")
    assert late_losses(0) == late_losses(0, newborns="inherit")


def test_threads_that_share_a_learner_lose_no_round(hurried_threads):
    learner = Single(OGD(1.0), 1)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: learner.update([1.0]), range(1600)))
    assert learner.round == 1600
    assert learner.predict()[0] == -1600.0


def test_a_loss_that_changes_the_learner_is_refused():
    learner = Samuel(1, Interval(-1.0, 1.0), feedback="full")

    def meddling(x):
        learner.update(loss=lambda x: (0.0, [0.0]))
        return 0.0, [0.0]

    with pytest.raises(RuntimeError, match="must neither change nor copy it"):
        learner.update(loss=meddling)
    assert learner.round == 0
    learner.update(loss=lambda x: (0.0, [0.0]))
    assert learner.round == 1


@pytest.mark.parametrize("gradient", [2.0, np.float32(2.0), [2.0], np.array(2.0)], ids=repr)
def test_a_number_is_a_gradient_in_one_dimension(gradient):
    learner, full = Single(OGD(1.0), 1), Samuel(1, feedback="full")
    learner.update(gradient)
    assert learner.predict().tolist() == [-2.0]
    full.update(loss=lambda x: (0.0, gradient))
    assert full.round == 1
    with pytest.raises(ValueError, match=r"\(3,\), got"):
        Samuel(3).update(gradient)


def test_tickets_survive_pickling():
    learner = Samuel(3, Ball(1.0))
    ticket = learner.ticket()
    twin = pickle.loads(pickle.dumps(learner))
    for one in (learner, twin):
        one.update(GRADIENTS[0], ticket=ticket)
    assert np.array_equal(learner.predict(), twin.predict())


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
def test_a_copy_made_in_mid_run_shares_no_record_no_chance_and_no_later_ticket(copied):
    learner = Samuel(3, Ball(1.0), feedback="full", combine="sample", record=True)

    def steer(one, rounds):
        for gradient in rounds:
            one.update(loss=lambda x, gradient=gradient: (float(gradient @ x), gradient))

    steer(learner, GRADIENTS[:10])
    waiting = learner.ticket()
    twin = copied(learner)
    steer(twin, GRADIENTS[10:30])
    assert len(learner.trace()) == 10
    steer(learner, GRADIENTS[10:30])
    np.testing.assert_array_equal(learner.trace().decisions, twin.trace().decisions)
    for one, other in ((learner, twin), (twin, learner)):
        with pytest.raises(ValueError, match="another learner's"):
            one.update(loss=lambda x: (0.0, np.zeros(3)), ticket=other.ticket())
        one.update(loss=lambda x: (0.0, np.zeros(3)), ticket=waiting)
        assert one.round == 31


def test_a_sampled_decision_is_the_point_of_an_expert_and_follows_the_seed():
    stream = Recorded(SquaredLoss(), (RANDOM.normal(size=(40, 3)), RANDOM.normal(size=40)))

    def run(seed, backend="numpy"):
        learner = Samuel(3, Ball(1.0), feedback="full", combine="sample", seed=seed)
        return play(learner, stream, backend=backend).decisions

    assert np.array_equal(run(1), run(1))
    assert not np.array_equal(run(1), run(2))
    np.testing.assert_allclose(run(1), run(1, "jax"), atol=1e-9)


def test_loss_feedback_is_certified_against_the_experts():
    stream = Recorded(SquaredLoss(), (RANDOM.normal(size=(40, 3)), RANDOM.normal(size=40)))
    trace = play(Samuel(3, Ball(1.0), feedback="loss"), stream, backend="numpy")
    proof = trace.certificate(8, 39)
    assert proof.against == "the experts"
    assert proof.measured <= proof.guaranteed


def test_a_base_without_a_bound_is_certified_against_the_experts():
    trace = play(Samuel(3, Ball(1.0), base=Adam(), learning_rates=(0.01, 0.1)), GRADIENTS[:64], backend="numpy")
    proof = trace.certificate(0, 63)
    assert proof.against == "the experts"
    tile = proof.tiles[-1].tile
    inside = slice(tile.first, tile.last + 1)
    assert proof.tiles[-1].measured == pytest.approx(trace.gains[inside, tile.slot].sum(axis=0).max())
    assert proof.measured <= proof.guaranteed


def test_an_unbounded_domain_is_certified_against_a_radius_or_a_point():
    trace = play(Samuel(3, Free(), base=ScaleFreeOGD(), cover=Anytime(shortest=1)), GRADIENTS[:64], backend="numpy")
    with pytest.raises(ValueError, match="comparator=... or radius=..."):
        trace.certificate(0, 63)
    point = np.array([0.3, -0.2, 0.1])
    ball, single = trace.certificate(5, 50, radius=1.0), trace.certificate(5, 50, comparator=point)
    assert trace.regret(5, 50, comparator=point) <= single.linearised + 1e-9 <= single.measured + 2e-9
    assert ball.linearised <= ball.measured <= ball.guaranteed
    assert single.measured <= ball.measured


def test_a_half_line_for_quantiles():
    """The pinball loss of a 90 % quantile on [0, inf): the learner's threshold covers 90 % of what comes."""
    values = np.abs(np.random.default_rng(0).normal(size=3000))
    learner = Samuel(1, HalfLine(0.0), base=OGD(), learning_rates=(0.01, 0.1, 1.0))
    covered = []
    for value in values:
        x = learner.predict()
        covered.append(value <= x[0])
        learner.update([0.1 if value <= x[0] else -0.9])
    assert abs(np.mean(covered[500:]) - 0.9) < 0.02


def test_anytime_never_ends_and_the_horizon_form_does():
    learner = Samuel(3, Ball(1.0), horizon=16)
    play(learner, GRADIENTS[:16], backend="numpy")
    before = learner.predict()
    with pytest.raises(ValueError, match="round 16 is past the horizon.*16 rounds"):
        learner.update(GRADIENTS[0])
    with pytest.raises(ValueError, match="past the horizon of 16"):
        play(learner, GRADIENTS[:1])
    assert np.array_equal(learner.predict(), before)


def box_learner(**options):
    return Samuel(**{"dim": 3, "domain": Box(-1.0, 1.0), **options})


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: box_learner(dim=0), "dim.*0"),
        (lambda: box_learner(dim=2.5), r"dim.*2\.5"),
        (lambda: box_learner(domain="ball"), "domain.*'ball'"),
        (lambda: box_learner(domain=Box(-1.0, (1.0, 2.0))), "2.*3|3.*2"),
        (lambda: Box(1.0, 1.0), "1.0"),
        (lambda: Ball(0.0), r"0\.0"),
        (lambda: box_learner(learning_rates=()), "learning_rates is empty"),
        (lambda: box_learner(learning_rates=(0.1, -0.2)), r"-0\.2"),
        (lambda: box_learner(learning_rates=(0.1, np.nan)), "nan"),
        (lambda: box_learner(learning_rates=("fast",)), "'fast'"),
        (lambda: box_learner(learners=[]), "learners is empty"),
        (lambda: box_learner(learners=[0.1]), r"0\.1"),
        (lambda: box_learner(learners=[OGD()], learning_rates=(1.0,)), "not both"),
        (lambda: box_learner(base="adagrad"), "'adagrad'"),
        (lambda: box_learner(feedback="bandit"), "'linear', 'loss', 'full'.*'bandit'"),
        (lambda: box_learner(combine="vote"), "'vote'"),
        (lambda: box_learner(newborns="tepid"), "'tepid'"),
        (lambda: box_learner(combine="sample"), "combine='sample' needs feedback='full'.*wrong sign"),
        (lambda: box_learner(combine="sample", feedback="loss"), "needs feedback='full'"),
        (lambda: box_learner(gradient_bound=-1.0), r"gradient_bound.*-1\.0"),
        (lambda: Samuel(3, gradient_bound=1.0), "bounded domain"),
        (lambda: box_learner(Q=0), "Q.*0"),
        (lambda: box_learner(prior=(1.0,)), "one number per learner.*13"),
        (lambda: box_learner(learning_rates=(0.1, 1.0), prior=(1.0, 0.0)), r"prior.*0\.0"),
        (lambda: box_learner(cover="doubling"), "'doubling'"),
        (lambda: box_learner(cover=Anytime(), horizon=10), "horizon=10"),
        (lambda: box_learner(streams=0), "streams.*0"),
        (lambda: box_learner(dtype="float16"), "'float16'"),
        (lambda: box_learner(speed=3), "speed"),
        (lambda: box_learner(learning_rates=0.1), r"learning_rates must be a list, got 0\.1"),
        (lambda: box_learner(prior=1.0), r"prior must be a list, got 1\.0"),
        (lambda: box_learner(gradient_bound="1"), "gradient_bound.*'1'"),
        (lambda: box_learner(horizon="100"), "horizon.*'100'"),
        (lambda: box_learner(learners=OGD(0.1)), "learners must be a list"),
        (lambda: box_learner(Q=True), "Q.*True"),
        (lambda: box_learner(seed=-1), "seed.*-1"),
        (lambda: Single("ogd", dim=2), "'ogd'"),
        (lambda: Single(OGD(0.1), 2, domain="ball"), "'ball'"),
        (lambda: Chosen(5), "5"),
        (lambda: Chosen((1.5,)), r"1\.5"),
        (lambda: OGD(schedule="cosine"), "'cosine'"),
        (lambda: Adam(b1=1.0), r"b1.*1\.0"),
        (lambda: Adagrad(delta=-1.0), r"delta.*-1\.0"),
    ],
)
def test_bad_options_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (lambda x: x.update(np.zeros(4)), r"\(3,\), got \(4,\)"),
        (lambda x: x.update([0.0, np.nan, 0.0]), "gradient must be finite, got nan at 1"),
        (lambda x: x.update([0.0, 0.0, -np.inf]), "got -inf at 2"),
        (lambda x: x.update([0.0, 1e160, 0.0]), r"at most 1e\+150 in size.*got 1e\+160 at 1"),
        (lambda x: x.update("steep"), "'steep'"),
        (lambda x: x.update(), "update\\(gradient\\); got nothing"),
        (lambda x: x.update(np.zeros(3), loss=lambda x: 0.0), "got gradient and loss"),
        (lambda x: x.update(np.zeros(3), ticket=7), "got 7"),
        (lambda x: play(x, np.zeros((4, 2))), "dimension 2.*3"),
        (lambda x: play(x, np.zeros((4, 5, 3))), "5 streams"),
        (lambda x: play(x, np.full((4, 3), np.nan)), "nan at"),
        (lambda x: play(x, np.zeros(3)), r"shape \(3,\)"),
        (lambda x: play(x, np.zeros((4, 3)), rounds=5), "1 to 4, got 5"),
        (lambda x: play(x, np.zeros((4, 3)), record="some"), "'some'"),
        (lambda x: play(x, np.zeros((4, 3)), backend="torch"), "'torch'"),
        (lambda x: x.trace(), "record=True"),
        (lambda x: x.update(np.zeros(3), ticket=[1]), r"got \[1\]"),
        (lambda x: x.update(np.zeros(3) + 1j), "real numbers"),
        (lambda x: play(x, np.zeros((4, 3)), rounds=2.5), r"rounds.*2\.5"),
        (lambda x: play("x", np.zeros((4, 3))), "'x'"),
    ],
)
def test_bad_feedback_is_named_and_the_learner_is_unchanged_and_usable(given, named):
    learner, twin = (play_a_while(Samuel(3, Ball(1.0))) for _ in range(2))
    with pytest.raises(ValueError, match=named):
        given(learner)
    for gradient in GRADIENTS[:20]:
        learner.update(gradient)
        twin.update(gradient)
    assert np.array_equal(learner.predict(), twin.predict())


@pytest.mark.parametrize("name", LEARNERS)
def test_a_gradient_buffer_that_is_used_again_leaves_the_record_as_it_was(name):
    kept, buffer = LEARNERS[name](record=True), np.zeros(3)
    expected = LEARNERS[name](record=True)

    def quadratic(gradient_at):
        return lambda x: (float(x @ x), gradient_at(x))

    def into_buffer(x):
        buffer[:] = 2 * x - 1
        return buffer

    def fresh(x):
        return 2 * x - 1

    for _ in range(24):
        for learner, gradient_at in ((kept, into_buffer), (expected, fresh)):
            kind = learner.rule.feedback
            gradient = None if kind == "full" else gradient_at(learner.predict())
            loss = {"linear": None, "loss": lambda x: float(x @ x), "full": quadratic(gradient_at)}[kind]
            learner.update(gradient, loss=loss)
    buffer[:] = np.nan
    arrays, others = kept.trace().arrays, expected.trace().arrays
    for column, array in arrays.items():
        np.testing.assert_array_equal(array, others[column], err_msg=column)


def test_the_certificate_of_a_reused_buffer_is_not_below_the_regret():
    learner, buffer = Samuel(1, Interval(-1.0, 1.0), feedback="full", record=True), np.zeros(1)
    random = np.random.default_rng(2)
    features, truth = random.normal(size=256), np.repeat(random.normal(size=4), 64)
    targets = features * truth + 0.1 * random.normal(size=256)
    for feature, target in zip(features, targets, strict=True):

        def loss(x, feature=feature, target=target):
            buffer[:] = 2 * (feature * x - target) * feature
            return float((feature * x[0] - target) ** 2), buffer

        learner.update(loss=loss)
    trace, stream = learner.trace(), Recorded(SquaredLoss(), (features[:, None], targets))
    for first in (0, 64, 128, 192):
        best = best_fixed_point(stream.loss, stream.data(first, 256), Interval(-1.0, 1.0), 1).loss
        assert np.sum(trace.losses[first:]) - best <= trace.certificate(first, 255).measured


def test_a_stream_keeps_its_data_when_the_caller_changes_the_array():
    gradients = GRADIENTS.copy()
    trace = play(Samuel(3, Ball(1.0)), gradients, backend="numpy")
    before = trace.regret()
    gradients[:] = 0.0
    assert trace.regret() == before


def test_changing_a_trace_leaves_the_learners_own_record():
    learner = Samuel(3, Ball(1.0), record=True)
    play(learner, GRADIENTS[:8], backend="numpy").gradients[:] = 0.0
    np.testing.assert_array_equal(learner.trace().gradients, GRADIENTS[:8])


@pytest.mark.parametrize(
    "gradient",
    [
        np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False]),
        np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="datetime64[D]"),
        np.array([1, 2, 3], dtype="timedelta64[s]"),
        ["1", "2", "3"],
        np.array([1.0, "2", 3.0], dtype=object),
        [1.0, None, 2.0],
    ],
    ids=lambda gradient: str(getattr(gradient, "dtype", "list")),
)
def test_what_is_not_numbers_is_refused_as_gradient_stream_expert_and_comparator(gradient):
    learner = Samuel(3, Ball(1.0))
    with pytest.raises(ValueError, match="gradient must be real numbers"):
        learner.update(gradient)
    assert learner.round == 0
    rows = np.ma.stack([gradient]) if isinstance(gradient, np.ma.MaskedArray) else np.asarray(gradient)[None]
    with pytest.raises(ValueError, match="real numbers"):
        play(learner, rows)
    with pytest.raises(ValueError, match="experts must be real numbers"):
        Hedge(3, Free(), experts=rows)
    with pytest.raises(ValueError, match="comparator must be real numbers"):
        play(learner, GRADIENTS[:2]).linearised_regret(comparator=gradient)


def play_a_while(learner):
    for gradient in GRADIENTS[:13]:
        learner.update(gradient)
    return learner


@pytest.mark.parametrize(
    ("loss", "named"),
    [
        (lambda x: 1.0, "must return \\(loss, gradient\\)"),
        (lambda x: (np.nan, x), "loss must be finite"),
        (lambda x: (1.0, x[:2]), r"\(3,\), got \(2,\)"),
        (3.0, "function of a point, got 3.0"),
    ],
)
def test_bad_losses_are_named(loss, named):
    learner = Samuel(3, Ball(1.0), feedback="full")
    with pytest.raises(ValueError, match=named):
        learner.update(loss=loss)
    assert learner.round == 0


@pytest.mark.parametrize("domain", [Simplex(4.0), Box(-1.0, 1.0), Ball(1.0)], ids=str)
def test_full_matrices_do_not_hang_on_rounding(domain):
    """Eigenvalues that should be 0 come out as rounding; decisions must not depend on it."""
    run = {
        (backend, factor): play(
            Samuel(3, domain, base=AdagradFull()), factor * GRADIENTS[:40], backend=backend
        ).decisions
        for backend, factor in (("numpy", 1.0), ("numpy", 1000.0), ("jax", 1.0))
    }
    for other in (("numpy", 1000.0), ("jax", 1.0)):
        assert np.max(np.abs(run["numpy", 1.0] - run[other])) < 1e-6


@pytest.mark.parametrize("base", [OGD(), Adagrad(), AdagradFull(), ONS()], ids=lambda base: type(base).__name__)
@pytest.mark.parametrize(("dtype", "largest", "beyond"), [("float64", 1e150, 1e151), ("float32", 1e16, 1e39)])
def test_gradients_whose_squares_cannot_be_added_up_are_refused_and_smaller_ones_are_not(base, dtype, largest, beyond):
    learner = Samuel(3, Ball(1.0), base=base, dtype=dtype)
    for size in (1.0, largest / 2, 1.0):
        learner.update(size * GRADIENTS[0] / np.linalg.norm(GRADIENTS[0]))
    before = learner.predict()
    with pytest.raises(
        ValueError, match=re.escape(f"at most {largest:g} in size, to be squared in {dtype}, got {beyond}")
    ):
        learner.update(np.full(3, beyond))
    assert np.array_equal(learner.predict(), before)
    assert np.isfinite(before).all()


def test_a_certificate_leaves_out_experts_that_broke_down():
    learner = Samuel(1, Interval(-1.0, 1.0), feedback="full", record=True)
    for _ in range(20):
        learner.update(loss=lambda x: (float(x @ x), np.array([np.nan]) if x[0] > 0.9 else 2 * x - 3))
    assert not np.isnan(learner.trace().certificate().measured)


def test_full_matrices_on_a_half_line_are_certified_against_any_point():
    trace = play(Samuel(1, HalfLine(0.0), base=AdagradFull()), GRADIENTS[:60, :1])
    proof = trace.certificate(0, 59, radius=3.0)
    assert proof.against == "any fixed point"
    assert proof.linearised <= proof.measured <= proof.guaranteed


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_an_expert_that_runs_away_does_not_take_the_others_along(dtype):
    learner = Samuel(1, Free(), base=OGD(), learning_rates=(0.01, 2.0), feedback="full", dtype=dtype)
    for _ in range(600):
        learner.update(loss=lambda x: (float((x[0] - 1) ** 2), 2 * (x - 1)))
        assert np.isfinite(learner.predict()).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_newborns_are_never_born_dead(dtype):
    """Losses that are not convex let the sum of the weights grow without bound; newborns must still have some."""
    learner = Samuel(1, Interval(-1.0, 1.0), feedback="loss", learning_rates=(0.01, 0.1), base=OGD(), dtype=dtype)
    for i in range(1000):
        x = learner.predict()
        learner.update([(-1.0) ** (i // 3)], loss=lambda p, x=x: 1.0 if abs(p[0] - x[0]) < 1e-7 else 0.0)
    assert (learner.weights() > 0).all()
