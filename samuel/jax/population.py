"""Members: networks that train side by side, kept in arrays with one row per member.

A `Recipe` says how one member learns from one batch; `samuel.jax.placement` says where the members do it. The expert
engine and sweeps are made of these two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from samuel.core import combine
from samuel.jax import bases

Tree = Any
"""A pytree of arrays."""


class Member(NamedTuple):
    """One network in training, or many of them with a leading axis."""

    params: Tree
    opt_state: Tree
    model_state: Tree


class Seen(NamedTuple):
    """What a network made of a batch."""

    loss: jax.Array
    model_state: Tree
    aux: Tree


class Recipe:
    """How a member learns: a loss, and a base optimizer that turns its gradient into a direction.

    Args:
        loss_fn: `loss_fn(params, model_state, batch, key)`; gives `(loss, model_state)` or `(loss, model_state, aux)`.
        base: an optax transformation whose updates are steps of rate 1 to be *subtracted* (`optax.scale_by_adam()`),
            the name of one, or, with `hyperparameters`, a function of them that gives one.
        hyperparameters: what differs between members apart from the learning rate, one column of numbers each.

    >>> recipe = Recipe(lambda params, _, batch, key: ((params - batch) ** 2, None), optax.identity())
    >>> member = recipe.newborn(jnp.float32(3.0), None, {})
    >>> member, seen = recipe.learn(member, jnp.float32(0.25), {}, jnp.float32(1.0), jax.random.key(0))
    >>> float(seen.loss), float(member.params)
    (4.0, 2.0)
    """

    def __init__(
        self, loss_fn: Callable[..., Any], base: Any, hyperparameters: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        if not callable(loss_fn):
            raise TypeError(f"loss_fn must be a function of (params, model_state, batch, key), got {loss_fn!r}")
        self.loss_fn = loss_fn
        self.base = _base(base, hyperparameters or {})

    def newborn(self, params: Tree, model_state: Tree, hyper: Mapping[str, Any]) -> Member:
        """A member that starts from these parameters and remembers nothing."""
        return Member(params, self.base(**hyper).init(params), model_state)

    def look(self, params: Tree, model_state: Tree, batch: Tree, key: jax.Array) -> Seen:
        """The loss on a batch."""
        loss, model_state, *aux = self.loss_fn(params, model_state, batch, key)
        return Seen(loss, model_state, aux[0] if aux else None)

    def differentiate(self, params: Tree, model_state: Tree, batch: Tree, key: jax.Array) -> tuple[Seen, Tree]:
        """The loss on a batch, and its gradient."""

        def loss(params: Tree) -> tuple[jax.Array, Seen]:
            seen = self.look(params, model_state, batch, key)
            return seen.loss, seen

        gradient, seen = jax.grad(loss, has_aux=True)(params)
        return seen, gradient

    def follow(self, member: Member, gradient: Tree, rate: jax.Array, hyper: Mapping[str, Any]) -> Member:
        """A step of the base optimizer along a gradient: `params - rate * direction`."""
        directions, opt_state = self.base(**hyper).update(gradient, member.opt_state, member.params)

        def moved(parameter: jax.Array, direction: jax.Array) -> jax.Array:
            # A rate of 0.001 does not survive 8 bits of precision: multiply in at least 32, then round once.
            wide = jnp.promote_types(parameter.dtype, jnp.float32)
            return (parameter - rate.astype(wide) * direction).astype(parameter.dtype)

        return member._replace(params=jax.tree.map(moved, member.params, directions), opt_state=opt_state)

    def learn(
        self, member: Member, rate: jax.Array, hyper: Mapping[str, Any], batch: Tree, key: jax.Array
    ) -> tuple[Member, Seen]:
        """One step on a batch. Where the loss is not finite the member stays as it is: a bad batch breaks nothing."""
        seen, gradient = self.differentiate(member.params, member.model_state, batch, key)
        stepped = self.follow(member, gradient, rate, hyper)._replace(model_state=seen.model_state)
        return choose(jnp.isfinite(seen.loss), stepped, member), seen

    def check(self, params: Tree, model_state: Tree, batch: Tree, key: jax.Array, hyper: Mapping[str, Any]) -> None:
        """Refuse a loss or a base optimizer that does not fit, naming what is wrong. Nothing is computed.

        Raises:
            TypeError: for a loss that is not one floating-point number, or a state that changes its kind.
            ValueError: for trees that do not match.
        """
        found = jax.eval_shape(self.loss_fn, params, model_state, batch, key)
        if type(found) is not tuple or len(found) not in (2, 3):
            raise TypeError(f"loss_fn must return (loss, model_state) or (loss, model_state, aux), got {_told(found)}")
        loss = found[0]
        if not (hasattr(loss, "shape") and loss.shape == () and jnp.issubdtype(loss.dtype, jnp.floating)):
            raise TypeError(
                f"the loss must be one floating-point number (a mean over the batch, say), got {_told(loss)}"
            )
        check_alike("model_state", model_state, found[1], "loss_fn")
        base = self.base(**hyper)
        opt_state = jax.eval_shape(base.init, params)
        directions, after = jax.eval_shape(base.update, params, opt_state, params)
        check_alike("params", params, directions, "the base optimizer", dtypes=False)
        check_alike("the base optimizer's state", opt_state, after, "the base optimizer")


def _base(base: Any, columns: Mapping[str, Sequence[float]]) -> Callable[..., optax.GradientTransformation]:
    if not columns:
        transformation = bases.resolve(base)
        return lambda: transformation
    names = ", ".join(columns)
    if not callable(base):  # a transformation is a pair of functions and no function itself
        raise TypeError(
            f"with hyperparameters, base must be a function of {names} that gives an optax transformation, got {base!r}"
        )
    # Try what will be used, while the numbers are still known: a base may refuse some of them.
    for row in zip(*columns.values(), strict=True):
        bases.resolve(base(**dict(zip(columns, row, strict=True))))
    made: Callable[..., Any] = base
    return made


def learning_rates_of(values: Any, name: str = "learning_rates") -> tuple[float, ...]:
    """Candidate learning rates as a tuple of numbers.

    >>> learning_rates_of([0.1, 1])
    (0.1, 1.0)
    """
    return numbers(values, name, positive=True)


def numbers(values: Any, name: str, positive: bool = False) -> tuple[float, ...]:
    """A list of at least one finite number as a tuple; ValueError otherwise."""
    try:
        listed = tuple(values)
    except TypeError:
        raise ValueError(f"{name} must be a list of numbers, got {values!r}") from None
    if not listed:
        raise ValueError(f"{name} is empty: give at least one")
    for value in listed:
        try:
            good = not isinstance(value, str | bool) and math.isfinite(value) and (value > 0 or not positive)
        except TypeError:
            good = False
        if not good:
            raise ValueError(f"{name} must be {'positive' if positive else 'finite'} numbers, got {value!r}")
    return tuple(float(value) for value in listed)


def combinations(**lists: Sequence[float]) -> dict[str, tuple[float, ...]]:
    """Every combination of the lists' entries, the last list changing fastest, as one column per list.

    >>> combinations(rate=(0.1, 1.0), alpha=(0.9, 1.0))
    {'rate': (0.1, 0.1, 1.0, 1.0), 'alpha': (0.9, 1.0, 0.9, 1.0)}
    """
    return dict(zip(lists, zip(*product(*lists.values()), strict=True), strict=True))


def parameters_of(params: Tree) -> Tree:
    """Parameters as arrays; refuses what cannot be trained.

    >>> parameters_of({"w": 1.0, "steps": 3})
    Traceback (most recent call last):
        ...
    TypeError: params['steps'] is int32[], but parameters are floating-point: keep it in the model state
    """
    if not jax.tree.leaves(params):
        raise ValueError(f"params holds no array: {params!r}")
    params = arrays_of(params, "params")
    for path, leaf in jax.tree.leaves_with_path(params):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise TypeError(
                f"params{jax.tree_util.keystr(path)} is {_told(leaf)}, but parameters are floating-point: "
                "keep it in the model state"
            )
    return params


def arrays_of(tree: Tree, name: str) -> Tree:
    """The leaves of a tree as arrays of a definite dtype, so that they keep it for ever."""

    def converted(path: Any, leaf: Any) -> jax.Array:
        try:
            array = jnp.asarray(leaf)
        except (TypeError, ValueError):
            where = name + jax.tree_util.keystr(path)
            raise TypeError(f"{where} must be an array or a number, got {leaf!r}") from None
        # Typed random keys have no such thing as a weak dtype.
        return jax.lax.convert_element_type(array, array.dtype) if getattr(array, "weak_type", False) else array

    return jax.tree.map_with_path(converted, tree)


def key_of(key: Any) -> jax.Array:
    """A random key: as it is, from a number, or from the old kind that is an array of two integers."""
    if isinstance(key, int) and not isinstance(key, bool):
        return jax.random.key(key)
    if isinstance(key, jax.Array):
        if not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape[-1:] == (2,) and key.dtype == jnp.uint32:
            key = jax.random.wrap_key_data(key)
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            return key
    raise TypeError(f"key must be one jax.random.key(...), or a whole number, got {_told(key)}")


def check_alike(name: str, expected: Tree, found: Tree, author: str, dtypes: bool = True) -> None:
    """Raise if two trees differ in structure, shapes or dtypes, naming the first difference."""
    if jax.tree.structure(expected) != jax.tree.structure(found):
        raise ValueError(
            f"{name} must come back from {author} as it went in, {jax.tree.structure(expected)}, "
            f"got {jax.tree.structure(found)}"
        )
    for (path, old), new in zip(jax.tree.leaves_with_path(expected), jax.tree.leaves(found), strict=True):
        if old.shape != new.shape or (dtypes and old.dtype != new.dtype):
            raise (ValueError if old.shape != new.shape else TypeError)(
                f"{name}{jax.tree_util.keystr(path)} must come back from {author} as {_told(old)}, got {_told(new)}"
            )


def _told(value: Any) -> str:
    """A value in a few words: `float32[3, 2]` for an array."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    return f"a {type(value).__name__}" if isinstance(value, tuple | list | dict) else repr(value)


