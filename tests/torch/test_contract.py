"""It is a torch optimizer: everything that people, schedulers and trainers rely on in one holds in this one."""

import functools
import shutil
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

import samuel.core
from samuel.torch import Chosen, Fixed, Geometric, Samuel, Watched
from tests.torch.configurations import (
    CONFIGURATIONS,
    RULES,
    assert_close,
    assert_equal,
    feed,
    gradients,
    one_rate,
    parameters,
    train,
    values,
)

PLAIN = "adam-samuel"
"""The configuration of tests that one is enough for."""


def make(params, **options):
    return Samuel(params, **{**CONFIGURATIONS[PLAIN], **options})


def snapshot(optimizer):
    """Everything that a step may change, parameters included."""
    found = {}
    for i, group in enumerate(optimizer.param_groups):
        found |= {f"group {i}: {name}": value for name, value in group.items() if name != "params"}
        for j, p in enumerate(group["params"]):
            found[f"parameter {i}.{j}"] = p.detach().clone()
            for name, value in optimizer.state.get(p, {}).items():
                found[f"state {i}.{j}: {name}"] = value.clone() if isinstance(value, torch.Tensor) else value
    return found


def assert_unchanged(before, after):
    assert before.keys() == after.keys()
    for name, value in before.items():
        same = torch.equal(value, after[name]) if isinstance(value, torch.Tensor) else value == after[name]
        assert same or bool(torch.all(torch.isnan(torch.as_tensor(value)))), name


# It learns


def rosenbrock(params):
    x, y = params[0]
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def quadratic(params):
    (x,) = params
    return (torch.tensor([[2.0, 0.5], [0.5, 1.0]]) @ (x - 3)).square().sum()


def least_squares(params):
    """A small network: its weights and biases, on data that never change."""
    w, b, v, c = params
    inputs = torch.linspace(-1, 1, 24).reshape(8, 3)
    targets = torch.sin(3 * inputs.sum(1, keepdim=True))
    return (torch.tanh(inputs @ w.t() + b) @ v.t() + c - targets).square().mean()


PROBLEMS = {
    "quadratic": (quadratic, ((2,),), (1e-3, 1e-2, 1e-1)),
    "Rosenbrock": (rosenbrock, ((2,),), (1e-6, 1e-5, 1e-4)),
    "least squares": (least_squares, ((5, 3), (5,), (1, 5), (1,)), (1e-3, 1e-2, 1e-1)),
}
"""Losses, the shapes of their parameters, and rates for bases that follow plain gradients, of whatever size they are."""


def descend(optimizer, loss, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_it_goes_downhill(name, problem):
    loss, shapes, rates = PROBLEMS[problem]
    params = parameters(shapes)
    unscaled = name.startswith(("sgd", "momentum"))
    optimizer = Samuel(params, **CONFIGURATIONS[name], lrs=rates if unscaled else None)
    before = loss(params).item()
    descend(optimizer, lambda: loss(params), 40)
    assert loss(params) < 0.9 * before


@pytest.mark.parametrize("base", ["adam", "adagrad", "momentum", "sgd"])
def test_without_any_option_it_gets_there(base):
    loss, shapes, _ = PROBLEMS["least squares"]
    params = parameters(shapes)
    before = loss(params).item()
    descend(Samuel(params, base), lambda: loss(params), 300)
    assert loss(params) < 0.25 * before
