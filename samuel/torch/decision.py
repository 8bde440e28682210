"""One learning rate for some parameters: the rays, their vectors, and the base that gives the directions.

Holds what a step needs at hand. The truth is in the optimizer's `state`, which shows the same memory: an entry for
every vector and every parameter, and the few hundred numbers about the experts in that of the first parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samuel.core.rays import Moves, Rays, RaysState
from samuel.torch.bases import COUNTS, INITIAL, Base
from samuel.torch.shelf import Shelf, dressed, from_one_row, in_one_row, placed, raw, shelf_key

BASIS, BASE, RAYS, REST = "basis", "base", "rays", "rest"
"""What the names of entries in the optimizer's state begin with; then a colon."""

State = dict[Tensor, dict[str, Any]]


class Decision:
    """Finds the learning rate of some parameter groups.

    Args:
        rays: the rule by which it is found.
        base: what gives the directions.
        groups: the parameter groups.
        state: the optimizer's state; what is not in it begins now.
        foreach: work on packed rows, or in a plain loop over parameters.
        anchor_dtype: dtype of the vectors that change only when a block ends.
    """

    def __init__(
        self,
        rays: Rays,
        base: Base,
        groups: Sequence[dict[str, Any]],
        state: State,
        foreach: bool,
        anchor_dtype: torch.dtype | None,
    ) -> None:
        self.rays, self.base, self.foreach = rays, base, foreach
        self.params = [p for group in groups for p in group["params"]]
        self.home = raw(self.params[0]).device
        self._signature = _signature(self.params)
        shelves: dict[Any, list[Tensor]] = {}
        for p in self.params:
            shelves.setdefault(shelf_key(p), []).append(p)
        self.shelves = [Shelf(params, rays, anchor_dtype) for params in shelves.values()]
        self._place = {p: (shelf, i) for shelf in self.shelves for i, p in enumerate(shelf.params)}
        self._remainders: dict[Shelf, dict[int, Tensor]] = {shelf: {} for shelf in self.shelves}
        self._bases = [_Stepper(base, k, groups, self._place, self.home) for k in range(rays.directions)]
        numbers = _HostNumbers if self.home.type == "cpu" else _DeviceNumbers
        self.numbers = numbers(rays, state.get(self.params[0], {}), self.home)
        self._fill(state)
        self._own = [state[p] for p in self.params]

    def fits(self, params: Sequence[Tensor], state: State) -> bool:
        """Whether this still stands for the optimizer's parameters and state, and not for what they were once."""
        return (
            len(params) == len(self.params)
            and all(p is own for p, own in zip(params, self.params, strict=True))
            and all(state.get(p) is own for p, own in zip(self.params, self._own, strict=True))
            and self._signature == _signature(self.params)
        )

    def step(self, groups: Sequence[dict[str, Any]]) -> None:
        """One step, from the gradients that the parameters have now."""
        present = [[i for i, p in enumerate(shelf.params) if p.grad is not None] for shelf in self.shelves]
        for shelf, some in zip(self.shelves, present, strict=True):
            shelf.pack(some)
        for group in groups:
            if group["maximize"]:
                torch._foreach_neg_([self._gradient_of(p) for p in group["params"]])
        dots = [shelf.products(self.foreach).to(self.home) for shelf in self.shelves]
        moves, row = self.numbers.advance(dots[0] if len(dots) == 1 else torch.stack(dots).sum(0))
        for base in self._bases:
            base.step(groups)
        self._multiply(groups)
        for shelf in self.shelves:
            shelf.take_step(_on(moves, shelf.device), _beside(row, shelf.moving), self.foreach)
        self._shrink(groups)
        for shelf, some in zip(self.shelves, present, strict=True):
            shelf.apply(some, self._remainders[shelf])
        anew = moves.restarted if self.rays.base_state == "slots" else [moves.reset]
        for base, restarted in zip(self._bases, anew, strict=True):
            base.reset_where(restarted)
        for group in groups:
            self._publish(group)

    # Parts of a step

    def _gradient_of(self, p: Tensor) -> Tensor:
        shelf, i = self._place[p]
        return shelf.gradient_views[i]

    def _multiply(self, groups: Sequence[dict[str, Any]]) -> None:
        """Scale the directions by each group's `lr`."""
        for group in groups:
            lr = group["lr"]
            if isinstance(lr, Tensor) or lr != 1:
                for k in range(self.rays.directions):
                    views = [self._direction_of(p, k) for p in group["params"]]
                    _scale(views, lr)

    def _direction_of(self, p: Tensor, k: int) -> Tensor:
        shelf, i = self._place[p]
        return shelf.direction_views[k][i]

    def _shrink(self, groups: Sequence[dict[str, Any]]) -> None:
        """Decoupled weight decay: of parameters that have a gradient, as torch's own optimizers do it."""
        for group in groups:
            decay = group["weight_decay"]
            if isinstance(decay, Tensor) or decay != 0:
                lr = group["lr"].to(self.home) if isinstance(group["lr"], Tensor) else group["lr"]
                _scale([raw(p) for p in group["params"] if p.grad is not None], 1 - self.numbers.rate * lr * decay)

    def _publish(self, group: dict[str, Any]) -> None:
        now = self.numbers.rate * group["lr"]
        if isinstance(now, Tensor) and self.home.type != "cpu":
            shown = group["effective_lr"]
            if isinstance(shown, Tensor) and shown.device == self.home:
                shown.copy_(now)  # in place: a captured graph writes to the same memory each time
            else:
                group["effective_lr"] = now.detach().clone()
        else:
            group["effective_lr"] = float(now)

    # State

    def _fill(self, state: State) -> None:
        """Take over what the state has, begin what it lacks, and let it show our memory."""
        for p in self.params:
            shelf, i = self._place[p]
            given = state.get(p, {})
            entries = {}
            for name, row in shelf.basis().items():
                entries[f"{BASIS}:{name}"] = _showing(shelf.view(row, i), given.get(f"{BASIS}:{name}"), p)
            if i in shelf.short:
                rest = torch.zeros_like(raw(p))
                entries[f"{REST}:"] = _showing(rest, given.get(f"{REST}:"), p)
                self._remainders[shelf][i] = rest
            for base in self._bases:
                entries.update(base.take_over(p, given))
            if p is self.params[0]:
                entries.update(self.numbers.entries)
            state[p] = entries
        for base in self._bases:
            base.shown_in = state


