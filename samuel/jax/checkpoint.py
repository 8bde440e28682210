"""Checkpoints of a run: a layer over orbax that a kill cannot tear and that finds damage.

    folder/
      step_000000400/
        samuel.json     the format and its version, the step, and for every leaf its path, shape and dtype
        SHA256SUMS      of samuel.json and of every file below arrays/, as `sha256sum -c` reads it
        arrays/         the arrays, as orbax writes them
      step_000000500/
        ...

A checkpoint is written under a hidden name, flushed to the disk, and renamed once it is whole; to delete one, it is
renamed to a hidden name first. So a folder called `step_...` is whole or was damaged later, and the leftovers of a
killed process are hidden, and deleted by the next save. There is no pickle: the structure of the state comes from the
caller.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from samuel.core.arrays import is_traced

FORMAT = "samuel-checkpoint"
VERSION = 1
"""Of the format. Checkpoints with a larger one are refused, those with a smaller one must stay readable."""
MANIFEST, SUMS, ARRAYS = "samuel.json", "SHA256SUMS", "arrays"
SAVING, DELETING = ".samuel-saving-", ".samuel-deleting-"
STEP_NAME = re.compile(r"step_(\d{9,})")
SHOWN = 5
"""Differences, or names, that an error message lists."""
PLAIN = {"bool": bool, "int": int, "float": float.fromhex, "str": str}
"""Leaves that are no arrays, by the name of their type, and how each is read from JSON."""


class DamagedCheckpoint(ValueError):
    """A checkpoint that samuel wrote and that has changed since: truncated, flipped bits, files gone or added."""


class ForeignCheckpoint(ValueError):
    """A folder that samuel did not write, or that a newer version of samuel wrote. It is left unchanged."""


class Leaf(NamedTuple):
    """A leaf of a state without its values."""

    path: str
    """Where it is in the state, as `jax.tree_util.keystr` writes it."""
    kind: str
    """"array", "key" (typed random keys) or "plain" (a Python number or string)."""
    dtype: str
    """The dtype of an array, the generator of keys, the type of a plain leaf."""
    shape: tuple[int, ...] = ()
    weak: bool = False
    """Whether JAX promotes the dtype to others in arithmetic, on which the next step's rounding can depend."""
    value: Any = None
    """Of a plain leaf only; floats in hexadecimal, which is exact."""

    def __str__(self) -> str:
        if self.kind == "plain":
            return f"a Python {self.dtype}"
        return f"{'random keys' if self.kind == 'key' else 'an array'} of {self.dtype} with shape {self.shape}"


