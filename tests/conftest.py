"""Settings for all tests."""

import os

from hypothesis import settings

# Read when JAX is first imported, here and in the processes that tests start. Programs of tests run for milliseconds,
# so compiling them well takes most of the time; the older code generator of XLA takes half as long.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if "fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

# The same examples every time, so that a failure is the change's and not the dice's; and no limit on an example's
# time, which says more about the machine than about the code. `--hypothesis-profile=dice` looks for new examples.
settings.register_profile("samuel", derandomize=True, deadline=None)
settings.register_profile("dice", deadline=None)
settings.load_profile("samuel")