def experts_of(rays: Rays, entries: dict[str, Any]) -> RaysState:
    """What is known about the experts, from the entries that the first parameter has in the optimizer's state."""
    begin = _flat(rays.start(np.zeros((), np.float32)))
    parts = [entries.get(f"{RAYS}:{name}", torch.from_numpy(np.array(array))) for name, array in begin.items()]
    return _unflat(parts)


def refuse_entries(entries: dict[str, Any], p: Tensor, rays: Rays, base: Base) -> None:
    """An error unless the state of a parameter was made with these options."""
    names = {name[len(BASIS) + 1 :] for name in entries if name.startswith(f"{BASIS}:")}
    expected = {*rays.moving, *rays.kept}
    if not names:
        raise ValueError(f"the state dict was made by another optimizer: a parameter has the entries {sorted(entries)}")
    if names != expected:
        raise ValueError(
            f"the state dict was made with other options: it has the vectors {sorted(names)}, and these options need "
            f"{sorted(expected)}"
        )
    weights, shape = entries.get(f"{RAYS}:weights:value"), (rays.slots, len(rays.learning_rates), rays.Q)
    if weights is not None and tuple(weights.shape) != shape:
        raise ValueError(
            f"the state dict was made with other options: it has weights of {tuple(weights.shape)} (slots, rates, Q), "
            f"and these options need {shape}"
        )
    one = entries[f"{BASIS}:{next(iter(expected))}"]
    if one.shape[: p.ndim] != p.shape:
        raise ValueError(f"the state dict has vectors of shape {tuple(one.shape)} for a parameter of {tuple(p.shape)}")
    keys = {name.partition(":")[2] for name in entries if name.startswith(BASE) and not name.startswith(f"{BASIS}:")}
    if base.known and not keys <= {*INITIAL[base.make]}:
        raise ValueError(
            f"the state dict was made with another base: it has {sorted(keys)}, and {base.make.__name__} has "
            f"{sorted(INITIAL[base.make])}"
        )


def _showing(view: Tensor, given: Any, p: Tensor) -> Tensor:
    """The state's entry for a view, filled with what was given."""
    if given is not None:
        given = raw(given) if given.shape == p.shape else given
        view.copy_(given)
    return placed(view, p) if not p.is_complex() else view


def _signature(params: Sequence[Any]) -> list[Any]:
    return [(p.device, p.dtype) for p in params]


def _beside(flag: Any, tensor: Tensor) -> Any:
    return flag.to(tensor.device, non_blocking=True) if isinstance(flag, Tensor) else flag


def _scale(tensors: list[Tensor], factor: Any) -> None:
    if not tensors:
        return
    if not isinstance(factor, Tensor) or factor.device.type == "cpu":
        torch._foreach_mul_(tensors, float(factor))
        return
    for tensor in tensors:
        tensor.mul_(factor.to(tensor.device))


def _on(moves: Moves, device: torch.device) -> Moves:
    if not isinstance(moves.difference, Tensor) or moves.difference.device == device:
        return moves
    return Moves(*(part.to(device, non_blocking=True) for part in moves))