class Checkpoints:
    """Saves the state of a run in a folder, and restores it to the bit after the run was killed.

    A state is a pytree of JAX arrays (typed random keys too), NumPy arrays and scalars, and Python numbers and strings.
    On one device, a run that saves its whole state and goes on from `restore` computes what it would have computed
    without the interruption, to the bit. What is outside the state, such as the position in the data, must follow from
    the step; and the step itself must be deterministic, for which a GPU may need
    `XLA_FLAGS=--xla_gpu_deterministic_ops=true`.

    `save` returns when the checkpoint is on the disk. A process killed while it saves leaves the checkpoints before.
    A folder belongs to one run at a time. With several processes (`jax.distributed`) all see the same folder and call
    `save` and `restore` together; each writes and reads its part of sharded arrays, and what is not shared, such as
    NumPy arrays and Python numbers, is that of the first process.

    Args:
        folder: where the checkpoints are; made at the first save. A folder with files but no checkpoint of samuel is
            refused.
        keep: how many checkpoints to keep; older ones are deleted once a new one is whole. None keeps all.

    >>> import tempfile
    >>> import jax, jax.numpy as jnp
    >>> state = {"params": jnp.arange(3.0), "key": jax.random.key(0), "epoch": 2}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoints = Checkpoints(folder)
    ...     checkpoints.save(100, state)
    ...     fresh = {"params": jnp.zeros(3), "key": jax.random.key(7), "epoch": 0}  # as at the start of the program
    ...     step, restored = checkpoints.restore(like=fresh)
    >>> step, restored["params"], restored["epoch"]
    (100, Array([0., 1., 2.], dtype=float32), 2)
    >>> bool(restored["key"] == state["key"])
    True
    """

    def __init__(self, folder: str | os.PathLike[str], keep: int | None = 2):
        if "://" in os.fspath(folder):
            raise ValueError(f"folder must be a folder of this machine's file system, got {os.fspath(folder)!r}")
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise ValueError(f"keep must be a whole number of at least 1, or None to keep all, got {keep!r}")
        self.folder: Path = Path(folder).absolute()
        self.keep = keep
        self.steps()  # refuses a foreign folder now, rather than hours later at the first save

    def __repr__(self) -> str:
        return f"Checkpoints({str(self.folder)!r}, keep={self.keep})"

    @property
    def latest(self) -> int | None:
        """The newest step saved, or None if there is none."""
        return max(self.steps(), default=None)

    def steps(self) -> list[int]:
        """The steps saved, oldest first."""
        if not self.folder.exists():
            return []
        if not self.folder.is_dir():
            raise ForeignCheckpoint(f"{self.folder} is a file; checkpoints need a folder of their own")
        # Hidden files are our leftovers, or an operating system's; neither says whose the folder is.
        visible = sorted(entry.name for entry in self.folder.iterdir() if not entry.name.startswith("."))
        found = [int(match[1]) for name in visible if (match := STEP_NAME.fullmatch(name))]
        if visible and not found:
            raise ForeignCheckpoint(
                f"{self.folder} holds {_listed(visible)} and no checkpoint of samuel; give a folder of its own"
            )
        for step in found:
            path = self._path(step)
            if path.is_symlink() or not ((path / MANIFEST).is_file() or MANIFEST.encode() in _content(path / SUMS)):
                raise ForeignCheckpoint(f"{path} is not a checkpoint of samuel: it has no {MANIFEST}, or is a link")
        return sorted(found)

    def save(self, step: int, state: Any, note: Any = None) -> None:
        """Write the state to the disk as the checkpoint of a step, later than all that are saved.

        Args:
            step: how many steps the run has completed, at least 0.
            state: a pytree of arrays.
            note: anything JSON can hold, such as the settings of the run; `describe` gives it back.

        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(folder, keep=2)
        ...     for step in (10, 20, 30):
        ...         checkpoints.save(step, {"x": jnp.full(3, step)}, note={"learning rates": [0.1, 1.0]})
        ...     checkpoints.steps(), checkpoints.describe()["note"]
        ([20, 30], {'learning rates': [0.1, 1.0]})
        """
        step = _whole_number(step)
        leaves = _leaves(state, with_values=True)
        manifest = _manifest_text(step, [leaf for leaf, _ in leaves], note)
        present = self.steps()
        for other in present:
            with suppress(DamagedCheckpoint):  # a damaged one is still ours
                self.describe(other)
        if present and step <= present[-1]:
            raise ValueError(
                f"{self.folder} holds step {present[-1]} already, and {step} is not later; nothing was overwritten. "
                f"Restore it and go on from there, choose another folder, or delete {self._path(present[-1]).name}"
            )
        _meet("samuel: ready to save")  # no process writes while another still looks
        saving = self.folder / f"{SAVING}{self._path(step).name}"
        if _first():
            self._sweep()
            saving.mkdir(parents=True)
        _meet("samuel: folder made")
        try:
            _write_arrays(saving / ARRAYS, leaves)
            if _first():
                (saving / MANIFEST).write_bytes(manifest.encode())
                (saving / SUMS).write_bytes("".join(f"{v}  {k}\n" for k, v in _sums(saving).items()).encode())
                for path in (*saving.rglob("*"), saving):
                    _flush(path)
                os.rename(saving, self._path(step))
                _flush(self.folder)
                with suppress(PermissionError):  # the folder above has a new entry if this is the first save
                    _flush(self.folder.parent)
        except BaseException:
            if _first():
                shutil.rmtree(saving, ignore_errors=True)  # a full disk is one reason to be here
            raise
        if _first() and self.keep is not None:
            for old in self.steps()[: -self.keep]:
                hidden = self.folder / f"{DELETING}{self._path(old).name}"
                os.rename(self._path(old), hidden)  # atomic: half a checkpoint is never found under its name
                shutil.rmtree(hidden)
        _meet("samuel: saved")

    def restore(self, like: Any, step: int | None = None) -> tuple[int, Any]:
        """Read the newest checkpoint, or that of a given step; nothing on the disk changes.

        The checkpoint is compared with `like` before any array is read: if paths, shapes or dtypes differ, `ValueError`
        says which. If a file of it has changed since it was written, `DamagedCheckpoint` says which.

        Args:
            like: a state of the same structure, for instance that of the start of the run, or what `jax.eval_shape`
                says about it; its values do not matter. Arrays come back as what they are here, NumPy or JAX, and on
                the devices where they are here.
            step: which step to read; the newest if None.

        Returns:
            The step and the state.

        >>> import tempfile
        >>> import jax, jax.numpy as jnp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(folder)
        ...     checkpoints.save(10, {"x": jnp.ones(3)})
        ...     step, state = checkpoints.restore(like=jax.eval_shape(lambda: {"x": jnp.zeros(3)}))
        ...     checkpoints.restore(like={"x": jnp.zeros(4)})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: step 10 in ... does not fit the state to restore:
          ['x']: saved is an array of float32 with shape (3,), expected an array of float32 with shape (4,)
        """
        step = self._chosen(step)
        wanted = _leaves(like)
        try:
            saved = [Leaf(**{**leaf, "shape": tuple(leaf["shape"])}) for leaf in self.describe(step)["leaves"]]
            _refuse_differences(saved, [leaf for leaf, _ in wanted], f"step {step} in {self.folder}")
            self._check_sums(step)
        except DamagedCheckpoint as damage:
            older = [other for other in self.steps() if other < step]
            way_out = f"; step {older[-1]} is older: restore(like, step={older[-1]})" if older else ""
            raise DamagedCheckpoint(f"{damage}{way_out}") from None
        values = _read_arrays(self._path(step) / ARRAYS, saved, [value for _, value in wanted])
        return step, jax.tree.unflatten(jax.tree.structure(like), values)

    def describe(self, step: int | None = None) -> dict[str, Any]:
        """What is written about a checkpoint: step, note, leaves, and the versions of what wrote it.

        Args:
            step: which step; the newest if None.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(folder)
        ...     checkpoints.save(10, {"x": np.ones(3)}, note="before the shift")
        ...     facts = checkpoints.describe()
        >>> facts["step"], facts["note"], facts["leaves"][0]["dtype"]
        (10, 'before the shift', 'float64')
        """
        step = self._chosen(step)
        path = self._path(step)
        text, sums = _content(path / MANIFEST), _content(path / SUMS)
        # Before it is parsed: the sum of the manifest is the one thing that every version of the format keeps.
        if sums and f"{hashlib.sha256(text).hexdigest()}  {MANIFEST}\n".encode() not in sums:
            what = "is not as it was written" if text else "is missing or empty"
            raise DamagedCheckpoint(f"{path} is damaged: {MANIFEST} {what}")
        try:
            manifest = json.loads(text)
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise ForeignCheckpoint(f"{path} is not a checkpoint of samuel: {MANIFEST} does not say {FORMAT!r}")
        if not sums:
            raise DamagedCheckpoint(f"{path} is damaged: {SUMS} is missing or empty")
        if not isinstance(manifest.get("version"), int) or manifest["version"] > VERSION:
            raise ForeignCheckpoint(
                f"{path} has version {manifest.get('version')!r} of the format, and this samuel "
                f"({_version('samuel')}) reads up to {VERSION}: it was written by a newer samuel, which can read it"
            )
        if manifest["step"] != step:
            raise ForeignCheckpoint(f"{path} holds step {manifest['step']}: it was renamed, and is refused")
        return manifest

    def _path(self, step: int) -> Path:
        return self.folder / f"step_{step:09d}"

    def _chosen(self, step: int | None) -> int:
        steps = self.steps()
        if not steps:
            raise FileNotFoundError(f"there is no checkpoint in {self.folder}")
        if step is None:
            return steps[-1]
        step = _whole_number(step)
        if step not in steps:
            raise FileNotFoundError(f"step {step} is not in {self.folder}, which holds {_listed(steps)}")
        return step

    def _check_sums(self, step: int) -> None:
        path = self._path(step)
        lines = _content(path / SUMS).decode(errors="replace").splitlines()
        before = dict(reversed(line.split("  ", 1)) for line in lines if "  " in line)
        now = _sums(path)
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                what = "is missing" if name not in now else f"is not in {SUMS}" if name not in before else "has changed"
                raise DamagedCheckpoint(f"{path} is damaged: {name} {what} since it was written")
        if len(before) < len(lines):
            raise DamagedCheckpoint(f"{path} is damaged: {SUMS} has changed since it was written")

    def _sweep(self) -> None:
        """Delete the leftovers of processes that were killed while they saved or deleted."""
        if self.folder.exists():
            for entry in self.folder.iterdir():
                if entry.name.startswith((SAVING, DELETING)):
                    shutil.rmtree(entry)


