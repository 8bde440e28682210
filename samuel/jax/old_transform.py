"""SAMUEL as an optax transformation: the learning rate that tunes itself, at one gradient a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from samuel.core import weights as mw
from samuel.core.arrays import is_traced
from samuel.core.cover import Cover
from samuel.core.rays import Certificate, Rays, RaysState, certify
from samuel.core.rules import follow
from samuel.jax import bases
from samuel.jax.old_vectors import MULTIPLE, pack, products, take_step, unpack, unstacked


def scale_by_muon() -> optax.GradientTransformation:
    """Make the momentum of every matrix orthogonal, so that all directions in it move alike: Muon.

    A matrix of momentum `M = U S V'` becomes `0.2 sqrt(larger side) U V'`, by five steps of an iteration of Newton and
    Schulz, which is roughly there. The factor gives entries of the size of Adam's, so Adam's learning rates are usual.
    Kernels of convolutions are matrices of inputs times outputs, the last axis being the outputs, as flax has them.
    Vectors go to Adam with Nesterov's momentum, and so do tables of word vectors (what has "embedding" in its name),
    whose rows are not used together. It is `optax.contrib.muon`; give that as the base, `optax.chain(..., scale(-1))`,
    for parameters of other layouts or names: many layers in one array, or a convolution named "embedding".

    Jordan 2024; the factor is of Liu et al. 2025, "Muon is scalable for LLM training".

    >>> import jax.numpy as jnp
    >>> base = scale_by_muon()
    >>> gradient = {"kernel": jnp.diag(jnp.array([1.0, 100.0])), "bias": jnp.array([3.0, 0.0])}
    >>> direction, state = base.update(gradient, base.init(gradient), gradient)
    >>> bool(direction["kernel"][0, 0] > 0.5 * direction["kernel"][1, 1])  # the gradient had a hundredth
    True
    """
    # consistent_rms is the factor of 0.2, which lets matrices and Adam's part share one learning rate.
    downhill = optax.contrib.muon(1.0, consistent_rms=0.2, muon_weight_dimension_numbers=_as_matrices)
    return optax.chain(downhill, optax.scale(-1.0))


def _as_matrices(params: Any) -> Any:
    """How Muon is to see each parameter as a matrix, inputs times outputs; None for those that are none."""

    def matrix(path: Any, leaf: Any) -> optax.contrib.MuonDimensionNumbers | None:
        if leaf.ndim < 2 or "embedding" in jax.tree_util.keystr(path):
            return None
        return optax.contrib.MuonDimensionNumbers(tuple(range(leaf.ndim - 1)), leaf.ndim - 1)

    return jax.tree.map_with_path(matrix, params)


class SamuelState(NamedTuple):
    """State of `samuel`. Shapes and dtypes never change."""

    rays: RaysState
    """Weights, clocks and sums."""
    moving: dict[str, Any]
    """The basis vectors that change in every step, each like the parameters."""
    kept: dict[str, Any]
    """Those that change only when a block ends."""
    base: tuple[Any, ...]
    """The base's state: one that all slots share, or one for each."""
    rounding: Any
    """For parameters of less than 32 bits, what they could not hold of the last step; None for the others."""
    average: Any
    """The average of the parameters up to those before the last step, which `decision` completes; None where there is
    none."""


