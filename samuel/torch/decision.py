"""One learning rate for some parameters: the rays, their vectors, and the base that gives the directions.

Holds what a step needs at hand. The truth is in the optimizer's `state`, which shows the same memory: an entry for
every vector and every parameter, and the few hundred numbers about the experts in that of the first parameter.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from samuel.core.rays import Moves, Rays, RaysState
from samuel.torch import lists
from samuel.torch.average import AVERAGE, BufferAverages
from samuel.torch.bases import COUNTS, Base, step_unseen
from samuel.torch.entries import flat, unflat
from samuel.torch.shelf import (
    Shelf,
    dressed,
    from_one_row,
    in_one_row,
    kernels_fit,
    multiplier,
    placed,
    raw,
    scale,
    shelf_key,
)

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
        numbers: what is known about the experts, from wherever in the state it is.
        foreach: work on packed rows, or in a plain loop over parameters.
        anchor_dtype: dtype of the vectors that change only when a block ends.
        compiled: on a GPU, compile what is done with the numbers about the experts.
        buffers: averages of buffers that are to keep pace with that of the parameters.
    """

    def __init__(
        self,
        rays: Rays,
        base: Base,
        groups: Sequence[dict[str, Any]],
        state: State,
        numbers: dict[str, Any],
        foreach: bool,
        anchor_dtype: torch.dtype | None,
        compiled: bool = False,
        buffers: BufferAverages | None = None,
    ) -> None:
        self.base, self.foreach = base, foreach
        self.rays = rays = _shrinking(rays, groups)
        self.buffers = BufferAverages() if buffers is None else buffers
        self.params = [p for group in groups for p in group["params"]]
        self.home = raw(self.params[0]).device
        self._looks = _looks(self.params)
        self._sizes = [len(group["params"]) for group in groups]
        self._of_group = [place for place, group in enumerate(groups) for _ in group["params"]]
        shelves: dict[Any, list[Tensor]] = {}
        for p in self.params:
            shelves.setdefault(shelf_key(p), []).append(p)
        self.shelves = [Shelf(params, rays, anchor_dtype) for params in shelves.values()]
        self._place = {p: (shelf, i) for shelf in self.shelves for i, p in enumerate(shelf.params)}
        self._bases = [Stepper(base, k, groups, self._place) for k in range(rays.directions)]
        on_gpu = self.home.type == "cuda"
        self.numbers = _DeviceNumbers(rays, numbers, self.home, compiled) if on_gpu else _HostNumbers(rays, numbers)
        self._present: list[bool] = []
        self._parts: list[_Part] = []
        self._movable: dict[Shelf, list[int]] = {}
        self._fill(state)
        self._own = [state[p] for p in self.params]
        self._mark = f"{BASIS}:{rays.moving[0]}"
        self._marks = [entries[self._mark] for entries in self._own]

    @property
    def learning_rates(self) -> Sequence[float]:
        """The candidates."""
        return self.rays.learning_rates

    def fits(self, groups: Sequence[Sequence[Tensor]], state: State) -> bool:
        """Whether this still stands for the optimizer's parameters and state, and not for what they were once."""
        params = [p for group in groups for p in group]
        return (
            [len(group) for group in groups] == self._sizes
            and all(p is own for p, own in zip(params, self.params, strict=True))
            and all(state.get(p) is own for p, own in zip(self.params, self._own, strict=True))
            and all(own.get(self._mark) is mark for own, mark in zip(self._own, self._marks, strict=True))
            and _looks(params) == self._looks
            and self.buffers.fit()
        )

    def step(self, groups: Sequence[dict[str, Any]]) -> None:
        """One step, from the gradients that the parameters have now."""
        present = [p.grad is not None for p in self.params]
        if not any(present):
            return
        self.rays = self.numbers.rays = _shrinking(self.rays, groups)
        if present != self._present:
            self._look_who_is_there(present)
        for shelf in self.shelves:
            shelf.take_memory()
        for part in self._parts:
            part.pack(groups)
        for base in self._bases:  # before the clock moves: it may find fault with its options
            base.step(groups)
        for part in self._parts:
            part.mute(groups)
        moves = self.numbers.advance([shelf.products(self.foreach).to(self.home) for shelf in self.shelves])
        for shelf in self.shelves:
            self._move(shelf, moves, groups)
            shelf.average_along(_on(moves, shelf.device).pace, self.foreach)
        self.buffers.average_along(moves.pace)
        anew = moves.restarted if self.rays.base_state == "slots" else [moves.reset]
        for base, restarted in zip(self._bases, anew, strict=True):
            base.reset_where(restarted)
        for shelf in self.shelves:
            shelf.leave_memory()
        for group in groups:
            self._publish(group)

    def _move(self, shelf: Shelf, moves: Moves, groups: Sequence[dict[str, Any]]) -> None:
        """The step of one shelf, and of its parameters."""
        row = _beside(self.numbers.row, shelf.moving)
        if row is None and kernels_fit(shelf):  # made on the host, where the first parameter is
            row = in_one_row(Moves(*(torch.as_tensor(part) for part in moves))).to(shelf.device)
        if row is not None and shelf.moves_in_place(self.foreach):
            rate = torch.as_tensor(self.numbers.rate, device=shelf.device)
            shelf.move(row, rate, groups, self._movable[shelf])
            return
        parts = [part for part in self._parts if part.shelf is shelf]
        for part in parts:
            part.multiply(groups)
        shelf.take_step(_on(moves, shelf.device), row, self.foreach)
        for part in parts:
            part.apply(groups, self.numbers.rate)

    def _look_who_is_there(self, present: list[bool]) -> None:
        """Sort the parameters that have a gradient by shelf and group."""
        places: dict[tuple[Shelf, int], list[int]] = {}
        for p, is_there, group in zip(self.params, present, self._of_group, strict=True):
            shelf, i = self._place[p]
            members = places.setdefault((shelf, group), [])
            if is_there:
                members.append(i)
        self._parts = [_Part(shelf, group, members) for (shelf, group), members in places.items()]
        self._movable = {shelf: [-1] * len(shelf.params) for shelf in self.shelves}
        for (shelf, group), members in places.items():
            for i in members:
                self._movable[shelf][i] = group
        for shelf in self.shelves:
            shelf.some_missing, shelf.fresh = not all(p.grad is not None for p in shelf.params), True
        for base in self._bases:
            base.look_who_is_there()
        self._present = present

    def _publish(self, group: dict[str, Any]) -> None:
        now, shown = self.numbers.rate * group["lr"], group["effective_lr"]
        if not isinstance(now, Tensor) or now.device.type == "cpu":
            group["effective_lr"] = float(now)
        elif isinstance(shown, Tensor) and shown.device == now.device:
            shown.copy_(now)  # in place: a captured graph writes to the same memory each time
        else:
            group["effective_lr"] = now.detach().clone()

    # State

    def _fill(self, state: State) -> None:
        """Take over what the state has, begin what it lacks, and let it show our memory."""
        for p in self.params:
            shelf, i = self._place[p]
            given = state.get(p, {})
            entries = {}
            for name, row in shelf.basis().items():
                entries[f"{BASIS}:{name}"] = _showing(shelf.view(row, i), given.get(f"{BASIS}:{name}"), p)
            for row in shelf.average:  # of parameters that are new it begins where they are
                entries[AVERAGE] = _showing(shelf.view(row, i), given.get(AVERAGE, p.detach()), p)
            if i in shelf.remainders:
                entries[f"{REST}:"] = _showing(shelf.remainders[i], given.get(f"{REST}:"), p)
            wide = given.get(f"{BASIS}:{self.rays.moving[0]}", raw(p)).dtype
            for base in self._bases:
                entries.update(base.take_over(p, given, wide))
            if p is self.params[0]:
                entries.update(self.numbers.entries | self.buffers.entries)
            state[p] = entries
        for base in self._bases:
            base.shown_in = state


