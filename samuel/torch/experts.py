"""Experts that train side by side: full and loss feedback, where the loss is evaluated at every expert.

Every expert has parameters of its own and takes steps of its own; the closure is called once for each of them.
`samuel.torch.panel` says who is judged how; `Population` holds the experts. The truth is in the optimizer's `state`,
which shows the same memory: the points of all experts in an entry of every parameter, and what is known about them, and
their buffers, in that of the first.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from samuel.core import combine
from samuel.core import weights as mw
from samuel.core.arrays import Array
from samuel.torch import lists
from samuel.torch.bases import Base, step_unseen
from samuel.torch.entries import flat, unflat
from samuel.torch.panel import Panel, PanelState

POINTS, BUFFER, BASE, PANEL = "experts:points", "experts:buffer", "base", "panel"
"""What the names of entries in the optimizer's state begin with."""

State = dict[Tensor, dict[str, Any]]
Tensors = list[Tensor]


class Population:
    """Experts with parameters of their own, and the decision they make for the parameters of the model.

    Args:
        panel: who they are and how they are judged.
        base: what gives the directions.
        groups: the parameter groups.
        state: the optimizer's state; what is not in it begins now.
        buffers: what finds the buffers that each expert has its own of.
    """

    def __init__(
        self,
        panel: Panel,
        base: Base,
        groups: Sequence[dict[str, Any]],
        state: State,
        buffers: Callable[[], Tensors],
    ) -> None:
        self.panel, self.base, self.buffers = panel, base, buffers
        self.params = [p for group in groups for p in group["params"]]
        self._sizes = [len(group["params"]) for group in groups]
        self.home = self.params[0].device
        self.count = panel.rates.size
        self._place = {p: i for i, p in enumerate(self.params)}
        self._signature = self._signed()
        first = state.get(self.params[0], {})
        self._numbers = _numbers(panel, first)
        owned = self._owned()
        stacks = [self._stack(p, state.get(p, {}).get(POINTS), _wide(p)) for p in self.params]
        stacks += [self._stack(b, first.get(f"{BUFFER}{i}"), b.dtype) for i, b in enumerate(owned)]
        # Of every expert its point, parameter by parameter, and after that its buffers.
        self._rows = [[stack[e] for stack in stacks] for e in range(self.count)]
        self._shadows = [torch.zeros_like(p, dtype=_wide(p), requires_grad=False) for p in self.params]
        # All experts of a slot follow one gradient under loss feedback: one state of the base is that of all.
        self._shared = panel.feedback == "loss" and not base.copies_parameters
        self._steppers = [
            _Stepper(base, k, groups, dict(zip(self.params, self._shadows, strict=True)))
            for k in range(panel.slots if self._shared else self.count)
        ]
        for stepper in self._steppers:
            stepper.take_over(state)
        for i, p in enumerate(self.params):
            state[p] = {POINTS: stacks[i]}
        places = range(len(owned))
        state[self.params[0]] |= self._numbers | {f"{BUFFER}{i}": stacks[len(self.params) + i] for i in places}
        self._own, self._stacks = [state[p] for p in self.params], stacks
        self._left: Tensors = []  # the buffers as we left them; nothing is known of those that we find
        self._show()

    @property
    def learning_rates(self) -> Sequence[float]:
        """The candidates."""
        return self.panel.learning_rates

    def fits(self, groups: Sequence[Sequence[Tensor]], state: State) -> bool:
        """Whether this still stands for the optimizer's parameters and state, and not for what they were once."""
        params = [p for group in groups for p in group]
        return (
            [len(group) for group in groups] == self._sizes
            and all(p is own for p, own in zip(params, self.params, strict=True))
            and all(state.get(p) is own for p, own in zip(self.params, self._own, strict=True))
            and all(own.get(POINTS) is stack for own, stack in zip(self._own, self._stacks, strict=False))
            and self._signature == self._signed()
        )

    def step(
        self, groups: Sequence[dict[str, Any]], closure: Callable[[], Any], evaluate: Callable[[], Any] | None
    ) -> Any:
        """One round; returns what the closure returned for the decision.

        Args:
            groups: the parameter groups.
            closure: evaluates the loss and its gradients.
            evaluate: evaluates the loss alone, for experts of which nothing else is needed.
        """
        if len({group["maximize"] for group in groups}) > 1:
            raise ValueError(f"all groups must have the same maximize with feedback={self.panel.feedback!r}")
        state, sign = self._known(), -1 if groups[0]["maximize"] else 1
        self._follow_edits(state)
        returned, seen = self._ask(state, closure, evaluate, sign)
        # Infinities are looked for where they matter.
        with np.errstate(all="ignore"):
            self._learn(groups, seen)
            state = self._turn(*self.panel.judge(state, seen.loss, seen.losses))
        self._write(self._decision(state))
        self._left = [b.clone() for b in self._owned()]
        for name, value in flat(state, PANEL).items():
            self._numbers[name].numpy()[...] = value
        self._show()
        for group in groups:
            group["effective_lr"] = float(state.rate) * float(group["lr"])
        return returned

    # Asking

    def _ask(
        self, state: PanelState, closure: Callable[[], Any], evaluate: Callable[[], Any] | None, sign: int
    ) -> tuple[Any, _Seen]:
        """Call the closure for every expert that takes part, and last for the decision.

        Last, because what a call leaves behind (gradients, buffers, random state, a log) is then the decision's. If one
        fails, everything is put back.
        """
        full = self.panel.feedback == "full"
        decision = None if self.panel.combine == "average" else self.panel.chosen(state)  # the expert that it is
        before, returned = _Before(self.params, self.buffers), None
        calls: dict[int | None, _Call] = {}
        try:
            for e in [*(e for e in self.panel.alive(state) if e != decision), decision]:
                is_last = e == decision
                before.put_back()
                if e is not None:
                    self._write(self._rows[e])
                for p in self.params:
                    p.grad = None  # not zeroed: one from before stays as it is, should this fail
                torch.clear_autocast_cache()  # it would not notice that parameters have changed
                ask, alone = (closure, False) if evaluate is None or is_last else (evaluate, True)
                with torch.set_grad_enabled(not alone):
                    returned = ask()
                loss = _one_number(returned)
                learns = e is not None if full else is_last  # someone, from this gradient
                calls[e] = _Call(loss, self._gradients(sign) if learns else [], [b.clone() for b in self._owned()])
        except BaseException:
            before.put_back()
            before.put_back_gradients()
            raise
        losses = np.full(self.count + 1, math.nan, np.float32)  # the last is the decision's
        for e, call in calls.items():
            losses[-1 if e is None else e] = self._judged_loss(call)
        if decision is not None:
            losses[-1] = losses[decision]
        losses = sign * self._averaged(losses)
        followed: dict[int, list[Tensor | None]] = {}
        buffers: dict[int, Tensors] = {}
        if full:
            good = [e for e in calls if e is not None and np.isfinite(losses[e])]
            followed = {e: calls[e].gradients for e in good}
            buffers = {e: calls[e].buffers for e in good}
        elif np.isfinite(losses[-1]) and _usable(calls[decision].gradients):
            followed = {e: calls[decision].gradients for e in calls if e is not None}
        else:
            before.put_back_buffers()
        return returned, _Seen(losses[-1], losses[:-1].reshape(self.panel.rates.shape), followed, buffers)

    def _judged_loss(self, call: _Call) -> float:
        """The loss that an expert is judged by: none, where its gradient or its buffers are no numbers."""
        finite = self.panel.feedback == "loss" or _all(torch.isfinite(g) for g in call.gradients if g is not None)
        return float(call.loss) if finite and _usable(call.buffers) else math.nan

    def _averaged(self, losses: np.ndarray) -> np.ndarray:
        """The losses that all processes have seen together, so that all take the same decision."""
        distributed = torch.distributed
        if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
            return losses
        total = torch.as_tensor(losses).to(self.home)
        distributed.all_reduce(total)
        return total.cpu().numpy() / np.float32(distributed.get_world_size())

    def _gradients(self, sign: int) -> list[Tensor | None]:
        """Copies of the gradients: some who hand them out use the same memory for the next."""
        copies = [
            None if p.grad is None else torch.empty_like(s) for p, s in zip(self.params, self._shadows, strict=True)
        ]
        some = [copy for copy in copies if copy is not None]
        _copy(some, [p.grad for p in self.params if p.grad is not None])
        if sign < 0 and some:
            lists.neg_(some)
        return copies

    # Learning

    def _learn(self, groups: Sequence[dict[str, Any]], seen: _Seen) -> None:
        """Let the experts take their steps."""
        for k, stepper in enumerate(self._steppers):
            members = [e for e in self._members(k) if e in seen.gradients]
            if members:
                gradients = seen.gradients[members[0]]
                stepper.step(groups, gradients, self._rows[members[0]])
                for e in members:
                    self._move(groups, e, gradients)
        for e, buffers in seen.buffers.items():
            _copy(self._rows[e][len(self.params) :], buffers)

    def _members(self, k: int) -> list[int]:
        """The experts that follow a base."""
        rates = len(self.panel.learning_rates)
        return list(range(k * rates, (k + 1) * rates)) if self._shared else [k]

    def _move(self, groups: Sequence[dict[str, Any]], e: int, gradients: Sequence[Tensor | None]) -> None:
        """The step of one expert, and its decoupled weight decay, of parameters that have a gradient."""
        rate = self.panel.learning_rates[e % len(self.panel.learning_rates)]
        for group in groups:
            moved = [i for i in map(self._place.__getitem__, group["params"]) if gradients[i] is not None]
            if not moved:
                continue
            points, step = [self._rows[e][i] for i in moved], rate * float(group["lr"])
            if group["weight_decay"] != 0:
                lists.mul_(points, 1 - step * float(group["weight_decay"]))
            lists.add_(points, [self._shadows[i] for i in moved], alpha=step)

    # Deciding

    def _turn(self, state: PanelState, largest: Array) -> PanelState:
        """Leave out diverged experts, widen the scale, and restart slots whose block has ended."""
        panel, starts = self.panel, self.panel.starts(state)
        # Newborns that inherit are made of every expert of their slot, and not of the decision's alone.
        if (panel.newborns == "inherit" and starts.any()) or not _usable(self._decision(state)[: len(self.params)]):
            keep = [_usable(row[: len(self.params)]) for row in self._rows]
            state = panel.remove(state, np.asarray(keep).reshape(panel.rates.shape))
        decision = self._decision(state) if starts.any() else []
        state = panel.with_rate(panel.widen(state, largest))
        if starts.any():
            self._fill(state, starts, decision)
            state = panel.restart(state, starts)
        return state._replace(log_total=mw.log_total(state.weights))

    def _fill(self, state: PanelState, starts: np.ndarray, decision: Tensors) -> None:
        """Put newborns into the marked slots: at the decision, or at the mean of the slot that they inherit."""
        p, rates = mw.shares(state.weights), len(self.panel.learning_rates)
        # A slot that was closed, or has lost all its experts, has nothing to hand on.
        heirs = starts & (p.sum(1) > 0) & (self.panel.newborns == "inherit")
        slots = np.arange(self.panel.slots)
        origins = {int(slot): decision for slot in slots[starts & ~heirs]}
        for slot in slots[heirs]:
            own = np.where((slots == slot)[:, None], p, 0) / p[slot].sum()
            origins[int(slot)] = _mean(self._rows, own.ravel(), int(own.argmax()))
        for slot, origin in origins.items():
            for e in range(slot * rates, (slot + 1) * rates):
                _copy(self._rows[e], origin)
        for k, stepper in enumerate(self._steppers):
            if starts[k if self._shared else k // rates]:
                stepper.forget()

    def _decision(self, state: PanelState) -> Tensors:
        """Where the experts' decision is: its point and its buffers."""
        chosen = self.panel.chosen(state)
        if self.panel.combine != "average":
            return self._rows[chosen]
        return _mean(self._rows, self.panel.shares(state), chosen)

    def _write(self, row: Tensors) -> None:
        """Put a point and its buffers into the model."""
        _copy(self.params, row[: len(self.params)])
        _copy(self._owned(), row[len(self.params) :])

    def _follow_edits(self, state: PanelState) -> None:
        """Let all experts follow what someone else has done to the model since the last step.

        Parameters that were moved (clipped, loaded) move all experts alike; buffers that were changed replace theirs.
        """
        expected = [ours.to(p.dtype) for ours, p in zip(self._decision(state), self.params, strict=False)]
        if not _all(p == then for p, then in zip(self.params, expected, strict=True)):
            for i, (p, then) in enumerate(zip(self.params, expected, strict=True)):
                for row in self._rows:
                    row[i].add_(p.to(row[i].dtype) - then)
        if not _all(b == then for b, then in zip(self._owned(), self._left, strict=False)):
            for row in self._rows:
                _copy(row[len(self.params) :], self._owned())

    # State

    def _owned(self) -> Tensors:
        """The buffers that every expert has its own of."""
        return self.buffers() if self.panel.feedback == "full" else []

    def _signed(self) -> list[Any]:
        return [(tensor.device, tensor.dtype) for tensor in (*self.params, *self._owned())]

    def _known(self) -> PanelState:
        return unflat(PanelState, [entry.numpy()[()] for entry in self._numbers.values()])

    def _stack(self, like: Tensor, given: Tensor | None, dtype: torch.dtype) -> Tensor:
        """One copy for every expert, lying in memory as the original does: those given, or all as it is now."""
        inner = torch.empty_like(like, device="meta").stride()
        stack = torch.empty_strided((self.count, *like.shape), (like.numel(), *inner), dtype=dtype, device=like.device)
        return stack.copy_(like.detach() if given is None else given)

    def _show(self) -> None:
        """Let the optimizer's state show what the bases have become."""
        for entry, shadow in zip(self._own, self._shadows, strict=True):
            for name in [name for name in entry if name.startswith(BASE)]:
                del entry[name]
            for stepper in self._steppers:
                entry.update(stepper.shown(shadow))


def experts_of(panel: Panel, entries: dict[str, Any]) -> PanelState:
    """What is known about the experts, from the entries that the first parameter has in the optimizer's state."""
    return unflat(PanelState, list(_numbers(panel, entries).values()))


def refuse_entries(entries: dict[str, Any], p: Tensor, panel: Panel, base: Base, buffers: int) -> None:
    """An error unless the state of a parameter was made with these options."""
    if POINTS not in entries:
        raise ValueError(
            f"the state dict was not made with feedback={panel.feedback!r}: a parameter has the entries "
            f"{sorted(entries)}, and not {POINTS!r}"
        )
    shape, expected = tuple(entries[POINTS].shape), (panel.rates.size, *p.shape)
    if shape != expected:
        raise ValueError(
            f"the state dict was made for other experts: it has points of shape {shape} (experts, then the parameter), "
            f"and these options need {expected}"
        )
    weights = entries.get(f"{PANEL}:weights:value")
    if weights is not None:
        if tuple(weights.shape) != (*panel.rates.shape, panel.Q):
            raise ValueError(
                f"the state dict was made with other options: it has weights of {tuple(weights.shape)} (slots, rates, "
                f"Q), and these options need {(*panel.rates.shape, panel.Q)}"
            )
        have, need = sum(name.startswith(BUFFER) for name in entries), buffers if panel.feedback == "full" else 0
        if have != need:
            raise ValueError(f"the state dict was made with {have} buffers, and there are {need} of them now")
    keys = {name.partition(":")[2] for name in entries if name.startswith(BASE)}
    base.refuse_entries(keys)


class Buffers:
    """Finds the buffers of a model, also after it was moved.

    Args:
        source: a module, or its buffers; None for none.

    >>> len(Buffers(torch.nn.BatchNorm1d(3))())
    3
    """

    def __init__(self, source: torch.nn.Module | Iterable[Tensor] | None) -> None:
        if source is None or isinstance(source, torch.nn.Module):
            self.source = source
            return
        if isinstance(source, Tensor):
            raise TypeError("buffers must be a module or a list of tensors, got one tensor")
        self.source = list(source)
        for buffer in self.source:
            if not isinstance(buffer, Tensor):
                raise TypeError(f"buffers must be a module or tensors, such as model.buffers(), got {buffer!r}")

    def __call__(self) -> Tensors:
        if isinstance(self.source, torch.nn.Module):
            return list(self.source.buffers())
        return self.source or []


class _Call(NamedTuple):
    """What came of one call of the closure."""

    loss: Tensor | float
    gradients: list[Tensor | None]
    buffers: Tensors


class _Seen(NamedTuple):
    """What a round showed."""

    loss: Any
    """Of the decision."""
    losses: np.ndarray
    """Of every expert, `(slots, rates)`; nan for one that takes no part, or has broken gradients or buffers."""
    gradients: dict[int, list[Tensor | None]]
    """Of the experts that take a step: what they follow."""
    buffers: dict[int, Tensors]
    """Of the same, if they have any of their own: as the call left them."""


class _Before:
    """All that a closure may change, as it was before."""

    def __init__(self, params: Tensors, buffers: Callable[[], Tensors]) -> None:
        self._params, self._buffers = params, buffers
        self._values = [p.detach().clone() for p in params]
        self._statistics = [b.detach().clone() for b in buffers()]
        self._gradients = [p.grad for p in params]
        self._devices = [d for d in {t.device for t in (*params, *buffers())} if d.type != "cpu"]
        self._random = [_generators(d).get_rng_state(d) for d in self._devices]
        self._random_of_host = torch.get_rng_state(), np.random.get_state(), random.getstate()

    def put_back(self) -> None:
        """Parameters, buffers and random numbers as they were: what every call begins with."""
        _copy(self._params, self._values)
        self.put_back_buffers()
        of_torch, of_numpy, of_python = self._random_of_host
        torch.set_rng_state(of_torch)
        np.random.set_state(of_numpy)
        random.setstate(of_python)
        for device, of_device in zip(self._devices, self._random, strict=True):
            _generators(device).set_rng_state(of_device, device)

    def put_back_buffers(self) -> None:
        """Buffers as they were."""
        _copy(self._buffers(), self._statistics)

    def put_back_gradients(self) -> None:
        """The gradients that there were."""
        for p, gradient in zip(self._params, self._gradients, strict=True):
            p.grad = gradient


class _Stepper:
    """A base optimizer that steps on shadow tensors at unit rate; all of them use the same."""

    def __init__(self, base: Base, k: int, groups: Sequence[dict[str, Any]], shadows: dict[Tensor, Tensor]) -> None:
        self.base, self._prefix, self._shadows = base, f"{BASE}{k}:", shadows
        self._groups = [
            {"params": [shadows[p] for p in group["params"]], **self.base.options_of(group)} for group in groups
        ]
        self.optimizer = base.build(self._groups)

    def step(self, groups: Sequence[dict[str, Any]], gradients: Sequence[Tensor | None], point: Tensors) -> None:
        """One step along some gradients: the shadows become minus the direction."""
        for group, own in zip(groups, self.optimizer.param_groups, strict=True):
            own.update(self.base.options_of(group))
        shadows = list(self._shadows.values())
        for shadow, gradient in zip(shadows, gradients, strict=True):
            shadow.grad = gradient
        if self.base.copies_parameters:
            _copy(shadows, point[: len(shadows)])
            step_unseen(self.optimizer)
            lists.sub_(shadows, point[: len(shadows)])
        else:
            for shadow in shadows:
                shadow.zero_()
            step_unseen(self.optimizer)
        for shadow in shadows:
            shadow.grad = None

    def forget(self) -> None:
        """Begin anew; made again, since some prepare their state when they are made."""
        self.optimizer = self.base.build(self._groups)

    def shown(self, shadow: Tensor) -> dict[str, Any]:
        """The entries of its state for one parameter."""
        return {self._prefix + key: value for key, value in self.optimizer.state.get(shadow, {}).items()}

    def take_over(self, state: State) -> None:
        """Continue from a state that was saved or moved."""
        for p, shadow in self._shadows.items():
            given = state.get(p, {})
            names = [name for name in given if name.startswith(self._prefix)]
            if names:
                own = {name[len(self._prefix) :]: given[name] for name in names}
                dtypes = given[POINTS].dtype, shadow.dtype
                self.optimizer.state[shadow] = {
                    key: self.base.carried(key, value, self.optimizer, shadow.device, dtypes)
                    for key, value in own.items()
                }


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    if targets:
        lists.copy_(list(targets), list(sources))


def _mean(rows: list[Tensors], p: np.ndarray, place: int) -> Tensors:
    """The mean of some rows under `p`; those of weight 0 do not enter it, whatever they hold.

    As the row of one and what the others differ by: numbers that all have alike stay as they are, to the bit. What
    cannot be averaged, such as counters, is taken from that row.
    """
    means = list(rows[place])
    some = [i for i, tensor in enumerate(means) if tensor.is_floating_point() or tensor.is_complex()]
    wide = [_wide(means[i]) for i in some]
    first = [means[i].to(dtype) for i, dtype in zip(some, wide, strict=True)]
    total = [tensor.clone() for tensor in first]
    for e in np.flatnonzero(p > 0):
        if e != place:
            others = [rows[e][i].to(dtype, copy=True) for i, dtype in zip(some, wide, strict=True)]
            lists.sub_(others, first)
            lists.add_(total, others, alpha=float(p[e]))
    for i, tensor in zip(some, total, strict=True):
        means[i] = tensor.to(means[i].dtype)
    return means


def _wide(tensor: Tensor) -> torch.dtype:
    """In which dtype an expert's parameters are kept: 16 bits are too few to add small steps up."""
    return torch.promote_types(tensor.dtype, torch.float32)


def _usable(tensors: Iterable[Tensor | None]) -> bool:
    """Whether all numbers are finite, and small enough to go on with."""
    floats = [t for t in tensors if t is not None and (t.is_floating_point() or t.is_complex())]
    return _all(combine.usable(torch.view_as_real(t) if t.is_complex() else t) for t in floats)


def _all(flags: Iterable[Tensor]) -> bool:
    each = [flag.all() for flag in flags]
    return not each or bool(torch.stack([flag.to(each[0].device) for flag in each]).all())


def _one_number(loss: Any) -> Tensor | float:
    """The loss as one number; a copy, because some closures write the next one into the same memory."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and not loss.is_complex():
        return loss.detach().clone()
    if isinstance(loss, int | float) and not isinstance(loss, bool):
        return float(loss)
    told = f"a tensor of shape {tuple(loss.shape)} and {loss.dtype}" if isinstance(loss, Tensor) else repr(loss)
    raise TypeError(f"the closure must return the loss, one number, got {told}")


def _generators(device: torch.device) -> Any:
    """The module that has the random numbers of a device."""
    return torch.get_device_module(device.type)


def _numbers(panel: Panel, given: dict[str, Any]) -> dict[str, Tensor]:
    """What is known about the experts as entries of the state, always on the host: those given, or the first."""
    entries = {}
    for name, array in flat(panel.start(), PANEL).items():
        entries[name] = torch.from_numpy(np.array(array))
        if name in given:
            entries[name].copy_(given[name])
    return entries
