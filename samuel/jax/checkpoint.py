"""Checkpoints of a run, written by orbax: whole or not at all, and restored bit for bit.

A checkpoint is a folder `samuel_STEP` with two items of `orbax.checkpoint.CheckpointManager`: `arrays`, and `about`,
JSON with the note and, for every leaf of the state, its path, shape, dtype and CRC-32. There is no pickle: the
structure of the state comes from the caller.
"""

from __future__ import annotations

import json
import operator
import os
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from samuel.core.arrays import is_traced

PREFIX = "samuel"
SHOWN = 5
"""Differences that an error message lists."""


class DamagedCheckpoint(ValueError):
    """A checkpoint that cannot be read, or whose contents changed since it was written."""


class Checkpoints:
    """Saves the state of a run in a folder, and restores it bit for bit after the run was killed.

    A state is a pytree of JAX arrays (typed random keys too), NumPy arrays and scalars, and Python numbers. On one
    device, a run that saves its whole state and goes on from `restore` computes what it would have computed without the
    interruption. What is outside the state, such as the position in the data, must follow from the step; and the step
    itself must be deterministic, for which a GPU may need `XLA_FLAGS=--xla_gpu_deterministic_ops=true`.

    `save` returns when the checkpoint is written. A process killed while it saves leaves the checkpoints before. A
    folder belongs to one run at a time. With several processes (`jax.distributed`) all see the same folder and call
    `save` and `restore` together; each writes and reads its part of sharded arrays, and what is not shared, such as
    NumPy arrays and Python numbers, is that of the first process.

    Args:
        folder: where the checkpoints are; made at the first save.
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
        return sorted(found.step for found in _names().find_all(self.folder))

    def save(self, step: int, state: Any, note: Any = None) -> None:
        """Write the state as the checkpoint of a step, later than all that are saved.

        Args:
            step: how many steps the run has completed, at least 0.
            state: a pytree of arrays.
            note: anything JSON can hold, such as the settings of the run.

        >>> import tempfile
        >>> import jax.numpy as jnp
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     checkpoints = Checkpoints(folder, keep=2)
        ...     for step in (10, 20, 30):
        ...         checkpoints.save(step, {"x": jnp.full(3, step)}, note={"learning rates": [0.1, 1.0]})
        ...     checkpoints.steps(), checkpoints.note()
        ([20, 30], {'learning rates': [0.1, 1.0]})
        """
        step = _whole_number(step)
        leaves = _leaves(state)
        try:
            json.dumps(note, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"note must be something that JSON can hold, got {note!r}: {error}") from None
        latest = self.latest
        if latest is not None and step <= latest:
            raise ValueError(
                f"{self.folder} holds step {latest} already, and {step} is not later; nothing was overwritten. Restore "
                f"it and go on from there, choose another folder, or delete {_names().build_name(latest)}"
            )
        arrays = {path: _to_write(path, leaf) for path, leaf in leaves.items()}
        about = {
            "leaves": {path: _description(leaf) | {"crc32": _sum(arrays[path])} for path, leaf in leaves.items()},
            "note": note,
        }
        import orbax.checkpoint as ocp

        # Orbax refuses empty arrays, and a tree of none.
        numbered = {str(place): array for place, array in enumerate(arrays.values()) if array.size}
        with self._manager(cleanup_tmp_directories=True) as manager:
            manager.save(
                step,
                args=ocp.args.Composite(
                    arrays=ocp.args.PyTreeSave({"step": np.asarray(step), **numbered}),
                    about=ocp.args.JsonSave({"crc32": _sum_of_json(about), "about": about}),
                ),
            )

    def restore(self, like: Any, step: int | None = None) -> tuple[int, Any]:
        """Read the newest checkpoint, or that of a given step; nothing on the disk changes.

        The checkpoint is compared with `like` before any array is read: if paths, shapes or dtypes differ, `ValueError`
        says which. If its contents changed since it was written, `DamagedCheckpoint` says so.

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
          ['x']: saved float32[3], expected float32[4]
        """
        step = self._chosen(step)
        wanted = _leaves(like, values=False)
        saved = self._about(step)["leaves"]
        _refuse_differences(saved, wanted, f"step {step} in {self.folder}")
        import orbax.checkpoint as ocp

        ways: dict[str, Any] = {"step": ocp.RestoreArgs(restore_type=np.ndarray)}
        for place, (path, leaf) in enumerate(wanted.items()):
            if 0 not in saved[path]["shape"]:
                ways[str(place)] = _way_to_read(leaf)
        arrays = self._read(step, "arrays", ocp.args.PyTreeRestore(restore_args=ways))
        values = []
        for place, (path, leaf) in enumerate(wanted.items()):
            array = arrays.get(str(place))
            if array is not None and saved[path]["crc32"] != _sum(array):
                raise self._damaged(step, f"the values of {path} changed since they were written")
            values.append(_restored(path, saved[path], leaf, array))
        return step, jax.tree.unflatten(jax.tree.structure(like), values)

    def note(self, step: int | None = None) -> Any:
        """The note that was saved with a step; with the newest if None."""
        return self._about(self._chosen(step))["note"]

    def _about(self, step: int) -> dict[str, Any]:
        import orbax.checkpoint as ocp

        found = self._read(step, "about", ocp.args.JsonRestore())
        if not isinstance(found, dict) or found.get("crc32") != _sum_of_json(found.get("about")):
            raise self._damaged(step, "what it says about itself changed since it was written")
        return found["about"]

    def _read(self, step: int, item: str, how: Any) -> Any:
        import orbax.checkpoint as ocp

        with self._manager() as manager:
            try:
                return manager.restore(step, args=ocp.args.Composite(**{item: how}))[item]
            except Exception as error:  # whatever orbax and TensorStore raise where bytes are not as they should be
                raise self._damaged(step, f"{error!r:.300}") from error

    def _damaged(self, step: int, why: str) -> DamagedCheckpoint:
        older = [other for other in self.steps() if other < step]
        way_out = f"; step {older[-1]} is older: restore(like, step={older[-1]})" if older else ""
        return DamagedCheckpoint(f"{self.folder / _names().build_name(step)} is damaged: {why}{way_out}")

    def _manager(self, **options: Any) -> Any:
        """The manager of orbax: opened for each call, as one held open would not see what other processes save."""
        import orbax.checkpoint as ocp

        settings = {"step_name_format": _names(), "max_to_keep": self.keep, "enable_async_checkpointing": False}
        return ocp.CheckpointManager(self.folder, options=ocp.CheckpointManagerOptions(**settings, **options))

    def _chosen(self, step: int | None) -> int:
        steps = self.steps()
        if not steps:
            raise FileNotFoundError(f"there is no checkpoint in {self.folder}")
        if step is None:
            return steps[-1]
        step = _whole_number(step)
        if step not in steps:
            raise FileNotFoundError(f"step {step} is not in {self.folder}, which holds {', '.join(map(str, steps))}")
        return step


def _names() -> Any:
    """How checkpoints are called: the prefix leaves folders of others alone."""
    import orbax.checkpoint as ocp  # late, because it takes a second

    return ocp.path.step.standard_name_format(step_prefix=PREFIX)


def _whole_number(step: Any) -> int:
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if number < 0 or isinstance(step, bool):
        raise ValueError(f"step must be a whole number of at least 0, got {step!r}")
    return number


def _leaves(tree: Any, values: bool = True) -> dict[str, Any]:
    """The leaves of a state by their paths; those that cannot be saved are refused."""
    leaves = {
        jax.tree_util.keystr(path) or "the state": leaf for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    for path, leaf in leaves.items():
        if type(leaf) in (bool, int, float):
            continue
        if not isinstance(leaf, np.ndarray | np.generic | jax.Array | jax.ShapeDtypeStruct):
            raise TypeError(
                f"{path} is of type {type(leaf).__name__}; a state is made of JAX and NumPy arrays and of Python "
                "numbers; other facts can be put into the note"
            )
        if is_traced(leaf):
            raise TypeError(f"{path} is traced: call save and restore outside of jit")
        if values and isinstance(leaf, jax.ShapeDtypeStruct):
            raise TypeError(f"{path} has a shape and no values; save needs the state itself")
        if values and isinstance(leaf, jax.Array) and leaf.is_deleted():
            raise ValueError(
                f"{path} was deleted or donated to a compiled step; save the state which that step returned"
            )
        if not (_holds_keys(leaf) or jnp.issubdtype(leaf.dtype, np.number) or leaf.dtype == np.bool_):
            raise TypeError(f"{path} is an array of {leaf.dtype}; only numbers and truth values can be saved")
    return leaves


def _holds_keys(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _description(leaf: Any) -> dict[str, Any]:
    """What is saved about a leaf: what it must have in common with that of `like`, and what JAX computes by."""
    if type(leaf) in (bool, int, float):  # a Python number is an array once a compiled step has returned it
        return {"dtype": str(jax.dtypes.canonicalize_dtype(type(leaf))), "shape": [], "python": True}
    found: dict[str, Any] = {"dtype": str(leaf.dtype), "shape": list(leaf.shape)}
    if _holds_keys(leaf) and isinstance(leaf, jax.Array):
        found["generator"] = str(jax.random.key_impl(leaf))
    # Of weak type, a number adapts to the dtype of others, on which the next step's rounding can depend.
    return found | ({"weak": True} if getattr(leaf, "weak_type", False) else {})


def _refuse_differences(saved: dict[str, Any], wanted: dict[str, Any], name: str) -> None:
    expected = {path: _said(_description(leaf)) for path, leaf in wanted.items()}
    found = {path: _said(leaf) for path, leaf in saved.items()}
    paths = dict.fromkeys([*expected, *found])
    differences = [
        f"{path}: saved {found.get(path, 'nothing')}, expected {expected.get(path, 'nothing')}"
        for path in paths
        if found.get(path) != expected.get(path)
    ]
    if not differences and list(found) != list(expected):
        differences = ["the same leaves are in another order"]
    if differences:
        more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
        lines = "\n  ".join(differences[:SHOWN] + more)
        raise ValueError(f"{name} does not fit the state to restore:\n  {lines}")


def _said(description: dict[str, Any]) -> str:
    return f"{description['dtype']}{description['shape']}"


def _to_write(path: str, leaf: Any) -> Any:
    """A leaf as an array that orbax writes."""
    if _holds_keys(leaf):
        leaf = jax.random.key_data(leaf)
    array = leaf if isinstance(leaf, jax.Array) and not _is_private(leaf) else np.asarray(leaf)
    if array.dtype == object:
        raise ValueError(f"{path} does not fit 64 bits: {leaf}")
    return array


def _is_private(array_or_sharding: Any) -> bool:
    """Whether, of several processes, this one alone sees an array; orbax handles only those that all share."""
    return jax.process_count() > 1 and array_or_sharding.is_fully_addressable


def _sum(array: Any) -> int | None:
    """The CRC-32 of the values; None where they are spread over processes."""
    if isinstance(array, jax.Array) and not array.is_fully_addressable:
        return None
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data) if array.size else None


def _sum_of_json(value: Any) -> int:
    return zlib.crc32(json.dumps(value).encode())


def _placement(like: Any) -> Any:
    """The sharding that `like` asks for; None for NumPy, and for JAX arrays that JAX itself may place."""
    return getattr(like, "sharding", None) if getattr(like, "committed", True) else None


def _way_to_read(like: Any) -> Any:
    import orbax.checkpoint as ocp

    sharding = _placement(like)
    if sharding is None or _is_private(sharding):
        return ocp.RestoreArgs(restore_type=np.ndarray)
    return ocp.ArrayRestoreArgs(restore_type=jax.Array, sharding=sharding)


def _restored(path: str, saved: dict[str, Any], like: Any, array: Any) -> Any:
    """What was read as what `like` is; a Python number where one was saved."""
    if saved.get("python"):
        return array.item()
    if array is None:  # an empty array, of which only the shape was saved
        empty = jax.eval_shape(jax.random.key_data, like) if _holds_keys(like) else like
        array = np.zeros(empty.shape, empty.dtype)
    if isinstance(like, np.generic):
        return array[()]
    if isinstance(like, np.ndarray):
        return array
    if not isinstance(array, jax.Array):
        read = array
        array = jnp.array(read)  # a copy: the memory that orbax read into is not JAX's to donate
        if (sharding := _placement(like)) is not None:
            array = jax.device_put(array, sharding)
        if array.dtype != read.dtype:
            raise ValueError(f"{path} is an array of {read.dtype}, for which JAX needs jax_enable_x64")
    if _holds_keys(like):
        return jax.random.wrap_key_data(array, impl=saved["generator"])
    return _weakly_typed(path, array) if saved.get("weak") else array


def _weakly_typed(path: str, array: jax.Array) -> jax.Array:
    # JAX has no function for this; an array of weak type keeps it when other values are put into it.
    zero = np.zeros((), array.dtype).item()
    weak = jax.jit(lambda values: jnp.broadcast_to(jnp.asarray(zero), values.shape).at[...].set(values))(array)
    if weak.dtype != array.dtype or not weak.weak_type:
        raise ValueError(f"{path} was saved with jax_enable_x64 set another way than now")
    return weak
