"""The scripts in `examples/` that train networks run as they stand, and learn what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted(path for kind in ("jax", "torch") for path in (ROOT / "examples").glob(f"{kind}_*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_ends_with_a_good_network(script, tmp_path):
    pytest.importorskip("sklearn", reason="the examples train on scikit-learn's digits")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    ran = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stderr
    accuracies = [float(found) for found in re.findall(r"accuracy +([0-9.]+)%", ran.stdout)]
    assert accuracies, ran.stdout
    assert accuracies[-1] > 93, ran.stdout
