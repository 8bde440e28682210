"""Checkpoints survive kills, come back to the bit, and damage is found."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel.jax.checkpoint import Checkpoints, DamagedCheckpoint
from tests.compiling import xla_flags

ROOT = Path(__file__).parents[2]
PROCESSES = Path(__file__).parent / "processes"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}


class State(NamedTuple):
    params: Any
    key: Any
    nothing: None
    epoch: int


def make_state(seed):
    rng = np.random.default_rng(seed)
    params = {
        "w": jnp.asarray(rng.normal(size=(4, 3)), jnp.float32),
        "b": jnp.asarray(rng.normal(size=3), jnp.bfloat16),
    }
    return State(params, jax.random.split(jax.random.key(seed), 2), None, seed)


def facts(leaf):
    """All that a restored leaf must have in common with the one saved."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return "keys", jax.random.key_impl(leaf), leaf.shape, np.asarray(jax.random.key_data(leaf)).tobytes()
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        weak = getattr(leaf, "weak_type", None)
        return type(leaf), leaf.dtype, leaf.shape, weak, np.asarray(leaf).tobytes()
    return type(leaf), repr(leaf)


def assert_same(restored, saved):
    assert jax.tree.structure(restored) == jax.tree.structure(saved)
    for (path, one), other in zip(
        jax.tree_util.tree_flatten_with_path(restored)[0], jax.tree.leaves(saved), strict=True
    ):
        assert facts(one) == facts(other), jax.tree_util.keystr(path)


def contents(folder):
    """Everything below a folder, to see that nothing changed."""
    return {
        str(path.relative_to(folder)): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in sorted(Path(folder).rglob("*"))
    }