def samuel(
    base: str | optax.GradientTransformation = "adam",
    learning_rates: Sequence[float] | None = None,
    *,
    horizon: int | None = None,
    rule: str = "samuel",
    cover: Cover | None = None,
    Q: int | None = None,
    scale: Literal["rms", "max"] | float | None = None,
    combine: Literal["points", "steps"] | None = None,
    newborns: Literal["fresh", "inherit", "join"] | None = None,
    prior: float | None = None,
    decay: Literal["none", "linear", "sqrt"] | None = None,
    lag: float | None = None,
    reference: Literal["mixture", "long"] | None = None,
    short_rates: Literal["all", "above"] | None = None,
    takeover: float | None = None,
    collapse: float | None = None,
    alarm: float | None = None,
    settle: float | None = None,
    experience: float | None = None,
    patience: float | None = None,
    average: float | None = None,
    base_state: Literal["shared", "slots"] | None = None,
    weight_decay: float | None = None,
    weight_decay_mask: Any | Callable[[optax.Params], Any] | None = None,
    anchor_dtype: Any = None,
    packed: bool | None = None,
) -> optax.GradientTransformationExtraArgs:
    """An optimizer that finds its learning rate while it trains, and finds it again when the data shift.

    Every candidate rate is an expert that stands where training with that rate alone would have taken the directions
    of the base since its block began; the parameters are a weighted mean of the experts. All of them are judged by the
    one gradient that is taken at the parameters. See `samuel.core.rays` for the formulas.

    Use it as any optax optimizer. It needs the parameters in `update`, and nothing else of your loop changes. To test
    or use a network, `decision` has parameters that are less noisy than those of the last step.

    Args:
        base: what gives the directions: "adam", "muon", "adagrad", "momentum", "sgd", or any optax transformation
            *without a learning rate*, such as `optax.scale_by_adam(b2=0.95)` or a chain of them.
        learning_rates: the candidates. By default six decades in steps of half a decade, where people sweep for that
            base: from 1e-6 to 1 for "adam", "muon", "momentum" and any transformation of your own, from 1e-5 to 10
            for "adagrad" and "sgd". A long list costs nothing.
        horizon: the number of steps of the whole run, if you know it: rates then fall linearly to 0 at its end, and a
            run that goes on beyond it begins another of that length. Without it they fall as the root of time.
        rule: the ready set of the options below. "samuel" (the default): one block, as long as the run, whose first
            rounds decide about the rate; it starts anew when the gradient leaps, and `decision` averages over its last
            ninth. "patient": the same, but slow to believe in small rates, for short runs of large networks. "R": the
            long block alone, which learns about rates to its end, no restart, no average; "K", "Kr": the same with
            short blocks beside it, restarting when they take over, judged against the mixture or against the long block
            (these three need a horizon). "levels": eight doubling blocks whose steps are mixed. "theorem": the paper's
            own weights on eight doubling blocks, with the guarantee on every interval where losses are convex.
        cover: which blocks run: `samuel.core.Watched`, `Anytime`, `Geometric`, `Fixed` or `Chosen`.
        Q: with how many step sizes every weight is kept.
        scale: what gains are measured by: "rms" (each expert's own root mean square), "max" (the largest so far, which
            keeps the theorem), or a known bound.
        combine: "points" (the parameters are the mean of the experts' points) or "steps" (each step is the mean of
            their steps).
        newborns: experts of a new block start "fresh" at the parameters with their prior weight; "inherit" their
            block's mean and weight and add the prior; or "join" the other blocks at their mean, with their prior share
            of the weight.
        prior: weight of a rate at birth, as a power of the rate. -0.5 makes wide lists safe: the long block starts with
            the geometric mean of the smallest and the largest rate.
        decay: how rates fall over a block: "none", "linear" or "sqrt".
        lag: experts are judged at a moving average of their positions with this factor; 0 judges them where they are.
            By default, under the rules "samuel" and "patient", 0.5, and over "muon", which remembers longer, 0.67.
        reference: experts are compared with the whole "mixture" or with the mean of the "long" block.
        short_rates: rates that newborns of shorter blocks carry: "all", or those "above" the long block's.
        takeover: restart everything when the long block's share of the weight falls below this; 0 for never.
        collapse: restart everything when the long block's rate falls below this part of its slow average: the run
            would rather go back than on. 0 for never.
        alarm: restart everything when two gradients in a row have a square of more than this times the mean, that since
            the last restart and that of about the last hundred: the data have shifted. What is known about rates is
            kept; `experience` says how much new evidence it takes to change it. 0 for never. Gradients that were
            clipped before they come here cannot leap.
        settle: what the block's round `n` says about rates counts `(1 + n / settle) ** -1.5`: after some hundred rounds
            the rate hardly moves, as it should when a network is about to settle. The rule "samuel" has 100; 0
            for no end of learning, as in the others.
        experience: once the data have shifted, what a block says about rates counts as if the block were this many
            rounds older, or as many as there were before the shift if that is less, up to the next horizon: it
            begins with what was learned before, and the rate need not be found anew. Rates then begin with a half and
            are whole again after `settle` rounds. 0 for a block that learns as the first one did. The rules "samuel"
            and "patient" have 1000 over "muon", and 0 over other bases. It needs `settle`.
        patience: what speaks for smaller rates in the run's round `n` counts `1.5 n / (n + patience)` times what it
            would: less at first, because a network's first steps are noisy and look worse than they are, and half as
            much again in the end. It counts in full where the square of the gradient is more than twice its mean so
            far, and once everything has begun anew, after a shift or a horizon. Meant for one long block. The rule
            "patient" has 100; 0 for no such thing, as in the others.
        average: `decision` averages the parameters with weights that grow as this power of the time since the last
            restart, 8 for about its last ninth; 0 for no average, which saves a copy of the parameters.
        base_state: "shared" by all blocks, or one for each of the "slots". A base that never forgets ("adagrad")
            should have one for each, where there are several.
        weight_decay: decoupled: in every step parameters shrink by this times the learning rate in use.
        weight_decay_mask: which parameters that is for: a tree of booleans, or a function of the parameters.
        anchor_dtype: dtype of the vectors that are only read between block ends, such as `jnp.bfloat16`.
        packed: keep the optimizer's vectors packed into one array each, which is much faster, or as trees like the
            parameters, which keeps parameters that are spread over devices where they are. By default packed where
            there is only one device.

    Returns:
        An `optax.GradientTransformationExtraArgs`. `learning_rate`, `decision`, `weights` and `certificate` read its
        state.

    >>> import jax, jax.numpy as jnp, optax
    >>> import samuel.jax.old_transform
    >>> optimizer = samuel.jax.old_transform.samuel("adam")
    >>> params = {"w": jnp.array([3.0, -2.0])}
    >>> state = optimizer.init(params)
    >>> @jax.jit
    ... def step(params, state):
    ...     gradient = jax.grad(lambda params: jnp.sum(params["w"] ** 2))(params)
    ...     updates, state = optimizer.update(gradient, state, params)
    ...     return optax.apply_updates(params, updates), state
    >>> for _ in range(300):
    ...     params, state = step(params, state)
    >>> bool(jnp.abs(params["w"]).max() < 0.1)
    True
    """
    direction = optax.with_extra_args_support(scale_by_muon()) if base == "muon" else bases.resolve(base)
    decay_rate = _checked_decay(weight_decay)
    shapeless = isinstance(base, str) and base not in bases.SHAPED
    plan = follow(
        rule,
        learning_rates,
        base=base if isinstance(base, str) else None,
        horizon=horizon,
        cover=cover,
        Q=Q,
        scale=scale,
        combine=combine,
        newborns=newborns,
        prior=prior,
        decay=decay,
        lag=lag,
        reference=reference,
        short_rates=short_rates,
        takeover=takeover,
        collapse=collapse,
        alarm=alarm,
        settle=settle,
        experience=experience,
        patience=patience,
        average=average,
        base_state=base_state,
        weight_decay=decay_rate,
    )
    if packed not in (None, True, False):
        raise ValueError(f"packed must be True, False or None, got {packed!r}")
    anchors_in = _checked_dtype(anchor_dtype)

    shapes_seen: set[tuple[tuple[int, ...], ...]] = set()
    """Of the parameters that `init` was called with; packed vectors do not tell."""

    def in_one() -> bool:
        return jax.device_count() == 1 if packed is None else packed

    def for_base(tree: Any) -> Any:
        """Gradients or parameters as the base takes them: packed where it does not care for shapes."""
        return pack(tree) if in_one() and shapeless else tree

    def init(params: optax.Params) -> SamuelState:
        _refuse_parameters(params)
        shapes_seen.add(_shapes(params))
        params = jax.tree.map(jnp.asarray, params)
        full = _at_least_float32(params)
        vector = pack(full) if in_one() else full
        wide = for_base(full)
        return SamuelState(
            rays=jax.tree.map(jnp.copy, plan.start(jnp.zeros((), jnp.float32))),  # no buffer twice: it may be donated
            moving={name: jax.tree.map(_zeros_beside, vector) for name in plan.moving},
            kept={name: jax.tree.map(lambda p: _zeros_beside(p, anchors_in), vector) for name in plan.kept},
            base=tuple(_placed_like(wide, direction.init(wide)) for _ in range(plan.directions)),
            rounding=jax.tree.map(lambda p: _zeros_beside(p) if _is_short(p) else None, params),
            average=jax.tree.map(jnp.copy, vector) if plan.averages else None,
        )

    def update(
        updates: optax.Updates, state: SamuelState, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, SamuelState]:
        _refuse_other_state(state, plan)
        _refuse_mismatch(updates, state, params, in_one())
        if shapes_seen and _shapes(params) not in shapes_seen:
            raise ValueError(
                f"the parameters have the shapes {_shapes(params)}, but the optimizer was initialised for "
                f"{' or '.join(map(str, shapes_seen))}"
            )
        params = jax.tree.map(jnp.asarray, params)
        gradient, full = _at_least_float32(updates), _at_least_float32(params)
        mean = state.average
        if plan.averages:  # only now is it known where the last step led: what follows us in a chain may change it
            mean = _nearer(mean, pack(full) if in_one() else full, state.rays.pace)
        vector = pack(gradient) if in_one() else gradient
        moving, kept = [state.moving[name] for name in plan.moving], [state.kept[name] for name in plan.kept]
        rays, moves = plan.advance(state.rays, products(vector, [*moving, *kept, vector]))

        wide_gradient, wide = vector if in_one() and shapeless else gradient, for_base(full)
        stepped = [direction.update(wide_gradient, own, wide, **extra) for own in state.base]
        directions = [pack(step) if in_one() and not shapeless else step for step, _ in stepped]
        change, moving, kept = take_step(moving, kept, directions, moves, plan.enters)

        change = unpack(change, params) if in_one() else change
        if decay_rate is not None:
            shrink = rays.rate * decay_rate
            marked = _mask(weight_decay_mask, params)
            change = jax.tree.map(lambda c, p, m: jnp.where(m, c - shrink * p, c), change, full, marked)
        change, rounding = _fit(change, state.rounding, params)

        restarted = unstacked(moves.restarted) if plan.base_state == "slots" else [moves.reset]
        base_after = tuple(
            jax.tree.map(partial(jnp.where, anew), _alike(direction.init(wide), own), own)
            for anew, (_, own) in zip(restarted, stepped, strict=True)
        )
        moving, kept = dict(zip(plan.moving, moving, strict=True)), dict(zip(plan.kept, kept, strict=True))
        return change, SamuelState(rays, moving, kept, base_after, rounding, mean)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


