"""SAMUEL as an optax transformation: the learning rate that tunes itself, at one gradient a step."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from samuel.core.arrays import is_traced
from samuel.core.options import between, refuse_unknown
from samuel.core.rate_search import RateSearch, evidence, search_for
from samuel.core.roles import guess_warning
from samuel.core.rule import Rule, RuleState
from samuel.jax import bases
from samuel.jax.muon import found_roles
from samuel.jax.roles import named_roles
from samuel.jax.vectors import Place, apart, factors, fit, narrowed, products, step


class SamuelState(NamedTuple):
    """State of `samuel`. Shapes and dtypes never change."""

    rule: RuleState
    """Weights, clocks and sums: some hundred numbers."""
    prior: jax.Array
    """Weights of the candidate rates before the first step."""
    sum: Any
    """Sum of the base's directions, like the parameters."""
    lag: Any
    """Moving sum of the last of them."""
    base: Any
    """The base's state."""
    rounding: Any
    """For parameters of less than 32 bits, what they could not hold of the last step; None for the others."""
    average: Any
    """Average of the parameters up to those before the last step, which `averaged` completes; None where there is
    none."""


def _named_options(make: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with an error for unknown options that says what replaces those of old."""
    known = inspect.signature(make).parameters

    @functools.wraps(make)
    def checked(*args: Any, **options: Any) -> Any:
        refuse_unknown([name for name in options if name not in known], [*known])
        return make(*args, **options)

    return checked


@_named_options
def samuel(
    base: str | optax.GradientTransformation = "muon",
    learning_rates: Sequence[float] | None = None,
    *,
    steps: int | None = None,
    weight_decay: float = 0.1,
    average: bool | None = None,
    on_shift: str = "restart",
    clip: float | None = None,
    search: RateSearch | None = None,
    state_dtype: Any = None,
    roles: Any | Callable[[str, Any], Any] = None,
) -> optax.GradientTransformationExtraArgs:
    """Learning-rate-free optimizer: finds its learning rate while a network trains, and again when the data shift.

    An optax optimizer like any other; `update` needs the parameters. By default matrices are trained with Muon and
    everything else with Adam, each with a search for its learning rate. The roles of parameters are found from the
    names and shapes in their tree; `samuel.jax.roles(params)` lists them. `samuel.core.rule` has the formulas.

    A schedule multiplies the rate that was found: `optax.chain(samuel(), optax.scale_by_schedule(...))`.

    Args:
        base: what gives the directions: "muon" (for matrices, and Adam for the rest), "adam", "adagrad", "momentum",
            "sgd", or any optax transformation *without a learning rate*, such as `optax.scale_by_adam(b2=0.95)`.
        learning_rates: candidate learning rates. By default six decades in steps of half a decade, where people sweep
            for that base: from 1e-6 to 1, and from 1e-5 to 10 for SGD and Adagrad. A long list costs nothing.
        steps: number of steps of the whole run, if known: rates then fall linearly to 0 at its end, and no scheduler is
            needed. Without it they fall with the root of time, and the averaged parameters are the ones to use. The
            state stores it; `extend` changes it.
        weight_decay: decoupled weight decay of matrices and tables; vectors (biases, factors of norms) have none.
        average: keep averaged parameters, at the cost of one copy. By default if `steps` is not given.
        on_shift: what to do when the gradient norm leaps because the data have shifted: "restart" the search, with what
            was learned about rates, or "ignore" it.
        clip: largest norm of the whole gradient. Clip here and not before: the shift detector needs the unclipped norm.
        search: settings of the search, a `samuel.core.RateSearch`, in place of the default for the base.
        state_dtype: dtype of the direction sum, its lag and the average: by default bfloat16 for parameters in
            bfloat16, and otherwise float32 (float64 for parameters in float64). Give "float32" or "bfloat16", which
            takes half the memory.
        roles: overrides of the roles found: a tree of "matrix", "table", "vector" or None (as found) like that of the
            parameters, or a prefix of it; or a function of a parameter's name, with dots, and the parameter.

    Returns:
        An `optax.GradientTransformationExtraArgs`. `averaged`, `learning_rate`, `weights`, `shifts` and `skipped` read
        its state.

    >>> import jax, jax.numpy as jnp, optax
    >>> import samuel
    >>> optimizer = samuel.jax.samuel()
    >>> params = {"kernel": jnp.array([[3.0, -2.0], [1.0, 4.0]]), "bias": jnp.array([3.0, -2.0])}
    >>> state = optimizer.init(params)
    >>> @jax.jit
    ... def step(params, state):
    ...     gradient = params  # of half the squared norm
    ...     updates, state = optimizer.update(gradient, state, params)
    ...     return optax.apply_updates(params, updates), state
    >>> for _ in range(300):
    ...     params, state = step(params, state)
    >>> bool(jnp.abs(samuel.jax.averaged(state, params)["kernel"]).max() < 0.1)
    True
    """
    direction = bases.resolve(base, roles)
    name = base if isinstance(base, str) else None
    by_muon = name == "muon"
    search = search_for(name, learning_rates, search)
    average = steps is None if average is None else average
    rule = Rule(search, groups=2 if by_muon else 1, steps=steps, average=average, on_shift=on_shift, clip=clip)
    between("weight_decay", weight_decay, 0.0, math.inf, low_included=True)
    given_dtype = _checked_dtype(state_dtype)

    def places(params: Any) -> list[Place]:
        found = jax.tree.leaves(found_roles(params, roles))
        return [Place(int(by_muon and role.kind != "matrix"), int(role.kind == "vector")) for role in found]

    @functools.cache  # once for each optimizer
    def warn(text: str) -> None:
        warnings.warn(text, stacklevel=4)

    def warn_of_guesses(params: Any) -> None:
        text = guess_warning(
            dict(zip(named_roles(params), jax.tree.leaves(found_roles(params, roles)), strict=True)),
            "Give roles=, a tree or a function of the name, of 'matrix', 'table' or 'vector'; samuel.jax.roles(params) "
            "shows all roles",
        )
        if text:
            warn(text)

    def init(params: optax.Params) -> SamuelState:
        _refuse_parameters(params)
        places(params)  # refuses roles that do not fit
        if by_muon:
            warn_of_guesses(params)
        params = jax.tree.map(jnp.asarray, params)
        full = _at_least_float32(params)
        state = rule.start(jnp.zeros((), jnp.float32))
        kept = lambda p: _zeros_beside(p, _dtype_of_state(p.dtype, given_dtype))  # noqa: E731
        started = SamuelState(
            rule=state,
            prior=search.shares(state.search)[0],
            sum=jax.tree.map(kept, params),
            lag=jax.tree.map(kept, params),
            base=_placed_like(full, direction.init(full)),
            rounding=jax.tree.map(lambda p: _zeros_beside(p) if _is_short(p) else None, params),
            average=jax.tree.map(lambda p: p.astype(_dtype_of_state(p.dtype, given_dtype)), params)
            if rule.average
            else None,
        )
        return jax.tree.map(jnp.copy, started)  # no buffer twice: it may be donated

    def update(
        updates: optax.Updates, state: SamuelState, params: optax.Params | None = None, **extra: Any
    ) -> tuple[optax.Updates, SamuelState]:
        _refuse_other_state(state, rule)
        _refuse_mismatch(updates, state, params)
        params = jax.tree.map(jnp.asarray, params)
        full = _at_least_float32(params)
        gradient = _at_least_float32(updates)
        mean = state.average
        if rule.average:  # only now is it known where the last step led: what follows us in a chain may change it
            mean = jax.tree.map(lambda old, p: _nearer(old, p, state.rule), mean, full)

        leaves, structure = jax.tree.flatten(params)
        wide, sums, lags = jax.tree.leaves(full), jax.tree.leaves(state.sum), jax.tree.leaves(state.lag)
        where = places(params)
        dots, squares = products(jax.tree.leaves(gradient), sums, lags, where, rule.groups)
        decay = jnp.asarray([weight_decay, 0.0], jnp.float32)[None]

        def advance(*of_rule: Any) -> Any:
            after, moves = rule.advance(*of_rule)
            return after, moves, factors(moves, search.lag)

        after, moves, scalars = apart(advance, state.rule.round, state.rule, dots, squares, decay)

        usable = moves.gradient > 0
        scaled = jax.tree.map(lambda g: jnp.where(usable, g * moves.gradient.astype(g.dtype), 0), gradient)
        steps, stepped = direction.update(scaled, state.base, full, **extra)
        base = jax.tree.map(
            lambda fresh, new, old: jnp.where(moves.reset, fresh.astype(old.dtype), jnp.where(usable, new, old)),
            jax.tree.map(jnp.asarray, direction.init(full)),
            stepped,
            state.base,
        )

        rests = structure.flatten_up_to(state.rounding)
        changes, new_sums, new_lags, new_rests = [], [], [], []
        for p, x, s, lag, d, rest, place in zip(
            leaves, wide, sums, lags, jax.tree.leaves(steps), rests, where, strict=True
        ):
            change, s, lag = step(x, s, lag, d.astype(x.dtype), scalars.at(place, x.dtype), state.rule.round)
            change, rest = fit(change, rest, p)
            for values, value in zip((changes, new_sums, new_lags, new_rests), (change, s, lag, rest), strict=True):
                values.append(value)
        new = SamuelState(
            rule=after,
            prior=state.prior,
            sum=structure.unflatten(new_sums),
            lag=structure.unflatten(new_lags),
            base=base,
            rounding=structure.unflatten(new_rests),
            average=mean,
        )
        return structure.unflatten(changes), new

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore[reportArgumentType]


# Reading the state


def learning_rate(state: Any) -> jax.Array:
    """The learning rate of the last step: one number, or over "muon" two, of matrices and of everything else.

    Args:
        state: the state of `samuel`, or of any optax optimizer that has it inside. May be traced.

    >>> import jax.numpy as jnp
    >>> from samuel.jax import learning_rate, samuel
    >>> state = samuel("sgd", (0.01, 0.1, 1.0)).init(jnp.zeros(3))
    >>> round(float(learning_rate(state)), 3)  # training begins in the middle of the list
    0.1
    """
    return _one_or_two(_found(state).rule.search.rate, 0)


def averaged(state: Any, params: optax.Params) -> optax.Params:
    """The averaged parameters, to evaluate and to deploy: they have less of the noise of single steps.

    The average is over the last part of training since the last shift. Training continues with the parameters
    themselves. Average other variables, such as batch statistics, with the same `pace`.

    Args:
        state: the state of `samuel`, or of any optax optimizer that has it inside. May be traced.
        params: the current parameters, the last to enter the average. Returned unchanged where no average is kept, as
            are those that `optax.masked` or `optax.partition` excludes.

    >>> import jax.numpy as jnp
    >>> from samuel.jax import averaged, samuel
    >>> optimizer = samuel("sgd")
    >>> params, state = jnp.ones(2), optimizer.init(jnp.ones(2))
    >>> for t in range(100):
    ...     updates, state = optimizer.update(params + (-1) ** t, state, params)  # a noisy gradient of |x|^2 / 2
    ...     params = params + updates
    >>> bool(jnp.linalg.norm(averaged(state, params)) < 0.5)
    True
    """
    own = _found(state)
    if own.average is None:
        return params
    means, structure = jax.tree.flatten(own.average, is_leaf=_is_masked)
    try:
        parts = structure.flatten_up_to(params)
    except ValueError:
        raise ValueError(
            f"the parameters have the structure {jax.tree.structure(params)}, but the optimizer was initialised for "
            f"{structure}"
        ) from None

    def completed(mean: Any, part: Any) -> Any:
        if _is_masked(mean):
            return part
        leaves, inside = jax.tree.flatten(part)  # flax.nnx keeps every array in a node of its own
        arrays = [jnp.asarray(leaf) for leaf in leaves]
        means = [mean]
        if mean.ndim == 1 and sum(p.size for p in arrays) == mean.size:  # perhaps inside optax.flatten
            ends = np.cumsum([p.size for p in arrays])[:-1].tolist()
            means = [each.reshape(p.shape) for each, p in zip(jnp.split(mean, ends), arrays, strict=True)]
        for one, p in zip(means, arrays, strict=False):
            if p.shape != one.shape:
                raise ValueError(
                    f"a parameter has the shape {p.shape}, but the optimizer was initialised for {one.shape}"
                )
        return inside.unflatten(
            [_nearer(one, _wide(p), own.rule, p.dtype) for one, p in zip(means, arrays, strict=True)]
        )

    return structure.unflatten([completed(mean, part) for mean, part in zip(means, parts, strict=True)])


def pace(state: Any) -> jax.Array:
    """The weight of the parameters in the last update of the average; see `averaged`.

    To average other variables, such as batch statistics: `optax.incremental_update(new, average, pace(state))`.

    >>> import jax.numpy as jnp
    >>> from samuel.jax import pace, samuel
    >>> optimizer = samuel("sgd")
    >>> params, state = jnp.ones(2), optimizer.init(jnp.ones(2))
    >>> for _ in range(3):
    ...     updates, state = optimizer.update(params, state, params)
    ...     params = params + updates
    >>> round(float(pace(state)), 3)  # 9 / (3 + 9)
    0.75
    """
    return _found(state).rule.tail.pace


def weights(state: Any) -> jax.Array:
    """The weights of the candidate rates relative to their prior, summing to 1, in ascending order of the rates.

    All are equal before the first step. Over "muon" there are two rows, for matrices and for everything else. A list is
    too short if `learning_rate` stays within a factor of 3 of its largest or smallest candidate.

    >>> import jax.numpy as jnp
    >>> from samuel.jax import samuel, weights
    >>> weights(samuel("sgd", (0.01, 0.1, 1.0, 10.0)).init(jnp.zeros(3))).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    own = _found(state)
    return _one_or_two(evidence(own.rule.search, own.prior[..., None, :]), 1)


def shifts(state: Any) -> jax.Array:
    """Number of restarts because the data shifted: of leaps of the gradient norm, which slow changes do not cause."""
    return _found(state).rule.detector.shifts


def skipped(state: Any) -> jax.Array:
    """Number of skipped gradients: not finite, or a blow-up."""
    return _found(state).rule.skipped


def extend(state: Any, steps: int) -> Any:
    """The state of a run extended to more steps, without a leap of the learning rate.

    Within a tenth of the remaining steps, rates grow to the schedule of the longer run. Continue with the same
    optimizer.

    Args:
        state: the state of `samuel`, or of any optax optimizer that has it inside.
        steps: number of steps of the whole run, including the steps so far.

    >>> import jax.numpy as jnp
    >>> from samuel.jax import extend, samuel
    >>> state = samuel(steps=100).init(jnp.zeros(3))
    >>> float(extend(state, 1000).rule.steps)
    1000.0
    """
    count = 0

    def extended(node: Any) -> Any:
        nonlocal count
        if not isinstance(node, SamuelState):
            return node
        count += 1
        longer = Rule(RateSearch()).extend(_unboxed(node.rule), steps)
        return node._replace(rule=jax.tree.map(_boxed_like, node.rule, longer, is_leaf=_is_variable))

    found = jax.tree.map(extended, state, is_leaf=lambda node: isinstance(node, SamuelState))
    if not count:
        raise ValueError(f"expected the state of a samuel optimizer, got a {type(state).__name__} with none inside")
    return found


def _found(state: Any) -> SamuelState:
    inside = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, SamuelState))
    found = [node for node in inside if isinstance(node, SamuelState)]
    if len(found) != 1:
        what = "no state of samuel" if not found else f"{len(found)} states of samuel; pass one of them"
        raise ValueError(f"expected the state of one samuel optimizer, got a {type(state).__name__} with {what}")
    return _unboxed(found[0])