def start(script, *arguments, compiled=None, **options):
    """Starts a script; with a folder for what it compiles, the next one finds it there."""
    command = [sys.executable, "-W", "error", PROCESSES / script, *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    environment = ENVIRONMENT | ({} if compiled is None else sharing(compiled))
    return subprocess.Popen(command, env=environment, text=True, **pipes, **options)


def sharing(folder):
    """Variables that let processes find what others compiled: compiling takes longer than all else here."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


# Killed and resumed

DEATHS = [
    "open samuel_2.orbax-checkpoint-tmp/arrays.orbax-checkpoint-tmp/_METADATA",  # while the arrays are written
    "os.rename samuel_4.orbax-checkpoint-tmp",  # whole, and not yet called a checkpoint
    "shutil.rmtree samuel_2",  # step 6 is there, the oldest not yet deleted
    "os.rmdir samuel_4",  # while it is deleted
    "open samuel_8/arrays",  # while it is read
    "between steps",
]


@pytest.mark.parametrize(("run", "deaths", "resumed_at"), [("engine", DEATHS, 8), ("loop", DEATHS[2:3], 6)])
def test_a_run_killed_again_and_again_ends_where_one_never_interrupted_ends(run, deaths, resumed_at, tmp_path):
    begin = partial(start, "train.py", compiled=tmp_path / "compiled")
    uninterrupted, errors = begin(tmp_path / "whole", run).communicate(timeout=120)
    assert errors == ""
    for death in deaths:
        process = begin(tmp_path / "killed", run, death)
        if death == "between steps":
            assert process.stdout is not None
            assert process.stdout.readline() == "waiting\n"
            process.kill()
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, f"was not killed at {death!r}"
    resumed, errors = begin(tmp_path / "killed", run).communicate(timeout=120)
    assert all("Metadata file does not exist" in line for line in errors.splitlines())  # of the half deleted one
    whole, resumed = json.loads(uninterrupted), json.loads(resumed)
    assert whole.pop("from") == 0
    assert resumed.pop("from") == resumed_at
    assert resumed == whole


class Camera:
    """Copies a folder just before each change that Python makes in it: what a kill at that moment would leave."""

    def __init__(self):
        self.folder = self.album = None
        self.busy = threading.local()
        sys.addaudithook(self.watch)  # for good; it does nothing while there is no folder

    def watch(self, event, arguments):
        if self.folder is None or getattr(self.busy, "now", False):
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if writes or event in ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
            self.busy.now = True
            try:
                self.copy(self.folder, self.album / f"{len(list(self.album.iterdir())):03d}")
            finally:
                self.busy.now = False

    def copy(self, folder, to):
        to.mkdir()
        for entry in folder.iterdir():
            if entry.is_dir():
                self.copy(entry, to / entry.name)
            else:
                try:
                    shutil.copy(entry, to)
                except FileNotFoundError:  # orbax's threads are at work meanwhile, below a hidden name
                    assert ".orbax-checkpoint-tmp" in str(entry)


camera = Camera()


def test_a_kill_at_any_moment_of_a_save_leaves_a_whole_checkpoint_and_the_next_save_sweeps_up(tmp_path):
    states = {step: make_state(step) for step in (2, 4, 6)}
    folder, album = tmp_path / "run", tmp_path / "album"
    album.mkdir()
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save(2, states[2])
    camera.album, camera.folder = album, folder
    try:
        checkpoints.save(4, states[4])
    finally:
        camera.folder = None
    found = []
    for left in sorted(album.iterdir()):
        checkpoints = Checkpoints(left, keep=1)
        step, restored = checkpoints.restore(like=states[6])
        assert_same(restored, states[step])
        checkpoints.save(6, states[6])
        assert [entry.name for entry in left.iterdir()] == ["samuel_6"]
        found.append(step)
    assert found == sorted(found)
    assert {2, 4} == set(found)
    assert len(found) > 10


def test_a_save_that_fails_leaves_the_previous_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, make_state(1))
    large = {"x": jax.random.normal(jax.random.key(0), (1000,))}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, before[1]))  # as a disk that is full
    try:
        with pytest.raises((OSError, ValueError), match="File too large"):
            checkpoints.save(2, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoints.steps() == [1]
    assert_same(checkpoints.restore(like=make_state(0))[1], make_state(1))
    checkpoints.save(2, large)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["samuel_1", "samuel_2"]


# What comes back


def test_every_kind_of_leaf_comes_back_to_the_bit(tmp_path):
    dtypes = [bool, "int8", "uint16", "int32", "float16", "float32", "complex64", ml_dtypes.bfloat16]
    rng = np.random.default_rng(0)
    numbers = {
        str(np.dtype(dtype)): (10 * rng.normal(size=(2, 3))).astype(np.float32).astype(dtype) for dtype in dtypes
    }
    odd_nan = np.array([0x7FC00123, 0xFF800001, 0x80000000], np.uint32).view(np.float32)
    state = {
        "jax": jax.tree.map(jnp.asarray, numbers),
        "numpy": {**numbers, "doubles": rng.normal(size=5), "fortran": np.asfortranarray(rng.normal(size=(3, 2)))},
        "nan and minus zero": (jnp.asarray(odd_nan), odd_nan),
        "scalars": [jnp.float32(1.5), np.float64(0.1), np.bool_(True), np.array(3)],
        "weak": {"number": jnp.asarray(2.0), "array": jnp.broadcast_to(jnp.asarray(3), (2, 2))},
        "empty": [jnp.zeros((0, 3)), np.zeros((2, 0), np.int16), jax.random.split(jax.random.key(0), 0), None, (), {}],
        "keys": [jax.random.key(1), jax.random.split(jax.random.key(2, impl="rbg"), (2, 2)), jax.random.PRNGKey(3)],
        "python": [True, 3, 2**60, 0.1, float("inf"), -0.0],
        "names": [{7: np.ones(1)}, {"key/with.odd 'signs'": np.ones(2)}],
    }
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, state)
    step, restored = checkpoints.restore(like=jax.tree.map(blank, state))
    assert step == 0
    assert_same(restored, state)


def blank(leaf):
    """A leaf of the same kind with other values."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = np.zeros_like(jax.random.key_data(leaf))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    if isinstance(leaf, jax.Array | np.ndarray):
        return jnp.zeros_like(leaf) if isinstance(leaf, jax.Array) else np.zeros_like(leaf)
    return type(leaf)()


def test_a_restored_state_can_be_donated_and_goes_on_without_compiling_again(tmp_path):
    traces = []

    @jax.jit
    def step(state):
        traces.append(state)
        return {"x": state["x"] * state["rate"], "rate": state["rate"] * 0.5}

    donated = jax.jit(step, donate_argnums=0)
    state = {"x": jnp.ones(1000, jnp.bfloat16), "rate": jnp.asarray(0.5)}  # with a strong rate, x would be float32
    Checkpoints(tmp_path).save(1, state)
    _, restored = Checkpoints(tmp_path).restore(like=state)
    expected = step(state)
    assert_same(step(restored), expected)
    assert len(traces) == 1
    assert_same(donated(restored), expected)


def test_like_may_be_shapes_only_and_decides_between_numpy_and_jax(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, {"x": jnp.arange(3.0), "y": np.arange(3), "key": jax.random.key(1)})
    shapes = jax.eval_shape(lambda: {"x": jnp.zeros(3), "y": jnp.zeros(3, int), "key": jax.random.key(0)})
    shapes["y"] = jax.ShapeDtypeStruct((3,), np.int64)
    with pytest.raises(ValueError, match="y.*int64.*jax_enable_x64"):
        checkpoints.restore(like=shapes)
    _, restored = checkpoints.restore(like={**shapes, "x": np.zeros(3, np.float32), "y": np.zeros(3, int)})
    assert_same(restored, {"x": np.arange(3.0, dtype=np.float32), "y": np.arange(3), "key": jax.random.key(1)})


def test_a_python_number_that_a_compiled_step_made_an_array_is_still_expected(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    fresh = {"rate": 1.0, "epoch": 0, "done": False}
    later = jax.jit(lambda state: {**state, "rate": state["rate"] / 2})(fresh)
    checkpoints.save(1, later)
    assert_same(checkpoints.restore(like=fresh)[1], later)


def test_a_state_of_optax_comes_back(tmp_path):
    params = {"w": jnp.ones((2, 3))}
    optimizer = optax.chain(optax.clip(1.0), optax.inject_hyperparams(optax.adamw)(0.1))
    state = optimizer.update(params, optimizer.init(params), params)[1]
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state)
    assert_same(checkpoints.restore(like=optimizer.init(params))[1], state)


def test_arrays_come_back_on_the_device_where_like_has_them(tmp_path):
    device = jax.devices()[0]
    state = {"placed": jax.device_put(jnp.arange(4.0), device), "free": jnp.arange(3), "key": jax.random.key(0)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state)
    _, restored = checkpoints.restore(like=state)
    assert restored["placed"].sharding == state["placed"].sharding
    # An array that was put nowhere in particular may follow others to theirs.
    assert (restored["placed"].committed, restored["free"].committed) == (True, False)


def test_two_processes_save_and_restore_one_sharded_state(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = {"XLA_FLAGS": xla_flags("--xla_force_host_platform_device_count=2")}
    command = [sys.executable, "-W", "error", PROCESSES / "share_checkpoint.py", tmp_path / "run", str(port)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "env": ENVIRONMENT | flags}
    processes = [subprocess.Popen([*command, str(index)], **pipes) for index in range(2)]
    try:
        for process in processes:
            output, _ = process.communicate(timeout=120)
            assert output.endswith("same\n")
            assert process.returncode == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_saving_and_restoring_are_silent_and_orbax_is_imported_only_then(tmp_path):
    script = f"""
import sys
import jax.numpy as jnp
from samuel.jax.checkpoint import Checkpoints
assert "orbax" not in sys.modules
checkpoints = Checkpoints({str(tmp_path / "run")!r})
for step in range(4):
    checkpoints.save(step, {{"x": jnp.ones(3)}})
checkpoints.restore(like={{"x": jnp.ones(3)}})
"""
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# Steps


def test_only_the_newest_are_kept(tmp_path):
    few, all_of_them = Checkpoints(tmp_path / "few", keep=2), Checkpoints(tmp_path / "all", keep=None)
    for step in (1, 2, 10, 11):
        few.save(step, {"x": np.full(2, step)})
        all_of_them.save(step, {"x": np.full(2, step)})
    assert (few.steps(), few.latest) == ([10, 11], 11)
    assert all_of_them.steps() == [1, 2, 10, 11]
    step, state = all_of_them.restore({"x": np.zeros(2, int)}, step=2)
    assert (step, state["x"][0]) == (2, 2)


@pytest.mark.parametrize("step", [1, 3])
def test_a_step_that_is_not_later_than_all_is_refused_and_nothing_overwritten(step, tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=None)
    for earlier in (1, 2, 3):
        checkpoints.save(earlier, {"x": np.full(2, earlier)})
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=f"holds step 3 already, and {step} is not later; nothing was overwritten"):
        checkpoints.save(step, {"x": np.full(2, 9)})
    assert contents(tmp_path) == before


def test_a_note_is_kept_beside_the_state(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    note = {"rates": [0.1, 1.0], "name": "schöner Lauf"}
    checkpoints.save(1, {"x": jnp.ones((2, 3))}, note=note)
    checkpoints.save(2, {"x": jnp.ones((2, 3))})
    assert (checkpoints.note(1), checkpoints.note()) == (note, None)


def test_there_is_nothing_to_restore_before_the_first_save(tmp_path):
    checkpoints = Checkpoints(tmp_path / "a" / "b")
    assert (checkpoints.steps(), checkpoints.latest) == ([], None)
    with pytest.raises(FileNotFoundError, match="no checkpoint in .*b"):
        checkpoints.restore({})
    assert not (tmp_path / "a").exists()


# What does not fit


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x": jnp.zeros((2, 4))}, r"\['x'\]: saved float32\[2, 3\], expected float32\[2, 4\]"),
        ({"x": jnp.zeros((2, 3), int)}, r"\['x'\]: saved float32\[2, 3\], expected int32\[2, 3\]"),
        ({"key": jax.random.key(0, impl="rbg")}, r"\['key'\]: saved key<fry>\[\], expected key<rbg>\[\]"),
        ({"key": jax.random.PRNGKey(0)}, r"\['key'\]: saved key<fry>\[\], expected uint32\[2\]"),
        ({"epoch": 1.5}, r"\['epoch'\]: saved int32\[\], expected float32\[\]"),
        ({"epoch": jnp.zeros(2, int)}, r"\['epoch'\]: saved int32\[\], expected int32\[2\]"),
        ({"more": [np.ones(2)]}, r"\['more'\]\[0\]: saved nothing, expected float64\[2\]"),
        ({"x": None}, r"\['x'\]: saved float32\[2, 3\], expected nothing"),
        ({name: np.ones(2) for name in "abcdefgh"}, r"\['a'\]: saved nothing(.|\n)*and 3 more"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_words(change, complaint, tmp_path):
    state = {"x": jnp.ones((2, 3)), "key": jax.random.key(0), "epoch": 1}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state)
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=complaint):
        checkpoints.restore(like={**state, **change})
    assert_same(checkpoints.restore(like=state)[1], state)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("leaf", "error", "complaint"),
    [
        (object(), TypeError, r"\['x'\] is of type object"),
        (1j, TypeError, r"\['x'\] is of type complex"),
        ("one", TypeError, r"\['x'\] is of type str; .* can be put into the note"),
        (10**30, ValueError, r"\['x'\] does not fit 64 bits: 10{30}"),
        (np.array(["a"]), TypeError, r"\['x'\] is an array of <U1"),
        (np.array([None]), TypeError, r"\['x'\] is an array of object"),
        (jax.ShapeDtypeStruct((2,), np.float32), TypeError, r"\['x'\] has a shape and no values"),
    ],
)
def test_a_leaf_that_cannot_be_saved_is_refused_by_name(leaf, error, complaint, tmp_path):
    with pytest.raises(error, match=complaint):
        Checkpoints(tmp_path / "run").save(1, {"x": leaf})
    assert not (tmp_path / "run").exists()


