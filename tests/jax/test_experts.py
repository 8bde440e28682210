"""The expert engine: the algorithm of the paper, for networks."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from samuel.core import AllIntervals, Anytime, Chosen, Fixed, Geometric, combine
from samuel.core import weights as mw
from samuel.jax.bases import scale_by_discounted_rss
from samuel.jax.experts import Experts
from samuel.online import OGD, Samuel


def quadratic(params, model_state, batch, key):
    return jnp.sum((params["w"] - batch) ** 2), model_state


ONE_BLOCK = Fixed(1000)


def engine_of(rates=(0.01, 0.3), cover=ONE_BLOCK, loss_fn=quadratic, base="sgd", **options):
    return Experts(loss_fn, base, rates, cover=cover, **options)


def start():
    return {"w": jnp.zeros(3)}


# --- the algorithm ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("feedback", "rule", "newborns"),
    [
        ("full", "average", "inherit"),
        ("loss", "average", "fresh"),
        ("full", "best", "fresh"),
    ],
)
def test_on_a_convex_problem_it_is_the_online_learner(feedback, rule, newborns):
    rates, cover = (0.01, 0.05, 0.2), Anytime(shortest=2)
    rng = np.random.default_rng(0)
    data = [(a, y) for a, y in zip(rng.normal(size=(14, 3)), rng.normal(size=14), strict=True)]

    learner = Samuel(
        3,
        base=OGD(),
        learning_rates=rates,
        cover=cover,
        Q=5,
        feedback=feedback,
        combine=rule,
        newborns={"fresh": "warm", "inherit": "inherit"}[newborns],
        prior=(1.0, 2.0, 0.5),
    )
    expected = []
    for a, y in data:
        x = learner.predict()
        expected.append(x)
        if feedback == "full":
            learner.update(loss=lambda point, a=a, y=y: ((a @ point - y) ** 2, 2 * (a @ point - y) * a))
        else:
            learner.update(2 * (a @ x - y) * a, loss=lambda point, a=a, y=y: (a @ point - y) ** 2)

    def loss_fn(params, model_state, batch, key):
        a, y = batch
        return (a @ params - y) ** 2, model_state

    with jax.enable_x64(True):
        engine = Experts(
            loss_fn,
            "sgd",
            rates,
            cover=cover,
            rounds=14,
            Q=5,
            feedback=feedback,
            combine=rule,
            newborns=newborns,
            prior=(1.0, 2.0, 0.5),
        )
        state, decisions, opened = engine.init(jnp.zeros(3)), [], []
        for batch in data:
            decisions.append(engine.decision(state).params)
            state, info = engine.step(state, batch)
            opened.append(int(np.isfinite(info.losses).all(axis=1).sum()))  # the others do not take part
    np.testing.assert_allclose(decisions, expected, rtol=1e-9, atol=1e-12)
    assert opened == [cover.slots(t) for t in range(14)]


def noisy(params, seen, batch, key):
    """A loss with randomness of its own and a state that follows the batches, as networks have them."""
    kept = jax.random.bernoulli(key, 0.8, batch.shape)
    loss = jnp.mean((params["w"] * kept - batch) ** 2) + params["b"] ** 2
    return loss, {"mean": 0.9 * seen["mean"] + 0.1 * batch.mean(), "count": seen["count"] + 1}, {"kept": kept.sum()}


@jax.jit
def one_step(network, memory, batch, key, rate, alpha):
    (loss, seen), gradient = jax.value_and_grad(lambda *all: noisy(*all)[:2], has_aux=True)(*network, batch, key)
    step, memory = scale_by_discounted_rss(alpha).update(gradient, memory)
    moved = jax.tree.map(lambda p, d: p - rate * d, network[0], step)
    return (moved, seen), memory, loss


def plain_run(network, batches, rates, alphas, restarts, key):
    """Algorithm 2 as a loop over experts that are objects of their own, with one list of rates per phase."""
    candidates = [(place, alpha) for place in range(len(rates[0])) for alpha in alphas]
    count, prior = len(candidates), np.ones(len(candidates), np.float32)

    def newborns(network):
        return [(network, scale_by_discounted_rss(alpha).init(network[0])) for _, alpha in candidates]

    def draw(round, p):
        own = jax.random.fold_in(key, 2 * round + 1)
        return int(combine.draw(p, np.asarray(jax.random.uniform(own))))

    experts = newborns(network)
    weights = mw.restart(mw.begin(prior, 1, 4, bound=1.0), np.array([True]), prior)
    chosen, phase, history = draw(0, mw.shares(weights)), 0, []
    for round, batch in enumerate(batches):
        p, losses = mw.shares(weights), np.zeros((1, count), np.float32)
        for place, ((network, memory), (column, alpha)) in enumerate(zip(experts, candidates, strict=True)):
            own = jax.random.fold_in(jax.random.fold_in(key, 2 * round), place)
            network, memory, losses[0, place] = one_step(network, memory, batch, own, rates[phase][column], alpha)
            experts[place] = network, memory
        history.append((chosen, losses[0, chosen], losses, p))
        weights, judged = mw.judge(weights, np.sum(p * losses) - losses)
        chosen = draw(round + 1, mw.shares(weights))
        if judged.largest > weights.bound:
            weights = mw.widen(weights, judged.largest, prior)
        if round + 1 in restarts:
            phase += 1
            experts = newborns(experts[chosen][0])
            weights = mw.restart(weights, np.array([True]), prior)
        chosen = draw(round + 1, mw.shares(weights))
    return history, experts[chosen][0]


def test_a_sampling_engine_does_what_a_plain_loop_over_experts_does():
    rates, alphas, restarts = ((0.05, 0.5), (0.005, 0.05)), (0.5, 0.9, 1.0), (3,)
    key = jax.random.key(11)
    batches = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
    params, model_state = {"w": jnp.ones(4), "b": jnp.ones(())}, {"mean": jnp.zeros(()), "count": jnp.zeros((), int)}
    history, network = plain_run((params, model_state), batches, rates, alphas, restarts, key)
    engine = Experts(
        noisy,
        scale_by_discounted_rss,
        rates,
        cover=Chosen(restarts),
        hyperparameters={"alpha": alphas},
        bound=1.0,
        Q=4,
    )
    state = engine.init(params, model_state, key)
    for batch, (chosen, loss, losses, p) in zip(batches, history, strict=True):
        state, info = engine.step(state, batch)
        assert info.chosen == chosen
        np.testing.assert_allclose(info.loss, loss, rtol=1e-5)
        np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
        np.testing.assert_allclose(info.p, p, rtol=1e-5)
        phase = int(state.round) > restarts[0]
        np.testing.assert_allclose(info.learning_rate, rates[phase][chosen // len(alphas)], rtol=1e-6)
    found = engine.decision(state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), tuple(found), network)


def test_the_papers_online_study_has_forty_experts():
    engine = engine_of((0.05, 0.1, 0.25, 0.5, 1.0), Geometric(25_600, shortest=200))
    assert (engine.slots, engine.count) == (8, 40)


def test_candidates_are_every_combination_the_last_changing_fastest():
    engine = engine_of((0.1, 1.0), base=scale_by_discounted_rss, hyperparameters={"alpha": (0.9, 0.99, 1.0)})
    assert engine.candidates == {
        "learning_rate": (0.1, 0.1, 0.1, 1.0, 1.0, 1.0),
        "alpha": (0.9, 0.99, 1.0, 0.9, 0.99, 1.0),
    }


def test_multiplying_all_losses_changes_nothing_while_the_scale_is_found_out():
    def scaled(params, model_state, batch, key):
        factor, target = batch
        return factor * jnp.sum((params["w"] - target) ** 2), model_state

    engine = engine_of(cover=Geometric(8, shortest=2), loss_fn=scaled, base="adagrad")

    def run(factor):
        state, chosen = engine.init(start()), []
        for target in np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32):
            state, info = engine.step(state, (jnp.float32(factor), target))
            chosen.append(int(info.chosen))
        return chosen, np.asarray(engine.decision(state).params["w"])

    chosen, point = run(1.0)
    chosen_again, point_again = run(2.0**12)
    assert chosen == chosen_again
    np.testing.assert_array_equal(point, point_again)


def test_with_clip_an_absurd_expert_does_not_slow_down_how_the_others_are_told_apart():
    # From 0 towards 1: rate 0.3 arrives, rate 0.001 hardly moves, and rate 30 is thrown out further every round.
    def after(**options):
        engine = engine_of(rates=(0.001, 0.3, 30.0), bound=1.0, combine="best", Q=5, **options)
        state = engine.init(start(), key=0)
        for _ in range(12):
            state, _info = engine.step(state, jnp.ones(3))
        return np.asarray(state.p[0]), float(state.weights.bound)

    (slow, good, absurd), bound = after(clip=True)
    assert bound == 1.0
    assert good > 0.9 > 10 * (slow + absurd)
    (slow, good, absurd), bound = after()
    assert bound > 1e2  # raised for all, and the two sound ones look alike
    assert good < 2 * slow


def test_with_clip_an_infinite_loss_still_takes_an_expert_out():
    def loss_fn(params, model_state, batch, key):
        far = jnp.abs(params["w"]).max() > 10
        return jnp.where(far, jnp.inf, jnp.sum((params["w"] - batch) ** 2)), model_state

    engine = engine_of(rates=(0.1, 30.0), loss_fn=loss_fn, bound=1.0, clip=True)
    state = engine.init(start(), key=0)
    for _ in range(3):
        state, _info = engine.step(state, jnp.ones(3))
    assert state.p[0].tolist() == [1.0, 0.0]


# --- what networks add -----------------------------------------------------------------------------------------------


def randomly(params, count, batch, key):
    return jnp.sum(params["w"] ** 2) + jax.random.uniform(key), count + 1


def test_experts_have_random_streams_and_states_of_their_own():
    engine = engine_of((0.1, 0.1, 0.1), loss_fn=randomly)
    state, info = engine.step(engine.init(start(), 0, key=1), None)
    assert len(np.unique(info.losses)) == 3
    assert state.members.model_state.tolist() == [1, 1, 1]
    assert info.loss == info.losses.ravel()[info.chosen]


def test_judged_by_losses_experts_share_the_decisions_randomness_and_leave_its_statistics_alone():
    engine = engine_of((0.1, 0.1, 0.1), loss_fn=randomly, feedback="loss", combine="average")
    state = engine.init(start(), 0, key=1)
    for round in range(3):
        state, info = engine.step(state, None)
        assert len(np.unique(info.losses)) == 1
        assert float(info.loss) == info.losses[0, 0]
        assert int(engine.decision(state).model_state) == round + 1


@pytest.fixture(scope="module")
def averaging():
    def loss_fn(params, state, forbidden, key):
        loss = jnp.sum((params["w"] - 1) ** 2) + jnp.where(params["w"][0] == forbidden, jnp.inf, 0.0)
        return loss, {"mean": params["w"].mean(), "count": state["count"] + 1}

    return engine_of((0.1, 0.3), loss_fn=loss_fn, combine="average")


def test_an_average_is_one_of_statistics_too_and_keeps_counters_whole(averaging):
    state = averaging.init(start(), {"mean": 0.0, "count": 0})
    for _ in range(3):
        state, info = averaging.step(state, 9.0)
    np.testing.assert_allclose(info.learning_rate, info.p[0] @ np.array([0.1, 0.3]), rtol=1e-6)
    params, statistics = averaging.decision(state)
    p = np.asarray(state.p)[0]
    np.testing.assert_allclose(params["w"], p @ np.asarray(state.members.params["w"]), rtol=1e-6)
    np.testing.assert_allclose(statistics["mean"], p @ np.asarray(state.members.model_state["mean"]), rtol=1e-6)
    assert statistics["count"].dtype == jnp.int32
    assert int(statistics["count"]) == 3


def test_experts_are_judged_also_where_the_decision_itself_has_no_finite_loss(averaging):
    state = averaging.init(start(), {"mean": 0.0, "count": 0})
    for _ in range(2):  # the second round is the first with gains, and sets the scale
        state, _ = averaging.step(state, 9.0)
    before = np.asarray(state.p)
    state, info = averaging.step(state, averaging.decision(state).params["w"][0])
    assert np.isinf(info.loss)
    assert np.isfinite(info.losses).all()
    assert info.healthy
    better = np.argmin(info.losses)
    assert state.p[0, better] > before[0, better]


def test_a_step_uses_up_the_old_state_and_nothing_that_was_handed_in_or_out(averaging):
    given = (start(), {"mean": jnp.zeros(()), "count": jnp.zeros((), int)}, jax.random.key(0))
    state = first = averaging.init(*given)
    told = [averaging.decision(state)]
    for _ in range(2):
        state, info = averaging.step(state, 9.0)
        told.append(info)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((first.members.params, first.decision.params)))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((given, told)))


FAR = jnp.full(3, 10.0)  # so far that a step of rate 1e38 leaves the numbers there are


@pytest.mark.parametrize("options", [{}, {"combine": "average", "feedback": "loss"}])
def test_a_diverged_expert_loses_its_weight_until_its_slot_restarts(options):
    engine = engine_of((0.1, 1e38), Fixed(5), **options)
    state, weights = engine.init(start()), []
    for _ in range(6):
        state, info = engine.step(state, FAR)
        assert np.isfinite(engine.decision(state).params["w"]).all()
        assert bool(info.healthy)
        assert np.isfinite(info.loss)
        weights.append(float(info.p[0, 1]))
    assert weights[0] == 0.5  # nothing is known yet
    assert weights[2:5] == [0.0] * 3
    assert weights[5] == 0.5  # born again


@pytest.mark.parametrize("newborns", ["fresh", "inherit"])
def test_newborns_never_start_from_a_diverged_expert(newborns):
    # One of the two explodes in the very round that ends the block.
    engine = engine_of((0.1, 1e38), Fixed(1), newborns=newborns)
    state = engine.init(start())
    for _ in range(8):
        state, info = engine.step(state, FAR)
        assert np.isfinite(info.losses).all()


def test_newborns_start_from_the_decision_and_remember_nothing(few_bits):
    state = few_bits.init({"w": jnp.zeros(3, jnp.bfloat16)})
    for round in range(3):
        state, info = few_bits.step(state, jnp.ones(3))
        assert bool(info.restarted[0]) == (round == 2)
        if round < 2:
            assert len(np.unique(state.members.params["w"][:, 0])) == 3
    decision = few_bits.decision(state).params["w"]
    assert float(decision[0]) > 0
    np.testing.assert_array_equal(state.members.params["w"], np.tile(decision, (3, 1)))
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(state.members.opt_state))
    np.testing.assert_allclose(state.p, 1 / 3, rtol=1e-6)


def test_parameters_of_few_bits_keep_their_type_and_weights_theirs(few_bits):
    state = few_bits.init({"w": jnp.zeros(3, jnp.bfloat16)})
    kinds = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state)
    state, _ = few_bits.step(state, jnp.ones(3))
    calls = few_bits.recipe.loss_fn.calls
    for _ in range(4):
        state, _ = few_bits.step(state, jnp.ones(3))
        assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), state) == kinds
    assert state.members.params["w"].dtype == jnp.bfloat16
    assert state.weights.weight.dtype == jnp.float32
    assert few_bits.recipe.loss_fn.calls == calls > 0  # no restart compiles anything


@pytest.fixture(scope="module")
def few_bits():
    return engine_of((0.01, 0.1, 0.3), Fixed(3), base="adam", loss_fn=Counting())


class Counting:
    """The quadratic loss; counts how often it is called, which is while compiling only."""

    calls = 0

    def __call__(self, *arguments):
        self.calls += 1
        return quadratic(*arguments)


@pytest.fixture(scope="module")
def keeping():
    """An engine that leaves old states alone."""
    return engine_of((0.1, 0.2), base="adam", donate=False)


def test_a_state_can_be_kept(keeping):
    state = keeping.init(start())
    once, _ = keeping.step(state, jnp.ones(3))
    again, _ = keeping.step(state, jnp.ones(3))
    np.testing.assert_array_equal(once.members.params["w"], again.members.params["w"])


def test_a_batch_that_is_bad_for_everyone_changes_nothing(keeping):
    state, _ = keeping.step(keeping.init(start()), jnp.ones(3))
    after, info = keeping.step(state, jnp.full(3, jnp.nan))
    assert not info.healthy
    assert int(after.round) == 2
    jax.tree.map(np.testing.assert_array_equal, after.members, state.members)
    jax.tree.map(np.testing.assert_array_equal, after.p, state.p)
    _, info = keeping.step(after, jnp.ones(3))
    assert info.healthy


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rates": ()}, "learning_rates is empty"),
        ({"rates": (0.1, 0.0)}, "learning_rates must be positive numbers, got 0.0"),
        ({"rates": 0.1}, "learning_rates must be a list"),
        ({"rates": ((0.1,), (0.2,))}, "needs a cover with as many phases"),
        ({"rates": ((0.1,), (0.2, 0.3)), "cover": Chosen((3,))}, "the same number of learning rates"),
        ({"rates": ((0.1,), ()), "cover": Chosen((3,))}, r"learning_rates\[1\] is empty"),
        ({"cover": 100}, "cover must be a samuel.core cover"),
        ({"cover": Anytime()}, "say with rounds="),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"feedback": "linear"}, "feedback must be one of 'full', 'loss'"),
        ({"combine": "vote"}, "combine must be one of"),
        ({"newborns": "cold"}, "newborns must be one of"),
        ({"feedback": "loss"}, "combine='sample' needs feedback='full'"),
        ({"Q": 0}, "Q must be a whole number of at least 1, got 0"),
        ({"bound": -1.0}, "bound must be positive numbers, got -1.0"),
        ({"clip": True}, "clip=True needs a bound to clip gains at, such as bound=1.0"),
        ({"prior": (1.0,)}, r"one number per expert of a slot \(2\), got 1"),
        ({"base": optax.adam(0.1)}, "complete optimizer"),
        ({"base": "adamm"}, "base must be one of"),
        ({"hyperparameters": {"alpha": (0.9,)}}, "must be a function of alpha"),
        ({"base": scale_by_discounted_rss, "hyperparameters": {"alpha": (0.9, 1.5)}}, "at most 1, got 1.5"),
        ({"base": scale_by_discounted_rss, "hyperparameters": {"alpha": ()}}, r"hyperparameters\['alpha'\] is empty"),
        ({"hyperparameters": (0.9, 1.0)}, "hyperparameters must be names with lists"),
        ({"loss_fn": 3}, "loss_fn must be a function"),
        ({"placement": "cloud"}, "placement must be"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        engine_of(**options)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"w": jnp.zeros(2), "n": jnp.zeros(2, int)},), r"params\['n'\] is int32\[2\]"),
        (({},), "params holds no array"),
        (({"w": "zero"},), r"params\['w'\] must be an array or a number, got 'zero'"),
        ((start(), {"table": object}), r"model_state\['table'\] must be an array"),
        ((start(), None, "seed"), "key must be one jax.random.key"),
        ((start(), None, jax.random.split(jax.random.key(0))), "key must be one jax.random.key"),
    ],
)
def test_networks_that_cannot_be_trained_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        engine_of().init(*arguments)


@pytest.mark.parametrize(
    ("loss_fn", "message"),
    [
        (
            lambda params, state, batch, key: ((params["w"] - batch) ** 2, state),
            r"one floating-point number.*float32\[3\]",
        ),
        (lambda params, state, batch, key: (jnp.array(3), state), r"one floating-point number.*int32\[\]"),
        (lambda params, state, batch, key: jnp.sum(params["w"]), r"must return \(loss, model_state\)"),
        (
            lambda params, state, batch, key: (jnp.sum(params["w"]), {"other": state["mean"]}),
            "model_state must come back",
        ),
        (
            lambda params, state, batch, key: (jnp.sum(params["w"]), {"mean": jnp.zeros(2)}),
            r"model_state\['mean'\].*float32\[2\]",
        ),
        (
            lambda params, state, batch, key: (jnp.sum(params["w"]), {"mean": jnp.array(1)}),
            r"model_state\['mean'\].*int32\[\]",
        ),
    ],
)
def test_losses_that_do_not_fit_are_refused_before_anything_changes(loss_fn, message):
    engine = engine_of(loss_fn=loss_fn)
    state = engine.init(start(), {"mean": 0.0})
    with pytest.raises((TypeError, ValueError), match=message):
        engine.step(state, jnp.ones(3))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_a_base_whose_state_changes_its_kind_is_refused():
    growing = optax.GradientTransformation(
        init=lambda params: jnp.zeros((), int), update=lambda g, state, params=None: (g, state + 0.5)
    )
    engine = engine_of(base=growing)
    with pytest.raises(TypeError, match="the base optimizer's state must come back"):
        engine.step(engine.init(start()), jnp.ones(3))


def test_a_state_of_another_engine_is_refused():
    engine = engine_of((0.1, 0.2, 0.3))
    with pytest.raises(ValueError, match="another engine's"):
        engine.step(engine_of().init(start()), jnp.ones(3))
    with pytest.raises(TypeError, match="must be an ExpertsState"):
        engine.step({"w": 1}, jnp.ones(3))
    assert AllIntervals(3).slots(3) == engine_of(cover=AllIntervals(3)).slots
