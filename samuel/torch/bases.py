"""Base optimizers: what gives SAMUEL its directions, at a learning rate of one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from samuel.torch import lists
from samuel.torch.muon import MatrixMuon, is_matrix, refuse_split
from samuel.torch.shelf import raw


class DiscountedAdagrad(Optimizer):
    """Divide gradients by the root of their squares' discounted sum: Adagrad that forgets.

        s <- alpha s + g^2,        step = lr g / sqrt(s)        (0 where nothing but zeros was seen)

    With `alpha = 1` this is Adagrad. No epsilon: multiplying all losses by a constant changes no step, as long as
    single precision can hold the squares of gradients (of sizes from about 1e-19 to 1e19). It is what
    `Samuel(params, "adagrad")` runs on.

    Args:
        params: parameters or parameter groups.
        lr: the learning rate.
        alpha: what the past is multiplied with in every step, above 0 and up to 1.

    >>> import torch
    >>> from samuel.torch import DiscountedAdagrad
    >>> w = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    >>> optimizer = DiscountedAdagrad([w], lr=0.5)
    >>> w.grad = torch.tensor([3.0, 0.0])
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, 1.0]
    """

    def __init__(self, params: Any, lr: float = 1.0, alpha: float = 1.0) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1, got {alpha!r}")
        if not lr >= 0:
            raise ValueError(f"lr must be at least 0, got {lr!r}")
        super().__init__(params, {"lr": lr, "alpha": alpha})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            for p in params:
                if not self.state[p]:
                    self.state[p]["sum_of_squares"] = torch.zeros_like(p, memory_format=torch.preserve_format)
            squares = [raw(self.state[p]["sum_of_squares"]) for p in params]
            gradients = [raw(p.grad) for p in params]
            if group["alpha"] != 1:
                lists.mul_(squares, group["alpha"])
            lists.addcmul_(squares, gradients, gradients)
            roots = lists.sqrt(squares)
            for root in roots:  # where the sum is 0, or too small to be held, there is no step
                root.masked_fill_(root == 0, torch.inf)
            lists.addcdiv_([raw(p) for p in params], gradients, roots, value=-float(group["lr"]))
        return loss


NAMED: dict[str, tuple[type[Optimizer], dict[str, Any]]] = {
    "adam": (torch.optim.Adam, {}),
    "adagrad": (DiscountedAdagrad, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "sgd": (torch.optim.SGD, {}),
    "muon": (MatrixMuon, {}),
}
"""The bases with a name, the same as in JAX; `samuel.core.rules` says which learning rates go with each."""

INITIAL: dict[type[Optimizer], dict[str, Any]] = {
    torch.optim.SGD: {"momentum_buffer": 0.0},
    torch.optim.Adam: {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0, "max_exp_avg_sq": 0.0},
    torch.optim.AdamW: {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0, "max_exp_avg_sq": 0.0},
    torch.optim.NAdam: {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0, "mu_product": 1.0},
    torch.optim.RAdam: {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0},
    torch.optim.Adamax: {"step": 0.0, "exp_avg": 0.0, "exp_inf": 0.0},
    torch.optim.RMSprop: {"step": 0.0, "square_avg": 0.0, "momentum_buffer": 0.0, "grad_avg": 0.0},
    torch.optim.Adadelta: {"step": 0.0, "square_avg": 0.0, "acc_delta": 0.0},
    torch.optim.Adagrad: {"step": 0.0, "sum": "initial_accumulator_value"},
    DiscountedAdagrad: {"sum_of_squares": 0.0},
    MatrixMuon: {"step": 0.0, "exp_avg": 0.0, "exp_avg_sq": 0.0},
}
"""What the state of an optimizer begins with, by name of the entry (or the option that says so).

Of these it is known, too, that they read no parameters unless they have a weight decay of their own. Any other
optimizer gets a copy of the parameters to step from, and to reset it, it is made anew, which makes the host wait for
the device.
"""

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
"""Those with a fused kernel on the host and on GPUs."""

COUNTS = ("step", "mu_product")
"""Entries of their state that are one number for each parameter."""

_OURS = ("lr", "weight_decay", "maximize", "foreach", "capturable", "fused", "differentiable")
"""Options of an optimizer that are not the base's to choose."""


