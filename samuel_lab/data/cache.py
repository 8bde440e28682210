"""Cache of decoded data on disk: memory-mapped arrays and a manifest with their checksums.

    CACHE/
      cifar10-0f3a.../
        manifest.json   the format and its version, the source, facts, and the size and sha256 of every array
        train.npy ...

An entry is built under a hidden name and renamed when it is complete. It is checked each time it is opened: if its
source has changed (size or modification time), or a file has another size than recorded, it is rebuilt. Checksums are
verified on request, since that reads everything. While one process builds an entry, others wait and then share it. No
pickle is read or written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "samuel-cache"
VERSION = 1
MANIFEST = "manifest.json"
ABSENT, OUTDATED = "absent", "outdated"


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry of the cache.

    Args:
        folder: of the entry.
        arrays: by name, memory-mapped and read-only.
        facts: the result of `build`.
        checksum: of all arrays: equal for equal data on any machine.
    """

    folder: Path
    arrays: dict[str, np.ndarray]
    facts: dict[str, Any]
    checksum: str


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder of the cache: as given, or `$SAMUEL_CACHE`, or `$XDG_CACHE_HOME/samuel`, or `~/.cache/samuel`.

    Args:
        cache: a folder, or None.

    >>> cache_folder("decoded").name
    'decoded'
    """
    if cache is None:
        cache = os.environ.get("SAMUEL_CACHE") or None
    if cache is None:
        shared = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
        cache = os.path.join(shared, "samuel")
    return Path(cache).expanduser().absolute()


def cached(
    name: str,
    key: Mapping[str, Any],
    state: Any,
    build: Callable[[Path], Mapping[str, Any]],
    *,
    cache: str | os.PathLike[str] | None = None,
    verify: bool = False,
    whole: Callable[[Path, Mapping[str, Any]], bool] | None = None,
) -> Entry:
    """Open an entry of the cache; builds it if it is missing, outdated or damaged.

    Args:
        name: readable name of the entry.
        key: identity of the entry: path of the source, options. JSON-serialisable.
        state: fingerprint of the source, such as size and modification time: if it differs from that of the entry, the
            entry is rebuilt. JSON-serialisable.
        build: writes `.npy` files into a given folder and returns JSON-serialisable facts. Other files in the folder
            are kept, but not checked.
        cache: the folder of the cache; see `cache_folder`.
        verify: check the checksums of all arrays, which reads them.
        whole: checks files other than arrays: takes the folder and the facts of an entry, returns whether it is valid.

    >>> import tempfile
    >>> def build(folder):
    ...     np.save(folder / "squares.npy", np.arange(4) ** 2)
    ...     return {"made": True}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     entry = cached("squares", {"count": 4}, None, build, cache=folder)
    ...     entry.arrays["squares"].tolist(), entry.facts
    ([0, 1, 4, 9], {'made': True})
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"the name of an entry must be letters, digits and dashes, got {name!r}")
    root = cache_folder(cache)
    digest = hashlib.sha256(json.dumps([name, VERSION, key], sort_keys=True).encode()).hexdigest()[:16]
    folder = root / f"{name}-{digest}"
    state = json.loads(json.dumps(state))  # normalise to what JSON returns
    with _locked(root, f".{folder.name}.lock"):
        problem = _problem(folder, state, verify, whole)
        if problem:
            if problem not in (ABSENT, OUTDATED):
                warnings.warn(f"the cache {folder} is damaged ({problem}) and is made again", stacklevel=3)
            _make(folder, key, state, build)
        return _opened(folder)


def file_state(path: str | os.PathLike[str]) -> list[int]:
    """Size and modification time of a file, to notice changes.

    Args:
        path: the file.
    """
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns]


def listing_state(root: str | os.PathLike[str], names: Iterable[str]) -> str:
    """A digest of the names, sizes and modification times of some files of a folder.

    Args:
        root: the folder.
        names: of the files, relative to it.
    """
    digest = hashlib.sha256()
    for name in names:
        digest.update(json.dumps([name, *file_state(os.path.join(root, name))]).encode())
    return digest.hexdigest()


@contextmanager
def _locked(root: Path, name: str) -> Iterator[None]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        file = (root / name).open("a")
    except OSError as error:
        why = f"the cache cannot be written here ({error.strerror}): choose another folder, or set SAMUEL_CACHE"
        raise type(error)(error.errno, why, error.filename) from error
    # The lock is released when the process ends, in any way. The file stays: deleting it would let two processes in.
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _problem(folder: Path, state: Any, verify: bool, whole: Callable[[Path, Mapping[str, Any]], bool] | None) -> str:
    """The problem of an entry: "" for none, ABSENT, OUTDATED, or a description of the damage."""
    if not folder.exists():
        return ABSENT
    try:
        manifest = _manifest(folder)
    except (OSError, ValueError) as error:
        return str(error)
    if manifest["state"] != state:
        return OUTDATED
    for name, known in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != known.get("size"):
            return f"{name} has {path.stat().st_size} bytes instead of {known.get('size')}"
        if verify and _sha256(path) != known.get("sha256"):
            return f"{name} is damaged"
    if whole and not whole(folder, manifest["facts"]):
        return "files are missing"
    try:
        _opened(folder)
    except ValueError as error:  # a corrupt header
        return str(error)
    return ""


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    if not isinstance(manifest, dict) or (manifest.get("format"), manifest.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{MANIFEST} is not of this version of the cache")
    files = manifest.get("files")
    complete = isinstance(files, dict) and all(isinstance(known, dict) for known in files.values())
    if not complete or "state" not in manifest or not isinstance(manifest.get("facts"), dict):
        raise ValueError(f"{MANIFEST} is incomplete")
    return manifest


def _make(folder: Path, key: Mapping[str, Any], state: Any, build: Callable[[Path], Mapping[str, Any]]) -> None:
    """Build an entry, replacing an existing one. The caller holds the lock."""
    making, old = folder.with_name(f".{folder.name}.making"), folder.with_name(f".{folder.name}.old")
    for leftover in (making, old):  # left by a killed process
        shutil.rmtree(leftover, ignore_errors=True)
    making.mkdir()
    try:
        facts = dict(build(making))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "key": key,
            "state": state,
            "facts": facts,
            "files": {
                path.name: {"size": path.stat().st_size, "sha256": _sha256(path)}
                for path in sorted(making.glob("*.npy"))
            },
        }
        (making / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
        for path in making.iterdir():
            if path.is_file():
                _flush(path)
        if folder.exists():
            os.rename(folder, old)
        os.rename(making, folder)
    finally:
        for leftover in (making, old):
            shutil.rmtree(leftover, ignore_errors=True)


def _opened(folder: Path) -> Entry:
    manifest = _manifest(folder)
    arrays = {
        name.removesuffix(".npy"): np.load(folder / name, mmap_mode="r", allow_pickle=False)
        for name in manifest["files"]
    }
    sums = {name: known.get("sha256") for name, known in manifest["files"].items()}
    checksum = hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).hexdigest()
    return Entry(folder, arrays, manifest["facts"], checksum)


def _flush(path: Path) -> None:
    """Flush a file to disk, so that a crash cannot leave one of the right size without content."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