# Reading the state


def learning_rate(state: Any) -> jax.Array:
    """The learning rate in use: that of the last step, all experts and the decay taken together.

    Args:
        state: the state of `samuel`, or of any optax optimizer that has it inside. May be traced.

    >>> import jax.numpy as jnp
    >>> from samuel.jax.old_transform import learning_rate, samuel
    >>> state = samuel("sgd", (0.01, 0.1, 1.0)).init(jnp.zeros(3))
    >>> round(float(learning_rate(state)), 3)  # training begins in the middle of the list
    0.1
    """
    return _found(state).rays.rate


def decision(state: Any, params: optax.Params) -> optax.Params:
    """The parameters to test and use: the average of those trained, which has less of the steps' noise.

    Training goes on with the parameters themselves. Where a network carries statistics of its own along (batch norm),
    those that belong to the average are their average at the same `pace`.

    Args:
        state: the state of `samuel`, or of any optax optimizer that has it inside. May be traced.
        params: the parameters as they are now, which are the last to enter the average. They are returned where the
            rule keeps none, and so are those that `optax.masked` or `optax.partition` keeps from it.

    >>> import jax.numpy as jnp
    >>> from samuel.jax.old_transform import decision, samuel
    >>> optimizer = samuel("sgd")
    >>> params, state = jnp.ones(2), optimizer.init(jnp.ones(2))
    >>> for t in range(100):
    ...     updates, state = optimizer.update(params + (-1) ** t, state, params)  # a noisy gradient of |x|^2 / 2
    ...     params = params + updates
    >>> bool(jnp.linalg.norm(decision(state, params)) < 0.5)
    True
    """
    own = _found(state)
    if own.average is None:
        return params
    # Packed or not, `rounding` has the structure of the parameters; those that are masked out are not ours.
    marks, structure = jax.tree.flatten(own.rounding, is_leaf=lambda node: node is None or _is_masked(node))
    try:
        parts = structure.flatten_up_to(params)
    except ValueError:
        raise ValueError(
            f"the parameters have the structure {jax.tree.structure(params)}, but the optimizer was initialised for "
            f"{structure}"
        ) from None
    ours = [part for part, mark in zip(parts, marks, strict=True) if not _is_masked(mark)]
    leaves, inside = jax.tree.flatten(ours)  # flax.nnx keeps every array in a node of its own
    trained = [jnp.asarray(leaf) for leaf in leaves]
    mean = _nearer(_parted(own.average, trained), _at_least_float32(trained), own.rays.pace)
    found = iter(inside.unflatten([leaf.astype(p.dtype) for leaf, p in zip(mean, trained, strict=True)]))
    return structure.unflatten(
        [part if _is_masked(mark) else next(found) for part, mark in zip(parts, marks, strict=True)]
    )