@dataclass(frozen=True)
class Base:
    """An optimizer that gives directions, and what is known about it."""

    make: type[Optimizer]
    """Its class."""
    fixed: dict[str, Any]
    """Arguments that came bound to it and cannot be changed by groups."""
    name: str | None
    """Which of the named bases it resembles, for the usual rates; None for one that we know nothing about."""
    options: dict[str, Any]
    """Its other options and their values: those that parameter groups may set for themselves."""
    weight_decay: float
    """The decoupled weight decay it would use by default."""
    known: bool = field(default=False)
    """Whether what its state begins with is known."""

    @property
    def copies_parameters(self) -> bool:
        """Whether it must see the values of the parameters."""
        return self.make not in INITIAL or bool(self.fixed.get("weight_decay"))

    def build(self, groups: list[dict[str, Any]]) -> Optimizer:
        """The optimizer of some shadow tensors, at unit rate; `groups` have the options of each group."""
        shadows = [shadow for group in groups for shadow in group["params"]]
        settings: dict[str, Any] = dict(self.fixed)
        accepted = _accepted(self.make)
        if "lr" in accepted:
            settings["lr"] = 1.0
        if "weight_decay" in accepted:
            settings.setdefault("weight_decay", 0.0)
        if self.make in FUSED and all(s.is_floating_point() and s.device.type in ("cpu", "cuda") for s in shadows):
            settings.setdefault("fused", not settings.get("foreach"))
        elif "foreach" in accepted:
            settings.setdefault("foreach", True)
        if "capturable" in accepted and all(shadow.device.type == "cuda" for shadow in shadows):
            settings.setdefault("capturable", True)
        optimizer = self.make([{**group, **self.fixed} for group in groups], **settings)
        # We decide what may be captured; the warning that a step was not is not for our users.
        optimizer._warned_capturable_if_run_uncaptured = True  # pyright: ignore[reportAttributeAccessIssue]
        return optimizer

    def options_of(self, group: dict[str, Any]) -> dict[str, Any]:
        """Its options as a parameter group has them."""
        return {name: group[name] for name in self.options}

    def keeps(self, key: str, p: Tensor, options: dict[str, Any]) -> bool:
        """Whether its state has the entry `key` for a parameter of a group with these options."""
        if not issubclass(self.make, MatrixMuon) or key != "exp_avg_sq":
            return True
        return not is_matrix(p, {**options, **self.fixed})

    def refuse_split(self, group: dict[str, Any]) -> None:
        """An error if it needs the whole of a parameter of a group, and processes have only parts of that."""
        if issubclass(self.make, MatrixMuon):
            refuse_split({**group, **self.fixed})

    def refuse_entries(self, keys: set[str]) -> None:
        """An error if a saved state with these entries cannot be its own."""
        if self.known and not keys <= {*INITIAL[self.make]}:
            raise ValueError(
                f"the state dict was made with another base: it has {sorted(keys)}, and {self.make.__name__} has "
                f"{sorted(INITIAL[self.make])}"
            )

    def carried(self, key: str, value: Any, optimizer: Optimizer, device: torch.device, dtypes: Any) -> Any:
        """An entry of its saved state as an optimizer on a device goes on from it.

        Args:
            key: the name of the entry.
            value: what was saved.
            optimizer: who goes on.
            device: where its shadows are.
            dtypes: of the shadows, then and now. What it keeps in the dtype of its shadows follows them; what it keeps
                in another is its own affair.
        """
        if key in COUNTS and self.make.__module__.startswith("torch."):
            value = torch.as_tensor(value, dtype=torch.float32)  # old checkpoints have plain numbers
        if not isinstance(value, torch.Tensor):
            return value
        value, (then, now) = value.detach().clone(), dtypes
        if value.ndim == 0:
            on_device = any(optimizer.param_groups[0].get(flag) for flag in ("capturable", "fused"))
            return value.to(device if on_device else "cpu")
        return value.to(device, now if value.dtype == then else value.dtype)

    def initial(self, key: str) -> float:
        """What the entry `key` of its state begins with."""
        value = INITIAL[self.make].get(key, 0.0)
        return float({**self.options, **self.fixed}[value]) if isinstance(value, str) else value


