"""The drop-in with parameters sharded over a mesh computes what it computes on one device, and exchanges little."""

import json
from functools import cache

import numpy as np
import pytest

from tests.jax.processes import sharded
from tests.jax.test_placement import run_processes


@cache
def on_one_device():
    return sharded.run()[0]


@pytest.mark.parametrize(("processes", "devices"), [(1, 8), (2, 2)])
def test_sharded_parameters_come_to_the_same_and_matrices_move_by_all_to_all(tmp_path, processes, devices):
    found = run_processes(tmp_path / "results.npz", processes, devices, sharded.__file__)
    for name, expected in on_one_device().items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5, err_msg=name)
    exchanges, share = json.loads(str(found["exchanges"])), processes * devices
    by_kind = {kind: sum(each["bytes"] for each in exchanges if each["kind"] == kind) for kind in ("all-to-all",)}
    stacked = 2 * sharded.LAYERS * sharded.WIDTH * sharded.HIDDEN * 4
    assert by_kind["all-to-all"] == 2 * stacked / share  # to the device of each matrix, and back
    others = [each["bytes"] for each in exchanges if each["kind"] != "all-to-all"]
    alone = sharded.WIDTH * 24 * 4
    assert max(others) <= alone  # scalars, and the one matrix that no stack shares