def _is_variable(node: Any) -> bool:
    """Whether this is a variable of flax.nnx, which keeps every array in one; each is a tree of its own."""
    return type(node).__module__.startswith("flax.") and (hasattr(node, "get_value") or hasattr(node, "value"))


def _unboxed(tree: Any) -> Any:
    def value(leaf: Any) -> Any:
        if not _is_variable(leaf):
            return leaf
        return leaf.get_value() if hasattr(leaf, "get_value") else leaf.value

    return jax.tree.map(value, tree, is_leaf=_is_variable)


def _boxed_like(old: Any, new: Any) -> Any:
    return old.replace(new) if _is_variable(old) else new


def _one_or_two(of_searches: jax.Array, axes: int) -> jax.Array:
    """What belongs to the searches, without their axis if there is one search. `axes` come after it."""
    axis = -1 - axes
    return jnp.squeeze(of_searches, axis) if of_searches.shape[axis] == 1 else of_searches


# Trees


def _nearer(mean: jax.Array, p: jax.Array, state: RuleState, dtype: Any = None) -> jax.Array:
    """The average after the parameters have entered it."""
    wide = mean.astype(p.dtype)
    after = wide + state.tail.pace.astype(p.dtype) * (p - wide)
    return narrowed(after, mean.dtype, state.round) if dtype is None else after.astype(dtype)


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _is_left_out(node: Any) -> bool:
    return node is None or _is_masked(node)