def usable(tree: Tree) -> jax.Array:
    """Whether every number of a network is finite, and small enough to go on with."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if is_float(leaf)]
    return jnp.stack([combine.usable(leaf).all() for leaf in floats]).all() if floats else jnp.array(True)


def is_float(leaf: Any) -> bool:
    """Whether a leaf holds floating-point numbers, which can be averaged."""
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def choose(first: jax.Array, one: Tree, other: Tree) -> Tree:
    """`one` where a condition holds, `other` elsewhere, of the kind that `other` is."""
    return jax.tree.map(lambda a, b: jnp.where(first, _as(b, a), b), one, other)


def _as(like: jax.Array, value: jax.Array) -> jax.Array:
    return value if value.dtype == like.dtype else value.astype(like.dtype)


def row(tree: Tree, index: Any) -> Tree:
    """One row of stacked arrays."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), tree)


def write_row(tree: Tree, index: Any, value: Tree) -> Tree:
    """Stacked arrays with one row replaced; in place, inside a loop."""
    return jax.tree.map(
        lambda leaf, new: jax.lax.dynamic_update_index_in_dim(leaf, _as(leaf, new), index, 0), tree, value
    )


def refuse_used_up(members: Member) -> None:
    """An error for members whose memory an earlier step has taken over."""
    if any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree.leaves(members)):
        raise ValueError(
            "this state was used up by an earlier step: go on with the one that step returned, or make the engine with "
            "donate=False to keep old ones"
        )


def shape_of_row(tree: Tree) -> Tree:
    """Shapes and dtypes of one row of stacked arrays."""
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree)


def only_if(needed: jax.Array, change: Callable[[Tree], Tree], carry: Tree) -> Tree:
    """`change(carry)` where it is needed, else `carry`, without a copy in either case.

    A loop of one turn or none: compilers change what a loop carries in place, while a branch may copy all of it, also
    when it is not taken.

    >>> only_if(jnp.array(False), lambda x: x + 1, jnp.zeros(2))
    Array([0., 0.], dtype=float32)
    """

    def turn(carry: tuple[jax.Array, Tree]) -> tuple[jax.Array, Tree]:
        return jnp.array(False), change(carry[1])

    return jax.lax.while_loop(lambda carry: carry[0], turn, (needed, carry))[1]
