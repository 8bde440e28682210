"""How tests have JAX compile."""

from contextlib import contextmanager

import jax


@contextmanager
def quickly():
    """Programs that take longer to be made fast than they run."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