class _Numbers:
    """What is known about the experts, as entries of the optimizer's state."""

    def __init__(self, rays: Rays, given: dict[str, Any], home: torch.device) -> None:
        self.rays, self.home = rays, home
        self.entries: dict[str, Tensor] = {}
        for name, array in _flat(rays.start(np.zeros((), np.float32))).items():
            entry = torch.from_numpy(np.array(array)).to(home)
            if f"{RAYS}:{name}" in given:
                entry.copy_(given[f"{RAYS}:{name}"])
            self.entries[f"{RAYS}:{name}"] = entry


class _HostNumbers(_Numbers):
    """For parameters on the host: in NumPy, which is much faster than torch for a few hundred numbers."""

    def __init__(self, rays: Rays, given: dict[str, Any], home: torch.device) -> None:
        super().__init__(rays, given, home)
        self._arrays = [tensor.numpy() for tensor in self.entries.values()]

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.entries[f"{RAYS}:rate"])

    def advance(self, dots: Tensor) -> tuple[Moves, None]:
        """One round; see `Rays.advance`."""
        with np.errstate(all="ignore"):  # infinities are looked for where they matter
            state, moves = self.rays.advance(_unflat([array[()] for array in self._arrays]), dots.numpy())
        for array, new in zip(self._arrays, _flat(state).values(), strict=True):
            array[...] = new
        return moves, None


class _DeviceNumbers(_Numbers):
    """For parameters on a device: there, so that nobody waits for anybody.

    Some hundred tiny operations; on a GPU they are recorded once and replayed.
    """

    def __init__(self, rays: Rays, given: dict[str, Any], home: torch.device) -> None:
        super().__init__(rays, given, home)
        self._tensors = list(self.entries.values())
        m, k, d = len(rays.moving), len(rays.kept), rays.directions
        self._dots = torch.zeros(m + k, device=home)
        self._row = torch.zeros(m + k + d + m + m * d + 1 + (m + k) ** 2, device=home)
        self._restarted = torch.zeros(rays.slots, dtype=torch.bool, device=home)
        self._reset = torch.zeros((), dtype=torch.bool, device=home)
        self._moves = from_one_row(self._row, self._restarted, self._reset, m, k, d)
        self._graph: Any = None
        self._calls = 0

    @property
    def rate(self) -> Tensor:
        """The learning rate of the last step."""
        return self.entries[f"{RAYS}:rate"]

    def advance(self, dots: Tensor) -> tuple[Moves, Tensor]:
        """One round; see `Rays.advance`. What is returned is overwritten by the next."""
        self._dots.copy_(dots)
        recordable = self.home.type == "cuda" and not torch.cuda.is_current_stream_capturing()
        if not recordable or self._calls < 2:  # the first rounds put all tables in place
            self._calls += 1
            self._advance()
        else:
            if self._graph is None:
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.device(self.home), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                    self._advance()
            self._graph.replay()
        return self._moves, self._row

    def _advance(self) -> None:
        state, moves = self.rays.advance(_unflat(self._tensors), self._dots)
        for tensor, new in zip(self._tensors, _flat(state).values(), strict=True):
            tensor.copy_(new)
        self._row.copy_(in_one_row(moves))
        self._restarted.copy_(moves.restarted)
        self._reset.copy_(moves.reset)


def _flat(state: Any, prefix: str = "") -> dict[str, Any]:
    """The arrays of a state by name."""
    found: dict[str, Any] = {}
    for name, part in zip(state._fields, state, strict=True):
        if hasattr(part, "_fields"):
            found |= _flat(part, f"{prefix}{name}:")
        else:
            found[prefix + name] = part
    return found


def _unflat(parts: Sequence[Any]) -> RaysState:
    """The state that `_flat` took apart."""
    left = iter(parts)

    def built(kind: Any) -> Any:
        kinds = _NESTED.get(kind, {})
        return kind(*(built(kinds[name]) if name in kinds else next(left) for name in kind._fields))

    return built(RaysState)


def _nested() -> dict[Any, dict[str, Any]]:
    from samuel.core.certificate import Ledger
    from samuel.core.weights import Weights

    return {RaysState: {"weights": Weights, "ledger": Ledger}}


_NESTED = _nested()