def pace(state: Any) -> jax.Array:
    """How far the average went towards the parameters in the last step; see `decision`.

    To average anything else along, such as batch statistics: `optax.incremental_update(new, average, pace(state))`.

    >>> import jax.numpy as jnp
    >>> from samuel.jax.old_transform import pace, samuel
    >>> optimizer = samuel("sgd")
    >>> params, state = jnp.ones(2), optimizer.init(jnp.ones(2))
    >>> for _ in range(3):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = params + updates
    >>> round(float(pace(state)), 3)  # 9 / (3 + 9)
    0.75
    """
    return _found(state).rays.pace


def weights(state: Any) -> jax.Array:
    """The weight of every expert in the decision, `(slots, rates)`, summing to 1; see `learning_rate`.

    The rates are in ascending order; the slots go from the shortest block to the longest.
    """
    return mw.shares(_found(state).rays.weights)


def certificate(state: Any) -> Certificate:
    """How far the decisions were behind each expert of the running blocks; see `learning_rate` and `Certificate`.

    >>> import jax.numpy as jnp
    >>> from samuel.jax.old_transform import certificate, samuel
    >>> optimizer = samuel("sgd", (0.01, 0.1, 1.0))
    >>> params, state = jnp.ones(2), optimizer.init(jnp.ones(2))
    >>> for _ in range(5):
    ...     updates, state = optimizer.update(params, state, params)  # the gradient of |x|^2 / 2
    ...     params = params + updates
    >>> report = certificate(state)
    >>> bool((report.measured[-1] <= report.bound[-1]).all())  # of the long block
    True
    """
    return certify(_found(state).rays)