def experts_of(rays: Rays, entries: dict[str, Any]) -> RaysState:
    """What is known about the experts, from the entries that the first parameter has in the optimizer's state."""
    begin = flat(rays.start(np.zeros((), np.float32)), RAYS)
    return unflat(RaysState, [entries.get(name, torch.from_numpy(np.array(array))) for name, array in begin.items()])


def refuse_entries(entries: dict[str, Any], p: Tensor, rays: Rays, base: Base) -> None:
    """An error unless the state of a parameter was made with these options."""
    names = {name[len(BASIS) + 1 :] for name in entries if name.startswith(f"{BASIS}:")}
    expected = {*rays.moving, *rays.kept}
    if not names:
        raise ValueError(f"the state dict was made by another optimizer: a parameter has the entries {sorted(entries)}")
    vectors, needed = names | ({AVERAGE} & {*entries}), expected | ({AVERAGE} if rays.averages else set())
    if vectors != needed:
        raise ValueError(
            f"the state dict was made with other options: it has the vectors {sorted(vectors)}, and these options need "
            f"{sorted(needed)}"
        )
    weights, shape = entries.get(f"{RAYS}:weights:value"), (rays.slots, len(rays.learning_rates), rays.Q)
    if weights is not None and tuple(weights.shape) != shape:
        raise ValueError(
            f"the state dict was made with other options: it has weights of {tuple(weights.shape)} (slots, rates, Q), "
            f"and these options need {shape}"
        )
    for name in (*(f"{BASIS}:{name}" for name in sorted(expected)), *(needed - expected)):
        _refuse_shape(name, entries, raw(p).shape if p.is_complex() else p.shape)
    numbers = flat(rays.start(np.zeros((), np.float32)), RAYS)
    missing = sorted(set(numbers) - set(entries))
    if missing and f"{RAYS}:weights:value" in entries:
        raise ValueError(f"the state dict lacks {missing[0]!r}, and so cannot be continued")
    for name in sorted(set(numbers) & set(entries)):
        _refuse_shape(name, entries, np.shape(numbers[name]))
    keys = {name.partition(":")[2] for name in entries if name.startswith(BASE) and not name.startswith(f"{BASIS}:")}
    for name, value in entries.items():
        of_base = name.startswith(BASE) and not name.startswith(f"{BASIS}:") and name.partition(":")[2] not in COUNTS
        if of_base and base.known and isinstance(value, Tensor):
            _refuse_shape(name, entries, p.shape)
    base.refuse_entries(keys)


