"""Where the experts work changes no result, and nothing crosses devices that need not."""

import json
import os
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from samuel.core import Fixed, Geometric
from samuel.jax.experts import Experts
from samuel.jax.placement import placement_by_name
from tests.compiling import xla_flags
from tests.jax.processes import spread

ROOT = Path(__file__).parents[2]
SCRIPT = Path(spread.__file__)
PATIENCE = 300  # seconds, on a busy machine


@cache
def on_one_device(name):
    """What a run gives on one device, vectorised."""
    return spread.flat(spread.run_sweep() if name == "sweep" else spread.run_engine(name))


def assert_same(found, name):
    expected = on_one_device(name)
    assert set(found) == set(expected)
    for leaf, value in expected.items():
        np.testing.assert_allclose(found[leaf], value, rtol=1e-5, atol=1e-5, err_msg=f"{name}{leaf}")


def run_processes(results, processes, devices, script=SCRIPT):
    """A script in so many processes with so many devices each; what the first of them wrote."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # What is compiled quickly runs slowly, which is right here.
    flags = xla_flags(f"--xla_force_host_platform_device_count={devices}", "--xla_backend_optimization_level=0")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    started = []
    try:
        for index in range(processes):
            command = [sys.executable, "-W", "error", script, results, str(port), str(processes), str(index)]
            started.append(
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
        for process in started:
            output, _ = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, output
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stdout.close()
    with np.load(results) as file:
        return dict(file)


def part(found, name):
    """The entries of one run, by the names they have within it."""
    start = f"[{name!r}]"
    return {leaf[len(start) :]: value for leaf, value in found.items() if leaf.startswith(start)}


@pytest.fixture(scope="module")
def eight_devices(tmp_path_factory):
    return run_processes(tmp_path_factory.mktemp("eight") / "results.npz", processes=1, devices=8)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    return run_processes(tmp_path_factory.mktemp("two") / "results.npz", processes=2, devices=2)


@pytest.mark.parametrize("name", ["sampled", "by losses"])  # "averaged" is done so on each of eight devices, below
def test_one_after_another_gives_what_all_at_once_gives(name):
    assert_same(spread.flat(spread.run_engine(name, placement="scan")), name)


@pytest.mark.parametrize("name", ["sampled", "averaged", "sweep"])
def test_eight_devices_give_what_one_gives(eight_devices, name):
    assert_same(part(eight_devices, name), name)


def test_experts_across_two_processes_give_what_one_gives(two_processes):
    assert_same(part(two_processes, "sampled"), "sampled")


def test_batches_across_two_processes_give_what_one_gives(two_processes):
    assert_same(part(two_processes, "sweep"), "sweep")


def test_only_losses_cross_devices_in_an_ordinary_round(eight_devices):
    exchanges = json.loads(str(eight_devices["['exchanges']"]))
    params, model_state, _ = spread.start()
    network = sum(leaf.nbytes for leaf in jax.tree.leaves((params, model_state)))
    losses = 16 * 4  # of nine experts in sixteen rows
    ordinary = [exchange["bytes"] for exchange in exchanges if not exchange["restart"]]
    restart = [exchange["bytes"] for exchange in exchanges if exchange["restart"]]
    assert max(ordinary) == losses < network
    assert sum(restart) == network


def test_one_after_another_needs_no_second_copy_of_the_experts():
    width, count = 256, 16

    def loss_of(params, model_state, batch, key):
        return jnp.mean((jnp.tanh(batch @ params["a"]) @ params["b"]) ** 2), model_state

    rates = [0.1 * 0.5**place for place in range(count)]
    engine = Experts(loss_of, "adam", rates, cover=Fixed(10), placement="scan")
    params = {"a": jnp.zeros((width, width)), "b": jnp.zeros((width, width))}
    state = engine.init(params)
    common = state._replace(members=type(state.members)(None, None, None))
    memory = engine._step.lower(state.members, common, jnp.zeros((4, width))).compile().memory_analysis()
    member = 3 * 2 * width * width * 4  # parameters and two moments, four bytes a number
    assert memory.alias_size_in_bytes >= count * member  # the state is written in place
    assert memory.temp_size_in_bytes < 4 * member


def test_questions_to_many_members_take_no_more_room_than_to_a_few():
    """An exam's batch is large: 125 networks that answer at once would need room that training never needed."""
    batch = jnp.linspace(0.0, 1.0, 100_000)

    def question(member):
        return jnp.sum(jnp.sin(member * batch))

    def room(count):
        members = jnp.linspace(0.1, 1.0, count)
        compiled = jax.jit(lambda members: placement_by_name("map").ask(question, members)).lower(members).compile()
        np.testing.assert_allclose(compiled(members), [question(member) for member in members], rtol=1e-4)
        return compiled.memory_analysis().temp_size_in_bytes

    assert room(132) < 1.5 * room(25)


def test_a_batch_that_does_not_divide_by_the_devices_is_refused(eight_devices):
    assert "batch[0] of shape (15, 4) cannot be split over 2 devices" in str(eight_devices["['refused']"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"placement": "cloud"}, "placement must be 'map', 'scan' or 'shard', got 'cloud'"),
        ({"placement": "shard", "within": "shard"}, "within must be 'map' or 'scan'"),
        ({"placement": "map", "mesh": Mesh(np.asarray(jax.devices()[:1]), ("experts",))}, "a mesh is for"),
        ({"placement": "shard", "mesh": Mesh(np.asarray(jax.devices()[:1]), ("rows",))}, "needs an axis 'experts'"),
        ({"placement": "shard", "mesh": "all"}, "must be a jax.sharding.Mesh"),
    ],
)
def test_placements_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        placement_by_name(**arguments)


def test_experts_that_do_not_divide_by_the_devices_get_idle_company():
    count = len(jax.devices())
    engine = Experts(spread.loss_of, "sgd", (0.1, 0.2, 0.3), cover=Geometric(8, shortest=2), placement="shard")
    rows = jax.tree.leaves(engine.init(*spread.start()).members)[0].shape[0]
    assert rows == -(-9 // count) * count
