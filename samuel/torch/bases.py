"""Base optimizers: what gives the directions, at a learning rate of 1.

Those with a name work on whole stretches of memory at once; any class of `torch.optim` can be a base, too, and its
directions are what it does to tensors of its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from samuel.core.roles import Role
from samuel.torch.muon import orthogonalise_

Number = Any
"""A number of Python's, or one that a device has."""

NAMED: dict[str, dict[str, Any]] = {
    "muon": {"momentum": 0.95, "betas": (0.9, 0.999), "eps": 1e-8},
    "adam": {"betas": (0.9, 0.999), "eps": 1e-8},
    "adagrad": {},
    "momentum": {"momentum": 0.9},
    "sgd": {},
}
"""The bases with a name and their options, which parameter groups may have for themselves."""


class Stretch(NamedTuple):
    """Parameters that lie side by side in memory and have had the same gradients present."""

    gradient: Tensor
    vectors: dict[str, Tensor]
    """The base's state, as long as the gradient."""
    count: Number
    """How many gradients there were, this one included."""
    options: dict[str, Any]
    """Options of their parameter group."""
    sizes: list[int]
    """Numbers of every parameter."""
    shapes: list[torch.Size]
    roles: list[Role]
    """Of matrices; empty for what is not orthogonalised."""


class Named:
    """A base with a name.

    Args:
        name: "muon", "adam", "adagrad", "momentum" or "sgd".
        options: those that differ from the usual ones.
    """

    def __init__(self, name: str, options: dict[str, Any] | None = None) -> None:
        self.name = name
        self.search = name
        """Which of the usual searches suits it."""
        self.options = NAMED[name] | (options or {})
        self._step: Callable[[Stretch, Number, Number], Tensor] = _STEPS["adam" if name == "muon" else name]

    @property
    def searches(self) -> int:
        """How many learning rates it needs: Muon has one for matrices and one for all else."""
        return 2 if self.name == "muon" else 1

    def orthogonalises(self, role: Role) -> bool:
        """Whether a parameter with this role must be whole."""
        return self.name == "muon" and role.kind == "matrix"

    def vectors(self, role: Role) -> tuple[str, ...]:
        """The vectors of its state."""
        if self.orthogonalises(role):
            return ("momentum_buffer",)
        names = {"adagrad": ("sum",), "momentum": ("momentum_buffer",), "sgd": ()}
        return names.get(self.name, ("exp_avg", "exp_avg_sq"))

    def directions(self, stretches: Sequence[Stretch], old: Number, new: Number) -> list[Tensor]:
        """The direction of every stretch, uphill, as new tensors.

        Args:
            stretches: gradients and states; the states move on.
            old: 0 where the state begins anew, 1 otherwise.
            new: 0 where nothing is to move, 1 otherwise.
        """
        found: list[Tensor] = []
        views: dict[torch.device, tuple[list[Tensor], list[Role]]] = {}
        for stretch in stretches:
            if not stretch.roles:
                found.append(self._step(stretch, old, new) if self.name != "muon" else _adam(stretch, old, new, True))
                continue
            ahead = _ahead(stretch, "momentum_buffer", stretch.options["momentum"], old, new)
            found.append(ahead)
            tensors, roles = views.setdefault(ahead.device, ([], []))
            for part, shape in zip(ahead.split(stretch.sizes), stretch.shapes, strict=True):
                tensors.append(part.view(shape))
            roles.extend(stretch.roles)
        for tensors, roles in views.values():
            orthogonalise_(tensors, roles)
        return found


def moved(vector: Tensor, target: Tensor, beta: float, old: Number, new: Number) -> None:
    """Let a moving average go on, in place: `beta` of it stays.

    >>> mean = torch.ones(2)
    >>> moved(mean, torch.zeros(2), 0.75, old=1.0, new=1.0)
    >>> mean.tolist()
    [0.75, 0.75]
    """
    vector.mul_(1 - new * (1 - beta * old))
    added(vector, target, (1 - beta) * new)


def added(vector: Tensor, other: Tensor, factor: Number) -> None:
    """Add a multiple of another vector, in place; the factor may be a number that a device has."""
    if isinstance(factor, Tensor):
        vector.addcmul_(other, factor.to(vector.dtype))
    else:
        vector.add_(other, alpha=factor)


def _ahead(stretch: Stretch, name: str, beta: float, old: Number, new: Number) -> Tensor:
    """The mean of the gradients as it will be if the next is like the last (Nesterov), free of its start at 0."""
    mean = stretch.vectors[name]
    moved(mean, stretch.gradient, beta, old, new)
    ahead = mean * (beta / (1 - beta ** (stretch.count + 1)))
    added(ahead, stretch.gradient, (1 - beta) / (1 - beta**stretch.count))
    return ahead