def _refuse_shape(name: str, entries: dict[str, Any], shape: Sequence[int]) -> None:
    if tuple(entries[name].shape) != tuple(shape):
        found = tuple(entries[name].shape)
        raise ValueError(f"the state dict has {name!r} of shape {found}, and this optimizer needs {tuple(shape)}")


def _shrinking(rays: Rays, groups: Sequence[dict[str, Any]]) -> Rays:
    """The rule, told how fast parameters shrink: as those groups do that shrink most.

    A weight decay that a device has is left out, since we would have to wait for it.
    """
    each = [group["weight_decay"] for group in groups]
    decay = max([0.0, *(float(decay) for decay in each if not _is_on_device(decay))])
    return rays if decay == rays.weight_decay else replace(rays, weight_decay=decay)


def _is_on_device(value: Any) -> bool:
    return isinstance(value, Tensor) and value.device.type != "cpu"


def _looks(params: Sequence[Tensor]) -> list[Any]:
    """Where parameters are and how they lie in memory."""
    return [(p.device, p.dtype, p.stride()) for p in params]


def _showing(view: Tensor, given: Any, p: Tensor) -> Tensor:
    """The state's entry for a view, filled with what was given."""
    if given is not None:
        given = raw(given) if given.shape == p.shape else given
        view.copy_(given)
    return placed(view, p) if not p.is_complex() else view


def _beside(flag: Any, tensor: Tensor) -> Any:
    return flag.to(tensor.device, non_blocking=True) if isinstance(flag, Tensor) else flag


