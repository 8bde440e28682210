"""Placement: where the members of a population do their work. A choice that changes no result.

    map    all at once, vectorised: for small networks, which leave most of a machine idle
    scan   one after another in one program: for large ones; room for the work of one member at a time
    shard  spread over the devices of a mesh with the axes experts x data, also of several processes

A placement runs a function of rows, members and what they have in common. Under `shard` the function is run by every
device of the axis `experts` for its own rows, and what must cross between them goes through `gather`, `pick` and
`mean`. The axis `data` is left to the compiler: there the function means what it means on one device, so that batch
norm is over the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from samuel.core.arrays import is_traced
from samuel.jax.population import Tree, choose, is_float, only_if, row, usable, write_row

EXPERTS = "experts"
DATA = "data"
PLACEMENTS = ("map", "scan", "shard")
ASKED_TOGETHER = 25
"""So many members at most answer a question at once: a batch to test with may be many times one to train with."""


def placement_by_name(
    placement: Literal["map", "scan", "shard"], mesh: Mesh | None = None, within: Literal["map", "scan"] = "map"
) -> Placement:
    """The placement of that name.

    Args:
        placement: "map", "scan" or "shard".
        mesh: the devices of "shard", with an axis `experts` and, to split batches, an axis `data`; all devices there
            are along `experts` by default.
        within: what each device of "shard" does with its own members: "map" or "scan".

    >>> placement_by_name("shard", Mesh(np.asarray(jax.devices()[:1]), ("experts",))).rows(5)
    5
    """
    if placement not in PLACEMENTS:
        raise ValueError(f"placement must be 'map', 'scan' or 'shard', got {placement!r}")
    if within not in ("map", "scan"):
        raise ValueError(f"within must be 'map' or 'scan', got {within!r}")
    if placement == "shard":
        return Shard(within, mesh)
    if mesh is not None:
        raise ValueError(f"a mesh is for placement='shard', got placement={placement!r}")
    return Placement(placement)


class Placement:
    """All members on one device, vectorised or one after another."""

    def __init__(self, order: Literal["map", "scan"]) -> None:
        self.order = order

    def rows(self, count: int) -> int:
        """How many rows so many members are kept in; those too many are idle."""
        return count

    def each(
        self, work: Callable[[Tree, Tree], tuple[Tree, Tree]], members: Tree, own: Tree, active: jax.Array
    ) -> tuple[Tree, Tree]:
        """Let every active member work: `member, result = work(member, own)`.

        Args:
            work: the work of one member.
            members: the members, one row each.
            own: what else belongs to each member, read only.
            active: which members work; the others stay as they are, and their results are of no use.
        """
        return (_all_at_once if self.order == "map" else _one_after_another)(work, members, own, active)

    def ask(self, question: Callable[[Tree], Tree], members: Tree) -> Tree:
        """`question(member)` of every member; nobody changes."""
        if self.order == "scan":
            return jax.lax.map(question, members)
        count = jax.tree.leaves(members)[0].shape[0]
        if count <= ASKED_TOGETHER:
            return jax.vmap(question)(members)
        return jax.lax.map(question, members, batch_size=ASKED_TOGETHER)

    def gather(self, values: jax.Array) -> jax.Array:
        """One value per member, of all members."""
        return values

    def total(self, tree: Tree) -> Tree:
        """The sum of what every device has."""
        return tree

    def pick(self, tree: Tree, place: jax.Array, rows: jax.Array) -> Tree:
        """The row of one member."""
        return row(tree, place)

    def mean(self, tree: Tree, p: jax.Array, place: jax.Array, rows: jax.Array) -> Tree:
        """The mean of the members under `p`; those of weight 0 do not enter it, whatever they hold.

        Args:
            tree: what to average.
            p: weights of this device's members; together with those of the others they sum to 1.
            place: the member that leaves which cannot be averaged, such as counters, are taken from.
            rows: the rows of this device.
        """

        def averaged(leaf: jax.Array) -> jax.Array:
            if not is_float(leaf):
                return self.pick(leaf, place, rows)
            wide = jnp.promote_types(leaf.dtype, jnp.float32)
            share = p.astype(wide).reshape((-1,) + (1,) * (leaf.ndim - 1))
            return self.total(jnp.sum(jnp.where(share > 0, share * leaf, 0), axis=0)).astype(leaf.dtype)

        return jax.tree.map(averaged, tree)

    def usable(self, tree: Tree, place: jax.Array, rows: jax.Array) -> jax.Array:
        """Whether all numbers of one member are finite; only that one bit crosses devices."""
        return usable(row(tree, place))

    def fill(self, members: Tree, marked: jax.Array, newborn: Callable[[jax.Array], Tree]) -> Tree:
        """Replace the marked members, in place.

        Args:
            members: the members.
            marked: which of this device's rows to replace.
            newborn: the member to put into a row.
        """

        def put(index: jax.Array, members: Tree) -> Tree:
            return only_if(marked[index], lambda members: write_row(members, index, newborn(index)), members)

        return jax.lax.fori_loop(0, marked.shape[0], put, members)

    def build(self, function: Callable[..., tuple[Tree, Tree]], *arguments: Tree) -> tuple[Tree, Tree]:
        """Make members, and what they have in common, where they belong."""
        return jax.jit(function)(*arguments)

    def arrange(self, function: Callable[[Tree], Tree]) -> Any:
        """`function(members) -> members`, which changes their number, as a compiled program."""
        return jax.jit(function)

    def compile(self, function: Callable[..., tuple[Tree, Tree, Tree]], count: int, donate: bool) -> Any:
        """`function(rows, members, common, batch) -> members, common, info` as one compiled program.

        Its arguments are `(members, common, batch)`; with `donate`, the first two are used up.
        """

        def program(members: Tree, common: Tree, batch: Tree) -> tuple[Tree, Tree, Tree]:
            return function(jnp.arange(self.rows(count)), members, common, batch)

        return jax.jit(program, donate_argnums=(0, 1) if donate else ())

    def reader(self, function: Callable[..., Tree], count: int) -> Any:
        """`function(rows, members, common)`, which looks and changes nothing, as a compiled program."""
        return jax.jit(lambda members, common: function(jnp.arange(self.rows(count)), members, common))

    def place(self, batch: Tree) -> Tree:
        """A batch, where the members need it."""
        return batch


class Shard(Placement):
    """Members spread over the devices of a mesh."""

    def __init__(self, order: Literal["map", "scan"], mesh: Mesh | None = None) -> None:
        super().__init__(order)
        if mesh is None:
            mesh = Mesh(np.asarray(jax.devices()), (EXPERTS,))
        if not isinstance(mesh, Mesh):
            raise TypeError(f"mesh must be a jax.sharding.Mesh, got {mesh!r}")
        if EXPERTS not in mesh.axis_names or not {*mesh.axis_names} <= {EXPERTS, DATA}:
            raise ValueError(f"the mesh needs an axis 'experts' and may have an axis 'data', got {mesh.axis_names}")
        # The compiler decides along `data`, whatever the mesh was made for: a loss function need not know of it.
        self.mesh: Mesh = Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * len(mesh.axis_names))
        self.spread: NamedSharding = NamedSharding(self.mesh, P(EXPERTS))
        self.everywhere: NamedSharding = NamedSharding(self.mesh, P())

    def rows(self, count: int) -> int:
        shards = self.mesh.shape[EXPERTS]
        return -(-count // shards) * shards

    def gather(self, values: jax.Array) -> jax.Array:
        return jax.lax.all_gather(values, EXPERTS, tiled=True)

    def total(self, tree: Tree) -> Tree:
        return jax.tree.map(lambda leaf: jax.lax.psum(leaf, EXPERTS), tree)

    def pick(self, tree: Tree, place: jax.Array, rows: jax.Array) -> Tree:
        # Zeros from all devices but one: a sum that is a broadcast.
        mine = rows == place
        chosen = row(tree, jnp.argmax(mine))

        def sent(leaf: jax.Array) -> jax.Array:
            if _is_key(leaf):
                return jax.random.wrap_key_data(sent(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf))
            kept = jnp.where(mine.any(), leaf, jnp.zeros_like(leaf))
            if leaf.dtype == jnp.bool_:
                return jax.lax.psum(kept.astype(jnp.int32), EXPERTS).astype(jnp.bool_)
            return jax.lax.psum(kept, EXPERTS)

        return jax.tree.map(sent, chosen)

    def usable(self, tree: Tree, place: jax.Array, rows: jax.Array) -> jax.Array:
        mine = rows == place
        bad = mine.any() & ~usable(row(tree, jnp.argmax(mine)))
        return jax.lax.psum(bad.astype(jnp.int32), EXPERTS) == 0

    def build(self, function: Callable[..., tuple[Tree, Tree]], *arguments: Tree) -> tuple[Tree, Tree]:
        leaves, structure = jax.tree.flatten(arguments)
        keys = [jax.random.key_impl(leaf) if _is_key(leaf) else None for leaf in leaves]

        def made(*leaves: Any) -> tuple[Tree, Tree]:
            pairs = zip(leaves, keys, strict=True)
            whole = [leaf if impl is None else jax.random.wrap_key_data(leaf, impl=impl) for leaf, impl in pairs]
            return function(*jax.tree.unflatten(structure, whole))

        return jax.jit(made, out_shardings=(self.spread, self.everywhere))(*map(_plain, leaves))

    def arrange(self, function: Callable[[Tree], Tree]) -> Any:
        return jax.jit(function, out_shardings=self.spread)

    def compile(self, function: Callable[..., tuple[Tree, Tree, Tree]], count: int, donate: bool) -> Any:
        everywhere = self._everywhere(function, (P(EXPERTS), P(EXPERTS), P(), P()), (P(EXPERTS), P(), P()))

        def program(members: Tree, common: Tree, batch: Tree) -> tuple[Tree, Tree, Tree]:
            return everywhere(self._rows(count), members, common, batch)

        kept = (self.spread, self.everywhere, self.everywhere)
        return jax.jit(program, donate_argnums=(0, 1) if donate else (), out_shardings=kept)

    def reader(self, function: Callable[..., Tree], count: int) -> Any:
        everywhere = self._everywhere(function, (P(EXPERTS), P(EXPERTS), P()), P())

        def program(members: Tree, common: Tree) -> Tree:
            return everywhere(self._rows(count), members, common)

        return jax.jit(program, out_shardings=self.everywhere)

    def _everywhere(self, function: Callable[..., Any], given: Any, wanted: Any) -> Callable[..., Any]:
        """The function, run by every device of the axis `experts` for its own rows."""
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=given,
            out_specs=wanted,
            axis_names={EXPERTS},
            # Checked types would refuse loss functions that scan from a constant, which is what recurrent nets do.
            check_vma=False,
        )

    def _rows(self, count: int) -> jax.Array:
        """The numbers of the rows, handed out: a device that asks for its place would not do on every backend."""
        return jax.lax.with_sharding_constraint(jnp.arange(self.rows(count)), self.spread)

    def place(self, batch: Tree) -> Tree:
        parts = self.mesh.shape.get(DATA, 1)
        split = NamedSharding(self.mesh, P(DATA)) if parts > 1 else self.everywhere

        def put(path: Any, leaf: Any) -> jax.Array:
            if is_traced(leaf):
                return leaf
            if isinstance(leaf, jax.Array) and leaf.sharding.device_set == self.everywhere.device_set:
                return leaf
            where = split if np.ndim(leaf) else self.everywhere
            try:
                if jax.process_count() == 1:
                    return jax.device_put(leaf, where)
                return jax.make_array_from_process_local_data(where, np.asarray(leaf))
            except ValueError as error:
                raise ValueError(
                    f"batch{jax.tree_util.keystr(path)} of shape {np.shape(leaf)} cannot be split over {parts} devices "
                    f"along 'data': {error}"
                ) from None

        return jax.tree.map_with_path(put, batch)


def _all_at_once(work: Callable[..., Any], members: Tree, own: Tree, active: jax.Array) -> tuple[Tree, Tree]:
    def attempt(member: Tree, own: Tree, active: jax.Array) -> tuple[Tree, Tree]:
        after, result = work(member, own)
        return choose(active, after, member), result

    return jax.vmap(attempt)(members, own, active)


def _one_after_another(work: Callable[..., Any], members: Tree, own: Tree, active: jax.Array) -> tuple[Tree, Tree]:
    first = jax.eval_shape(lambda: work(row(members, 0), row(own, 0))[1])
    count = active.shape[0]
    results = jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), leaf.dtype), first)

    def turn(index: jax.Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        # Besides leaving out idle members, the loop inside keeps reading a row apart from writing it. Were the two
        # fused, the compiler would have to copy all the members for every one of them.
        member = row(carry[0], index)

        def attempt(carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
            members, results = carry
            after, result = work(member, row(own, index))
            return write_row(members, index, after), write_row(results, index, result)

        return only_if(active[index], attempt, carry)

    return jax.lax.fori_loop(0, count, turn, (members, results))


def _plain(leaf: jax.Array) -> Any:
    """An array as plain numbers: they belong to no device, so that every process can hand in its copy of the same."""
    if _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf) if leaf.is_fully_addressable else leaf


def _is_key(leaf: jax.Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
