"""Bases give directions at unit rate, peers need no rate, and both are what their names say."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

from samuel.jax.bases import resolve
from samuel.studies.optimizers import BASES, PEERS, base, direction, peer, scale_by_wngrad

PARAMS = {
    "conv": {"kernel": jnp.linspace(-1, 1, 72).reshape(3, 3, 2, 4) ** 3, "bias": jnp.linspace(0.1, 1, 4)},
    "dense": {"kernel": jnp.cos(jnp.arange(12.0)).reshape(4, 3)},
    "embedding": jnp.sin(jnp.arange(10.0)).reshape(5, 2),
}
# What optax calls the complete optimizer.
COMPLETE = {
    "sgd": optax.sgd,
    "momentum": partial(optax.sgd, momentum=0.9),
    "nesterov": partial(optax.sgd, momentum=0.9, nesterov=True),
    "adagrad": optax.adagrad,
    "adam": optax.adam,
    "rmsprop": optax.rmsprop,
    "adadelta": optax.adadelta,
    "adafactor": optax.adafactor,
}


def gradients(step):
    return jax.tree.map(lambda leaf: jnp.sin(3.0 * leaf + step) + 0.1, PARAMS)


def three_directions(transformation):
    state, found = transformation.init(PARAMS), []
    update = jax.jit(transformation.update)
    for step in range(3):
        given, state = update(gradients(step), state, PARAMS)
        found.append(given)
    return found


def assert_close(tree, expected, **limits):
    assert jax.tree.structure(tree) == jax.tree.structure(expected)
    jax.tree.map(partial(np.testing.assert_allclose, **limits), tree, expected)


@pytest.fixture(scope="module")
def digits():
    """Softmax regression, a convex problem: its loss, its accuracy, and where to begin."""
    inputs, labels = load_digits(return_X_y=True)
    inputs, labels = jnp.asarray(inputs[:500] / 16, jnp.float32), jnp.asarray(labels[:500])

    def scores(params):
        return inputs @ params["kernel"] + params["bias"]

    def loss(params):
        return optax.softmax_cross_entropy_with_integer_labels(scores(params), labels).mean()

    def accuracy(params):
        return float((scores(params).argmax(-1) == labels).mean())

    return loss, accuracy, {"kernel": jnp.zeros((64, 10)), "bias": jnp.zeros(10)}


@pytest.mark.parametrize("name", BASES)
def test_every_base_learns_at_the_rate_it_comes_with(digits, name):
    loss, accuracy, params = digits
    transformation, rate = direction(name), BASES[name].rate

    def step(carry, _):
        params, state = carry
        uphill, state = transformation.update(jax.grad(loss)(params), state, params)
        return (jax.tree.map(lambda p, d: p - rate * d, params, uphill), state), None

    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=100))((params, transformation.init(params)))
    assert accuracy(params) > 0.7
    assert float(loss(params)) < 0.95 * np.log(10)


@pytest.mark.parametrize("name", COMPLETE)
def test_a_base_times_a_rate_is_optaxs_optimizer(name):
    expected = three_directions(COMPLETE[name](0.05))
    for uphill, downhill in zip(three_directions(direction(name)), expected, strict=True):
        assert_close(jax.tree.map(lambda leaf: -0.05 * leaf, uphill), downhill, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", BASES)
def test_samuel_takes_every_base(name):
    transformation = resolve(direction(name))
    before = jax.eval_shape(transformation.init, PARAMS)
    uphill, after = jax.eval_shape(transformation.update, PARAMS, before, PARAMS)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), before) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    assert jax.tree.map(jnp.shape, uphill) == jax.tree.map(jnp.shape, PARAMS)


@pytest.mark.parametrize("name", BASES)
def test_bases_say_whether_they_care_for_shapes(name):
    def packed(tree):
        return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])

    transformation = direction(name)
    apart, _ = transformation.update(gradients(0), transformation.init(PARAMS), PARAMS)
    vector = packed(PARAMS)
    together, _ = transformation.update(packed(gradients(0)), transformation.init(vector), vector)
    assert np.allclose(packed(apart), together, rtol=1e-4) != BASES[name].needs_shapes


@pytest.mark.parametrize("name", ["muon", "adafactor", "wngrad"])
def test_bases_that_mix_numbers_do_not_mix_networks(name):
    transformation = direction(name)

    def first(gradients):
        return transformation.update(gradients, transformation.init(PARAMS), PARAMS)[0]

    several = [gradients(step) for step in range(2)]
    together = jax.jit(jax.vmap(first))(jax.tree.map(lambda *leaves: jnp.stack(leaves), *several))
    for number, one in enumerate(several):
        assert_close(jax.tree.map(lambda leaf, n=number: leaf[n], together), first(one), rtol=1e-4, atol=1e-5)


def test_wngrad_is_the_papers():
    # b = 1; |g|^2 = 4, b = 1 + 4 = 5, g / b = (2, 0) / 5; then |g|^2 = 25, b = 5 + 25 / 5 = 10, (3, 4) / 10.
    transformation = scale_by_wngrad()
    params = {"x": jnp.zeros(1), "y": jnp.zeros(1)}
    state = transformation.init(params)
    first, state = transformation.update({"x": jnp.array([2.0]), "y": jnp.array([0.0])}, state)
    second, state = transformation.update({"x": jnp.array([3.0]), "y": jnp.array([4.0])}, state)
    assert_close(first, {"x": [0.4], "y": [0.0]}, rtol=1e-6)
    assert_close(second, {"x": [0.3], "y": [0.4]}, rtol=1e-6)
    assert float(state.scale) == 10.0


def test_muon_makes_matrices_orthogonal_and_those_of_convolutions_too():
    uphill = three_directions(direction("muon"))[0]
    for kernel, gradient in [
        (uphill["dense"]["kernel"], gradients(0)["dense"]["kernel"]),
        (uphill["conv"]["kernel"].reshape(18, 4), gradients(0)["conv"]["kernel"].reshape(18, 4)),
    ]:
        # 0.2 sqrt(larger side) gives entries of the size of Adam's steps; Newton-Schulz is only roughly orthogonal.
        values = np.linalg.svd(kernel, compute_uv=False) / (0.2 * np.sqrt(max(kernel.shape)))
        assert np.all((values > 0.3) & (values < 1.3))
        assert np.ptp(np.linalg.svd(gradient, compute_uv=False)) > 1.0
        assert float((kernel * gradient).sum()) > 0


def test_muon_leaves_vectors_and_word_vectors_to_adam():
    uphill = three_directions(direction("muon"))
    expected = three_directions(optax.scale_by_adam(nesterov=True))
    for found, adam in zip(uphill, expected, strict=True):
        np.testing.assert_allclose(found["conv"]["bias"], adam["conv"]["bias"], rtol=1e-5)
        np.testing.assert_allclose(found["embedding"], adam["embedding"], rtol=1e-5)


def test_weight_decay_goes_through_the_base_like_a_gradient():
    decayed = three_directions(base("adam", weight_decay=0.1))
    state, by_hand = direction("adam").init(PARAMS), []
    for step in range(3):
        summed = jax.tree.map(lambda g, p: g + 0.1 * p, gradients(step), PARAMS)
        given, state = direction("adam").update(summed, state, PARAMS)
        by_hand.append(given)
    for found, expected in zip(decayed, by_hand, strict=True):
        assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_clipping_shortens_long_gradients_only_and_comes_before_weight_decay():
    clipped = base("sgd", weight_decay=0.5, clip=1.0)
    params = jnp.array([2.0, 4.0])
    long, state = clipped.update(jnp.array([6.0, 8.0]), clipped.init(params), params)
    short, _ = clipped.update(jnp.array([0.3, 0.4]), state, params)
    np.testing.assert_allclose(long, [0.6 + 1.0, 0.8 + 2.0], rtol=1e-6)
    np.testing.assert_allclose(short, [0.3 + 1.0, 0.4 + 2.0], rtol=1e-6)


def trained(found, loss, params, rounds):
    """The parameters to use, and the state, after some rounds with a peer."""
    optimizer = found.make(rounds)

    def step(carry, _):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        extra = {"value": value} if found.needs_value else {}
        updates, state = optimizer.update(gradient, state, params, **extra)
        return (optax.apply_updates(params, updates), state), None

    run = jax.jit(lambda carry: jax.lax.scan(step, carry, length=rounds)[0])
    params, state = run((params, optimizer.init(params)))
    return found.evaluate(state, params), state


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_lowers_a_convex_loss_from_its_defaults(digits, name):
    loss, accuracy, params = digits
    found = peer(name)
    after, state = trained(found, loss, params, rounds=600)
    assert float(loss(after)) < 0.5 * np.log(10)
    assert accuracy(after) > 0.9
    if found.rate is not None:
        assert 0 < float(found.rate(state)) < 100


@pytest.mark.parametrize("name", PEERS)
def test_a_compiled_step_may_write_into_the_memory_of_a_peers_first_state(name):
    found = peer(name)
    optimizer = found.make(10)
    params = jax.tree.map(jnp.copy, PARAMS)
    state = optimizer.init(params)
    extra = {"value": jnp.array(1.0)} if found.needs_value else {}

    def step(params, state):
        updates, state = optimizer.update(gradients(0), state, params, **extra)
        return optax.apply_updates(params, updates), state

    params, state = jax.jit(step, donate_argnums=(0, 1))(params, state)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(params))


@pytest.mark.parametrize("name", ["dog", "dowg", "momo"])
def test_the_rate_shown_is_the_one_used(name):
    found = peer(name)
    optimizer = found.make(10)
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
    optimizer = found.make(10)
    params = jnp.array([1.0, 2.0, 3.0])
    # The loss 14 over the squared gradient |2x|^2 = 56.
    _, state = optimizer.update(2 * params, optimizer.init(params), params, value=(params**2).sum())
    assert found.rate is not None
    assert float(found.rate(state)) == pytest.approx(0.25)


def test_momo_adam_is_bounded_by_its_default_and_shown_in_adams_units():
    found = peer("momo-adam")
    optimizer = found.make(10)
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
    np.testing.assert_allclose(found.rate(found.make(10).init(PARAMS)), first, rtol=1e-5)


def test_schedule_free_uses_the_average_of_its_iterates():
    found = peer("schedule-free")
    optimizer = found.make(10)
    params = jnp.array([1.0, -2.0])
    state, iterates = optimizer.init(params), []
    for step in range(4):
        updates, state = optimizer.update(jnp.array([1.0, -1.0]) + 0.3 * step, state, params)
        params = params + updates
        iterates.append(state.z)
    np.testing.assert_allclose(found.evaluate(state, params), np.mean(iterates, axis=0), rtol=1e-5)
    assert found.rate is not None
    assert float(found.rate(state)) == pytest.approx(0.0025)


@pytest.mark.parametrize("name", [name for name in PEERS if name != "schedule-free"])
def test_other_peers_use_what_they_train(name):
    assert peer(name).evaluate(None, PARAMS) is PARAMS


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
        (lambda: direction("adamw"), "base must be one of 'sgd'.*'muon', got 'adamw'"),
        (lambda: base("lion"), "'adam'.*got 'lion'"),
        (lambda: base("sgd", weight_decay=-1.0), "weight_decay .*got -1.0"),
        (lambda: base("sgd", clip=0.0), "clip .*got 0.0"),
        (lambda: peer("adam"), "peer must be one of 'schedule-free'.*got 'adam'"),
        (lambda: scale_by_wngrad(0.0), "initial .*got 0.0"),
    ],
)
def test_what_is_not_known_is_refused_with_what_is(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake()
