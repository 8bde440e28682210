"""Helpers that the array-API standard leaves out: control flow and shapes.

Every formula of the package is written once and runs on NumPy arrays, on JAX arrays (also under `jit`, `scan` and
`vmap`) and on torch tensors. The differences between the three are handled here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np

Array = Any
"""An array of any library that array-api-compat knows; typed loosely because they share no base class."""
_NAMESPACES: dict[type, Any] = {}
"""By type of array. A dict, because `torch.compile` warns of the caches of array-api-compat."""


def namespace(array: Array) -> Any:
    """The array-API namespace of an array: `xp = namespace(x)`, then `xp.sum(x)`.

    >>> import numpy as np
    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    kind = type(array)
    if kind not in _NAMESPACES:
        is_numpy = isinstance(array, (np.ndarray, np.generic))  # NumPy 2 follows the standard itself
        _NAMESPACES[kind] = np if is_numpy else array_api_compat.array_namespace(array)
    return _NAMESPACES[kind]


def is_traced(array: Array) -> bool:
    """Whether an array is a JAX tracer, so that its values are not known yet."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(array, jax.core.Tracer)


def is_deferred(array: Array) -> bool:
    """Whether reading the values of an array is impossible (JAX tracing) or would wait for a device.

    >>> import numpy as np
    >>> is_deferred(np.ones(2))
    False
    """
    if isinstance(array, (np.ndarray, np.generic)):
        return False
    if is_traced(array):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor) and array.device.type != "cpu"


def where_needed(needed: Array, repair: Callable[..., Any], *operands: Any) -> Any:
    """`repair(*operands)` where `needed` is true anywhere, else the operands unchanged.

    `repair` must return its operands unchanged wherever `needed` is false, because it runs for all streams as soon as
    one of them needs it. A Python branch; under tracing `lax.cond`. `needed` is an array or a truth value.

    >>> import numpy as np
    >>> where_needed(np.array([False]), lambda x: x / 0, 1.0)
    1.0
    """
    if is_traced(needed):
        import jax

        untouched = operands[0] if len(operands) == 1 else operands
        return jax.lax.cond(needed.any(), lambda: repair(*operands), lambda: untouched)
    if needed is True or (needed is not False and needed.any()):
        return repair(*operands)
    return operands[0] if len(operands) == 1 else operands


def iterate(step: Callable[[Any], Any], carry: Any, times: int, done: Callable[[Any], Array]) -> Any:
    """Apply `step` to the tuple of arrays `carry` until `done(carry)` is true everywhere, at most `times` times.

    >>> import numpy as np
    >>> iterate(lambda c: (c[0] / 2,), (np.array([8.0]),), times=9, done=lambda c: c[0] <= 1)
    (array([1.]),)
    """
    if any(is_traced(leaf) for leaf in carry):
        import jax

        def go_on(state: tuple[Any, Any]) -> Any:
            count, inner = state
            return (count < times) & ~done(inner).all()

        return jax.lax.while_loop(go_on, lambda state: (state[0] + 1, step(state[1])), (0, carry))[1]
    for _ in range(times):
        if bool(namespace(carry[0]).all(done(carry))):
            break
        carry = step(carry)
    return carry


def repeat(step: Callable[[Any, Any], Any], carry: Any, table: Sequence[Sequence[float]]) -> Any:
    """`carry = step(carry, row)` for every row of a table of numbers.

    A Python loop. Where JAX compiles for a CPU a `lax.scan`, which is compiled in the time of one step; on a GPU the
    loop would copy its carry in every step.

    >>> repeat(lambda carry, row: row[0] * carry + row[1], 1.0, [(2.0, 1.0), (3.0, 0.0)])
    9.0
    """
    leaf = carry[0] if isinstance(carry, tuple) else carry
    if is_traced(leaf):
        import jax

        if jax.default_backend() == "cpu":
            rows = jax.numpy.asarray(table, dtype=leaf.dtype)
            return jax.lax.scan(lambda carry, row: (step(carry, row), None), carry, rows)[0]
    for row in table:
        carry = step(carry, row)
    return carry


def along_slots(mask: Array, array: Array, batch_axes: int) -> Array:
    """View a mask over slots, shape `(slots,)`, so that it broadcasts against `(*batch, slots, ...)`.

    >>> import numpy as np
    >>> along_slots(np.array([True, False]), np.zeros((5, 2, 3, 4)), batch_axes=1).shape
    (2, 1, 1)
    """
    trailing = array.ndim - batch_axes - 1
    return namespace(mask).reshape(mask, (mask.shape[0],) + (1,) * trailing)


def peak(array: Array) -> Array:
    """The maximum over the last two axes; NaN if any entry is NaN."""
    if type(array) is np.ndarray:
        return array.max((-2, -1))
    return namespace(array).max(array, axis=(-2, -1))


def at_least(array: Array, low: float) -> Array:
    """The elementwise maximum of an array and a number.

    >>> import numpy as np
    >>> at_least(np.array([-1.0, 1.0]), 0.0)
    array([0., 1.])
    """
    if isinstance(array, (np.ndarray, np.generic)):
        return np.maximum(array, low)
    xp = namespace(array)
    # torch: a Python number would be copied to the device first; `clamp` takes it as an argument.
    return array.clamp(min=low) if xp.__name__.endswith("torch") else xp.maximum(array, low)


def at_most(array: Array, high: float) -> Array:
    """The elementwise minimum of an array and a number."""
    return -at_least(-array, -high)


def inner(points: Array, vector: Array) -> Array:
    """`<point, vector>` for points `(..., m, n, d)` and one vector `(..., d)` per stream: `(..., m, n)`."""
    if type(points) is np.ndarray:
        return np.vecdot(points, vector[..., None, None, :])
    *batch, m, n, dim = points.shape
    # As a matrix-vector product: one pass over the points.
    return matmul(points.reshape((*batch, m * n, dim)), vector[..., None]).reshape((*batch, m, n))


def constant(table: np.ndarray | tuple[float, ...], like: Array) -> Array:
    """A table of numbers as an array of the library, dtype and device of another.

    A tuple stays a constant under `torch.compile`.
    """
    if isinstance(like, (np.ndarray, np.generic)):
        return np.asarray(table, dtype=like.dtype)
    xp = namespace(like)
    if xp.__name__.startswith("jax"):
        return xp.asarray(table, dtype=like.dtype)
    return _on_device(table, like, like.dtype)


def identity(size: int, like: Array) -> Array:
    """The identity matrix in the library, dtype and device of another array.

    >>> import numpy as np
    >>> identity(2, np.zeros(3, np.float32))
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    xp = namespace(like)
    # Not for JAX, whose tracers have no device.
    where = {"device": like.device} if xp.__name__.endswith("torch") else {}
    return xp.eye(size, dtype=like.dtype, **where)


