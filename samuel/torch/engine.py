"""Storage and the step of the optimizer: dot products, scalars of the rule, directions of the base, update.

The state of a parameter has the direction sum `s` ("sum"), its lag ("lag"), the average, the rounding error of a
16-bit parameter ("rounding"), and the vectors of the base. Parameters that are updated together form a `Bucket`. The
state of the rule is on the device of the parameters, which avoids host-device synchronisation; on a CPU the scalars are
computed with NumPy, which is faster there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from samuel.core.roles import Role
from samuel.core.rule import Moves, Rule, RuleState
from samuel.torch.bases import (
    MOMENTA,
    Base,
    Foreign,
    Inputs,
    Named,
    Number,
    Tensors,
    add_,
    foreach,
    scale_,
    step_unseen,
)
from samuel.torch.local import as_dtensor, local_real, sharding, wide_dtype

if TYPE_CHECKING:
    from samuel.torch.sharded import Exchange

CHUNK = 2**24
"""Numbers in a bucket at most, which limits temporary memory."""
STEP, SUM, LAG, AVERAGE, OFFSET, ROUNDING, BASE = "step", "sum", "lag", "average", "offset", "rounding", "base:"
"""Entries in the state of a parameter: number of gradients, direction sum, lag, average (in bfloat16 its offset from
the parameter instead), and rounding error of a 16-bit parameter; BASE is the prefix of entries of a base class."""
HASH = 0x9E3779B1 - 2**32
"""Odd multiplier of a hash (Knuth, "The art of computer programming", 6.4)."""
Roles = dict[Tensor, Role]


@dataclass
class Bucket:
    """Parameters of one group, role, device and dtype with the same number of gradients, and their vectors."""

    place: int
    """Index of the group."""
    search: int
    """Index of the search that sets the learning rate."""
    params: Tensors
    roles: list[Role]
    """Roles of the matrices; empty if the directions are not orthogonalised."""
    count: Tensor
    sums: Tensors = field(default_factory=list)
    lags: Tensors = field(default_factory=list)
    averages: Tensors = field(default_factory=list)
    offsets: Tensors = field(default_factory=list)
    roundings: Tensors = field(default_factory=list)
    vectors: dict[str, Tensors] = field(default_factory=dict)
    points: Tensors = field(default_factory=list)
    """Parameters of a base class."""
    base: Optimizer | None = None
    mesh: Any = None
    """Mesh of distributed parameters, and for each of its dimensions whether it shards them."""

    @property
    def device(self) -> torch.device:
        """Device of the parameters."""
        return self.count.device

    def gradients(self, sign: float) -> Tensors:
        """The gradients in the dtype of the computation; without a copy where nothing changes."""
        wide = wide_dtype(self.params[0])
        found = [local_real(p.grad) for p in self.params]
        found = found if found[0].dtype == wide else [g.to(wide) for g in found]
        return found if sign > 0 else list(foreach._foreach_neg(found))


class Engine:
    """The state of the optimizer, and its update in a step.

    Args:
        rule: the rule, with as many searches as the base has.
        base: the base optimizer, which computes the directions.
        state_dtype: dtype of direction sum, lag and average; None for bfloat16 where parameters are, else float32
            (float64 for parameters in float64).
        orthogonalise: orthogonalises whole matrices in place.
        group: process group with replicated parameters and gradients (DDP), which shares the orthogonalisation.
    """

    def __init__(
        self,
        rule: Rule,
        base: Base,
        state_dtype: torch.dtype | None,
        orthogonalise: Callable[[Tensors, list[Role]], None],
        group: Any = None,
    ) -> None:
        self.rule, self.base, self.state_dtype = rule, base, state_dtype
        self.orthogonalise, self.group = orthogonalise, group
        self.rule_state: RuleState | None = None
        self.buckets: list[Bucket] = []
        self.exchanges: list[tuple[Exchange, list[Bucket]]] = []
        """Exchanges of matrices that are replicated or sharded over processes."""
        self.resting: list[tuple[Tensor, dict[str, Any]]] = []
        """Parameters without an update, because they have no gradient or an `lr` of 0, and their states."""
        self._key: Any = None

    # Storage

    def prepare(self, groups: Sequence[dict[str, Any]], state: Any, roles: Roles) -> None:
        """Sort the parameters with gradients into buckets, and create their missing state."""
        trained = [[p for p in group["params"] if p.grad is not None] for group in groups]
        stopped = [is_stopped(group["lr"]) for group in groups]
        if self._key == _key(trained, stopped, state):
            return
        for params in trained:
            self._begin(params, state, roles)
        if isinstance(self.base, Foreign):
            for place, (group, params, stop) in enumerate(zip(groups, trained, stopped, strict=True)):
                new = [p for p in params if stop and not any(name.startswith(BASE) for name in state[p])]
                self._begin_base_class(self._sorted(place, group, new, state, roles), group)
        self.store(state)  # counts and states of buckets that are given up
        active = [[] if stop else params for params, stop in zip(trained, stopped, strict=True)]
        working = {p for params in active for p in params}
        self.resting = [(p, entries) for p, entries in state.items() if p not in working and SUM in entries]
        self.buckets = [
            bucket
            for place, (group, params) in enumerate(zip(groups, active, strict=True))
            for bucket in self._sorted(place, group, params, state, roles)
        ]
        if self.buckets and self.rule_state is None:
            start = self.rule_state = cloned(self.start(groups))
            if start.lift.device.type != "cpu":
                # Caches the constants of the rule on the device for compiled steps.
                zeros = start.lift.new_zeros((self.rule.groups, 3))
                self.rule.advance(start, zeros[:, :2], zeros[:, 2], zeros[:1, :1])
        self.exchanges = list(self._shared())
        self._key = _key(trained, stopped, state)

    def start(self, groups: Sequence[dict[str, Any]]) -> RuleState:
        """State of the rule before the first step, with the precision and device of the first parameter."""
        trained = [p for group in groups for p in group["params"] if p.requires_grad or p.grad is not None]
        if not trained:
            return self.rule.start(torch.zeros(()))
        return self.rule.start(torch.zeros((), dtype=wide_dtype(trained[0]), device=local_real(trained[0]).device))

    def forget(self) -> None:
        """Drop the buckets after the state was replaced."""
        self._key, self.buckets, self.exchanges, self.resting, self.rule_state = None, [], [], [], None

    def _begin(self, params: Tensors, state: Any, roles: Roles) -> None:
        """Create missing state, and convert existing state to the dtype and device of the parameters."""
        counts: dict[torch.device, Tensor] = {}
        for p in params:
            local, wide, entries = local_real(p).detach(), wide_dtype(p), state[p]
            narrow = local.dtype == torch.bfloat16
            moving = self.state_dtype or (torch.bfloat16 if narrow else wide)
            of_base = dict.fromkeys(self.base.vectors(roles[p]), wide)
            if narrow and moving == torch.bfloat16:
                of_base |= dict.fromkeys(MOMENTA & of_base.keys(), moving)
            needed = {SUM: moving, LAG: moving, **of_base}
            if self.rule.average:
                self._fit_average(p, entries, moving)
                needed[OFFSET if moving == torch.bfloat16 else AVERAGE] = moving
            needed |= {ROUNDING: local.dtype} if local.dtype != wide else {}
            for name, dtype in needed.items():
                if name not in entries:
                    start = local if name == AVERAGE else torch.zeros_like(local, dtype=dtype)
                    entries[name] = _like(p, start.to(dtype, copy=True))
                elif local_real(entries[name]).dtype != dtype or local_real(entries[name]).device != local.device:
                    entries[name] = _like(p, local_real(entries[name]).to(local.device, dtype))
            if STEP not in entries:
                entries[STEP] = counts.setdefault(local.device, torch.zeros((), device=local.device))
            entries[STEP] = entries[STEP].to(local.device)
            if ROUNDING not in needed:
                entries.pop(ROUNDING, None)

    def _fit_average(self, p: Tensor, entries: dict[str, Any], dtype: torch.dtype) -> None:
        """Convert between an average and its offset where the dtype of a model or of the state has changed."""
        if (OFFSET if dtype == torch.bfloat16 else AVERAGE) in entries or not entries.keys() & {AVERAGE, OFFSET}:
            return
        average = local_real(self.average(p, entries))
        if entries.pop(OFFSET, None) is not None:
            entries[AVERAGE] = _like(p, average.to(dtype))
        else:
            del entries[AVERAGE]
            entries[OFFSET] = _like(p, (average - local_real(p).detach()).to(dtype))

    def average(self, p: Tensor, entries: dict[str, Any]) -> Tensor:
        """The average of a parameter, with the layout of an entry of its state."""
        if OFFSET not in entries:
            return entries[AVERAGE]
        local = local_real(p).detach()
        exact = local.to(wide_dtype(p)) + local_real(entries[OFFSET]).to(local.device)
        if ROUNDING in entries:
            exact += local_real(entries[ROUNDING]).to(local.device)
        return _like(p, exact)

    def _sorted(self, place: int, group: dict[str, Any], params: Tensors, state: Any, roles: Roles) -> Iterator[Bucket]:
        """The buckets of a group."""
        alike: dict[Any, Tensors] = {}
        for p in params:
            whole = self.base.orthogonalises(roles[p])
            count = state[p][STEP]
            count = float(count) if count.device.type == "cpu" else id(count)
            key = (whole, local_real(p).device, p.dtype, count, str(sharding(p)))
            alike.setdefault(key, []).append(p)
        for (whole, *_), some in alike.items():
            some = sorted(some, key=lambda p: sorted(p.shape)) if whole else some
            count = state[some[0]][STEP].clone()  # separate from parameters without a gradient
            for p in some:
                state[p][STEP] = count
            parts = [some] if isinstance(self.base, Foreign) else _chunks(some)
            search = 1 if isinstance(self.base, Named) and self.base.searches == 2 and not whole else 0
            for part in parts:
                bucket = Bucket(place, search, part, [roles[p] for p in part] if whole else [], count)
                entries = [state[p] for p in part]
                bucket.sums, bucket.lags, bucket.averages, bucket.offsets, bucket.roundings = (
                    [local_real(each[name]) for each in entries if name in each]
                    for name in (SUM, LAG, AVERAGE, OFFSET, ROUNDING)
                )
                names = self.base.vectors(roles[part[0]])
                bucket.vectors = {name: [local_real(each[name]) for each in entries] for name in names}
                bucket.mesh = sharding(part[0])
                if isinstance(self.base, Foreign):
                    self._attach(bucket, group, entries)
                yield bucket

    def _shared(self) -> Iterator[tuple[Exchange, list[Bucket]]]:
        """The exchanges of matrices: one for each mesh, and one for the process group of DDP."""
        together: dict[Any, list[Bucket]] = {}
        for bucket in self.buckets:
            mesh = bucket.mesh[0] if bucket.mesh is not None else None
            several = self.group is not None if mesh is None else mesh.size() > 1
            if bucket.roles and several:
                together.setdefault((str(mesh), bucket.device, wide_dtype(bucket.params[0])), []).append(bucket)
        for buckets in together.values():
            from samuel.torch.sharded import exchange_of

            params = [p for bucket in buckets for p in bucket.params]
            yield exchange_of(params, [role for bucket in buckets for role in bucket.roles], self.group), buckets

    def _attach(self, bucket: Bucket, group: dict[str, Any], entries: list[dict[str, Any]]) -> None:
        assert isinstance(self.base, Foreign)
        wide = wide_dtype(bucket.params[0])
        bucket.points = [torch.zeros_like(local_real(p), dtype=wide) for p in bucket.params]
        bucket.base = self.base.build(bucket.points, group)
        for point, each in zip(bucket.points, entries, strict=True):
            own = {name.removeprefix(BASE): value for name, value in each.items() if name.startswith(BASE)}
            if own:
                bucket.base.state[point] = {name: _as_wide(name, value, wide) for name, value in own.items()}

    def _begin_base_class(self, buckets: Iterable[Bucket], group: dict[str, Any]) -> None:
        """Create the state of a base class for stopped groups: distributed checkpoints need all entries to exist."""
        for bucket in buckets:
            self._directions_of_base_class(bucket, group, [torch.zeros_like(point) for point in bucket.points])
            self.buckets.append(bucket)

    def store(self, state: Any) -> None:
        """Copy the state of base classes into the state of the parameters."""
        for bucket in self.buckets:
            if bucket.base is None:
                continue
            for p, point in zip(bucket.params, bucket.points, strict=True):
                for name, value in bucket.base.state.get(point, {}).items():
                    shaped = isinstance(value, Tensor) and value.shape == point.shape
                    state[p][f"{BASE}{name}"] = _like(p, value) if shaped else value

    # A step

    @torch.no_grad()
    def step(self, groups: Sequence[dict[str, Any]]) -> Moves | None:
        """Update all parameters; returns the scalars of the step, or None without any gradient."""
        if not self.buckets:
            return None
        products = self._products(groups)
        assert self.rule_state is not None
        lrs = [_number(group["lr"]) for group in groups]
        decay = [group["weight_decay"] * lr for group, lr in zip(groups, lrs, strict=True)]
        on_host = self.on_host(products)
        moves = self._advance_on_host(products, decay) if on_host else self._advance(products, decay)
        counts: dict[int, tuple[Number, Number]] = {}
        own: dict[int, Moves] = {}
        for bucket in self.buckets:
            local = moves if on_host else Moves(*(x.to(bucket.device, non_blocking=True) for x in moves))
            own[id(bucket)] = local
            if id(bucket.count) not in counts:
                counts[id(bucket.count)] = _counted(bucket.count, local)

        for bucket, steps in self._all_directions(groups, own, counts):
            self._move(bucket, groups[bucket.place], own[id(bucket)], steps)
        for p, entries in self.resting:
            self._rest(p, entries, moves)
        for bucket in self.buckets:
            if id(bucket.count) in counts:
                del counts[id(bucket.count)]
                bucket.count.mul_(float(1 - moves.reset) if on_host else 1 - moves.reset.to(bucket.device).float())
        return moves

    def _all_directions(
        self, groups: Sequence[dict[str, Any]], own: dict[int, Moves], counts: dict[int, tuple[Number, Number]]
    ) -> Iterator[tuple[Bucket, Tensors]]:
        """Every bucket with its directions, orthogonalised if they are to be; one after the other to save memory."""
        ready = self._exchanged(groups, own, counts)
        for bucket in self.buckets:
            steps = ready.pop(id(bucket), None)
            if steps is None:
                steps = self._directions(
                    bucket, groups[bucket.place], own[id(bucket)].gradient, *counts[id(bucket.count)]
                )
                if steps and bucket.roles:
                    self.orthogonalise(steps, bucket.roles)
            yield bucket, steps

    def _exchanged(
        self, groups: Sequence[dict[str, Any]], own: dict[int, Moves], counts: dict[int, tuple[Number, Number]]
    ) -> dict[int, Tensors]:
        """Orthogonalised directions of distributed matrices; each process computes a share of them."""
        found: dict[int, Tensors] = {}
        for exchange, buckets in self.exchanges:
            steps = [
                self._directions(bucket, groups[bucket.place], own[id(bucket)].gradient, *counts[id(bucket.count)])
                for bucket in buckets
            ]
            if not steps[0]:
                return {id(bucket): [] for _, some in self.exchanges for bucket in some}
            roles = [role for bucket in buckets for role in bucket.roles]

            def work(places: list[int], wholes: Tensors, roles: list[Role] = roles) -> Tensors:
                self.orthogonalise(wholes, [roles[place] for place in places])
                return wholes

            results = iter(exchange([x for some in steps for x in some], work))
            found |= {id(bucket): [next(results) for _ in bucket.params] for bucket in buckets}
        return found

    def on_host(self, products: Tensor) -> bool:
        """Whether NumPy computes the scalars of a step: only on a CPU, where reading values costs nothing."""
        return products.device.type == "cpu" and not torch.compiler.is_compiling()

    def _products(self, groups: Sequence[dict[str, Any]]) -> Tensor:
        """`<g, s>`, `<g, l>` and `<g, g>` of every search, summed over all processes."""
        assert self.rule_state is not None
        like = self.rule_state.lift
        found: dict[Any, tuple[Any, list[list[Tensor]]]] = {}
        for bucket in self.buckets:
            group = groups[bucket.place]
            gradients = bucket.gradients(-1.0 if group["maximize"] else 1.0)
            _, rows = found.setdefault(str(bucket.mesh), (bucket.mesh, [[] for _ in range(self.rule.groups)]))
            for g, s, lag in zip(gradients, bucket.sums, bucket.lags, strict=True):
                each = torch.stack([_dot(g, s), _dot(g, lag), _dot(g, g)]).to(like.device)
                rows[bucket.search].append(
                    each * _is_on(group["lr"], each) if isinstance(group["lr"], Tensor) else each
                )
        # In double precision, so that the order of the sum does not matter.
        precise = torch.float32 if like.device.type == "mps" else torch.float64
        nothing = torch.zeros(3, dtype=precise, device=like.device)
        total = nothing
        for sharding_of, rows in found.values():
            sums = [torch.stack(each).to(precise).sum(0) if each else nothing for each in rows]
            total = total + _over_processes(torch.stack(sums), sharding_of)
        return total.to(like.dtype)

    def _advance_on_host(self, products: Tensor, decay: list[Number]) -> Moves:
        assert self.rule_state is not None
        before = _arrays(self.rule_state)
        row = np.asarray([float(d) for d in decay], products.numpy().dtype)
        with np.errstate(all="ignore"):  # of gradients that are not finite, or overflow
            after, moves = self.rule.advance(before, products.numpy()[:, :2], products.numpy()[:, 2], row[None])
            new = [np.asarray(leaf) for leaf in _leaves(after)]
        for old, value in zip(_leaves(before), new, strict=True):
            old[...] = value
        return Moves(*(np.asarray(x) for x in moves[:5]), *(float(x) for x in moves[5:]))

    def _advance(self, products: Tensor, decay: list[Number]) -> Moves:
        assert self.rule_state is not None
        zero = products.new_zeros(())
        row = torch.stack([zero + (d.to(zero.device) if isinstance(d, Tensor) else d) for d in decay])
        after, moves = self.rule.advance(self.rule_state, products[:, :2], products[:, 2], row[None])
        for old, value in zip(_leaves(self.rule_state), _leaves(after), strict=True):
            old.copy_(value)  # in place, for CUDA graphs
        return Moves(*(x.to(zero.dtype) for x in moves))

    def _move(self, bucket: Bucket, group: dict[str, Any], moves: Moves, steps: Tensors) -> None:
        """Update the parameters of a bucket and their vectors; `steps` is empty for a skipped gradient."""
        slide, keep = (row[bucket.search, bucket.place] for row in (moves.slide, moves.keep))
        along, enter, back = (row[bucket.search] for row in (moves.along, moves.enter, moves.back))
        if not isinstance(moves.gradient, Tensor):
            slide, keep, along, enter, back = (float(x) for x in (slide, keep, along, enter, back))
        lr = _number(group["lr"])
        if isinstance(lr, Tensor):
            on = _is_on(lr, bucket.count)
            slide, along, enter, back, keep = on * slide, on * along, on * enter, on * back, 1 + on * (keep - 1)
        points = [local_real(p) for p in bucket.params]
        wide = wide_dtype(bucket.params[0])
        if bucket.roundings:
            points = [p.to(wide) + r.to(wide) for p, r in zip(points, bucket.roundings, strict=True)]
        narrow = (bucket.sums, bucket.lags, bucket.averages, bucket.offsets)
        sums, lags, averages, offsets = computed = [_widened(x, wide) for x in narrow]
        if offsets:  # from here to `sub` they are the averages themselves
            foreach._foreach_add_(offsets, points)
        # In the order of the rule: weight decay applies to the parameters before the step.
        scale_(points, keep)
        add_(points, sums, slide)
        add_(points, lags, back)
        if steps:
            scale_(steps, lr.to(steps[0].device) if isinstance(lr, Tensor) else lr)
            add_(points, steps, along)
        goes_on, memory = 1 - moves.restart, self.rule.search.lag
        lag = 1 - _counts(moves.gradient) * (1 - memory)  # 1 for a skipped gradient
        for vectors, factor in ((sums, goes_on), (lags, goes_on * lag)):
            scale_(vectors, factor * keep)
            if steps:
                add_(vectors, steps, factor * enter)
        if averages:
            _approach(averages, points, moves.pace)
        if offsets:
            foreach._foreach_sub_(offsets, points)
            scale_(offsets, 1 - moves.pace)
        for stored, values in zip(narrow, computed, strict=True):
            self._store(stored, values)
        if bucket.roundings:
            for p, r, point in zip(bucket.params, bucket.roundings, points, strict=True):
                local_real(p).copy_(point)
                r.copy_(point - local_real(p).to(wide))

    def _rest(self, p: Tensor, entries: dict[str, Any], moves: Moves) -> None:
        """Update the state of a parameter without an update: restarts reset it, and its average approaches it."""
        goes_on, pace = (
            x.to(local_real(p).device) if isinstance(x, Tensor) else x for x in (1 - moves.restart, moves.pace)
        )
        scale_([local_real(entries[SUM]), local_real(entries[LAG])], goes_on)
        if OFFSET in entries:
            offset = local_real(entries[OFFSET])
            self._store([offset], [offset.to(wide_dtype(p)) * (1 - pace)])
        if AVERAGE in entries:
            _approach([local_real(entries[AVERAGE])], [local_real(p).to(local_real(entries[AVERAGE]).dtype)], pace)

    def _directions(
        self, bucket: Bucket, group: dict[str, Any], scale: Number, count: Number, fresh: Number
    ) -> Tensors:
        """Directions of the base for gradients times a factor, as new tensors, before orthogonalisation.

        None for a factor of 0, if it is known.
        """
        if not isinstance(scale, Tensor) and scale == 0:
            return []
        new = _counts(scale)
        gradients = bucket.gradients(-1.0 if group["maximize"] else 1.0)
        if isinstance(new, Tensor):  # `where`, since 0 times NaN is NaN
            gradients = [torch.where(new > 0, g * scale.to(g.dtype), 0.0) for g in gradients]
        elif scale != 1:
            gradients = list(foreach._foreach_mul(gradients, scale))
        if bucket.base is not None:
            return self._directions_of_base_class(bucket, group, gradients, new)
        assert isinstance(self.base, Named)
        vectors = {name: _widened(each, gradients[0].dtype) for name, each in bucket.vectors.items()}
        found = self.base.directions(Inputs(gradients, vectors, count, fresh, group, new))
        for name, values in vectors.items():
            self._store(bucket.vectors[name], values)
        return found

    def _store(self, stored: Tensors, values: Tensors) -> None:
        """Write values into vectors; with stochastic rounding into those in bfloat16, so that small updates accumulate.

        The random bits are a hash of the value and the round: no generator state, and the same result on any number of
        devices and after a resume.
        """
        if not stored or stored[0] is values[0]:
            return
        if stored[0].dtype != torch.bfloat16:
            foreach._foreach_copy_(stored, values)
            return
        assert self.rule_state is not None
        salt = self.rule_state.round.to(stored[0].device) * HASH
        for target, value in zip(stored, values, strict=True):
            bits = value.float().view(torch.int32)
            noise = ((bits ^ salt) * HASH >> 16) & 0xFFFF
            target.copy_((bits + noise & -0x10000).view(torch.float32))

    def _directions_of_base_class(
        self, bucket: Bucket, group: dict[str, Any], gradients: Tensors, new: Number = 1.0
    ) -> Tensors:
        assert isinstance(self.base, Foreign)
        assert bucket.base is not None
        bucket.base.param_groups[0].update(self.base.options_of(group))  # schedulers may change them
        for point, p, gradient in zip(bucket.points, bucket.params, gradients, strict=True):
            if self.base.reads_parameters:
                point.copy_(local_real(p))
            else:
                point.zero_()
            point.grad = gradient
        before = [point.clone() for point in bucket.points]
        own = [x for each in bucket.base.state.values() for x in each.values()] if isinstance(new, Tensor) else []
        kept = [(x, x.clone()) for x in own if isinstance(x, Tensor) and x.device == bucket.device]
        step_unseen(bucket.base)
        for x, old in kept:
            x.copy_(torch.where(new > 0, x, old))
        for point in bucket.points:
            point.grad = None
        return list(foreach._foreach_sub(before, bucket.points))


def _key(trained: list[Tensors], stopped: list[bool], state: Any) -> Any:
    """A key that changes when the buckets must be rebuilt."""
    return stopped, [[(id(p), p.dtype, p.device, *map(id, state[p].values())) for p in params] for params in trained]


def is_stopped(lr: Number) -> bool:
    """Whether a multiplier is 0, up to rounding of a scheduler; a tensor is not read."""
    return not isinstance(lr, Tensor) and lr < 1e-12


def _number(value: Number) -> Number:
    return value.reshape(()) if isinstance(value, Tensor) else value


def _counts(scale: Any) -> Any:
    """1 where the factor of a gradient is positive, 0 where the gradient is skipped."""
    return (scale > 0) * 1.0


def _is_on(lr: Tensor, like: Tensor) -> Tensor:
    return (lr.reshape(()) >= 1e-12).to(like.device, like.dtype)


def _counted(count: Tensor, moves: Moves) -> tuple[Number, Number]:
    """Advance the count of gradients; returns the count, and 1 if there was none before."""
    if not isinstance(moves.gradient, Tensor):
        before = float(count)
        count.add_(float(moves.gradient > 0))
        return max(float(count), 1.0), float(before == 0)
    fresh = (count == 0).to(count.dtype)
    count.add_((moves.gradient > 0).to(count.dtype))
    return count.clamp(min=1.0), fresh


def _dot(a: Tensor, b: Tensor) -> Tensor:
    if b.dtype != a.dtype:
        b = b.to(a.dtype)
    if a.stride() == b.stride() and not a.is_contiguous() and a.numel() == a.untyped_storage().size():
        a, b = (x.as_strided((x.numel(),), (1,)) for x in (a, b))
    return torch.dot(a.reshape(-1), b.reshape(-1))


def _approach(means: Tensors, points: Tensors, pace: Number) -> None:
    if isinstance(pace, Tensor):
        for mean, point in zip(means, points, strict=True):
            mean.lerp_(point, pace.to(mean.dtype))
    elif pace != 0:
        foreach._foreach_lerp_(means, points, pace)


def _as_wide(name: str, value: Any, wide: torch.dtype) -> Any:
    """An entry in the state of a base class, in the precision of the parameters."""
    if not isinstance(value, Tensor):
        return value
    value = local_real(value)
    single = value.dtype in (torch.float32, torch.float64) and name != STEP
    return value.to(wide) if single else value


def _widened(tensors: Tensors, wide: torch.dtype) -> Tensors:
    return tensors if not tensors or tensors[0].dtype == wide else [x.to(wide) for x in tensors]


def _like(p: Tensor, local: Tensor) -> Tensor:
    """A local vector as an entry of the state of a parameter: complex or distributed as the parameter."""
    return as_dtensor(torch.view_as_complex(local) if p.is_complex() and local.is_floating_point() else local, p)


def _chunks(params: Tensors) -> list[Tensors]:
    found: list[Tensors] = []
    size = math.inf
    for p in params:
        size += p.numel()
        if size > CHUNK:
            found.append([])
            size = p.numel()
        found[-1].append(p)
    return found


def _over_processes(total: Tensor, sharding: Any) -> Tensor:
    """A sum over the shards of distributed parameters."""
    if sharding is None:
        return total
    mesh, sharded = sharding
    for dim, is_sharded in enumerate(sharded):
        if is_sharded:
            total = total.contiguous()
            torch.distributed.all_reduce(total, group=mesh.get_group(dim))
    return total


def _leaves(state: Any) -> Iterator[Any]:
    for value in state:
        if isinstance(value, tuple):
            yield from _leaves(value)
        else:
            yield value


def cloned(state: Any) -> Any:
    """A copy of a state of the rule, with separate memory for every array."""
    return type(state)(*(cloned(x) if isinstance(x, tuple) else x.clone() for x in state))


def _arrays(state: Any) -> Any:
    """A state of the rule as NumPy arrays that share its memory."""
    return type(state)(*(_arrays(x) if isinstance(x, tuple) else x.numpy() for x in state))
