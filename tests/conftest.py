"""Settings for all tests."""

import ctypes
import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# XLA's older code generator takes half as long, and most of the tests' time goes into compiling programs that run for
# milliseconds. Read when JAX is first imported, here and in the processes that tests start.
if "fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

# The same examples every time, so that a failure is the change's and not the dice's; and no limit on an example's
# time, which says more about the machine than about the code. `--hypothesis-profile=dice` looks for new examples.
settings.register_profile("samuel", derandomize=True, deadline=None)
settings.register_profile("dice", deadline=None)
settings.load_profile("samuel")


ENOUGH = 2**30
"""Bytes of memory from which a process drops its compiled programs."""


@pytest.fixture(scope="module", autouse=True)
def compiled_programs_are_dropped():
    """JAX keeps every program that a test compiled, which adds up to gigabytes."""
    yield
    pages = Path("/proc/self/statm")
    if "jax" in sys.modules and pages.exists():
        size = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if size > ENOUGH:
            sys.modules["jax"].clear_caches()
            gc.collect()
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)