def shifts(state: Any) -> jax.Array:
    """How often everything was restarted because the data seemed to have shifted; see `learning_rate`.

    Not a count of changes in the data: under the default rule, of leaps of the gradient. A slow change makes none.
    """
    return _found(state).rays.shifts


def _found(state: Any) -> SamuelState:
    inside = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, SamuelState))
    found = [node for node in inside if isinstance(node, SamuelState)]
    if len(found) != 1:
        what = "no state of samuel" if not found else f"{len(found)} states of samuel; pass one of them"
        raise ValueError(f"expected the state of one samuel optimizer, got a {type(state).__name__} with {what}")

    def is_variable(node: Any) -> bool:  # flax.nnx keeps every array in one, and each is a tree of its own
        return type(node).__module__.startswith("flax.") and (hasattr(node, "get_value") or hasattr(node, "value"))

    def value(node: Any) -> Any:
        return node.get_value() if hasattr(node, "get_value") else node.value

    return jax.tree.map(lambda leaf: value(leaf) if is_variable(leaf) else leaf, found[0], is_leaf=is_variable)


# Trees


def _nearer(mean: Any, params: Any, pace: jax.Array) -> Any:
    """The average after the parameters have entered it."""
    return jax.tree.map(lambda mean, p: mean + pace.astype(p.dtype) * (p - mean), mean, params)