class _Part:
    """The parameters of one group on one shelf that have a gradient now."""

    def __init__(self, shelf: Shelf, group: int, members: list[int]) -> None:
        self.shelf, self.group, self.members = shelf, group, members
        self._params = [shelf.params[i] for i in members]
        self._gradients = [shelf.gradient_views[i] for i in members]
        self._directions = [views[i] for views in shelf.direction_views for i in members]

    def pack(self, groups: Sequence[dict[str, Any]]) -> None:
        """Gather the gradients."""
        if self.members:
            lists.copy_(self._gradients, self.shelf.raws([p.grad for p in self._params]))
            if groups[self.group]["maximize"]:
                lists.neg_(self._gradients)

    def multiply(self, groups: Sequence[dict[str, Any]]) -> None:
        """Scale the directions by the group's `lr`."""
        lr = multiplier(groups[self.group]["lr"])
        if self.members and (isinstance(lr, Tensor) or lr != 1):
            scale(self._directions, lr)

    def mute(self, groups: Sequence[dict[str, Any]]) -> None:
        """Let parameters that an `lr` of 0 stops have no say in which rate is good."""
        lr = multiplier(groups[self.group]["lr"])
        if self.members and isinstance(lr, Tensor):
            scale(self._gradients, (lr != 0).to(self.shelf.dtype))
        elif lr == 0:
            for gradient in self._gradients:
                gradient.zero_()

    def apply(self, groups: Sequence[dict[str, Any]], rate: Any) -> None:
        """Move the parameters, and let them shrink as decoupled weight decay says."""
        lr, decay = multiplier(groups[self.group]["lr"]), groups[self.group]["weight_decay"]
        shrink = rate * lr * decay if isinstance(decay, Tensor) or decay != 0 else None
        on_device = isinstance(lr, Tensor)
        if on_device and self.members:  # 0 stops everything, also what weights that move from rate to rate would do
            scale([self.shelf.direction_views[0][i] for i in self.members], (lr != 0).to(self.shelf.dtype))
        if self.members and (on_device or lr != 0):
            self.shelf.apply(self.members, self.shelf.raws(self._params), _beside(shrink, self.shelf.moving))


def _on(moves: Moves, device: torch.device) -> Moves:
    if not isinstance(moves.difference, Tensor) or moves.difference.device == device:
        return moves
    return Moves(*(part.to(device, non_blocking=True) for part in moves))


class _Numbers:
    """What is known about the experts, as entries of the optimizer's state."""

    def __init__(self, rays: Rays, given: dict[str, Any], home: torch.device) -> None:
        self.home = home
        self.rays = rays
        """The rule; another one, of which only numbers differ, may take its place."""
        self.entries: dict[str, Tensor] = {}
        for name, array in flat(rays.start(np.zeros((), np.float32)), RAYS).items():
            self.entries[name] = torch.from_numpy(np.array(array)).to(home)
            if name in given:
                self.entries[name].copy_(given[name])


class _HostNumbers(_Numbers):
    """On the host, in NumPy, which is much faster than torch for a few hundred numbers."""

    def __init__(self, rays: Rays, given: dict[str, Any]) -> None:
        super().__init__(rays, given, torch.device("cpu"))
        self._arrays = [tensor.numpy() for tensor in self.entries.values()]
        self.row = None

    @property
    def rate(self) -> float:
        """The learning rate of the last step."""
        return float(self.entries[f"{RAYS}:rate"])

    def advance(self, dots: Sequence[Tensor]) -> Moves:
        """One round; see `Rays.advance`."""
        total = sum(part.cpu().numpy() for part in dots)
        with np.errstate(all="ignore"):  # infinities are looked for where they matter
            state, moves = self.rays.advance(unflat(RaysState, [array[()] for array in self._arrays]), total)
        for array, new in zip(self._arrays, flat(state, RAYS).values(), strict=True):
            array[...] = new
        return moves


