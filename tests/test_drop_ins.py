"""What holds for both drop-ins alike: options, errors, and what they do with the same gradients."""

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import samuel.jax
import samuel.torch
from samuel.core.options import REPLACED
from samuel.core.rate_search import RateSearch
from samuel.core.rule import OPTIONS

SHAPES = {"kernel": (4, 3), "bias": (3,)}
PARAMETERS = {
    name: np.linspace(-1, 1, np.prod(shape), dtype=np.float32).reshape(shape) for name, shape in SHAPES.items()
}
ROLES = {"kernel": "matrix", "bias": "vector"}


class Jax:
    """The optax drop-in behind the words of both."""

    make = staticmethod(samuel.jax.samuel)

    def __init__(self, parameters=None, **options):
        self.optimizer = samuel.jax.samuel(**options)
        self.params = {name: jnp.asarray(x) for name, x in (parameters or PARAMETERS).items()}
        self.state = jax.jit(self.optimizer.init)(self.params)
        self._update = jax.jit(self.optimizer.update)

    def step(self, gradients):
        updates, self.state = self._update(gradients, self.state, self.params)
        self.params = jax.tree.map(jnp.add, self.params, updates)

    def extend(self, steps):
        self.state = samuel.jax.extend(self.state, steps)

    parameters = property(lambda self: arrays(self.params))
    averaged = property(lambda self: arrays(samuel.jax.averaged(self.state, self.params)))
    rates = property(lambda self: np.ravel(samuel.jax.learning_rate(self.state)))
    weights = property(lambda self: np.atleast_2d(samuel.jax.weights(self.state)))
    shifts = property(lambda self: int(samuel.jax.shifts(self.state)))
    skipped = property(lambda self: int(samuel.jax.skipped(self.state)))


class Torch:
    """The PyTorch drop-in behind the same."""

    make = staticmethod(lambda **options: samuel.torch.Samuel([torch.nn.Parameter(torch.zeros(3))], **options))

    def __init__(self, parameters=None, **options):
        self.params = {name: torch.nn.Parameter(torch.tensor(x)) for name, x in (parameters or PARAMETERS).items()}
        groups = [{"params": [(name, p)], "role": ROLES[name]} for name, p in self.params.items()]
        self.optimizer = samuel.torch.Samuel(groups, **options)

    def step(self, gradients):
        for name, g in gradients.items():
            self.params[name].grad = torch.tensor(g)
        self.optimizer.step()

    def extend(self, steps):
        self.optimizer.extend(steps)

    @property
    def rates(self):
        rates = {group["role"]: float(group["effective_lr"]) for group in self.optimizer.param_groups}
        return np.array(list(rates.values())[: len(self.weights)])

    @property
    def averaged(self):
        with self.optimizer.averaged():
            return self.parameters

    parameters = property(lambda self: {name: p.detach().numpy().copy() for name, p in self.params.items()})
    weights = property(lambda self: self.optimizer.weights().numpy())
    shifts = property(lambda self: self.optimizer.shifts)
    skipped = property(lambda self: self.optimizer.skipped)


def arrays(tree):
    return {name: np.asarray(x) for name, x in tree.items()}


DROP_INS = pytest.mark.parametrize("drop_in", [Jax, Torch])


