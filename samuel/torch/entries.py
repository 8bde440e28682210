"""What is known about experts, a tuple of named arrays, as entries of the optimizer's state: arrays by name."""

from __future__ import annotations

from typing import Any

from samuel.core.certificate import Ledger
from samuel.core.weights import Weights

_PARTS: dict[str, Any] = {"weights": Weights, "ledger": Ledger}
"""Fields that are themselves tuples of named arrays."""


def flat(state: Any, prefix: str) -> dict[str, Any]:
    """The arrays of a state by name, in an order that does not change.

    >>> from typing import NamedTuple
    >>> class State(NamedTuple):
    ...     round: int
    ...     ledger: Ledger
    >>> list(flat(State(7, Ledger(1, 2, 3, 4, 5)), "rays"))[:3]
    ['rays:round', 'rays:ledger:gain', 'rays:ledger:used']
    """
    found: dict[str, Any] = {}
    for name, part in zip(state._fields, state, strict=True):
        if name in _PARTS:
            for field, array in zip(part._fields, part, strict=True):
                found[f"{prefix}:{name}:{field}"] = array
        else:
            found[f"{prefix}:{name}"] = part
    return found


def unflat(kind: Any, arrays: list[Any]) -> Any:
    """The state of a kind that `flat` took apart, from its arrays in the same order."""
    left = iter(arrays)

    def built(kind: Any) -> Any:
        return kind(*(built(_PARTS[name]) if name in _PARTS else next(left) for name in kind._fields))

    return built(kind)
