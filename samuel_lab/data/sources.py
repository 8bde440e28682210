"""A common interface to the files of a folder or an archive.

An archive is read into memory and not unpacked: creating 60,000 small files takes a minute on many disks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from samuel_lab.data import Progress
from samuel_lab.data.cache import file_state, listing_state
from samuel_lab.data.unpack import members

DEEPEST = 2
"""Depth to which files are listed below a wanted name: `train/CLASS/file`."""
DOWN_TO = 3
"""Depth of the search for a wanted name: archives often have everything in one folder."""
MOST_FOLDERS = 100
"""Maximum number of entries searched per level, so that a wrong path fails fast."""
MOST_BYTES = 4 * 2**30
"""Maximum size of an archive that is read into memory."""


@dataclass(frozen=True, eq=False)
class Source:
    """Files and folders by name, relative to the folder with the wanted ones.

    Args:
        path: the folder or archive, as given.
        names: of files, and of folders with a trailing slash; sorted, without hidden ones.
        root: the folder of the names; None for an archive.
        held: the files of an archive.
    """

    path: Path
    names: tuple[str, ...]
    root: Path | None = None
    held: Mapping[str, bytes] = field(default_factory=dict)

    def top(self) -> set[str]:
        """The names of the files and folders at the top."""
        return {name.split("/", 1)[0] for name in self.names}

    def file(self, name: str) -> str | bytes:
        """The path of a file, or its content as a binary stream.

        Args:
            name: one of `names`.
        """
        return self.held[name] if self.root is None else os.path.join(self.root, name)

    def read(self, name: str) -> bytes:
        """The content of a file.

        Args:
            name: one of `names`.
        """
        return self.held[name] if self.root is None else (self.root / name).read_bytes()

    def describe(self, name: str) -> str:
        """The location of a file, for messages.

        Args:
            name: one of `names`, or a missing one.
        """
        return f"{self.path}: {name}" if self.root is None else str(self.root / name)


def existing(path: str | os.PathLike[str], right: str) -> Path:
    """The absolute path; an error that says what is expected if it does not exist.

    Args:
        path: as given.
        right: what is expected, for the message.
    """
    found = Path(path).expanduser().absolute()
    if not found.exists():
        raise FileNotFoundError(f"there is no {found}; {right}; or give an archive of it (tar, tar.gz, tar.xz, zip)")
    return found


def state_of(path: Path, wanted: Collection[str]) -> object:
    """Fingerprint of a folder or an archive for the cache: it changes with any file.

    Args:
        path: the folder or archive.
        wanted: see `open_source`.
    """
    if path.is_file():
        return file_state(path)
    source = open_source(path, wanted)
    assert source.root is not None
    return listing_state(source.root, [name for name in source.names if not name.endswith("/")])


def open_source(path: Path, wanted: Collection[str], *, progress: Progress | None = None) -> Source:
    """Open a folder or an archive.

    Args:
        path: the folder or archive.
        wanted: names of files or folders to look for, in the folder itself or in folders in it. Nothing else is listed.
        progress: progress callback; see `samuel_lab.data.Progress`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.makedirs(f"{folder}/pets/train/cat")
    ...     _ = Path(folder, "pets/train/cat/1.txt").write_text("meow")
    ...     source = open_source(Path(folder), ["train", "test"])
    ...     source.names, source.read("train/cat/1.txt")
    (('train/', 'train/cat/', 'train/cat/1.txt'), b'meow')
    """
    return _open_archive(path, wanted, progress) if path.is_file() else _open_folder(path, wanted)


def _open_folder(path: Path, wanted: Collection[str]) -> Source:
    def inside(prefix: str) -> dict[str, bool]:
        try:
            with os.scandir(path / prefix) as entries:
                return {entry.name: entry.is_dir() for entry in entries if _visible(entry.name)}
        except PermissionError:
            if prefix:  # ignored, unless it is the given folder
                return {}
            raise

    prefix = _prefix(inside, wanted, path)
    if prefix is None:
        return Source(path, (), path)
    root = path / prefix
    names: list[str] = []
    for name, is_folder in sorted(inside(prefix).items()):
        if name in wanted:
            _list(root, name, is_folder, names, DEEPEST)
    return Source(path, tuple(names), root)


def _list(root: Path, name: str, is_folder: bool, names: list[str], deeper: int) -> None:
    names.append(f"{name}/" if is_folder else name)
    if is_folder and deeper:
        with os.scandir(root / name) as entries:
            inside = sorted((entry.name, entry.is_dir()) for entry in entries if _visible(entry.name))
        for inner, inner_is_folder in inside:
            _list(root, f"{name}/{inner}", inner_is_folder, names, deeper - 1)


def _open_archive(path: Path, wanted: Collection[str], progress: Progress | None) -> Source:
    held: dict[str, bytes] = {}
    folders: set[str] = set()
    size = 0
    for member in members(path, progress=progress):
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        folders.update("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
        if member.content is None:
            folders.update(["/".join(parts) + "/"] if parts else [])
        elif all(_visible(part) for part in parts):
            name = "/".join(parts)
            if name in held:
                raise ValueError(f"{path} is refused: it holds {name!r} twice")
            held[name] = member.content.read()
            size += len(held[name])
            if size > MOST_BYTES:
                raise ValueError(f"{path} is too large to be read into memory: unpack it, and give the folder")
    within: dict[str, dict[str, bool]] = {}
    for name in [*held, *folders]:
        parent, _, last = name.removesuffix("/").rpartition("/")
        within.setdefault(f"{parent}/" if parent else "", {})[last] = name.endswith("/")
    prefix = _prefix(lambda prefix: within.get(prefix, {}), wanted, path)
    if prefix is None:
        return Source(path, ())
    tops = tuple(f"{prefix}{name}" for name in within[prefix] if name in wanted)
    chosen = [name for name in [*held, *folders] if name in tops or name.startswith(tuple(f"{top}/" for top in tops))]
    names = sorted(name.removeprefix(prefix) for name in chosen)
    return Source(path, tuple(names), None, {name.removeprefix(prefix): held[name] for name in chosen if name in held})


def _prefix(inside: Callable[[str], Mapping[str, bool]], wanted: Collection[str], path: Path) -> str | None:
    """The folder that contains a wanted name, within a few levels; None if there is none.

    Args:
        inside: for a folder, the names in it and whether each is a folder.
        wanted: the names.
        path: for messages.
    """
    level = [""]
    for _ in range(DOWN_TO):
        found = [prefix for prefix in level if any(name in wanted for name in inside(prefix))]
        if len(found) > 1:
            raise ValueError(f"{path} has {' and '.join(sorted(found)[:3])} in it: give the path of one of them")
        if found:
            return found[0]
        level = [f"{prefix}{name}/" for prefix in level for name, is_folder in inside(prefix).items() if is_folder]
        if len(level) > MOST_FOLDERS:
            return None
    return None


def _visible(name: str) -> bool:
    return not name.startswith(".")  # hidden files come from operating systems
