"""Muon as an optax transformation: matrices by their momentum made orthogonal, everything else by Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import AxisType, PartitionSpec

from samuel.core import orthogonal as core
from samuel.core.arrays import is_traced
from samuel.core.roles import Role
from samuel.jax.roles import as_matrices, from_matrices
from samuel.jax.roles import roles as find_roles

FAR_FROM_SQUARE = 2
"""In place of the ratio in core: nearer to square, the Gram matrix loses digits that runs on several devices, which sum
in another order, must agree in."""


class MuonState(NamedTuple):
    """State of `scale_by_muon`."""

    count: jax.Array
    momentum: Any
    """Mean of the gradients, like the parameters."""
    square: Any
    """Mean of their squares; None for matrices."""


def scale_by_muon(roles: Any | Callable[[str, Any], Any] = None) -> optax.GradientTransformation:
    """Move every matrix along its momentum made orthogonal, so that all directions in it move alike: Muon.

        matrices:          m <- 0.95 m + 0.05 g,      direction = 0.2 sqrt(larger side) orthogonal(m')
        everything else:   Adam, with m' in place of m

    Here `m'` is Nesterov's: the mean as it will be if the next gradient is like this one, free of its start at 0. The
    factor gives entries of the size of Adam's, so Adam's learning rates are usual for both.

    Matrices are found by name and shape (`samuel.jax.roles`): the axes of a convolution or of attention's heads are
    joined; stacks of layers and the parts of a joined projection are separate matrices. Matrices of one shape are
    orthogonalised in one batch.

    Jordan 2024, "Muon: An optimizer for hidden layers in neural networks"; the factor is of Liu et al. 2025, "Muon is
    scalable for LLM training".

    Args:
        roles: overrides of the roles found, as `samuel.jax.roles` takes them.

    >>> import jax.numpy as jnp
    >>> base = scale_by_muon()
    >>> gradient = {"kernel": jnp.diag(jnp.array([1.0, 100.0])), "bias": jnp.array([3.0, 0.0])}
    >>> direction, state = base.update(gradient, base.init(gradient), gradient)
    >>> bool(direction["kernel"][0, 0] > 0.5 * direction["kernel"][1, 1])  # the gradient had a hundredth
    True
    """

    def init(params: optax.Params) -> MuonState:
        found = found_roles(params, roles)
        square = jax.tree.map(lambda role, p: None if _is_matrix(role) else jnp.zeros_like(p), found, params)
        return MuonState(jnp.zeros((), jnp.int32), jax.tree.map(jnp.zeros_like, params), square)

    def update(updates: optax.Updates, state: MuonState, params: Any = None) -> Any:
        leaves, structure = jax.tree.flatten(updates)
        found = jax.tree.leaves(found_roles(updates if params is None else params, roles))
        momenta, squares = jax.tree.leaves(state.momentum), structure.flatten_up_to(state.square)
        count = state.count + 1
        rows = zip(leaves, found, momenta, squares, strict=True)
        own = [_one(g, role, m, square, count) for g, role, m, square in rows]
        directions = _orthogonal([one[0] for one in own], found)
        momenta, squares = ([one[place] for one in own] for place in (1, 2))
        return structure.unflatten(directions), MuonState(
            count, structure.unflatten(momenta), structure.unflatten(squares)
        )

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def found_roles(params: Any, override: Any) -> Any:
    """The roles of a tree's parameters; of an empty tree none."""
    return find_roles(params, override) if jax.tree.leaves(params) else params


def orthogonal(matrices: jax.Array) -> jax.Array:
    """A stack of matrices with all singular values brought near 1, in the precision that suits the device.

    Products are of bfloat16 numbers, added up in 32 bits, where the device has units for them, and otherwise in full
    precision; there, matrices far from square go by way of their Gram matrices, which cannot do with fewer bits.

    >>> bool(jnp.abs(orthogonal(jnp.diag(jnp.array([3.0, 0.1]))) - jnp.eye(2)).max() < 0.35)
    True
    """
    rows, columns = matrices.shape[-2:]
    if rows > columns:
        return orthogonal(matrices.mT).mT
    if jax.default_backend() != "cpu":
        return core.orthogonal(matrices, _short_product)
    return (core.gram_orthogonal if columns >= FAR_FROM_SQUARE * rows else core.orthogonal)(matrices)


def _short_product(x: jax.Array, y: jax.Array) -> jax.Array:
    short = (x.astype(jnp.bfloat16), y.astype(jnp.bfloat16))
    return jnp.matmul(*short, preferred_element_type=jnp.promote_types(x.dtype, jnp.float32))


def _one(g: jax.Array, role: Role, m: jax.Array, square: Any, count: jax.Array) -> tuple[jax.Array, jax.Array, Any]:
    """Of one parameter the direction (of a matrix, before it is made orthogonal) and the means after."""
    beta, square_beta = core.ADAM["betas"]
    beta = core.MOMENTUM if _is_matrix(role) else beta
    count = count.astype(jnp.promote_types(m.dtype, jnp.float32))
    m = beta * m + (1 - beta) * g
    ahead = m * (beta / (1 - beta ** (count + 1))).astype(m.dtype) + g * ((1 - beta) / (1 - beta**count)).astype(
        m.dtype
    )
    if square is None:
        return ahead, m, None
    square = square_beta * square + (1 - square_beta) * g * g
    spread = jnp.sqrt(square / (1 - square_beta**count).astype(m.dtype)) + core.ADAM["eps"]
    return ahead / spread, m, square


def _orthogonal(momenta: list[jax.Array], roles: list[Role]) -> list[jax.Array]:
    """The directions, those of matrices made orthogonal: all of one shape in one go."""
    batches = {
        (place, part): batch
        for place, (m, role) in enumerate(zip(momenta, roles, strict=True))
        if _is_matrix(role)
        for part, batch in enumerate(as_matrices(m, role))
    }
    alike: dict[Any, list[tuple[int, int]]] = {}
    for key, batch in batches.items():
        alike.setdefault((batch.shape[1:], batch.dtype), []).append(key)
    for ((rows, columns), _), keys in alike.items():
        stacks = [batches[key] for key in keys]
        made = _shared(orthogonal)(jnp.concatenate(stacks) if len(stacks) > 1 else stacks[0])
        made = made * (core.SIZE * max(rows, columns) ** 0.5)
        at = 0
        for key, stack in zip(keys, stacks, strict=True):
            batches[key] = made[at : at + len(stack)]
            at += len(stack)
    return [
        from_matrices([batches[key] for key in batches if key[0] == place], role, m.shape) if _is_matrix(role) else m
        for place, (m, role) in enumerate(zip(momenta, roles, strict=True))
    ]


def _shared(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """A function of a stack of matrices, with the stack divided over the devices of the mesh of `jax.set_mesh`.

    Every device then works on whole matrices of its own, which reach it and return by one all-to-all each. A stack of
    fewer matrices than devices, or without a mesh, is left to the compiler.
    """
    mesh = jax.sharding.get_abstract_mesh()
    axes = tuple(name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind == AxisType.Auto)

    def divided(stack: jax.Array) -> jax.Array:
        if mesh.empty or len(axes) < len(mesh.axis_names) or len(stack) < mesh.size or not is_traced(stack):
            return function(stack)
        place = PartitionSpec(axes)
        constrain = jax.lax.with_sharding_constraint
        return constrain(function(constrain(stack, place)), place)

    return divided


def _is_matrix(role: Role) -> bool:
    return role.kind == "matrix"
