"""How tests have JAX compile."""

import os
from contextlib import contextmanager

import jax


def xla_flags(*more):
    """For a process of its own: the flags that the tests were started with, and others."""
    return " ".join([os.environ.get("XLA_FLAGS", ""), *more])


@contextmanager
def quickly():
    """Programs that take longer to be made fast than they run, also in processes that are started meanwhile."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)
        jax.config.update("jax_disable_most_optimizations", before)