class _DeviceNumbers(_Numbers):
    """On the GPU that the parameters are on, so that nobody waits for anybody.

    Some hundred tiny operations, which are recorded once and then replayed; or, compiled, a few dozen.
    """

    def __init__(self, rays: Rays, given: dict[str, Any], home: torch.device, compiled: bool) -> None:
        super().__init__(rays, given, home)
        self._tensors = list(self.entries.values())
        m, k, d = len(rays.moving), len(rays.kept), rays.directions
        self._dots = torch.zeros(m + k + 1, device=home)
        self.row = torch.zeros(m + k + d + m + m * d + 1 + (m + k) ** 2 + 1, device=home)
        self._restarted = torch.zeros(rays.slots, dtype=torch.bool, device=home)
        self._reset = torch.zeros((), dtype=torch.bool, device=home)
        self._moves = from_one_row(self.row, self._restarted, self._reset, m, k, d)
        self._compiled = compiled
        self._forget()

    @property
    def rate(self) -> Tensor:
        """The learning rate of the last step."""
        return self.entries[f"{RAYS}:rate"]

    def advance(self, dots: Sequence[Tensor]) -> Moves:
        """One round; see `Rays.advance`. What is returned, and `row`, is overwritten by the next."""
        if self.rays is not self._recorded_rays:  # its numbers are part of what was recorded
            self._forget()
        self._dots.copy_(dots[0] if len(dots) == 1 else torch.stack(list(dots)).sum(0))
        self._rounds += 1
        if torch.cuda.is_current_stream_capturing() or self._rounds < 3:  # the first rounds put all tables in place
            self._advance()
            return self._moves
        with torch.cuda.device(self.home):
            if self._graph is None:
                self._graph = self._recorded()
            self._graph.replay()
        return self._moves

    def _forget(self) -> None:
        """Begin to record anew."""
        self._recorded_rays = self.rays
        self._graph: Any = None
        self._rounds = 0
        self._round: Any = self._plain_round

    def _recorded(self) -> torch.cuda.CUDAGraph:
        graph, collecting = torch.cuda.CUDAGraph(), gc.isenabled()
        gc.collect()  # what is freed in the middle of a recording may spoil it
        gc.disable()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self._advance()
        finally:
            if collecting:
                gc.enable()
        return graph

    def _advance(self) -> None:
        if self._compiled and self._rounds == 2:  # from here on, all tables being in place
            from torch.fx.experimental.proxy_tensor import make_fx

            # Traced by running it, since no compiler understands the array-API layer that it is written on.
            traced = make_fx(self._round)(self._dots, *self._tensors)
            self._round = torch.compile(traced, fullgraph=True, dynamic=False)
        *state, row, restarted, reset = self._round(self._dots, *self._tensors)
        for tensor, new in zip(self._tensors, state, strict=True):
            tensor.copy_(new)
        self.row.copy_(row)
        self._restarted.copy_(restarted)
        self._reset.copy_(reset)

    def _plain_round(self, dots: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        state, moves = self.rays.advance(unflat(RaysState, list(parts)), dots)
        return (*flat(state, RAYS).values(), in_one_row(moves), moves.restarted, moves.reset)


class Stepper:
    """The base optimizer of one direction, stepping on shadow tensors, and its state as the optimizer shows it."""

    def __init__(
        self,
        base: Base,
        k: int,
        groups: Sequence[dict[str, Any]],
        place: dict[Tensor, tuple[Shelf, int]],
    ) -> None:
        self.base, self.k, self.place = base, k, place
        self.shown_in: State = {}
        self._shadows = {p: self._for_base(shelf.direction_views[k][i], p) for p, (shelf, i) in place.items()}
        self._gradients = {p: self._for_base(shelf.gradient_views[i], p) for p, (shelf, i) in place.items()}
        self._rows: list[tuple[Shelf, str, Tensor]] = []
        self._views: dict[tuple[Shelf, str], dict[int, Tensor]] = {}
        self._shelves = list({id(shelf): shelf for shelf, _ in place.values()}.values())
        self._groups = [
            {"params": [self._shadows[p] for p in group["params"]], **self.base.options_of(group)} for group in groups
        ]
        self.optimizer = base.build(self._groups)
        self._counts: dict[tuple[str, torch.device], Tensor] = {}
        self._number = {p: number for number, p in enumerate(place)}
        self._moved: list[Tensor] = []
        self._adopted = -1

    def look_who_is_there(self) -> None:
        """Show the base the gradients of those parameters that have one."""
        self._moved = [p for p in self._shadows if p.grad is not None]
        for p, shadow in self._shadows.items():
            shadow.grad = None if p.grad is None else self._gradients[p]

    def step(self, groups: Sequence[dict[str, Any]]) -> None:
        """One step of the base at unit rate: the shadows become minus its direction."""
        for group, own in zip(groups, self.optimizer.param_groups, strict=True):
            own.update(self.base.options_of(group))
        for shelf in self._shelves:
            shelf.directions[self.k].zero_()
        if self.base.copies_parameters and self._moved:
            shadows = [self._view(p) for p in self._moved]
            lists.copy_(shadows, [raw(p) for p in self._moved])
            step_unseen(self.optimizer)
            lists.sub_(shadows, [raw(p).to(s.dtype) for p, s in zip(self._moved, shadows, strict=True)])
        else:
            step_unseen(self.optimizer)
        if len(self.optimizer.state) != self._adopted or not self.base.known:
            self._adopt()

    def _for_base(self, view: Tensor, p: Tensor) -> Tensor:
        """A view as the base gets it: what we know works number by number, and need not know of other processes."""
        return dressed(view, p) if self.base.known else placed(dressed(view, p), p)

    def _shown(self, value: Any, p: Tensor, key: str) -> Any:
        """An entry of the base's state as the optimizer's state shows it."""
        return placed(value, p) if self.base.known and isinstance(value, Tensor) and key not in COUNTS else value

    def reset_where(self, anew: Any) -> None:
        """Start the base anew if `anew`; for a base that is known, without waiting for a device to tell."""
        if not self.base.known:
            if anew:  # some prepare their state when they are made, so its entries cannot just be thrown away
                self.optimizer = self.base.build(self._groups)
                self._adopt()
            return
        for shelf, key, row in self._rows:
            shelf.fill_where(_beside(anew, row), row, self.base.initial(key))
        for (key, _), counts in self._counts.items():
            if isinstance(anew, Tensor) and counts.device == anew.device:  # on the host they are of no consequence
                counts.masked_fill_(anew, self.base.initial(key))
            elif not isinstance(anew, Tensor) and anew:
                counts.fill_(self.base.initial(key))

    def take_over(self, p: Tensor, given: dict[str, Any], wide: torch.dtype) -> dict[str, Any]:
        """Continue from a state that was saved or moved, with vectors of dtype `wide`; returns the entries to show."""
        shelf, i = self.place[p]
        prefix = f"{BASE}{self.k}:"
        own = {name[len(prefix) :]: value for name, value in given.items() if name.startswith(prefix)}
        if not own:
            return {}
        shadow = self._shadows[p]
        entry = {key: self._carried(value, p, shelf, i, key, wide) for key, value in own.items()}
        self.optimizer.state[shadow] = entry
        return {prefix + key: self._shown(value, p, key) for key, value in entry.items()}

    def _carried(self, value: Any, p: Tensor, shelf: Shelf, i: int, key: str, wide: torch.dtype) -> Any:
        if self.base.known and key not in COUNTS and isinstance(value, Tensor):
            view = self._room(shelf, key, i)
            view.copy_(raw(value))
            return dressed(view, p)
        return self.base.carried(key, value, self.optimizer, shelf.device, (wide, shelf.dtype))

    def _adopt(self) -> None:
        """Show the base's state as ours, with the vectors of a known base packed into rows."""
        prefix = f"{BASE}{self.k}:"
        for p, shadow in self._shadows.items():
            shown = self.shown_in[p]
            for name in [name for name in shown if name.startswith(prefix)]:
                del shown[name]
            entry = self.optimizer.state.get(shadow, {})
            shelf, i = self.place[p]
            for key, value in entry.items():
                if self.base.known and key in COUNTS:
                    entry[key] = value = self._counted(key, value, p)
                elif self.base.known and isinstance(value, Tensor):
                    view = self._room(shelf, key, i)
                    if view.data_ptr() != raw(value).data_ptr():
                        view.copy_(raw(value))
                        entry[key] = value = dressed(view, p)
                shown[prefix + key] = self._shown(value, p, key)
        self._adopted = len(self.optimizer.state)

    def _counted(self, key: str, value: Tensor, p: Tensor) -> Tensor:
        """A number that the base keeps for a parameter, in one row with those of the others."""
        if (key, value.device) not in self._counts:
            zeros = torch.zeros(len(self._number), dtype=value.dtype, device=value.device)
            self._counts[key, value.device] = zeros
        view = self._counts[key, value.device][self._number[p]]
        if view.data_ptr() != value.data_ptr():
            view.copy_(value)
        return view

    def _room(self, shelf: Shelf, key: str, i: int) -> Tensor:
        """Where a vector of the base's state is kept: in one row with those of the others that have it."""
        views = self._views.setdefault((shelf, key), {})
        if i not in views:
            options = {shadow: group for group in self.optimizer.param_groups for shadow in group["params"]}
            shadows = [self._shadows[p] for p in shelf.params]
            some = [j for j, shadow in enumerate(shadows) if self.base.keeps(key, shadow, options[shadow])]
            row, new = shelf.row_of(sorted({*some, i} - {*views}))
            self._rows.append((shelf, key, row))
            views.update(new)
        return views[i]

    def _view(self, p: Tensor) -> Tensor:
        shelf, i = self.place[p]
        return shelf.direction_views[self.k][i]