def _adam(stretch: Stretch, old: Number, new: Number, nesterov: bool = False) -> Tensor:
    """Kingma & Ba 2015, "Adam: A method for stochastic optimization"; with Nesterov's momentum beside Muon."""
    (b1, b2), eps = stretch.options["betas"], stretch.options["eps"]
    square = stretch.vectors["exp_avg_sq"]
    if nesterov:
        mean = _ahead(stretch, "exp_avg", b1, old, new)
    else:
        moved(stretch.vectors["exp_avg"], stretch.gradient, b1, old, new)
        mean = stretch.vectors["exp_avg"] / (1 - b1**stretch.count)
    square.mul_(1 - new * (1 - b2 * old))
    if isinstance(new, Tensor):
        square.addcmul_(stretch.gradient * ((1 - b2) * new), stretch.gradient)
    else:
        square.addcmul_(stretch.gradient, stretch.gradient, value=(1 - b2) * new)
    root = (square / (1 - b2**stretch.count)).sqrt_().add_(eps)
    return mean.div_(root)


def _adagrad(stretch: Stretch, old: Number, new: Number) -> Tensor:
    """Duchi, Hazan & Singer 2011, without epsilon: where nothing but zeros was seen there is no step."""
    total = stretch.vectors["sum"]
    total.mul_(1 - new * (1 - old))
    total.addcmul_(stretch.gradient, stretch.gradient)  # 0 where nothing is to move
    root = total.sqrt()
    return stretch.gradient / root.masked_fill_(root == 0, torch.inf)


def _momentum(stretch: Stretch, old: Number, new: Number) -> Tensor:
    total = stretch.vectors["momentum_buffer"]
    total.mul_(1 - new * (1 - stretch.options["momentum"] * old)).add_(stretch.gradient)
    return total.clone()


def _sgd(stretch: Stretch, old: Number, new: Number) -> Tensor:
    return stretch.gradient.clone()


_STEPS: dict[str, Callable[[Stretch, Number, Number], Tensor]] = {
    "adam": _adam,
    "adagrad": _adagrad,
    "momentum": _momentum,
    "sgd": _sgd,
}


# Any optimizer

_OURS = ("lr", "weight_decay", "maximize", "foreach", "capturable", "fused", "differentiable")
"""Options of an optimizer that are not the base's to choose."""


@dataclass(frozen=True)
class Foreign:
    """An optimizer class as a base.

    Args:
        make: the class.
        fixed: arguments that came bound to it and cannot be changed by groups.
        options: its other options and their values.
        search: which of the usual searches suits it; None for one that is not known.
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
        """Whether a parameter with this role must be whole."""
        return role.kind == "matrix" and self.name == "Muon"

    def vectors(self, role: Role) -> tuple[str, ...]:
        """Its vectors are its own."""
        return ()

    def build(self, groups: list[dict[str, Any]]) -> Optimizer:
        """The optimizer of some tensors, at a learning rate of 1; `groups` have the options of each group."""
        settings: dict[str, Any] = dict(self.fixed)
        accepted = _accepted(self.make)
        tensors = [tensor for group in groups for tensor in group["params"]]
        if "lr" in accepted:
            settings["lr"] = 1.0
        if "weight_decay" in accepted:
            settings.setdefault("weight_decay", 0.0)
        if "capturable" in accepted and all(tensor.device.type == "cuda" for tensor in tensors):
            settings.setdefault("capturable", True)
        optimizer = self.make([{**group, **self.fixed} for group in groups], **settings)
        # Capturing is decided elsewhere; the warning that a step was not captured is not for users.
        optimizer._warned_capturable_if_run_uncaptured = True  # pyright: ignore[reportAttributeAccessIssue]
        return optimizer

    def options_of(self, group: dict[str, Any]) -> dict[str, Any]:
        """Its options as a parameter group has them."""
        return {name: group[name] for name in self.options}


Base = Named | Foreign


def step_unseen(optimizer: Optimizer) -> None:
    """One step of a base, which the hooks and profiles of all optimizers do not see."""
    step = type(optimizer).step
    step = getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step
    step(optimizer)


def resolve(base: Any) -> Base:
    """What a user's `base` stands for: a name, an optimizer class, or a `functools.partial` of one.

    >>> resolve("momentum").options
    {'momentum': 0.9}
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
"""Optimizers whose steps do not depend on the values of parameters, unless they have a weight decay of their own."""


def _as_named(base: type[Optimizer], fixed: dict[str, Any], defaults: dict[str, Any]) -> Named | None:
    """The base with a name that is the same optimizer, if there is one: it is faster."""
    if base in (torch.optim.Adam, torch.optim.AdamW) and set(fixed) <= {"betas", "eps"}:
        return Named("adam", fixed)
    if base is torch.optim.SGD and set(fixed) <= {"momentum"}:
        return Named("momentum", fixed) if defaults["momentum"] else Named("sgd")
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
    """The names of an optimizer's arguments."""
    parameters = inspect.signature(base).parameters.values()
    return frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