def stream(rounds=60, shift=None, bad=()):
    """Gradients of a noisy parabola around 0.3; ten times as large from the shift on, and NaN in the bad rounds."""
    random = np.random.default_rng(0)
    for t in range(rounds):
        factor = np.float32(np.nan if t in bad else 10 if shift is not None and t >= shift else 1)
        yield {name: factor * random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def run(drop_in, gradients, **options):
    optimizer = drop_in(**options)
    for one in gradients:
        optimizer.step(one)
    return optimizer


# Options


def documented(docstring):
    """The entries under `Args:` of a docstring, as single lines."""
    block = inspect.cleandoc(docstring).split("Args:\n")[1].split("\n\n")[0]
    entries = (" ".join(entry.split()) for entry in re.split(r"\n? {4}(?=\w+: )", block) if entry)
    return dict(entry.split(": ", 1) for entry in entries)


@pytest.mark.parametrize("make", [samuel.jax.samuel, samuel.torch.Samuel], ids=["jax", "torch"])
def test_shared_options_have_the_defaults_and_the_texts_of_core(make):
    signature, texts = inspect.signature(make).parameters, documented(make.__doc__)
    for name, option in OPTIONS.items():
        assert signature[name].default == option.default, name
        assert texts[name].startswith(option.help), name


def test_no_more_than_ten_options_are_our_own():
    known = {"base", *OPTIONS}
    of_torch = {"params", "lr", "maximize", "foreach", "capturable", "unknown"}
    assert set(inspect.signature(samuel.jax.samuel).parameters) == known | {"roles"}
    assert set(inspect.signature(samuel.torch.Samuel).parameters) == known | of_torch
    assert len(known | {"roles"}) <= 10


@DROP_INS
@pytest.mark.parametrize("option", REPLACED)
def test_every_removed_option_is_refused_with_its_replacement(drop_in, option):
    with pytest.raises(TypeError, match=re.escape(f"there is no option {option!r} any more: {REPLACED[option]}")):
        drop_in.make(**{option: 1})


@DROP_INS
def test_an_unknown_option_is_refused_with_those_that_exist(drop_in):
    with pytest.raises(TypeError, match="unknown option 'learningrate'; choose from base, learning_rates"):
        drop_in.make(learningrate=0.1)


@DROP_INS
def test_a_learning_rate_is_refused_with_what_to_do_instead(drop_in):
    with pytest.raises(TypeError, match=r"no learning_rate to give: leave it out, or give .*learning_rates=\(...\)"):
        drop_in.make(learning_rate=1e-3)


@DROP_INS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rates": ()}, "learning_rates is empty"),
        ({"learning_rates": (0.1, -0.5)}, "positive and finite, got -0.5"),
        ({"learning_rates": 0.1}, "must be a list of numbers, got 0.1"),
        ({"base": "adamm"}, "got 'adamm'"),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": -5}, "steps must be a whole number of at least 1, got -5"),
        ({"steps": float("inf")}, "steps must be a whole number .* got inf; leave it out for a run without an end"),
        ({"steps": float("nan")}, "steps must be a whole number .* got nan; leave it out"),
        ({"steps": 2**31}, r"steps must be a whole number of at most 2147483647, got 2147483648; leave it out"),
        ({"steps": 10.5}, "steps must be a whole number of at least 1, got 10.5"),
        ({"weight_decay": -0.1}, "weight_decay must be .* at least 0, got -0.1"),
        ({"average": 8.0}, "average must be True or False, got 8.0"),
        ({"on_shift": "stop"}, "on_shift must be one of 'restart', 'ignore', got 'stop'"),
        ({"clip": 0.0}, "clip must be .* above 0, got 0.0"),
        ({"search": (0.1,)}, r"search must be a samuel.core.RateSearch, got \(0.1,\)"),
        ({"state_dtype": "float16"}, "state_dtype must be .* got 'float16'"),
    ],
    ids=lambda part: part if isinstance(part, str) else ", ".join(part),
)
def test_options_that_cannot_work_are_refused_by_name(drop_in, options, message):
    with pytest.raises(ValueError, match=message):
        drop_in.make(**options)


