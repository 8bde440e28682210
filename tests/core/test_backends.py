"""The same code on NumPy, under jax.jit, scan and vmap, and on torch: the same numbers over 1,000 rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from samuel.core import Anytime, RateSearch, Rule, certificate, combine
from samuel.core import weights as mw
from samuel.core.feedback import Linear

ROUNDS, EXPERTS, Q, DIM = 1000, 3, 10, 4
COVER = Anytime(shortest=4)
SLOTS = COVER.slots(ROUNDS)


def story(dtype, seed=0):
    """Gradients whose size changes (so that the scale doubles), and where the experts stand in each round."""
    random = np.random.default_rng(seed)
    sizes = np.exp(np.linspace(0, 3, ROUNDS))[:, None]
    gradients = random.normal(size=(ROUNDS, DIM)) * sizes
    points = random.normal(size=(ROUNDS, SLOTS, EXPERTS, DIM))
    points /= np.linalg.norm(points, axis=-1, keepdims=True)
    return gradients.astype(dtype), points.astype(dtype)


def begin(prior):
    weights = mw.restart(mw.begin(prior, SLOTS, Q), COVER.starts(0, SLOTS), prior)
    return weights, certificate.open_ledger(weights)


def one_round(carry, gradient, points, t, prior):
    """A round made of core's functions alone, restarts and scale included."""
    weights, ledger = carry
    p = mw.shares(weights)
    decision = combine.average(points, p)
    gains = Linear(gradient).gains(decision, points)
    bound = weights.bound
    weights, judged = mw.judge(weights, gains)
    ledger = certificate.enter(ledger, gains, gains * judged.used[..., None, None], bound)
    log_total = mw.log_total(weights)
    limits = certificate.running_bound(ledger, log_total, bound)
    weights = mw.widen(weights, judged.largest, prior)
    starts = COVER.starts(t, SLOTS)
    weights = mw.restart(weights, starts, prior)
    ledger = certificate.reset(ledger, starts, weights)
    return (weights, ledger), (decision, p, log_total, limits)


def loop(gradients, points, prior):
    carry, rows = begin(prior), []
    for t in range(ROUNDS):
        carry, row = one_round(carry, gradients[t], points[t], t + 1, prior)
        rows.append([np.asarray(part) for part in row])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def compiled(gradients, points, prior):
    def body(carry, now):
        return one_round(carry, *now, prior)

    rounds = jnp.arange(1, ROUNDS + 1)
    return jax.lax.scan(body, begin(prior), (gradients, points, rounds))[1]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float64", 1e-12)])
def test_numpy_jax_and_torch_agree(dtype, tolerance):
    gradients, points = story(dtype)
    prior = np.asarray([1.0, 0.5, 0.25], dtype=dtype)
    expected = loop(gradients, points, prior)
    with jax.enable_x64(dtype == "float64"):
        scanned = jax.jit(compiled)(*map(jnp.asarray, (gradients, points, prior)))
        batch = tuple(jnp.stack([part, part]) for part in (gradients, points))
        mapped = jax.vmap(compiled, in_axes=(0, 0, None))(*batch, jnp.asarray(prior))
    torched = loop(*map(torch.asarray, (gradients, points, prior)))
    # Decisions and weights to the tolerance; totals and bounds, which are sums over the run, relative to their size.
    for name, ours, jitted, vmapped, torch_ in zip(
        ("decision", "p", "log_total", "limits"), expected, scanned, mapped, torched, strict=True
    ):
        assert ours.dtype == torch_.dtype == jitted.dtype == dtype, name
        for other in (jitted, vmapped[0], vmapped[1], torch_):
            finite = np.isfinite(ours)
            assert np.array_equal(finite, np.isfinite(other)), name
            scale = np.maximum(1.0, np.abs(ours[finite]))
            assert np.max(np.abs(np.asarray(other)[finite] - ours[finite]) / scale) < tolerance, name


def test_streams_side_by_side_are_the_streams_one_by_one():
    stories = [story("float64", seed) for seed in (0, 1)]
    prior = np.ones(EXPERTS)
    alone = [loop(gradients, points, prior) for gradients, points in stories]
    gradients, points = (np.stack(parts, axis=1) for parts in zip(*stories, strict=True))
    weights = mw.restart(mw.begin(prior, SLOTS, Q, batch=(2,)), COVER.starts(0, SLOTS), prior)
    carry = weights, certificate.open_ledger(weights)
    for t in range(ROUNDS):
        carry, (decision, *_) = one_round(carry, gradients[t], points[t], t + 1, prior)
        for stream in (0, 1):
            np.testing.assert_allclose(decision[stream], alone[stream][0][t], rtol=1e-10, atol=1e-10)


def test_under_tracing_a_stream_without_a_healthy_expert_stays_as_it_was_and_says_so():
    prior = jnp.ones(2)
    weights = mw.restart(mw.begin(prior, 1, Q, batch=(2,), bound=1.0), np.array([True]), prior)
    gains = jnp.asarray([[[0.5, -0.5]], [[jnp.nan, jnp.inf]]])
    after, judged = jax.jit(mw.judge)(weights, gains)
    assert judged.healthy.tolist() == [True, False]
    np.testing.assert_allclose(mw.shares(after)[1], mw.shares(weights)[1])
    assert mw.shares(after)[0, 0, 0] > 0.5


@pytest.mark.parametrize(
    "options",
    [{}, {"steps": 100, "average": False}, {"groups": 2, "clip": 1.0, "on_shift": "ignore"}],
    ids=["default", "steps-given", "clipped"],
)
def test_a_step_on_a_device_asks_for_nothing_from_it_and_sends_nothing_there(options, monkeypatch):
    """With tensors that have no values: whoever asks for one fails, and so does a mix of devices."""
    rule = Rule(RateSearch(), **options)
    state = rule.start(torch.zeros((), device="meta"))
    groups = options.get("groups", 1)
    dots, squares = torch.zeros(groups, 2, device="meta"), torch.zeros(groups, device="meta")
    for _ in range(2):  # puts the tables there
        state, _ = rule.advance(state, dots, squares)
    plain = torch.asarray

    def no_numbers(value, **keywords):
        assert isinstance(value, torch.Tensor), f"{value!r} would have to be sent to the device"
        return plain(value, **keywords)

    monkeypatch.setattr(torch, "asarray", no_numbers)
    state, moves = rule.advance(state, dots, squares)
    assert state.lift.device.type == moves.gradient.device.type == "meta"