def _parted(vector: Any, params: list[jax.Array]) -> list[jax.Array]:
    """A vector of the state, packed or a tree, as a list of arrays like these parameters."""
    leaves = jax.tree.leaves(vector)
    if _shapes(leaves) == _shapes(params):
        return leaves
    size = sum(p.size for p in params)
    if len(leaves) == 1 and leaves[0].ndim == 1 and 0 <= leaves[0].size - size < MULTIPLE:
        return unpack(leaves[0], params)
    raise ValueError(f"the parameters have the shapes {_shapes(params)}, but the state {_shapes(leaves)}")


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _alike(tree: Any, like: Any) -> Any:
    """The tree with the dtypes of another: a branch must return what its counterpart returns."""
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), tree, like)


def _at_least_float32(tree: Any) -> Any:
    """Parameters or gradients as the base and the sums want them: 16 bits are too few to add small steps up."""

    def widened(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf)
        return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))

    return jax.tree.map(widened, tree)


def _zeros_beside(leaf: jax.Array, dtype: Any = None) -> jax.Array:
    """Zeros with the placement of a leaf, also in a compiled `init`: made *from* it, for the compiler to see."""
    return jnp.where(False, leaf, 0).astype(dtype or leaf.dtype)


def _placed_like(params: Any, state: Any) -> Any:
    """The base's state with what is like the parameters placed where they are, also in a compiled `init`."""
    structure = jax.tree.structure(params, is_leaf=_is_masked)

    def is_like(node: Any) -> bool:  # also where a part of the parameters is masked: Muon has two such parts
        return jax.tree.structure(node, is_leaf=_is_masked) == structure

    def placed(node: Any) -> Any:
        if not is_like(node) or not all(map(is_traced, jax.tree.leaves(node))):
            return node  # not compiled: optax has placed it already
        return jax.tree.map(beside, node, params, is_leaf=_is_masked)

    def beside(leaf: Any, p: Any) -> Any:
        if _is_masked(leaf) or p.shape != leaf.shape:
            return leaf
        return jnp.where(False, p.astype(leaf.dtype), leaf)

    return jax.tree.map(placed, state, is_leaf=is_like)


def _is_short(leaf: jax.Array) -> bool:
    return jnp.finfo(leaf.dtype).bits < 32