def _wide(leaf: Any) -> jax.Array:
    leaf = jnp.asarray(leaf)
    return leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))


def _at_least_float32(tree: Any) -> Any:
    """Parameters or gradients as the base and the sums want them: 16 bits are too few to add small steps up."""
    return jax.tree.map(_wide, tree)


def _dtype_of_state(dtype: Any, given: Any) -> Any:
    if given is not None:
        return given
    return dtype if dtype == jnp.bfloat16 else jnp.promote_types(dtype, jnp.float32)


def _zeros_beside(leaf: jax.Array, dtype: Any = None) -> jax.Array:
    """Zeros with the placement of a leaf, also in a compiled `init`: made *from* it, for the compiler to see."""
    return jnp.where(False, leaf, 0).astype(dtype or leaf.dtype)


def _placed_like(params: Any, state: Any) -> Any:
    """The base's state with what is like the parameters placed where they are, also in a compiled `init`."""
    structure = jax.tree.structure(params, is_leaf=_is_left_out)

    def is_like(node: Any) -> bool:  # also where it leaves a part of the parameters out
        return jax.tree.structure(node, is_leaf=_is_left_out) == structure

    def placed(node: Any) -> Any:
        if not is_like(node) or not all(map(is_traced, jax.tree.leaves(node))):
            return node  # not compiled: optax has placed it already
        return jax.tree.map(beside, node, params, is_leaf=_is_left_out)

    def beside(leaf: Any, p: Any) -> Any:
        if _is_left_out(leaf) or p.shape != leaf.shape:
            return leaf
        return jnp.where(False, p.astype(leaf.dtype), leaf)

    return jax.tree.map(placed, state, is_leaf=is_like)


