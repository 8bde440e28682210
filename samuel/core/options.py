"""Refusing options that cannot work, in the same words everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


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
    """An error for a sampled decision that is not judged by every expert's own loss."""
    if combine == "sample" and feedback != "full":
        raise ValueError(
            f"combine='sample' needs feedback='full', got {feedback!r}: measured by one gradient at the sampled "
            "point, the expert that was drawn always has gain 0 and the others have the wrong sign on average"
        )