def _fit(change: Any, rounding: Any, params: Any) -> tuple[Any, Any]:
    """The change in the dtype of the parameters, and what they could not hold of it, to be made up for later."""

    def fitted(change: jax.Array, rest: jax.Array | None, p: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        if rest is None:
            return change.astype(p.dtype), None
        bits = jnp.finfo(p.dtype)

        def rounded(x: jax.Array) -> jax.Array:  # a plain cast there and back may be optimised away
            return jax.lax.reduce_precision(x, bits.nexp, bits.nmant)

        here = p.astype(jnp.float32)
        wanted = change + rest.astype(jnp.float32)
        step = rounded(rounded(here + wanted) - here)
        reached = rounded(here + step)
        return step.astype(p.dtype), (wanted - (reached - here)).astype(p.dtype)

    changes, structure = jax.tree.flatten(change)
    rests = structure.flatten_up_to(rounding)
    pairs = [fitted(*three) for three in zip(changes, rests, jax.tree.leaves(params), strict=True)]
    return structure.unflatten([step for step, _ in pairs]), structure.unflatten([rest for _, rest in pairs])


# Refusing what cannot work


def _refuse_parameters(params: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"samuel trains floating-point parameters, got {dtype} at "
                f"params{jax.tree_util.keystr(path)}; leave it out with optax.masked, or for complex parameters wrap "
                "the optimizer in optax.contrib.split_real_and_imaginary"
            )


def _shapes(tree: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(jnp.shape(leaf) for leaf in jax.tree.leaves(tree))


def _refuse_other_state(state: Any, plan: Rays) -> None:
    if not isinstance(state, SamuelState):
        raise ValueError(f"state must be what this optimizer's init returned, got a {type(state).__name__}")
    ours = {*plan.moving}, {*plan.kept} | _also(plan.averages), (plan.slots, len(plan.learning_rates), plan.Q)
    has_average = state.average is not None
    theirs = {*state.moving}, {*state.kept} | _also(has_average), state.rays.weights.value.shape
    if ours != theirs:
        raise ValueError(
            "the state was made by an optimizer with other options: it has the vectors "
            f"{sorted(theirs[0] | theirs[1])} and weights of {theirs[2]} (slots, rates, Q), and this one needs "
            f"{sorted(ours[0] | ours[1])} and {ours[2]}"
        )


def _also(averages: bool) -> set[str]:
    return {"average"} if averages else set()


def _refuse_mismatch(updates: Any, state: SamuelState, params: Any, packed: bool) -> None:
    if params is None:
        raise ValueError("samuel needs the parameters: call update(gradients, state, params)")
    ours = next(iter(state.moving.values()))
    _refuse_other_shapes("gradients", updates, "parameters", params)
    if not packed:
        _refuse_other_shapes("parameters", params, "optimizer's state", ours)
        return
    then, now = (jax.tree.structure(tree, is_leaf=lambda node: node is None) for tree in (state.rounding, params))
    if then != now:
        raise ValueError(f"the parameters have the structure {now}, but the optimizer was initialised for {then}")
    size = sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))
    if not (isinstance(ours, jax.Array) and 0 <= ours.size - size < MULTIPLE):
        raise ValueError(f"the parameters have {size} numbers, but the optimizer was initialised for {ours.size}")


def _refuse_other_shapes(name: str, tree: Any, other_name: str, other: Any) -> None:
    ours, theirs = jax.tree.structure(tree), jax.tree.structure(other)
    if ours != theirs:
        raise ValueError(f"the {name} have the structure {ours}, but the {other_name} {theirs}")
    for (path, leaf), like in zip(jax.tree_util.tree_leaves_with_path(tree), jax.tree.leaves(other), strict=True):
        if jnp.shape(leaf) != jnp.shape(like):
            raise ValueError(
                f"the {name} have shape {jnp.shape(leaf)} at {jax.tree_util.keystr(path) or 'the top'}, but the "
                f"{other_name} {jnp.shape(like)}"
            )


def _checked_decay(weight_decay: Any) -> Any:
    if weight_decay is None or is_traced(weight_decay):
        return weight_decay
    number = isinstance(weight_decay, int | float) or hasattr(weight_decay, "dtype")
    if not number or isinstance(weight_decay, bool) or not 0 <= float(weight_decay) < float("inf"):
        raise ValueError(f"weight_decay must be a number of at least 0, got {weight_decay!r}")
    return None if weight_decay == 0 else weight_decay


def _checked_dtype(dtype: Any) -> Any:
    if dtype is None:
        return None
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise ValueError(f"anchor_dtype must be a floating-point dtype such as jnp.bfloat16, got {dtype!r}")
    return found


def _mask(mask: Any, params: Any) -> Any:
    if mask is None:
        return jax.tree.map(lambda _: True, params)
    mask = mask(params) if callable(mask) else mask
    if jax.tree.structure(mask) != jax.tree.structure(params):
        raise ValueError(
            f"weight_decay_mask has the structure {jax.tree.structure(mask)}, the parameters have "
            f"{jax.tree.structure(params)}"
        )
    return mask