# Steps


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"steps": 60},
        {"base": "adam", "weight_decay": 0.3},
        {"base": "momentum"},
        {"base": "adagrad", "steps": 60},
        {"base": "sgd", "average": False, "clip": 1.0},
        {"base": "adam", "on_shift": "ignore", "search": RateSearch((0.01, 0.1), lag=0.8)},
        {"base": "adam", "learning_rates": (0.01, 0.3), "search": RateSearch((0.01, 0.1), lag=0.8)},
    ],
    ids=str,
)
def test_both_take_the_same_steps(options):
    ours, theirs = (run(drop_in, stream(shift=45, bad=(20, 21)), **options) for drop_in in (Jax, Torch))
    for what in ("parameters", "averaged"):
        for name, x in getattr(ours, what).items():
            np.testing.assert_allclose(x, getattr(theirs, what)[name], rtol=1e-4, atol=1e-5, err_msg=f"{what} {name}")
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=1e-4)
    np.testing.assert_allclose(ours.rates, theirs.rates, rtol=1e-3)
    assert (ours.shifts, ours.skipped) == (theirs.shifts, theirs.skipped) == (ours.shifts, 2)


@DROP_INS
def test_a_fresh_optimizer_shows_equal_weights(drop_in):
    np.testing.assert_allclose(drop_in().weights, np.full((2, 13), 1 / 13), rtol=1e-5)


@DROP_INS
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(drop_in):
    optimizer = run(drop_in, stream(20))
    before, average = optimizer.parameters, optimizer.averaged
    optimizer.step(next(stream(1, bad=(0,))))
    for name, x in before.items():
        np.testing.assert_array_equal(optimizer.parameters[name], x)
        np.testing.assert_array_equal(optimizer.averaged[name], average[name])
    assert optimizer.skipped == 1


@DROP_INS
def test_a_leap_of_the_gradient_is_a_shift_clipped_or_not(drop_in):
    for clip in (None, 0.5):
        assert run(drop_in, stream(shift=45), base="adam", clip=clip).shifts == 1
    assert run(drop_in, stream(shift=45), base="adam", on_shift="ignore").shifts == 0


@DROP_INS
@pytest.mark.filterwarnings("ignore:.*steps")
def test_past_the_end_the_last_rate_is_kept_and_an_extended_run_goes_on_without_a_leap(drop_in):
    optimizer = drop_in(base="adam", learning_rates=(0.01,), steps=10)
    rates = []
    for t, gradients in enumerate(stream(60)):
        if t == 15:
            optimizer.extend(60)
        optimizer.step(gradients)
        rates.append(float(optimizer.rates[0]))
    np.testing.assert_allclose(rates[:15], 0.01 * np.array([*np.arange(10, 0, -1), 1, 1, 1, 1, 1]) / 10, rtol=1e-5)
    assert max(np.divide(rates[15:], rates[14:-1])) < 2
    np.testing.assert_allclose(rates[-20:], 0.01 * np.arange(20, 0, -1) / 60, rtol=1e-4)


@DROP_INS
@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (50, "steps=50 would shorten the run, which has 100 steps"),
        (20, "steps must be a whole number of at least 21, got 20"),
        (float("inf"), "steps must be a whole number of at least 21, got inf"),
    ],
    ids=str,
)
def test_a_run_cannot_be_extended_to_fewer_steps(drop_in, steps, message):
    optimizer = run(drop_in, stream(20), steps=100)
    with pytest.raises(ValueError, match=message):
        optimizer.extend(steps)


@DROP_INS
@pytest.mark.filterwarnings("ignore:averaged.. changes nothing")
def test_with_the_steps_given_no_average_is_kept(drop_in):
    optimizer = run(drop_in, stream(5), steps=100)
    for name, x in optimizer.parameters.items():
        np.testing.assert_array_equal(optimizer.averaged[name], x)


@DROP_INS
def test_a_role_that_does_not_fit_is_refused_by_name(drop_in):
    made = {
        Jax: lambda: samuel.jax.samuel(roles={"b": "matrix"}).init({"b": jnp.zeros(3)}),
        Torch: lambda: samuel.torch.Samuel([{"params": [("b", torch.nn.Parameter(torch.zeros(3)))], "role": "matrix"}]),
    }
    with pytest.raises(ValueError, match=r"role='matrix' does not fit parameter 'b' of shape \(3,\)"):
        made[drop_in]()
