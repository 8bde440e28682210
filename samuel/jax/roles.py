"""Roles of the parameters of JAX models: matrix, table or vector, found from names and shapes in their trees."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from samuel.core import roles as rules
from samuel.core.roles import Role

SCANNED = {"scan", "scanned", "vmap", "vmapped"}
"""Words in the names of modules whose parameters have one more axis in front."""
OUTPUTS_FIRST = ("weight", "weight_ih", "weight_hh", "in_proj_weight")
"""Names of parameters that are outputs times inputs, as in equinox; in flax and haiku inputs come first."""


def roles(params: Any, override: Any | Callable[[str, Any], Any] = None) -> Any:
    """Find the role of every parameter in a tree: matrix, table or vector.

    Names and shapes decide, those of flax linen, nnx, equinox and haiku; the classes of modules, where the tree has
    them. Layers whose parameters lie in one array each (`nn.scan`, `nnx.vmap`) are recognised by their biases and norms
    or by their name. What nothing explains is a guess (`role.guessed`): two dimensions are taken for a matrix, three or
    more go to Adam as a "vector". How many groups a convolution has does not show in its kernel: it is one matrix.

    Args:
        params: the tree of parameters; arrays or their shapes.
        override: roles in place of those found: a tree, a prefix of that of the parameters, of "matrix", "table",
            "vector", `Role` or None (as found); or a function of a parameter's name, with dots, and the parameter.

    Returns:
        A tree like that of the parameters, with a `Role` for each.

    >>> import jax.numpy as jnp
    >>> params = {"Dense_0": {"kernel": jnp.zeros((4, 8)), "bias": jnp.zeros(8)}, "table": jnp.zeros((5, 4))}
    >>> jax.tree.map(lambda role: role.kind, roles(params))
    {'Dense_0': {'bias': 'vector', 'kernel': 'matrix'}, 'table': 'matrix'}
    >>> roles(params, lambda name, p: "table" if name == "table" else None)["table"].kind
    'table'
    """
    leaves, structure = jax.tree.flatten(params)
    if not leaves:
        raise ValueError("the tree of parameters is empty")
    found = named_roles(params)
    given = _given(override, params, [*found], leaves)
    chosen = [
        role if other is None else rules.checked(name, _shape(leaf), other, role)
        for (name, role), leaf, other in zip(found.items(), leaves, given, strict=True)
    ]
    return jax.tree.unflatten(structure, chosen)


def named_roles(params: Any) -> dict[str, Role]:
    """The roles of the parameters of a tree by their names, in the order of its leaves.

    >>> {name: role.kind for name, role in named_roles({"embed": {"embedding": np.zeros((100, 8))}}).items()}
    {'embed.embedding': 'table'}
    """
    entries = _entries(params)
    sizes = {entry.name: entry.shape for entry in entries}
    depths = _depths(entries, sizes)
    found = {entry.name: _role(entry, sizes, depths) for entry in entries}
    tables = {
        entry.shape[0]
        for entry in entries
        if found[entry.name].kind == "table" and not rules.words(entry.module) & rules.NOT_TEXT
    }
    layers = {
        entry.path: math.prod(entry.shape[axis] for axis in found[entry.name].rows)
        for entry in entries
        if found[entry.name].kind == "matrix" and entry.leaf in rules.WEIGHTS and len(entry.shape) == 2
    }
    wide = rules.outputs(layers, tables, ordered=False)
    for entry in entries:
        if entry.path in wide and entry.leaf in rules.WEIGHTS and len(entry.shape) == 2:
            why = "output layer, as wide as the vocabulary"
            found[entry.name] = rules.table(why, guessed=wide[entry.path])
    return found


def as_matrices(array: jax.Array, role: Role) -> list[jax.Array]:
    """A parameter, or a gradient like it, as batches of matrices: parts of one shape are in one batch.

    >>> role = Role("matrix", rows=(1,), columns=(0,), parts=(4, 4, 4))
    >>> [batch.shape for batch in as_matrices(jnp.zeros((8, 12)), role)]
    [(3, 4, 8)]
    """
    stack = rules.stack_of(role, array.ndim)
    sizes = [math.prod(array.shape[axis] for axis in side) for side in (stack, role.rows, role.columns)]
    whole = jnp.transpose(array, (*stack, *role.rows, *role.columns)).reshape(sizes)
    if len({*role.parts}) == 1:
        return [whole.reshape(-1, role.parts[0], sizes[-1])]
    return jnp.split(whole, np.cumsum(role.parts)[:-1].tolist(), axis=1) if role.parts else [whole]


def from_matrices(batches: Sequence[jax.Array], role: Role, shape: Sequence[int]) -> jax.Array:
    """The array of this shape that `as_matrices` makes these batches of.

    >>> role = Role("matrix", rows=(1,), columns=(0,), parts=(4, 2))
    >>> x = jnp.arange(18.0).reshape(3, 6)
    >>> bool((from_matrices(as_matrices(x, role), role, x.shape) == x).all())
    True
    """
    stack = rules.stack_of(role, len(shape))
    axes = (*stack, *role.rows, *role.columns)
    count, columns = (math.prod(shape[axis] for axis in side) for side in (stack, role.columns))
    whole = jnp.concatenate([batch.reshape(count, -1, columns) for batch in batches], axis=1)
    return jnp.transpose(whole.reshape([shape[axis] for axis in axes]), np.argsort(axes).tolist())


# Names


@dataclass(frozen=True)
class _Entry:
    """One parameter of a tree."""

    name: str
    """Its path, with dots."""
    shape: tuple[int, ...]
    owner: str
    """The class of the module that has it; empty where the tree does not say."""

    @property
    def path(self) -> str:
        """The name of the module that has it, with dots."""
        return self.name.rpartition(".")[0]

    @property
    def leaf(self) -> str:
        """Its own name."""
        return self.name.rpartition(".")[2]

    @property
    def module(self) -> str:
        """The last part of the name of the module that has it."""
        return self.path.rpartition(".")[2]

    @property
    def inputs_first(self) -> bool:
        """Whether a layer has its inputs before its outputs."""
        return self.leaf not in OUTPUTS_FIRST


def _entries(params: Any) -> list[_Entry]:
    return [_entry(params, path, leaf) for path, leaf in jax.tree.leaves_with_path(params)]


def _entry(params: Any, path: tuple[Any, ...], leaf: Any) -> _Entry:
    """A leaf of a tree with its name and the class of the module that it is an attribute of."""
    parts: list[str] = []
    owner, node = "", params
    for place, key in enumerate(path):
        if isinstance(key, jax.tree_util.GetAttrKey):
            if key.name == "value" and place == len(path) - 1 and parts:  # a box around the array, as in flax
                break
            owner, node = type(node).__name__, getattr(node, key.name, None)
            parts.append(key.name)
            continue
        part = getattr(key, "key", getattr(key, "idx", key))
        owner = ""
        node = node[part] if isinstance(node, dict | list | tuple) else None
        parts.extend(word for word in str(part).split("/") if word != "~")
    return _Entry(".".join(parts), _shape(leaf), owner)


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(getattr(leaf, "shape", None) or np.shape(leaf))


def _role(entry: _Entry, sizes: dict[str, tuple[int, ...]], depths: dict[str, int]) -> Role:
    """The role of one parameter among its neighbours."""
    depth = depths[entry.name]
    shape = entry.shape[depth:]
    if rules.is_norm(entry.owner):
        return rules.vector("norm")
    if rules.words(entry.owner) & {"embedding", "embed"} and entry.leaf in (*rules.WEIGHTS, "embedding"):
        positions = rules.is_positions(entry.module)
        return rules.vector("table of positions") if positions else rules.table("embedding")
    gated = _gates(entry, sizes, depth)
    if gated is not None:
        return rules.stacked(gated, depth)
    bias = _bias(entry, sizes)
    name = entry.name
    if rules.words(entry.owner) & {"conv", "convolution"}:
        name = f"{entry.owner}.{entry.leaf}"
    role = rules.by_name(
        name, shape, inputs_first=entry.inputs_first, bias=None if bias is None else _solid(bias[depth:])
    )
    return rules.stacked(role, depth)


def _gates(entry: _Entry, sizes: dict[str, tuple[int, ...]], depth: int) -> Role | None:
    """The role of the joined gates of a recurrent layer; None if the parameter is not one.

    How many gates there are shows in the matrix from the state to them.
    """
    shape = entry.shape[depth:]
    if len(shape) != 2:
        return None
    parent = entry.path.rpartition(".")[0]
    if entry.leaf in ("weight_ih", "weight_hh"):
        rows, columns, partner = (0,), (1,), sizes.get(f"{entry.path}.weight_hh", ())[depth:]
    elif entry.leaf == "kernel" and entry.module in ("dense_i", "dense_h"):
        rows, columns, partner = (1,), (0,), sizes.get(f"{parent}.dense_h.kernel", ())[depth:][::-1]
    elif entry.leaf in ("w_i", "w_h"):
        rows, columns, partner = (1,), (0,), sizes.get(f"{entry.path}.w_h", ())[depth:][::-1]
    elif entry.leaf == "w" and entry.module == "linear" and "lstm" in rules.words(parent.rpartition(".")[2]):
        rows, columns, partner = (1,), (0,), (shape[1], shape[1] // 4)
    else:
        return None
    if len(partner) != 2 or partner[0] != shape[rows[0]] or partner[0] % partner[1]:
        return None
    count = partner[0] // partner[1]
    return rules.matrix(shape, rows, columns, "joined gates", parts=(partner[1],) * count)


def _bias(entry: _Entry, sizes: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The shape of the bias beside the main parameter of a layer, if there is one."""
    if entry.leaf not in rules.WEIGHTS:
        return None
    leaf = "b" if entry.leaf == "w" else "bias"
    return sizes.get(f"{entry.path}.{leaf}" if entry.path else leaf)