def beside(table: np.ndarray, like: Array) -> Array:
    """A table as an array of the library and device of another, in its own dtype.

    >>> import numpy as np
    >>> beside(np.arange(2), np.zeros(3, np.float32))
    array([0, 1])
    """
    if isinstance(like, (int, np.ndarray, np.generic)):
        return table
    xp = namespace(like)
    if xp.__name__.startswith("jax"):
        # A copy: JAX caches the conversion of a read-only array, in 64 bits if those were enabled then.
        return xp.asarray(table.copy())
    return _on_device(table, like, None)


def flag(value: Any, like: Array) -> Array:
    """A truth value as an array of the library and device of another; arrays are returned unchanged.

    >>> import numpy as np
    >>> flag(True, np.zeros(3))
    array(True)
    """
    return beside(np.asarray(value), like) if isinstance(value, bool) else value


_tables: dict[Any, Any] = {}
"""Cache of tables on torch devices: copying one again would synchronise host and device."""


def _on_device(table: np.ndarray | tuple[float, ...], like: Array, dtype: Any) -> Array:
    import torch

    if isinstance(table, tuple):
        key: Any = (table, dtype, like.device)
    elif like.device.type == "cpu":
        key = None
    else:
        key = (table.tobytes(), table.dtype, table.shape, dtype, like.device)
    if key in _tables and type(like) is torch.Tensor:  # not a fake tensor
        return _tables[key]
    values = table if isinstance(table, tuple) else table.copy()  # a copy: torch warns about read-only arrays
    found = torch.asarray(values, dtype=dtype, device=like.device)
    if key is not None and type(like) is torch.Tensor:
        _tables[key] = found
    return found


ROUNDINGS = 64
"""Largest rounding error of a gain, in units of the rounding error of what it is the difference of."""


def matmul(a: Array, b: Array) -> Array:
    """Matrix product in full precision: accelerators may otherwise compute in TF32 or bfloat16."""
    if type(a) is np.ndarray:
        if a.dtype == np.float32:
            # BLAS may read beyond the end of a short row and raise floating-point warnings for it.
            with np.errstate(invalid="ignore"):
                return np.matmul(a, b)
        return np.matmul(a, b)
    xp = namespace(a)
    if xp.__name__.startswith("jax"):
        return xp.matmul(a, b, precision="highest")
    return xp.matmul(a, b)