def test_a_state_that_was_donated_or_is_traced_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path / "run")
    gone = {"x": jnp.ones(3)}
    jax.jit(lambda state: jax.tree.map(jnp.negative, state), donate_argnums=0)(gone)
    with pytest.raises(ValueError, match=r"\['x'\] was deleted or donated .* save the state which that step returned"):
        checkpoints.save(1, gone)
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda x: checkpoints.save(1, {"x": x}))(jnp.ones(3))
    assert not (tmp_path / "run").exists()
    checkpoints.save(1, {"x": jnp.ones(3)})
    assert_same(checkpoints.restore(like=gone)[1], {"x": jnp.ones(3)})


@pytest.mark.parametrize("step", [-1, 1.5, True, "3", None])
def test_a_step_is_a_whole_number(step, tmp_path):
    with pytest.raises(ValueError, match=f"step must be a whole number of at least 0, got {step!r}"):
        Checkpoints(tmp_path).save(step, {"x": np.ones(2)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"folder": "gs://bucket/run"}, "file system, got 'gs://bucket/run'"),
        ({"folder": "run", "keep": 0}, "keep must be .* at least 1, or None .* got 0"),
        ({"folder": "run", "keep": 1.5}, "got 1.5"),
    ],
)
def test_bad_settings_are_refused(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Checkpoints(**arguments)


@pytest.mark.parametrize("note", [object(), float("nan"), {1, 2}])
def test_a_note_that_json_cannot_hold_is_refused_before_anything_is_written(note, tmp_path):
    with pytest.raises(ValueError, match="note must be something that JSON can hold"):
        Checkpoints(tmp_path).save(1, {"x": np.ones(2)}, note=note)
    assert list(tmp_path.iterdir()) == []


# Damage


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """Checkpoints of steps 1 and 2, for tests that damage copies of them."""
    folder = tmp_path_factory.mktemp("checkpoints") / "run"
    for step in (1, 2):
        Checkpoints(folder).save(step, make_state(step), note="before the shift")
    return folder


def files_of(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def assert_found_or_harmless(folder):
    """Orbax writes some facts twice, and some that are not needed."""
    before = contents(folder)
    checkpoints = Checkpoints(folder)
    try:
        step, state = checkpoints.restore(like=make_state(0))
    except DamagedCheckpoint as damage:
        said = str(damage)
        step, state = checkpoints.restore(like=make_state(0), step=1)
    else:
        said = None
        assert checkpoints.note() == "before the shift"
    assert_same(state, make_state(step))
    assert contents(folder) == before
    if said is not None:
        assert f"{folder / 'samuel_2'} is damaged" in said
        assert "step 1 is older: restore(like, step=1)" in said
    return step != 2


# Where one array cannot be read, the reads of others end after orbax closed its event loop.
IGNORE_TENSORSTORE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
DAMAGES = {
    "cut": lambda content: content[:-1],
    "emptied": lambda content: b"",
    "flipped at the start": lambda content: bytes([content[0] ^ 1]) + content[1:],
    "flipped at the end": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
}


@IGNORE_TENSORSTORE
@pytest.mark.parametrize("damage", ["gone", *DAMAGES])
def test_damage_to_a_file_is_found_or_changes_nothing_and_the_way_out_is_named(damage, two_steps, tmp_path):
    names = files_of(two_steps / "samuel_2")
    found = []
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        shutil.copytree(two_steps, folder)
        path = folder / "samuel_2" / name
        content = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(DAMAGES[damage](content) if content else b"?")
        found.append(assert_found_or_harmless(folder))
    assert sum(found) >= 2


@IGNORE_TENSORSTORE
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_found_or_changes_nothing(data, two_steps, tmp_path_factory):
    step = two_steps / "samuel_2"
    name = data.draw(st.sampled_from([name for name in files_of(step) if (step / name).stat().st_size]))
    content = bytearray((step / name).read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(two_steps, folder)
    (folder / "samuel_2" / name).write_bytes(content)
    assert_found_or_harmless(folder)


def test_after_damage_the_run_goes_on_from_the_older_step_once_the_damaged_one_is_deleted(two_steps, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two_steps, folder)
    (folder / "samuel_2" / "about" / "metadata").write_bytes(b"{")
    checkpoints = Checkpoints(folder)
    step, state = checkpoints.restore(like=make_state(0), step=1)
    with pytest.raises(ValueError, match="delete samuel_2"):
        checkpoints.save(step + 1, state)
    shutil.rmtree(folder / "samuel_2")
    checkpoints.save(step + 1, state)
    assert_same(checkpoints.restore(like=make_state(0))[1], make_state(1))


def test_another_programs_checkpoints_in_the_folder_are_left_alone(tmp_path):
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(tmp_path) as other:
        other.save(3, args=ocp.args.PyTreeSave({"x": np.ones(3)}))
    checkpoints = Checkpoints(tmp_path, keep=1)
    assert checkpoints.latest is None
    for step in (1, 2):
        checkpoints.save(step, {"x": np.ones(3)})
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["3", "samuel_2"]


def test_files_beside_checkpoints_are_left_alone(two_steps, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(two_steps, folder)
    (folder / "notes.txt").write_text("the run with the large batch")
    (folder / ".hidden").write_text("")
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save(3, make_state(3))
    assert sorted(entry.name for entry in folder.iterdir()) == [".hidden", "notes.txt", "samuel_3"]
