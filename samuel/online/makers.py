"""Learners that are made on demand: where a dimension or a number of streams is known only once data have arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samuel.online.domains import Domain
from samuel.online.learner import Learner

Maker = Callable[..., Learner]
"""Makes a learner when called as `maker(dim, domain, streams=...)`, as the classes of most learners do."""


def make_learner(maker: Any, dim: int, domain: Domain, streams: int | None) -> Learner:
    """A new learner by a maker; ValueError if it is not what was asked for.

    >>> from samuel.online import Ball, Samuel
    >>> make_learner(Samuel, 2, Ball(1.0), streams=None).dim
    2
    """
    if not callable(maker):
        raise ValueError(f"learner must be a class such as Samuel, or a function like it, got {maker!r}")
    learner = maker(dim, domain, streams=streams)
    if not isinstance(learner, Learner):
        raise ValueError(f"learner must make a samuel.online learner, it made {learner!r}")
    if (learner.dim, learner.domain, learner.streams, learner.round) != (dim, domain, streams, 0):
        raise ValueError(
            f"learner({dim}, {domain}, streams={streams}) must make a new learner of that dimension, domain and "
            f"number of streams, it made {learner!r}"
        )
    return learner