def step_unseen(optimizer: Optimizer) -> None:
    """One step of a base, out of sight of those who count the steps of all optimizers."""
    step = type(optimizer).step
    step = getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step
    step(optimizer)


def resolve(base: Any, options: dict[str, Any]) -> Base:
    """What a user's `base` stands for: a name, an optimizer class, or a `functools.partial` of one.

    >>> resolve("momentum", {}).options["momentum"]
    0.9
    """
    named, fixed = None, {}
    if isinstance(base, str):
        if base not in NAMED:
            raise ValueError(
                f"base must be one of {', '.join(map(repr, NAMED))} or a torch optimizer class, got {base!r}"
            )
        named = base
        base, preset = NAMED[base]
        options = preset | options
    while isinstance(base, functools.partial):
        if base.args:
            raise ValueError(f"base may be a partial with keyword arguments only, got {base!r}")
        fixed = {**base.keywords, **fixed}
        base = base.func
    if isinstance(base, Optimizer):
        raise TypeError(
            f"base must be an optimizer class or a name, got an instance of {type(base).__name__}; pass "
            f"{type(base).__name__} itself, and its options as keyword arguments"
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
        raise ValueError(f"base runs at unit rate: leave lr={fixed['lr']!r} out of it, and list candidates with lrs=")
    accepted = _accepted(base)
    if "fused" in options and "fused" in accepted:
        if options["fused"] not in (None, True, False):
            raise ValueError(f"fused must be True or False, got {options['fused']!r}")
        fixed = {"fused": options["fused"], **fixed}
        options = {name: value for name, value in options.items() if name != "fused"}
    for name in options:
        if name not in accepted or name in _OURS:
            usable = sorted(accepted - set(_OURS) - {"params"})
            raise TypeError(
                f"{name!r} is neither an option of Samuel nor of {base.__name__}, whose options are "
                f"{', '.join(usable) or 'none'}"
            )
    trial = base([torch.nn.Parameter(torch.zeros(2, 2))], **{**options, **fixed})  # refuses impossible values
    own = {name: value for name, value in trial.defaults.items() if name not in _OURS and name not in fixed}
    decoupled = "weight_decay" not in fixed and (
        base is torch.optim.AdamW or base.__name__ == "Muon" or trial.defaults.get("decoupled_weight_decay")
    )
    return Base(
        make=base,
        fixed=fixed,
        name=named or _resembles(base, {**trial.defaults}),
        options=own,
        weight_decay=float(trial.defaults.get("weight_decay", 0.0)) if decoupled else 0.0,
        known=_resets_by_filling(base, trial.defaults),
    )


def _resembles(base: type[Optimizer], defaults: dict[str, Any]) -> str | None:
    if base in (torch.optim.Adam, torch.optim.AdamW):
        return "adam"
    if base in (torch.optim.Adagrad, DiscountedAdagrad):
        return "adagrad"
    if base is torch.optim.SGD:
        return "momentum" if defaults["momentum"] else "sgd"
    return "muon" if base is MatrixMuon else None


def _resets_by_filling(base: type[Optimizer], defaults: dict[str, Any]) -> bool:
    """Whether filling its state with what it begins with is the same as starting it anew."""
    if base is torch.optim.SGD:
        return defaults["dampening"] == 0  # otherwise the first step is not like the others
    if base is torch.optim.Adagrad:
        return defaults["lr_decay"] == 0  # otherwise it counts steps, on the host
    return base in INITIAL


@functools.lru_cache(maxsize=64)
def _accepted(base: type[Optimizer]) -> frozenset[str]:
    """The names of an optimizer's arguments."""
    parameters: Iterable[inspect.Parameter] = inspect.signature(base).parameters.values()
    return frozenset(p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD))
