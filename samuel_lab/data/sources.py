"""The files of a folder or of an archive, under the same names: loaders need not know which of the two they read.

An archive is read into the memory, and nothing is unpacked: to make 60,000 small files takes many disks a minute.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from samuel_lab.data import Tell
from samuel_lab.data.cache import file_state, listing_state
from samuel_lab.data.unpack import members

DEEPEST = 2
"""How many folders deep, below a wanted name, files are listed: `train/CLASS/file`."""
DOWN_TO = 3
"""How many levels of folders are searched for a wanted name: archives often have all in one folder."""
MOST_FOLDERS = 100
"""On a level that is searched: whoever gives the wrong path should be told soon."""
MOST_BYTES = 4 * 2**30
"""Of an archive that is read into the memory."""


@dataclass(frozen=True, eq=False)
class Source:
    """Files and folders by name, from the folder on in which the wanted ones are.

    Args:
        path: the folder or the archive, as the user gave it.
        names: of files, and of folders with a slash at the end; sorted, without hidden ones.
        root: the folder that the names are in; None for an archive.
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
        """What to open to read a file: its path, or what is in it.

        Args:
            name: one of `names`.
        """
        return self.held[name] if self.root is None else os.path.join(self.root, name)

    def read(self, name: str) -> bytes:
        """What is in a file.

        Args:
            name: one of `names`.
        """
        return self.held[name] if self.root is None else (self.root / name).read_bytes()

    def describe(self, name: str) -> str:
        """Where a file is, in words.

        Args:
            name: one of `names`, or one that should be.
        """
        return f"{self.path}: {name}" if self.root is None else str(self.root / name)


def existing(path: str | os.PathLike[str], right: str) -> Path:
    """A path as an absolute one, if there is something; if not, an error that says what should be there.

    Args:
        path: what the user gave.
        right: what would be right, in words.
    """
    found = Path(path).expanduser().absolute()
    if not found.exists():
        raise FileNotFoundError(f"there is no {found}; {right}; or give an archive of it (tar, tar.gz, tar.xz, zip)")
    return found


def state_of(path: Path, wanted: Collection[str]) -> object:
    """In what state a folder or an archive is, for the cache: another one if any file of it is.

    Args:
        path: the folder or archive.
        wanted: see `open_source`.
    """
    if path.is_file():
        return file_state(path)
    source = open_source(path, wanted)
    assert source.root is not None
    return listing_state(source.root, [name for name in source.names if not name.endswith("/")])


def open_source(path: Path, wanted: Collection[str], *, tell: Tell | None = None) -> Source:
    """List a folder, or read an archive.

    Args:
        path: the folder or archive.
        wanted: names of files or folders to look for: in the folder itself, or in folders in it. Nothing else is
            listed, and nothing at all if none of them is there.
        tell: called as work goes on; see `samuel_lab.data.Tell`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     os.makedirs(f"{folder}/pets/train/cat")
    ...     _ = Path(folder, "pets/train/cat/1.txt").write_text("meow")
    ...     source = open_source(Path(folder), ["train", "test"])
    ...     source.names, source.read("train/cat/1.txt")
    (('train/', 'train/cat/', 'train/cat/1.txt'), b'meow')
    """
    return _open_archive(path, wanted, tell) if path.is_file() else _open_folder(path, wanted)


def _open_folder(path: Path, wanted: Collection[str]) -> Source:
    def inside(prefix: str) -> dict[str, bool]:
        try:
            with os.scandir(path / prefix) as entries:
                return {entry.name: entry.is_dir() for entry in entries if _visible(entry.name)}
        except PermissionError:
            if prefix:  # of no concern, unless it is the folder we were given
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


def _open_archive(path: Path, wanted: Collection[str], tell: Tell | None) -> Source:
    held: dict[str, bytes] = {}
    folders: set[str] = set()
    size = 0
    for member in members(path, tell=tell):
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
                raise ValueError(f"{path} is too large to be read into the memory: unpack it, and give the folder")
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
    """The folder that has a wanted name in it, down to a few levels; None if there is none.

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
    return not name.startswith(".")  # what is hidden is an operating system's