class _Stepper:
    """The base optimizer of one direction, stepping on shadow tensors, and its state as the optimizer shows it."""

    def __init__(
        self,
        base: Base,
        k: int,
        groups: Sequence[dict[str, Any]],
        place: dict[Tensor, tuple[Shelf, int]],
        home: torch.device,
    ) -> None:
        self.base, self.k, self.place = base, k, place
        self.shown_in: State = {}
        self._shadows = {p: dressed(shelf.direction_views[k][i], p) for p, (shelf, i) in place.items()}
        self._gradients = {p: dressed(shelf.gradient_views[i], p) for p, (shelf, i) in place.items()}
        self._rows: dict[tuple[Shelf, str], Tensor] = {}
        self._shelves = list({id(shelf): shelf for shelf, _ in place.values()}.values())
        shadows = [{"params": [self._shadows[p] for p in group["params"]], **self._options(group)} for group in groups]
        self.optimizer = base.build(shadows, home)
        self._counts: dict[str, list[Tensor]] = {}
        self._adopted = -1

    def step(self, groups: Sequence[dict[str, Any]]) -> None:
        """One step of the base at unit rate: the shadows become minus its direction."""
        for group, own in zip(groups, self.optimizer.param_groups, strict=True):
            own.update(self._options(group))
        moved = []
        for p, shadow in self._shadows.items():
            shadow.grad = None if p.grad is None else self._gradients[p]
            if p.grad is not None:
                moved.append(p)
        for shelf in self._shelves:
            shelf.directions[self.k].zero_()
        if self.base.copies_parameters and moved:
            shadows = [self._view(p) for p in moved]
            torch._foreach_copy_(shadows, [raw(p) for p in moved])
            self.optimizer.step()
            torch._foreach_sub_(shadows, [raw(p).to(shadow.dtype) for p, shadow in zip(moved, shadows, strict=True)])
        else:
            self.optimizer.step()
        if len(self.optimizer.state) != self._adopted or not self.base.known:
            self._adopt()

    def reset_where(self, anew: Any) -> None:
        """Start the base anew if `anew`; for a base that is known, without waiting for a device to tell."""
        if not self.base.known:
            if anew:
                self.optimizer.state.clear()
                self._adopt()
            return
        for (shelf, key), row in self._rows.items():
            shelf.fill_where(_beside(anew, row), row, self.base.initial(key))
        for key, counts in self._counts.items():
            if not isinstance(anew, Tensor):
                for count in counts if anew else ():
                    count.fill_(self.base.initial(key))
            elif counts[0].device == anew.device:  # on the host they are of no consequence
                torch._foreach_mul_(counts, (~anew).to(counts[0].dtype))
                torch._foreach_add_(counts, anew.to(counts[0].dtype) * self.base.initial(key))

    def take_over(self, p: Tensor, given: dict[str, Any]) -> dict[str, Any]:
        """Continue from a state that was saved or moved; returns the entries to show."""
        shelf, i = self.place[p]
        prefix = f"{BASE}{self.k}:"
        own = {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
        if not own:
            return {}
        shadow = self._shadows[p]
        entry = {key: self._moved(value, p, shelf, i, key) for key, value in own.items()}
        self.optimizer.state[shadow] = entry
        return {prefix + key: value for key, value in entry.items()}

    def _moved(self, value: Any, p: Tensor, shelf: Shelf, i: int, key: str) -> Any:
        if not isinstance(value, Tensor):
            return value
        if self.base.known and key not in COUNTS:
            view = shelf.view(self._row(shelf, key), i)
            view.copy_(raw(value))
            return dressed(view, p)
        of_host = value.ndim == 0 and not any(
            self.optimizer.param_groups[0].get(flag) for flag in ("capturable", "fused")
        )
        return value.detach().clone().to("cpu" if of_host else shelf.device)

    def _adopt(self) -> None:
        """Show the base's state as ours, with the vectors of a known base packed into rows."""
        prefix = f"{BASE}{self.k}:"
        self._counts = {}
        for p, shadow in self._shadows.items():
            shown = self.shown_in[p]
            for name in [name for name in shown if name.startswith(prefix)]:
                del shown[name]
            entry = self.optimizer.state.get(shadow, {})
            shelf, i = self.place[p]
            for key, value in entry.items():
                if self.base.known and key in COUNTS:
                    self._counts.setdefault(key, []).append(value)
                elif self.base.known and isinstance(value, Tensor):
                    view = shelf.view(self._row(shelf, key), i)
                    if view.data_ptr() != raw(value).data_ptr():
                        view.copy_(raw(value))
                        entry[key] = value = dressed(view, p)
                shown[prefix + key] = value
        self._adopted = len(self.optimizer.state)

    def _row(self, shelf: Shelf, key: str) -> Tensor:
        if (shelf, key) not in self._rows:
            self._rows[shelf, key] = shelf.rows(1)[0]
        return self._rows[shelf, key]

    def _view(self, p: Tensor) -> Tensor:
        shelf, i = self.place[p]
        return shelf.direction_views[self.k][i]

    def _options(self, group: dict[str, Any]) -> dict[str, Any]:
        return {name: group[name] for name in self.base.options}
