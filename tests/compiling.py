"""How tests have JAX compile."""

import os


def xla_flags(*more):
    """For a process of its own: the flags that the tests were started with, and others."""
    return " ".join([os.environ.get("XLA_FLAGS", ""), *more])
