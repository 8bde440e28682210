"""Validation of options, with the same errors everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from samuel.core.arrays import is_traced


def one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    """An error unless the value of an option is one of those allowed.

    >>> one_of("combine", "mean", ("average", "best"))
    Traceback (most recent call last):
        ...
    ValueError: combine must be one of 'average', 'best', got 'mean'
    """
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def refuse_blind_sampling(combine: str, feedback: str) -> None:
    """An error for a sampled decision without every expert's own loss."""
    if combine == "sample" and feedback != "full":
        raise ValueError(
            f"combine='sample' needs feedback='full', got {feedback!r}: measured by one gradient at the sampled "
            "point, the expert that was drawn always has gain 0 and the others have the wrong sign on average"
        )


def number(value: Any) -> float | None:
    """A value as a Python number; None for anything else, for booleans and for tracers.

    >>> import numpy as np
    >>> number(np.float32(0.5)), number(True), number("1")
    (0.5, None, None)
    """
    if isinstance(value, int | float):
        return None if isinstance(value, bool) else value
    if is_traced(value):
        return None
    is_real = any(kind in str(getattr(value, "dtype", "")) for kind in ("int", "float"))
    return float(value) if is_real and value.ndim == 0 else None


def real_array(name: str, value: Any, dtype: Any = None) -> np.ndarray:
    """A copy of a caller's numbers as a NumPy array of floats; an error unless all are real numbers.

    A copy, because callers reuse their buffers.

    Args:
        name: its name in the error.
        value: numbers, nested lists of them, or an array of any library.
        dtype: precision of the copy; by default that of the array, if it is float32, or float64.

    >>> real_array("gradient", [1, 2.5])
    array([1. , 2.5])
    >>> real_array("gradient", ["1", "2"])
    Traceback (most recent call last):
        ...
    ValueError: gradient must be real numbers, got ['1', '2'] (dtype <U1)
    """
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(
            f"{name} must be real numbers, got a masked array, whose mask would be lost: fill it first, as in "
            "array.filled(0.0)"
        )
    try:
        array = np.asarray(value)
        if array.dtype == object and all(isinstance(entry, Real) for entry in array.flat):
            array = array.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be real numbers, got {value!r}") from None
    if not np.can_cast(array.dtype, np.float64, "same_kind"):  # complex numbers, dates, text, records
        raise ValueError(f"{name} must be real numbers, got {value!r} (dtype {array.dtype})")
    if dtype is None:
        dtype = np.float32 if array.dtype == np.float32 else np.float64
    if np.can_cast(array.dtype, dtype):
        return np.array(array, dtype=dtype)
    with np.errstate(over="ignore"):  # to infinity, in float32
        return np.array(array, dtype=dtype)


def between(name: str, value: Any, low: float, high: float, low_included: bool = False) -> None:
    """An error unless the value of an option is a number between two others; tracers are not checked.

    >>> between("lag", 1.5, 0.0, 1.0, low_included=True)
    Traceback (most recent call last):
        ...
    ValueError: lag must be a number at least 0 and below 1, got 1.5
    """
    if is_traced(value):
        return
    found = number(value)
    if found is None or not (low < found or (low_included and found == low)) or not found < high:
        edge = "at least" if low_included else "above"
        below = "" if high == math.inf else f" and below {high:g}"
        finite = "finite number" if high == math.inf else "number"
        least = "" if low == -math.inf else f" {edge} {low:g}"
        raise ValueError(f"{name} must be a {finite}{least}{below}, got {value!r}")


def whole_number(name: str, value: Any, least: int, most: float = math.inf) -> int:
    """A whole number of at least `least` and at most `most`, as a Python int; an error for anything else.

    >>> whole_number("steps", 0, least=1)
    Traceback (most recent call last):
        ...
    ValueError: steps must be a whole number of at least 1, got 0
    """
    found = number(value)
    if found is None or not least <= found < math.inf or found != int(found):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    if found > most:
        raise ValueError(f"{name} must be a whole number of at most {most}, got {value!r}")
    return int(found)


def candidate_rates(learning_rates: Any) -> tuple[float, ...]:
    """Candidate learning rates, smallest first; an error if they are not distinct, positive and finite.

    >>> candidate_rates([1.0, 0.1])
    (0.1, 1.0)
    """
    try:
        rates = tuple(float(rate) for rate in learning_rates)
    except (TypeError, ValueError):
        raise ValueError(f"learning_rates must be a list of numbers, got {learning_rates!r}") from None
    if not rates:
        raise ValueError("learning_rates is empty; give at least one rate, or leave it out for the defaults")
    for rate in rates:
        if not 0 < rate < math.inf:
            raise ValueError(f"a learning rate must be positive and finite, got {rate!r} among {rates}")
        if not 1e-30 <= rate <= 1e30:
            raise ValueError(f"a learning rate must be from 1e-30 to 1e30 for single precision, got {rate!r}")
    if len(set(rates)) < len(rates):
        raise ValueError(f"learning_rates must differ from each other, got {rates}")
    return tuple(sorted(rates))


_NO_RULES = "there is one rule now, without it"
REPLACED = {
    "alarm": 'give on_shift="ignore" where shifts are not to be detected',
    "anchor_dtype": "give state_dtype",
    "base_state": _NO_RULES,
    "bound": _NO_RULES,
    "buffers": "give the model, and its batch statistics are averaged",
    "collapse": _NO_RULES,
    "combine": _NO_RULES,
    "compiled": "a step needs no option to be compiled",
    "cover": "there is one block now; `samuel.jax.paper.algorithm1` takes covers",
    "decay": "give steps, and rates fall linearly to 0 at the end",
    "experience": "give search=RateSearch(memory=...)",
    "feedback": "`samuel.jax.Experts` supports other feedback",
    "horizon": "give steps",
    "lag": "give search=RateSearch(lag=...)",
    "lrs": "give learning_rates",
    "newborns": _NO_RULES,
    "packed": "the state has the layout of the parameters",
    "patience": _NO_RULES,
    "prior": "give search=RateSearch(prior=...)",
    "Q": "give search=RateSearch(Q=...)",
    "reference": _NO_RULES,
    "rule": 'there is one rule now; `samuel.jax.paper.algorithm1` is what "theorem" was',
    "scale": _NO_RULES,
    "seed": "nothing is drawn at random",
    "settle": "give search=RateSearch(settle=...)",
    "short_rates": _NO_RULES,
    "takeover": _NO_RULES,
    "weight_decay_mask": "weights decay by role: matrices and tables do, vectors do not; give roles",
}
"""Removed options of the drop-ins, and what replaces them."""


def refuse_unknown(given: Iterable[str], known: Sequence[str]) -> None:
    """A `TypeError` for unknown options; for removed ones it names the replacement.

    >>> refuse_unknown(["horizon"], ["base", "steps"])
    Traceback (most recent call last):
        ...
    TypeError: there is no option 'horizon' any more: give steps
    """
    for name in given:
        if name in ("learning_rate", "lr"):
            raise TypeError(f"there is no {name} to give: leave it out, or give candidates, learning_rates=(...)")
        if name in REPLACED:
            raise TypeError(f"there is no option {name!r} any more: {REPLACED[name]}")
        raise TypeError(f"unknown option {name!r}; choose from {', '.join(known)}")