def _solid(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a bias without the axes at its end that only let it be added to an image."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape


# Layers in one array


def _depths(entries: list[_Entry], sizes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """How many axes in front of each parameter count layers.

    What is seen at one module holds for the whole block around it whose parameters all begin with the same axes.
    """
    under: dict[str, list[_Entry]] = {}
    for entry in entries:
        parts = entry.path.split(".") if entry.path else []
        for length in range(len(parts) + 1):
            under.setdefault(".".join(parts[:length]), []).append(entry)
    depths = dict.fromkeys(sizes, 0)
    for entry in entries:
        depth = max(_seen(entry, sizes), _named(entry, under))
        if depth <= depths[entry.name]:
            continue
        front, scope = entry.shape[:depth], entry.path
        while scope and all(other.shape[:depth] == front for other in under[scope.rpartition(".")[0]]):
            scope = scope.rpartition(".")[0]
        for other in under[scope]:
            if other.shape[:depth] == front:
                depths[other.name] = max(depths[other.name], depth)
    return depths


def _seen(entry: _Entry, sizes: dict[str, tuple[int, ...]]) -> int:
    """How many axes in front of a norm's or a biased layer's parameter are not its own."""
    if entry.leaf == "scale" and rules.is_norm(entry.module):
        first = next((place for place, size in enumerate(entry.shape) if size > 1), len(entry.shape) - 1)
        return max(len(entry.shape[first:]) - 1, 0)
    bias = _bias(entry, sizes)
    if bias is None or rules.is_norm(entry.owner):
        return 0
    bias = _solid(bias)
    if not entry.inputs_first:
        return len(bias) - 1 if entry.shape[: len(bias)] == bias else 0
    for depth in range(len(bias)):
        own = bias[depth:]
        if bias[:depth] == entry.shape[:depth] and own == entry.shape[-len(own) :] and len(entry.shape) > len(bias):
            return depth
    return 0


def _named(entry: _Entry, under: dict[str, list[_Entry]]) -> int:
    """Whether the name of a module around a parameter says that its first axis counts layers, and all else agrees."""
    parts = entry.path.split(".")
    for length, part in enumerate(parts, 1):
        if not (rules.words(part) & SCANNED or "layer_stack" in part):
            continue
        inside = under[".".join(parts[:length])]
        if all(len(other.shape) >= 2 and other.shape[0] == entry.shape[0] for other in inside):
            return 1
    return 0


# Overrides


def _given(override: Any, params: Any, names: list[str], leaves: list[Any]) -> list[Any]:
    """The role given for each parameter; None where none is."""
    if override is None:
        return [None] * len(leaves)
    if callable(override):
        return [override(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
    try:
        spread = jax.tree.map(
            lambda said, part: [said] * len(jax.tree.leaves(part)), override, params, is_leaf=lambda x: x is None
        )
    except ValueError as error:
        raise ValueError(
            "roles must be a tree like that of the parameters, a prefix of it, or a function of a parameter's name and "
            f"the parameter, got {type(override).__name__}: {re.split(r'[.;]', str(error))[0]}"
        ) from error
    is_list = lambda x: isinstance(x, list) and all(said is None or isinstance(said, str | Role) for said in x)  # noqa: E731
    return [said for part in jax.tree.leaves(spread, is_leaf=is_list) for said in part]
