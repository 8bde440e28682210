"""What `import samuel` asks of a machine."""

import subprocess
import sys

OPTIONAL = ("jax", "torch", "rich", "typer", "plotly", "jinja2", "river", "scipy", "sklearn")


def test_the_library_needs_numpy_and_array_api_compat_only():
    """With everything optional made impossible to import, learners and models can be made, played and certified."""
    script = f"""
import sys
for name in {OPTIONAL!r}:
    sys.modules[name] = None  # importing it now raises ImportError
import numpy as np
import samuel
from samuel.online import Ball, Regressor, Samuel, check, play
trace = play(Samuel(dim=2, domain=Ball(1.0)), np.ones((20, 2)))
assert trace.regret(0, 19) <= trace.certificate(0, 19).measured
Regressor().learn_one([1.0], 2.0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
