"""Bases give directions at unit rate, peers need no rate, and both are what their names say."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import samuel.jax as sj
from samuel_lab.trial.drop_in import averaged
from samuel_lab.trial.optimizers import BASES, PEERS, base, matrices, peer, scale_by_wngrad

# Arrays of NumPy, so that nothing is compiled for what is not tested.
SHAPES = {"conv": {"kernel": (3, 3, 2, 4), "bias": (4,)}, "dense": {"kernel": (4, 3)}, "embedding": (5, 2)}


def drawn(seed):
    dice = np.random.default_rng(seed)
    is_shape = lambda node: isinstance(node, tuple)  # noqa: E731
    return jax.tree.map(lambda shape: dice.normal(size=shape).astype(np.float32), SHAPES, is_leaf=is_shape)


PARAMS = drawn(100)
GRADIENTS = [drawn(step) for step in range(3)]
# What optax calls the complete optimizer.
COMPLETE = {
    "sgd": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "adamw": partial(optax.adamw, weight_decay=0.3, mask=matrices),
    "rmsprop": optax.rmsprop,
    "adadelta": optax.adadelta,
    "adafactor": optax.adafactor,
}


def directions(*transformations):
    """What each makes of the three gradients, one after the other."""

    @jax.jit
    def run(gradients):
        def step(states, gradient):
            found = [one.update(gradient, state, PARAMS) for one, state in zip(transformations, states, strict=True)]
            return [state for _, state in found], [given for given, _ in found]

        return jax.lax.scan(step, [one.init(PARAMS) for one in transformations], gradients)[1]

    return jax.device_get(run(jax.tree.map(lambda *leaves: np.stack(leaves), *GRADIENTS)))


def assert_close(tree, expected, **limits):
    jax.tree.map(partial(np.testing.assert_allclose, **limits), tree, expected)


@pytest.fixture(scope="module")
def digits():
    """Softmax regression, a convex problem: its loss, its accuracy, and where to begin."""
    inputs, labels = load_digits(return_X_y=True)
    inputs, labels = np.asarray(inputs[:500] / 16, np.float32), labels[:500]

    def scores(params):
        return inputs @ params["kernel"] + params["bias"]

    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(scores(params), labels).mean()

    def accuracy(params):
        return np.mean(np.argmax(scores(jax.device_get(params)), -1) == labels)

    kernel = 0.1 * np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)
    return jax.jit(loss), accuracy, {"kernel": kernel, "bias": np.zeros(10, np.float32)}


@pytest.mark.parametrize("name", BASES)
def test_every_base_learns_at_the_rate_it_comes_with_as_optaxs_optimizer_does(digits, name):
    loss, accuracy, params = digits
    rate, ours, theirs = BASES[name].rate, base(name), COMPLETE.get(name, optax.sgd)(BASES[name].rate)

    @jax.jit
    def run(params):
        def step(carry, _):
            (ours_at, ours_state), (theirs_at, theirs_state) = carry
            uphill, ours_state = ours.update(jax.grad(loss)(ours_at), ours_state, ours_at)
            ours_at = jax.tree.map(lambda p, d: p - rate * d, ours_at, uphill)
            downhill, theirs_state = theirs.update(jax.grad(loss)(theirs_at), theirs_state, theirs_at)
            return ((ours_at, ours_state), (optax.apply_updates(theirs_at, downhill), theirs_state)), None

        start = (params, ours.init(params)), (params, theirs.init(params))
        (ours_end, _), (theirs_end, _) = jax.lax.scan(step, start, length=100)[0]
        return ours_end, theirs_end

    ours_end, theirs_end = run(params)
    assert accuracy(ours_end) > 0.5
    assert loss(ours_end) < 0.9 * loss(params)
    if name in COMPLETE:
        assert_close(ours_end, theirs_end, rtol=1e-3, atol=1e-5)


def test_the_bases_that_are_not_optaxs_under_their_own_name_are_few():
    assert set(BASES) - set(COMPLETE) == {"wngrad", "muon", "muonw"}


@pytest.mark.parametrize("name", BASES)
def test_the_state_of_a_base_keeps_its_shapes_as_compiled_loops_need_it(name):
    transformation = base(name)
    before = jax.eval_shape(transformation.init, PARAMS)
    uphill, after = jax.eval_shape(transformation.update, PARAMS, before, PARAMS)
    assert before == after
    assert jax.tree.map(jnp.shape, uphill) == jax.tree.map(jnp.shape, PARAMS)


@pytest.mark.parametrize("name", ["muon", "adafactor"])
def test_under_samuel_a_base_that_cares_for_shapes_sees_them(name):
    inner = base(name)
    optimizer = sj.samuel(inner, (0.1,), weight_decay=0.0)

    @jax.jit
    def first(gradient, params):
        updates, _ = optimizer.update(gradient, optimizer.init(params), params)
        return updates, inner.update(gradient, inner.init(params), params)[0]

    updates, uphill = first(GRADIENTS[0], PARAMS)
    assert_close(updates, jax.tree.map(lambda leaf: -0.1 * leaf, uphill), rtol=1e-5, atol=1e-8)


def test_wngrad_is_the_papers():
    # b = 1; |g|^2 = 4, b = 1 + 4 = 5, g / b = (2, 0) / 5; then |g|^2 = 25, b = 5 + 25 / 5 = 10, (3, 4) / 10.
    def pair(x, y):
        return {"x": np.array([x], np.float32), "y": np.array([y], np.float32)}

    transformation = scale_by_wngrad()
    first, state = transformation.update(pair(2.0, 0.0), transformation.init(pair(0.0, 0.0)))
    second, state = transformation.update(pair(3.0, 4.0), state)
    assert_close(first, pair(0.4, 0.0), rtol=1e-6)
    assert_close(second, pair(0.3, 0.4), rtol=1e-6)
    assert float(state.scale) == 10.0


@pytest.fixture(scope="module")
def muon_and_adam():
    return directions(base("muon"), optax.scale_by_adam(nesterov=True))


def test_muon_makes_matrices_orthogonal_and_those_of_convolutions_too(muon_and_adam):
    for layer in ("dense", "conv"):
        inputs_by_outputs = (-1, SHAPES[layer]["kernel"][-1])
        kernel = muon_and_adam[0][layer]["kernel"][0].reshape(inputs_by_outputs)
        # 0.2 sqrt(larger side) gives entries of the size of Adam's. Five Newton-Schulz steps are only roughly there.
        values = np.linalg.svd(kernel, compute_uv=False) / (0.2 * np.sqrt(max(kernel.shape)))
        assert np.all((values > 0.65) & (values < 1.2))
        assert np.vdot(kernel, GRADIENTS[0][layer]["kernel"].reshape(inputs_by_outputs)) > 0


def test_muon_leaves_vectors_and_word_vectors_to_adam(muon_and_adam):
    muon, adam = muon_and_adam
    np.testing.assert_allclose(muon["conv"]["bias"], adam["conv"]["bias"], rtol=1e-5)
    np.testing.assert_allclose(muon["embedding"], adam["embedding"], rtol=1e-5)


def test_muon_does_not_mix_networks_that_train_side_by_side(muon_and_adam):
    @jax.jit
    @jax.vmap
    def first(gradient):
        return base("muon").update(gradient, base("muon").init(PARAMS), PARAMS)[0]

    together = first(jax.tree.map(lambda *leaves: np.stack(leaves), GRADIENTS[1], GRADIENTS[0]))
    alone = jax.tree.map(lambda leaf: leaf[0], muon_and_adam[0])
    assert_close(jax.tree.map(lambda leaf: leaf[1], jax.device_get(together)), alone, rtol=1e-4, atol=1e-5)


def test_muonw_is_muon_whose_matrices_shrink():
    muon, muonw = (base(name) for name in ("muon", "muonw"))
    plain, shrinking = (one.update(GRADIENTS[0], one.init(PARAMS), PARAMS)[0] for one in (muon, muonw))
    expected = jax.tree.map(lambda step, leaf: step + (0.3 * leaf if leaf.ndim > 1 else 0.0), plain, PARAMS)
    assert_close(shrinking, expected, rtol=1e-6, atol=1e-7)


def test_weight_decay_goes_through_the_base_like_a_gradient():
    def decay(gradient, state, params):
        return base("adam").update(jax.tree.map(lambda g, p: g + 0.1 * p, gradient, params), state)

    by_hand = optax.GradientTransformation(base("adam").init, decay)
    found, expected = directions(base("adam", weight_decay=0.1), by_hand)
    assert_close(found, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["sgd", "adam", "muon"])
def test_an_optimizer_with_an_average_takes_the_steps_it_takes_without(name):
    with_it, without = directions(averaged(base(name), steps=10), base(name))
    jax.tree.map(np.testing.assert_array_equal, with_it, without)


def trained(found, loss, params, rounds):
    """The parameters to use, and the state, after some rounds with a peer."""
    optimizer = found.make()

    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        extra = {"value": value} if found.needs_value else {}
        updates, state = optimizer.update(gradient, state, params, **extra)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def run(params):
        params, state = jax.lax.scan(step, (params, optimizer.init(params)), length=rounds)[0]
        return found.evaluate(state, params), state

    return run(params)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_lowers_a_convex_loss_from_its_defaults(digits, name):
    loss, accuracy, params = digits
    found = peer(name)
    after, state = trained(found, loss, params, rounds=600)
    assert loss(after) < 0.5 * loss(params)
    assert accuracy(after) > 0.9
    if found.rate is not None:
        assert 0 < float(found.rate(state)) < 100


@pytest.mark.parametrize("name", PEERS)
def test_the_first_state_of_a_peer_shares_no_memory_so_that_compiled_steps_may_write_into_it(name):
    params = {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}
    arrays = jax.tree.leaves((params, peer(name).make().init(params)))
    assert len({array.unsafe_buffer_pointer() for array in arrays}) == len(arrays)


@pytest.mark.parametrize("name", ["dog", "dowg", "momo"])
def test_the_rate_shown_is_the_one_used(name):
    found = peer(name)
    optimizer = found.make()
    params, state = jnp.array([1.0, 2.0, 3.0]), optimizer.init(jnp.array([1.0, 2.0, 3.0]))
    assert found.rate is not None
    assert np.isnan(found.rate(state))
    # MoMo goes along the mean of gradients, which is the gradient in the first step.
    for step in range(1 if name == "momo" else 3):
        gradient = 2 * params + step
        updates, state = optimizer.update(gradient, state, params, value=(params**2).sum())
        np.testing.assert_allclose(-updates / gradient, found.rate(state), rtol=1e-5)
        params = params + updates


def test_momo_steps_to_where_its_model_of_the_loss_is_zero():
    found = peer("momo")
    optimizer = found.make()
    params = jnp.array([1.0, 2.0, 3.0])
    # The loss 14 over the squared gradient |2x|^2 = 56.
    _, state = optimizer.update(2 * params, optimizer.init(params), params, value=(params**2).sum())
    assert found.rate is not None
    assert float(found.rate(state)) == pytest.approx(0.25)


def test_momo_adam_is_bounded_by_its_default_and_shown_in_adams_units():
    found = peer("momo-adam")
    optimizer = found.make()
    params = jnp.array([1.0, 2.0, 3.0])
    updates, state = optimizer.update(2 * params, optimizer.init(params), params, value=jnp.array(1e6))
    assert found.rate is not None
    assert float(found.rate(state)) == pytest.approx(0.01, rel=1e-5)
    np.testing.assert_allclose(updates, [-0.01] * 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "first"), [("prodigy", 1e-6), ("dadapt-adamw", 1e-6), ("mechanic", 6e-6), ("schedule-free", np.nan)]
)
def test_before_the_first_step_a_rate_is_the_initial_one_or_unknown(name, first):
    found = peer(name)
    assert found.rate is not None
    np.testing.assert_allclose(found.rate(found.make().init(PARAMS)), first, rtol=1e-5)


def test_schedule_free_uses_the_average_of_its_iterates():
    found = peer("schedule-free")
    optimizer = found.make()
    params = jnp.array([1.0, -2.0])
    state, iterates = optimizer.init(params), []
    for step in range(4):
        updates, state = optimizer.update(jnp.array([1.0, -1.0]) + 0.3 * step, state, params)
        params = params + updates
        iterates.append(state.z)
    np.testing.assert_allclose(found.evaluate(state, params), np.mean(iterates, axis=0), rtol=1e-5)
    assert found.renews
    assert found.rate is not None
    assert float(found.rate(state)) == pytest.approx(0.0025)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "schedule-free"])
def test_other_peers_use_what_they_train(name):
    assert peer(name).evaluate(None, PARAMS) is PARAMS
    assert not peer(name).renews


@pytest.mark.parametrize("known", [BASES, PEERS], ids=["bases", "peers"])
def test_what_has_a_name_has_a_label_a_sentence_and_a_source(known):
    assert len({one.label for one in known.values()}) == len(known)
    for name, one in known.items():
        assert one.name == name
        assert one.about.endswith(".")
        assert one.reference


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: base("adamax"), "base must be one of 'sgd'.*'muonw', got 'adamax'"),
        (lambda: base("sgd", weight_decay=-1.0), "weight_decay .*got -1.0"),
        (lambda: peer("adam"), "peer must be one of 'schedule-free'.*got 'adam'"),
        (lambda: scale_by_wngrad(0.0), "initial .*got 0.0"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
