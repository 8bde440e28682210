"""What the tests of the PyTorch optimizer share: configurations to run over, a problem, and the plainest loop."""

import functools
import itertools
import warnings

import torch

from samuel.torch import Samuel
from samuel.torch.bases import NAMED

BASES = tuple(NAMED)
OPTIONS = {"untold": {}, "told": {"steps": 100}, "averaged": {"steps": 100, "average": True, "weight_decay": 0.1}}
"""Options that change what is kept, by what is special about them."""

CONFIGURATIONS = {
    f"{base}-{name}": {"base": base, **options} for base, (name, options) in itertools.product(BASES, OPTIONS.items())
}
"""Every named base with all options."""

CLASSES = {
    name: getattr(torch.optim, name)
    for name in (
        "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adadelta", "Adagrad", "SGD", "Rprop", "ASGD",
        "Adafactor", "Muon",
    )
    if hasattr(torch.optim, name)
}  # fmt: skip
"""Torch's own optimizers, as far as the installed version has them."""

VARIANTS = {
    "AMSGrad": functools.partial(torch.optim.Adam, amsgrad=True),
    "Nesterov": functools.partial(torch.optim.SGD, momentum=0.9, nesterov=True),
    "centered": functools.partial(torch.optim.RMSprop, momentum=0.5, centered=True),
    "accumulated": functools.partial(torch.optim.Adagrad, initial_accumulator_value=0.1),
    "coupled": functools.partial(torch.optim.SGD, weight_decay=0.1),
}
"""Options that give them another state or another way to begin."""

SHAPES = ((7, 5), (5,), (3, 2, 2), ())


def parameters(shapes=SHAPES, dtype=torch.float32, seed=0):
    """Parameters to start from."""
    generator = torch.Generator().manual_seed(seed)
    numbers = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [torch.nn.Parameter(tensor.to(dtype)) for tensor in numbers]


def samuel(params, *args, **options):
    """The optimizer of parameters without names, whose roles are guesses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the roles of")
        return Samuel(params, *args, **options)


def gradients(params, step, noise=0.3, period=40):
    """Noisy gradients of a squared distance to a goal that flips its sign every `period` steps."""
    generator = torch.Generator().manual_seed(1000 + step)
    sign = 1 - 2 * (step // period % 2)
    found = []
    for p in params:
        goal = 1 + noise * torch.randn(p.shape, generator=generator, dtype=torch.float64)
        found.append((p.detach() - sign * goal).to(p.dtype))
    return found


def train(optimizer, params, steps):
    """The plainest loop: one step for each number in `steps`, with the gradients of that step."""
    for step in steps:
        for p, gradient in zip(params, gradients(params, step), strict=True):
            p.grad = gradient
        optimizer.step()


def feed(optimizers, steps, gradients=gradients):
    """Step several optimizers on the gradients of the first one's parameters."""
    each = [all_parameters(optimizer) for optimizer in optimizers]
    for step in steps:
        found = gradients(each[0], step)
        for optimizer, params in zip(optimizers, each, strict=True):
            for p, gradient in zip(params, found, strict=True):
                p.grad = gradient.to(p.dtype).clone()
            optimizer.step()


def all_parameters(optimizer):
    """The parameters of all groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def rates(optimizer):
    """The learning rates in use, of each group."""
    return [float(group["effective_lr"]) for group in optimizer.param_groups]


def rounds(optimizer):
    """How many steps there were, by the clock of the rule."""
    return int(optimizer._rule_state().round)


def values(params):
    """Copies of the parameters' values."""
    return [p.detach().clone() for p in params]


def snapshot(optimizer):
    """Copies of everything that a step may change, parameters included."""
    saved = optimizer.state_dict()
    found = {f"number {name}": value for name, value in saved["param_groups"][0]["samuel"].get("rule", {}).items()}
    for i, group in enumerate(optimizer.param_groups):
        found |= {f"group {i}: {name}": value for name, value in group.items() if name != "params"}
        for j, p in enumerate(group["params"]):
            found[f"parameter {i}.{j}"] = p
            found |= {f"state {i}.{j}: {name}": value for name, value in optimizer.state.get(p, {}).items()}
    return {name: value.detach().clone() if isinstance(value, torch.Tensor) else value for name, value in found.items()}


def assert_same_snapshot(one, other):
    """To the bit, and the same entries."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(value, other[name], rtol=0, atol=0, equal_nan=True, msg=lambda m, n=name: n + m)
        else:
            assert value == other[name], name


def assert_equal(ones, others):
    """To the bit."""
    torch.testing.assert_close(list(ones), list(others), rtol=0, atol=0, equal_nan=True)


def assert_close(ones, others, atol=1e-5):
    """Up to a distance."""
    torch.testing.assert_close(list(ones), list(others), rtol=0, atol=atol)


def one_rate(params, base, rate=0.05, **options):
    """With one rate that does not fall before a far end, and no restart, the optimizer must be its base."""
    usual = {"on_shift": "ignore", "weight_decay": 0.0, "steps": 10**9}
    return samuel(params, base, learning_rates=(rate,), **{**usual, **options})