def _is_short(leaf: jax.Array) -> bool:
    return jnp.finfo(leaf.dtype).bits < 32


# Refusing what cannot work


def _refuse_parameters(params: Any) -> None:
    # Optax passes nodes of its own without leaves.
    if isinstance(params, Mapping | list | tuple) and not jax.tree.leaves(params, is_leaf=_is_left_out):
        raise ValueError(f"init got no parameters, {params!r}; give it the tree of the model's parameters")
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise TypeError(
                f"samuel trains floating-point parameters, got {dtype} at "
                f"params{jax.tree_util.keystr(path)}; leave it out with optax.masked, or for complex parameters wrap "
                "the optimizer in optax.contrib.split_real_and_imaginary"
            )


def _refuse_other_state(state: Any, rule: Rule) -> None:
    if not isinstance(state, SamuelState):
        raise ValueError(f"state must be what this optimizer's init returned, got a {type(state).__name__}")
    ours = (rule.groups, len(rule.search.learning_rates), rule.search.Q), rule.average
    theirs = state.rule.search.value.shape, state.average is not None
    if ours != theirs:
        word = {True: "an average", False: "no average"}
        raise ValueError(
            "the state was made by an optimizer with other options: it has weights of shape "
            f"{theirs[0]} (searches, rates, Q) and {word[theirs[1]]}, and this one needs {ours[0]} and {word[ours[1]]}"
        )


def _refuse_mismatch(updates: Any, state: SamuelState, params: Any) -> None:
    if params is None:
        raise ValueError("samuel needs the parameters: call update(gradients, state, params)")
    _refuse_other_shapes("gradients", updates, "parameters", params)
    _refuse_other_shapes("parameters", params, "optimizer's state", state.sum)


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


def _checked_dtype(dtype: Any) -> Any:
    if dtype is None:
        return None
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found not in (jnp.dtype(jnp.float32), jnp.dtype(jnp.bfloat16)):
        raise ValueError(f"state_dtype must be 'float32' or 'bfloat16', got {dtype!r}")
    return found