def _whole_number(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise ValueError(f"step must be a whole number of at least 0, got {step!r}")
    return number


def _listed(names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"


# Leaves: what a state is made of


def _leaves(tree: Any, with_values: bool = False) -> list[tuple[Leaf, Any]]:
    """Every leaf of a state with its description; those that cannot be saved are refused."""
    return [
        (_leaf(jax.tree_util.keystr(path) or "the state", value, with_values), value)
        for path, value in jax.tree_util.tree_flatten_with_path(tree)[0]
    ]


def _leaf(path: str, value: Any, with_values: bool) -> Leaf:
    if type(value) in (bool, int, float, str):
        return Leaf(path, "plain", type(value).__name__, value=value.hex() if isinstance(value, float) else value)
    if not isinstance(value, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
        raise TypeError(
            f"{path} is of type {type(value).__name__}; a state is made of JAX and NumPy arrays, and of Python numbers "
            "and strings"
        )
    if is_traced(value):
        raise TypeError(f"{path} is traced: call save and restore outside of jit")
    if with_values and isinstance(value, jax.ShapeDtypeStruct):
        raise TypeError(f"{path} has a shape and no values; save needs the state itself")
    if with_values and isinstance(value, jax.Array) and value.is_deleted():
        raise ValueError(f"{path} was deleted or donated to a compiled step; save the state which that step returned")
    shape = tuple(int(size) for size in value.shape)
    if _holds_keys(value):
        return Leaf(path, "key", str(_generator(value.dtype)), shape)
    if not (jnp.issubdtype(value.dtype, np.number) or value.dtype == np.bool_):
        raise TypeError(f"{path} is an array of {value.dtype}; only numbers and truth values can be saved")
    return Leaf(path, "array", np.dtype(value.dtype).name, shape, bool(getattr(value, "weak_type", False)))


def _holds_keys(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _generator(dtype: Any) -> Any:
    """Which random generator typed keys are for; asked of a traced key, since `like` may be a mere shape."""
    found = []
    jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), jax.ShapeDtypeStruct((), dtype))
    return found[0]


def _manifest_text(step: int, leaves: list[Leaf], note: Any) -> str:
    try:
        json.dumps(note, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"note must be something that JSON can hold, got {note!r}: {error}") from None
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "step": step,
        "written by": {package: _version(package) for package in ("samuel", "jax", "orbax-checkpoint")},
        "note": note,
        "leaves": [leaf._asdict() for leaf in leaves],
    }
    return json.dumps(manifest, indent=1) + "\n"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree that was not installed
        return "0+unknown"


def _refuse_differences(saved: list[Leaf], expected: list[Leaf], name: str) -> None:
    found, wanted = ({leaf.path: leaf for leaf in leaves} for leaves in (saved, expected))
    differences = []
    for path in dict.fromkeys([*wanted, *found]):
        if path not in found:
            differences.append(f"{path}: not saved, expected {wanted[path]}")
        elif path not in wanted:
            differences.append(f"{path}: saved is {found[path]}, not expected")
        elif not _fits(found[path], wanted[path]):
            differences.append(f"{path}: saved is {found[path]}, expected {wanted[path]}")
    if not differences and [leaf.path for leaf in saved] != [leaf.path for leaf in expected]:
        differences.append("the same leaves are in another order")
    if differences:
        more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
        lines = "\n  ".join(differences[:SHOWN] + more)
        raise ValueError(f"{name} does not fit the state to restore:\n  {lines}")


def _fits(saved: Leaf, expected: Leaf) -> bool:
    if saved.kind != expected.kind and "plain" in (saved.kind, expected.kind):
        # The Python number of a fresh state is an array once a compiled step has returned it.
        saved, expected = _compiled(saved), _compiled(expected)
    return str(saved) == str(expected)


def _compiled(leaf: Leaf) -> Leaf:
    """What becomes of a Python number in a compiled function."""
    if leaf.kind != "plain" or leaf.dtype == "str":
        return leaf
    number = {"bool": False, "int": 0, "float": 0.0}[leaf.dtype]
    return Leaf(leaf.path, "array", jnp.asarray(number).dtype.name)


# Arrays: through orbax, which is imported late because it takes a while


def _write_arrays(folder: Path, leaves: list[tuple[Leaf, Any]]) -> None:
    arrays = {}
    for index, (leaf, value) in enumerate(leaves):
        if leaf.kind == "key":
            value = jax.random.key_data(value)
        if leaf.kind != "plain" and value.size:  # orbax refuses empty arrays, and there is nothing to write
            arrays[str(index)] = value if isinstance(value, jax.Array) and not _is_private(value) else np.asarray(value)
    if arrays:
        import orbax.checkpoint as ocp

        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            checkpointer.save(folder, args=ocp.args.PyTreeSave(arrays))


def _read_arrays(folder: Path, saved: list[Leaf], like: list[Any]) -> list[Any]:
    import orbax.checkpoint as ocp

    wanted = {}
    for index, (leaf, target) in enumerate(zip(saved, like, strict=True)):
        if leaf.kind != "plain" and 0 not in leaf.shape:
            sharding = _placement(target)
            if sharding is None or _is_private(sharding):
                wanted[str(index)] = ocp.RestoreArgs(restore_type=np.ndarray)
            else:
                wanted[str(index)] = ocp.ArrayRestoreArgs(restore_type=jax.Array, sharding=sharding)
    arrays = {}
    if wanted:
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
            arrays = checkpointer.restore(folder, args=ocp.args.PyTreeRestore(restore_args=wanted))
    pairs = enumerate(zip(saved, like, strict=True))
    return [_restored(leaf, target, arrays.get(str(index))) for index, (leaf, target) in pairs]


def _placement(target: Any) -> Any:
    """The sharding that `like` asks for; None for NumPy, and for JAX arrays that JAX itself may place."""
    if getattr(target, "committed", True):
        return getattr(target, "sharding", None)
    return None


def _is_private(array_or_sharding: Any) -> bool:
    """Whether, of several processes, this one alone sees an array; orbax handles only those that all share."""
    return jax.process_count() > 1 and array_or_sharding.is_fully_addressable


def _restored(leaf: Leaf, target: Any, array: Any) -> Any:
    if leaf.kind == "plain":
        return PLAIN[leaf.dtype](leaf.value)
    if array is None:  # an empty array, of which only the shape was saved
        shape = jax.eval_shape(jax.random.key_data, target).shape if leaf.kind == "key" else leaf.shape
        array = np.zeros(shape, np.uint32 if leaf.kind == "key" else target.dtype)
    if isinstance(target, np.generic):
        return array[()]
    if isinstance(target, np.ndarray):
        return array
    if not isinstance(array, jax.Array):
        read = array
        array = jnp.array(read)  # a copy: the memory that orbax read into is not JAX's to donate
        if (sharding := _placement(target)) is not None:
            array = jax.device_put(array, sharding)
        if array.dtype != read.dtype:
            raise ValueError(f"{leaf.path} is an array of {read.dtype}, for which JAX needs jax_enable_x64")
    if leaf.kind == "key":
        return jax.random.wrap_key_data(array, impl=_generator(target.dtype))
    return _weakly_typed(leaf, array) if leaf.weak else array


def _weakly_typed(leaf: Leaf, array: jax.Array) -> jax.Array:
    # JAX has no function for this; an array of weak type keeps it when other values are put into it.
    zero = np.zeros((), array.dtype).item()
    weak = jax.jit(lambda values: jnp.broadcast_to(jnp.asarray(zero), values.shape).at[...].set(values))(array)
    if weak.dtype != array.dtype or not weak.weak_type:
        raise ValueError(f"{leaf.path} was saved with jax_enable_x64 set another way than now")
    return weak


# Files


def _files(folder: Path) -> Iterator[Path]:
    """Every file below a folder; links and devices are refused."""
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink() or not (entry.is_dir() or entry.is_file()):
            raise DamagedCheckpoint(f"{folder} is damaged: {entry.name} is a link or a device, not a file")
        yield from _files(entry) if entry.is_dir() else [entry]


def _content(path: Path) -> bytes:
    """What is in a small file; empty if it is not there."""
    return path.read_bytes() if path.is_file() else b""


def _sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file below a folder but that of the sums."""
    found = {}
    for path in _files(folder):
        if (name := path.relative_to(folder).as_posix()) != SUMS:
            with path.open("rb") as file:
                found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _flush(path: Path) -> None:
    """Have a file or the entries of a folder survive a power cut."""
    if os.name != "posix":  # elsewhere folders cannot be opened, nor can files be flushed that are open for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Several processes


def _first() -> bool:
    return jax.process_index() == 0


def _meet(place: str) -> None:
    """Wait until every process of the run is here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(place)
