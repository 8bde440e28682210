"""Base optimizers, which compute the directions: their steps at a learning rate of 1.

Named bases are implemented on lists of tensors. Any class of `torch.optim` can be a base as well: its direction is the
change it makes to tensors of its own.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from samuel.core.orthogonal import ADAM, MOMENTUM
from samuel.core.roles import Role

Number = Any
"""A Python number or a tensor without dimensions."""
Tensors = list[Tensor]
foreach: Any = torch
"""Namespace of the `_foreach` functions, which torch does not export by name."""

NAMED: dict[str, dict[str, Any]] = {
    "muon": {"momentum": MOMENTUM, **ADAM},
    "adam": ADAM,
    "adagrad": {},
    "momentum": {"momentum": 0.9},
    "sgd": {},
}
"""Named bases and their options, which can be set per parameter group."""
VECTORS = {"adagrad": ("square",), "momentum": ("momentum_buffer",), "sgd": ()}
"""Vectors of the state of the simple bases."""
MOMENTA = {"momentum_buffer", "exp_avg"}
"""Vectors of their state in bfloat16 for parameters in bfloat16: short moving averages of gradients in bfloat16."""


# Lists of tensors and a factor, a number or a tensor


def scale_(tensors: Tensors, factor: Number) -> None:
    """Multiply tensors by a number, in place.

    >>> x = torch.ones(2)
    >>> scale_([x], 0.5), x.tolist()
    (None, [0.5, 0.5])
    """
    if isinstance(factor, Tensor) or factor != 1:
        foreach._foreach_mul_(tensors, factor)


def add_(tensors: Tensors, others: Tensors, factor: Number) -> None:
    """Add a multiple of other tensors, in place.

    >>> x = torch.ones(2)
    >>> add_([x], [torch.ones(2)], torch.tensor(2.0)), x.tolist()
    (None, [3.0, 3.0])
    """
    if isinstance(factor, Tensor):
        foreach._foreach_addcmul_(tensors, others, [factor] * len(tensors))
    elif factor != 0:
        foreach._foreach_add_(tensors, others, alpha=factor)


@dataclass
class Inputs:
    """Gradients of some parameters, and the state of their base.

    Args:
        gradients: the gradients, in the dtype of the computation.
        vectors: the state of the base by name, with one vector per parameter.
        count: number of gradients, including this one.
        fresh: 1 if the state starts with this gradient, otherwise 0.
        options: options of the parameter group.
        new: 0 if the gradient is skipped, otherwise 1.
    """

    gradients: Tensors
    vectors: dict[str, Tensors]
    count: Number
    fresh: Number
    options: dict[str, Any]
    new: Number


@dataclass(frozen=True)
class Named:
    """A named base.

    Args:
        name: a key of `NAMED`.
        given: options that differ from the defaults.
    """

    name: str
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def search(self) -> str:
        """Name of its default search in `samuel.core.rate_search.SEARCHES`."""
        return self.name

    @property
    def searches(self) -> int:
        """Number of learning rates: for Muon one for matrices and one for all other parameters."""
        return 2 if self.name == "muon" else 1

    @property
    def options(self) -> dict[str, Any]:
        """Its options, which can be set per parameter group."""
        return NAMED[self.name] | self.given

    def orthogonalises(self, role: Role) -> bool:
        """Whether the directions of parameters with this role are orthogonalised, which needs whole matrices."""
        return self.name == "muon" and role.kind == "matrix"

    def vectors(self, role: Role) -> tuple[str, ...]:
        """Names of the vectors of its state."""
        if self.name in VECTORS:
            return VECTORS[self.name]
        return ("momentum_buffer",) if self.orthogonalises(role) else ("exp_avg", "exp_avg_sq")

    def directions(self, inputs: Inputs) -> Tensors:
        """Directions of parameters of one role, uphill and before orthogonalisation; updates the state."""
        if not inputs.vectors:
            return [g.clone() for g in inputs.gradients]
        if self.name == "adagrad":
            return _adagrad(inputs)
        if self.name == "momentum":
            return _heavy_ball(inputs)
        if "momentum_buffer" in inputs.vectors:
            return _ahead(inputs, "momentum_buffer", inputs.options["momentum"])
        return _adam(inputs, nesterov=self.name == "muon")

    def check(self, options: dict[str, Any]) -> None:
        """An error for invalid options of a parameter group."""
        for name in self.options:
            values = options[name] if name == "betas" else (options[name],)
            if name == "betas" and not (isinstance(values, tuple | list) and len(values) == 2):
                raise ValueError(f"betas must be two numbers, such as (0.9, 0.999), got {values!r}")
            for value in values:
                top = math.inf if name == "eps" else 1.0
                if not (isinstance(value, float | int) and 0 <= value < top) and not isinstance(value, Tensor):
                    raise ValueError(f"{name} must be at least 0 and below {top:g}, got {options[name]!r}")


def _moved(inputs: Inputs, name: str, beta: float) -> Tensors:
    """Update the moving average of the gradients."""
    means = inputs.vectors[name]
    scale_(means, 1 - inputs.new * (1 - beta * (1 - inputs.fresh)))
    add_(means, inputs.gradients, (1 - beta) * inputs.new)
    return means


def _ahead(inputs: Inputs, name: str, beta: float) -> Tensors:
    """Nesterov momentum with bias correction: the moving average if the next gradient equals this one."""
    ahead = list(foreach._foreach_mul(_moved(inputs, name, beta), beta / _unbiased(beta, inputs.count + 1)))
    add_(ahead, inputs.gradients, (1 - beta) / _unbiased(beta, inputs.count))
    return ahead


def _heavy_ball(inputs: Inputs) -> Tensors:
    """The sum of the gradients so far, each 0.9 times as large as the next."""
    sums = inputs.vectors["momentum_buffer"]
    scale_(sums, 1 - inputs.new * (1 - inputs.options["momentum"] * (1 - inputs.fresh)))
    add_(sums, inputs.gradients, inputs.new)
    return [each.clone() for each in sums]


def _adagrad(inputs: Inputs) -> Tensors:
    """Adagrad (Duchi, Hazan and Singer, JMLR 2011), whose first direction is the sign of the gradient."""
    squares, g = inputs.vectors["square"], inputs.gradients
    scale_(squares, 1 - inputs.new * inputs.fresh)
    add_(squares, list(foreach._foreach_mul(g, g)), inputs.new)
    return [torch.where(s > 0, each / s.sqrt(), 0.0) for each, s in zip(g, squares, strict=True)]


def _adam(inputs: Inputs, nesterov: bool) -> Tensors:
    """Adam (Kingma and Ba, ICLR 2015); with Nesterov momentum (Dozat, ICLR workshop 2016) beside Muon."""
    (b1, b2), eps = inputs.options["betas"], inputs.options["eps"]
    squares, g = inputs.vectors["exp_avg_sq"], inputs.gradients
    scale_(squares, 1 - inputs.new * (1 - b2 * (1 - inputs.fresh)))
    if isinstance(inputs.new, Tensor):
        add_(squares, list(foreach._foreach_mul(g, g)), (1 - b2) * inputs.new)
    else:
        foreach._foreach_addcmul_(squares, g, g, value=1 - b2)
    roots = list(foreach._foreach_sqrt(squares))
    scale_(roots, _unbiased(b2, inputs.count) ** -0.5)
    foreach._foreach_add_(roots, eps)
    if nesterov:
        means = _ahead(inputs, "exp_avg", b1)
        foreach._foreach_div_(means, roots)
        return means
    scale_(roots, _unbiased(b1, inputs.count))
    return list(foreach._foreach_div(_moved(inputs, "exp_avg", b1), roots))


def _unbiased(beta: float, count: Number) -> Number:
    """Bias correction: sum of the weights of `count` gradients in a moving average."""
    if not isinstance(count, Tensor):
        return 1 - beta**count
    return -torch.expm1(count * math.log(beta)) if beta > 0 else torch.ones_like(count)


# Optimizer classes

_OURS = ("lr", "weight_decay", "maximize", "foreach", "capturable", "fused", "differentiable")
"""Options of an optimizer class that are set by `Samuel`."""


@dataclass(frozen=True)
class Foreign:
    """An optimizer class as a base.

    Args:
        make: the class.
        fixed: arguments bound by `functools.partial`.
        options: its other options and their defaults.
        search: name of its default search; None for an unknown class.
        reads_parameters: whether its steps depend on the values of the parameters.
    """

    make: type[Optimizer]
    fixed: dict[str, Any]
    options: dict[str, Any]
    search: str | None
    reads_parameters: bool

    searches = 1

    @property
    def name(self) -> str:
        """The name of the class."""
        return self.make.__name__

    def orthogonalises(self, role: Role) -> bool:
        """Whether the class needs whole matrices of parameters with this role."""
        return role.kind == "matrix" and self.name == "Muon"

    def vectors(self, role: Role) -> tuple[str, ...]:
        """None: the state belongs to an instance of the class."""
        return ()

    def check(self, options: dict[str, Any]) -> None:
        """An error for invalid options of a parameter group."""
        make: Any = self.make
        make([{"params": [torch.nn.Parameter(torch.zeros(2, 2))], **self.options_of(options), **self.fixed}])

    def options_of(self, group: dict[str, Any]) -> dict[str, Any]:
        """Its options in a parameter group."""
        return {name: group[name] for name in self.options}

    def build(self, points: Sequence[Tensor], group: dict[str, Any]) -> Optimizer:
        """An instance for some tensors, with a learning rate of 1 and the options of a parameter group."""
        settings: dict[str, Any] = {**self.options_of(group), **self.fixed}
        accepted = _accepted(self.make)
        if "lr" in accepted:
            settings["lr"] = 1.0
        if "weight_decay" in accepted:
            settings.setdefault("weight_decay", 0.0)
        if "capturable" in accepted and all(point.device.type == "cuda" for point in points):
            settings.setdefault("capturable", True)
        make: Any = self.make
        optimizer = make(list(points), **settings)
        # No warning that a step was not captured, of which users know nothing.
        optimizer._warned_capturable_if_run_uncaptured = True  # pyright: ignore[reportAttributeAccessIssue]
        return optimizer


Base = Named | Foreign


def step_unseen(optimizer: Optimizer) -> None:
    """One step of a base class, hidden from global optimizer hooks and profilers."""
    step = type(optimizer).step
    step = getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step
    step(optimizer)


def resolve(base: Any) -> Base:
    """The base for a name, an optimizer class or a `functools.partial` of one.

    >>> resolve("muon").searches
    2
    >>> resolve(functools.partial(torch.optim.Adam, betas=(0.9, 0.95))).options["betas"]
    (0.9, 0.95)
    """
    if isinstance(base, str):
        if base not in NAMED:
            raise ValueError(
                f"base must be one of {', '.join(map(repr, NAMED))} or a torch optimizer class, got {base!r}"
            )
        return Named(base)
    given, fixed = base, {}
    while isinstance(base, functools.partial):
        if base.args:
            raise ValueError(f"base may be a partial with keyword arguments only, got {given!r}")
        fixed = {**base.keywords, **fixed}
        base = base.func
    if isinstance(base, Optimizer):
        raise TypeError(
            f"base must be a name or an optimizer class, got an instance of {type(base).__name__}; give "
            f"{type(base).__name__} itself, or functools.partial of it with its options"
        )
    if not (isinstance(base, type) and issubclass(base, Optimizer)):
        raise TypeError(
            f"base must be one of {', '.join(map(repr, NAMED))} or a torch optimizer class such as torch.optim.Adam, "
            f"got {base!r}"
        )
    if base in (torch.optim.LBFGS, torch.optim.SparseAdam):
        why = "evaluates the loss by itself" if base is torch.optim.LBFGS else "is for sparse gradients only"
        raise ValueError(f"{base.__name__} cannot be a base: it {why}; use an optimizer whose step follows a gradient")
    if "lr" in fixed:
        raise ValueError(f"base runs at unit rate: leave lr={fixed['lr']!r} out of it, and give learning_rates")
    accepted = _accepted(base)
    unknown = sorted(set(fixed) - accepted)
    if unknown:
        usable = ", ".join(sorted(accepted - set(_OURS) - {"params"}))
        raise TypeError(f"{unknown[0]!r} is no option of {base.__name__}, whose options are {usable or 'none'}")
    trial = base([torch.nn.Parameter(torch.zeros(2, 2))], **fixed)  # refuses impossible values
    decouples = base is torch.optim.AdamW or base.__name__ == "Muon" or trial.defaults.get("decoupled_weight_decay")
    if decouples and "weight_decay" in fixed:
        raise ValueError(
            f"weight decay of {base.__name__} is decoupled, as Samuel's: leave weight_decay={fixed['weight_decay']!r} "
            "out of the base and give it to Samuel"
        )
    return _as_named(base, fixed, trial.defaults) or Foreign(
        make=base,
        fixed=fixed,
        options={name: value for name, value in trial.defaults.items() if name not in _OURS and name not in fixed},
        search=_resembles(base, trial.defaults),
        reads_parameters=base not in _BLIND or bool(fixed.get("weight_decay")),
    )


_BLIND = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.Adamax,
    torch.optim.RMSprop,
    torch.optim.Adadelta,
    torch.optim.Adagrad,
)
"""Optimizers whose steps do not depend on the values of parameters, except by a coupled weight decay."""


def _as_named(base: type[Optimizer], fixed: dict[str, Any], defaults: dict[str, Any]) -> Named | None:
    """The named base that is the same optimizer, if any, which is faster."""
    if base in (torch.optim.Adam, torch.optim.AdamW) and set(fixed) <= {"betas", "eps"}:
        return Named("adam", fixed)
    if base is torch.optim.SGD and not fixed:
        return Named("sgd")
    return None


def _resembles(base: type[Optimizer], defaults: dict[str, Any]) -> str | None:
    if base in (torch.optim.Adam, torch.optim.AdamW):
        return "adam"
    if base is torch.optim.Adagrad:
        return "adagrad"
    if base is torch.optim.SGD:
        return "momentum" if defaults["momentum"] else "sgd"
    return "muon" if base.__name__ == "Muon" else None


@functools.lru_cache(maxsize=64)
def _accepted(base: type[Optimizer]) -> frozenset[str]:
    """Names of an optimizer's arguments."""
    parameters = inspect.signature(base).parameters.values()
    return frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
