"""What holds for all rivals, whatever the losses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samuel.online import (
    AFLH,
    CBCE,
    FLH,
    OGD,
    SACS,
    SAOL,
    Ader,
    Ball,
    Box,
    FixedShare,
    Free,
    Hedge,
    NoHealthyExpert,
    ParameterFree,
    Rival,
    Samuel,
    Simplex,
    Single,
    Stay,
    Sword,
    play,
)

ON_BLOCKS = {"FLH": FLH, "AFLH": AFLH, "SAOL": SAOL, "CBCE": CBCE, "SACS": SACS}
WEIGHING = {**ON_BLOCKS, "Hedge": Hedge, "FixedShare": FixedShare}
DYNAMIC = {"Ader": Ader, "Sword": Sword}
ALL = {**WEIGHING, **DYNAMIC, "ParameterFree": ParameterFree}


def streams(rounds=30, dim=2):
    """Gradients with sizes over many orders of magnitude, some of them 0."""
    sizes = st.lists(st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 1.0, 1.0, 1e6]), min_size=rounds, max_size=rounds)
    return st.tuples(st.integers(0, 2**32 - 1), sizes).map(
        lambda drawn: np.random.default_rng(drawn[0]).normal(size=(rounds, dim)) * np.array(drawn[1])[:, None]
    )


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10)
@given(gradients=streams())
def test_decisions_stay_in_the_domain_whatever_the_gradients(name, gradients):
    for domain in (Ball(1.0), Box(-1.0, 2.0), Simplex()):
        trace = play(ALL[name](2, domain), gradients, backend="numpy", record="decisions")
        assert domain.contains(trace.decisions, tolerance=1e-9).all()


@pytest.mark.parametrize("name", WEIGHING)
@settings(max_examples=10)
@given(gradients=streams())
def test_weights_are_shares(name, gradients):
    trace = play(WEIGHING[name](2, Ball(1.0), learning_rates=(0.1, 1.0)), gradients, backend="numpy")
    assert (trace.weights >= 0).all()
    np.testing.assert_allclose(trace.weights.sum(axis=(-2, -1)), 1.0)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=10)
@given(gradients=streams(), factor=st.sampled_from([2.0**-40, 2.0**-3, 2.0**50]))
def test_multiplying_all_losses_changes_no_decision(name, gradients, factor):
    gradients = np.where(np.abs(gradients) < 1e-12, 0.0, gradients)  # others would vanish when they are squared
    one, other = (
        play(ALL[name](2, Ball(1.0)), numbers, backend="numpy", record="decisions").decisions
        for numbers in (gradients, factor * gradients)
    )
    np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("name", ON_BLOCKS)
@settings(max_examples=10)
@given(gradients=streams(), ends=st.tuples(st.integers(0, 29), st.integers(0, 29)))
def test_the_measured_certificate_holds_for_the_rivals_decisions_too(name, gradients, ends):
    learner = ON_BLOCKS[name](2, Ball(1.0), shortest=2)
    trace = play(learner, gradients, backend="numpy")
    certificate = trace.certificate(min(ends), max(ends))
    assert certificate.against == "any fixed point"
    rounding = 1e-9 * np.abs(gradients).sum()
    assert certificate.linearised <= certificate.measured + rounding
    # What the algorithm guarantees is not known, where experts and not just the trivial bound are at work.
    if any(tile.expert is not None for tile in certificate.tiles):
        assert certificate.guaranteed == np.inf


@pytest.mark.parametrize("name", WEIGHING)
def test_what_was_learned_on_a_tiny_scale_does_not_stand_against_what_comes_after(name):
    # A thousand rounds in which the first expert is better by a millionth, then as many in which the other is by 1.
    losses = np.zeros((2000, 2))
    losses[:1000, 1], losses[1000:, 0] = 1e-6, 1.0
    assert play(WEIGHING[name](2, Simplex()), losses, backend="numpy", record="losses").losses.sum() < 60


@pytest.mark.parametrize("name", WEIGHING)
def test_a_certificate_needs_the_gains_on_record(name):
    trace = play(WEIGHING[name](2, Ball(1.0)), np.ones((20, 2)), backend="numpy", record="decisions")
    with pytest.raises(ValueError, match="record='all'"):
        trace.certificate()


def test_a_rival_over_one_expert_is_that_expert():
    gradients = np.random.default_rng(0).normal(size=(50, 2))
    alone = play(Single(OGD(0.1), 2, Ball(1.0)), gradients, backend="numpy").decisions
    for kind in (Hedge, FixedShare):
        np.testing.assert_allclose(play(kind(2, Ball(1.0), learners=[OGD(0.1)]), gradients).decisions, alone)


@pytest.mark.parametrize("name", ON_BLOCKS)
def test_an_expert_that_diverges_is_left_out_and_starts_again(name):
    learner = ON_BLOCKS[name](1, Free(), learners=[OGD(0.1), OGD(1e200)], shortest=4)
    had_a_say = []
    for _ in range(12):
        learner.update(2 * (learner.predict() - 1.0))
        assert abs(learner.predict()[0]) < 1e150
        had_a_say.append(learner.weights()[..., 1].max() > 0)
    # It diverges with its first step, and newborns have a say until they do the same.
    assert True in had_a_say[3:]
    assert False in had_a_say


@pytest.mark.parametrize("name", WEIGHING)
def test_where_nobody_has_finite_numbers_it_says_so_and_is_unchanged(name):
    learner = WEIGHING[name](1, Free(), learners=[OGD(1e200)])
    with pytest.raises(NoHealthyExpert):  # noqa: PT012  in which round does not matter
        for round in range(40):
            before = learner.round, learner.predict()
            learner.update([1e140 * (-1) ** round])
    assert (learner.round, learner.predict()) == before


@pytest.mark.parametrize("name", WEIGHING)
def test_an_expert_whose_loss_is_infinite_loses_its_say(name):
    fixed, moving = {"experts": [[-0.6], [0.9]]}, {"learners": [Stay(), Stay(), OGD(5.0)]}
    settings = fixed if name in ("Hedge", "FixedShare") else moving
    learner = WEIGHING[name](1, Box(-1.0, 1.0), feedback="loss", **settings)

    def loss(x):
        return (x[0] + 0.6) ** 2 if x[0] < 0.5 else np.inf

    for _ in range(30):  # the gradient drives whoever moves over the edge, beyond which the loss is infinite
        learner.update([-1.0], loss=loss)
        assert learner.predict()[0] < 0.5


@pytest.mark.parametrize("size", [1e150, 1e-200])
def test_the_parameter_free_learner_learns_after_gradients_of_any_size(size):
    learner = ParameterFree(2, Ball(1.0))
    learner.update([size, 0.0])
    for _ in range(300):
        learner.update(size * (learner.predict() - [0.3, 0.4]))
    np.testing.assert_allclose(learner.predict(), [0.3, 0.4], atol=0.15)


def test_a_share_of_nothing_is_hedge_in_which_everyone_can_come_back():
    learner = FixedShare(2, Simplex(), share=0.0, rate=1000.0)
    for losses in ([1.0, 0.0], *[[0.0, 1.0]] * 3):
        learner.update(losses)
    assert learner.predict()[0] > 0.99


@pytest.mark.parametrize("name", WEIGHING)
def test_it_says_what_its_theory_asks_for_and_was_not_given(name):
    kind = WEIGHING[name]
    assert any("gradient_bound" in assumption for assumption in kind(1, Ball(1.0)).assumptions)
    assert not any("gradient_bound" in words for words in kind(1, Ball(1.0), gradient_bound=1.0).assumptions)
    asks_for_horizon = name in ("FLH", "AFLH", "Hedge", "FixedShare")
    assert any("horizon" in assumption for assumption in kind(1, Ball(1.0)).assumptions) == asks_for_horizon
    if name in ("FLH", "AFLH"):
        assert kind(1, Ball(1.0), exp_concavity=0.5, feedback="loss").assumptions == ()
    if asks_for_horizon:
        more = {"share": 0.1} if name == "FixedShare" else {}
        assert kind(1, Ball(1.0), gradient_bound=1.0, horizon=9, **more).assumptions == ()


@pytest.mark.parametrize("name", ALL)
def test_it_goes_on_past_any_horizon(name):
    options = {"horizon": 5} if name in ("FLH", "AFLH", "Hedge", "FixedShare", *DYNAMIC) else {}
    learner = ALL[name](1, Ball(1.0), **options)
    for _ in range(20):
        learner.update([1.0])
    assert learner.round == 20


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: SAOL(2, Ball(1.0), shortest=0), "shortest .* got 0"),
        (lambda: SAOL(2, Ball(1.0), newborns="tepid"), "newborns .*'tepid'"),
        (lambda: SAOL(2, Ball(1.0), feedback="bandit"), "feedback .*'bandit'"),
        (lambda: SAOL(2, Ball(1.0), base=3), "base .* got 3"),
        (lambda: SAOL(2, Ball(1.0), gradient_bound=-1.0), "gradient_bound .*-1.0"),
        (lambda: SAOL(2, Free(), gradient_bound=1.0), "gradient_bound=1.0 .*bounded domain"),
        (lambda: SAOL(2, Ball(1.0), colour="red"), "colour"),
        (lambda: CBCE(0, Ball(1.0)), "dim .* got 0"),
        (lambda: FLH(2, Ball(1.0), exp_concavity=0.5), 'exp_concavity=0.5 .*feedback="loss"'),
        (lambda: FLH(2, Ball(1.0), exp_concavity=0.5, horizon=9, feedback="full"), "not both"),
        (
            lambda: FLH(2, Ball(1.0), exp_concavity=0.5, gradient_bound=1.0, feedback="full"),
            "gradient_bound=1.0 has no",
        ),
        (lambda: AFLH(2, Ball(1.0), horizon=0), "horizon .* got 0"),
        (lambda: Hedge(2, Ball(1.0), newborns="warm"), "newborns='warm' has no meaning"),
        (lambda: Hedge(2, Ball(1.0), experts=[[0.0, 3.0]]), "expert 0.* not in the domain"),
        (lambda: Hedge(2, Ball(1.0), experts=[0.0, 1.0]), r"shape \(experts, 2\)"),
        (lambda: Hedge(2, Ball(1.0), experts=[[0.0, 0.0]], base=OGD(0.1)), "experts or base, not both"),
        (lambda: Hedge(2, Ball(1.0), rate=1.0, horizon=9), "rate=1.0 or horizon=9, not both"),
        (lambda: FixedShare(2, Ball(1.0), share=1.5), "share .* got 1.5"),
        (lambda: Ader(2, Free()), "Ader needs a bounded domain, such as Ball"),
        (lambda: Ader(2, Ball(1.0), horizon=0), "horizon .* got 0"),
        (lambda: Ader(2, Ball(1.0), gradient_bound=-1.0), "gradient_bound .*-1.0"),
        (lambda: Sword(2, Free()), "Sword needs a bounded domain, such as Ball"),
        (lambda: Sword(2, Ball(1.0), feedback="full"), "Sword takes feedback='linear'.* got 'full'"),
        (lambda: Sword(2, Ball(1.0), smoothness=1.0), "smoothness=1.0 needs a gradient_bound"),
        (lambda: Sword(2, Ball(1.0), smoothness=0.0, gradient_bound=1.0), "smoothness .* got 0.0"),
        (lambda: ParameterFree(2, Ball(1.0), newborns="inherit"), "newborns .*'inherit'"),
        (lambda: ParameterFree(2, Ball(1.0), shortest=0.5), "shortest .* got 0.5"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_options_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()


def test_rivals_and_samuel_can_share_a_list_of_experts():
    learners = [OGD(0.1), OGD(1.0)]
    for kind in (*WEIGHING.values(), Samuel):
        learner = kind(2, Ball(1.0), learners=learners)
        assert learner.learning_rates == (0.1, 1.0)
        assert isinstance(learner, Rival) == (kind is not Samuel)
