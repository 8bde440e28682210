"""Safe extraction of archives: whole or not at all, and nothing outside the target folder.

Names in an archive are not trusted. Only plain files and folders are written, under checked names: links, devices,
absolute names and names with `..` are refused. Owners, permissions and times are ignored.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import IO, NamedTuple

from samuel_lab.data import Progress

MOST_FILES = 5_000_000
"""ImageNet has 1.4 million."""
LARGEST_RATIO = 100
"""Maximum ratio of unpacked to packed size: images hardly compress, text by a factor of 10."""
ALWAYS_ALLOWED = 256 * 2**20
"""Bytes that even a small archive may unpack to: blank images compress better."""
SHARE = 2**16
"""Bytes per read."""

DAMAGE = (tarfile.TarError, zipfile.BadZipFile, EOFError, LZMAError, zlib.error, NotImplementedError)
"""Exceptions of the standard library for truncated or corrupt archives, beside OSError without errno."""


class Member(NamedTuple):
    """A file or a folder of an archive."""

    name: str
    content: Content | None
    """None for a folder."""


def unpack(
    archive: str | os.PathLike[str], target: str | os.PathLike[str], *, progress: Progress | None = None
) -> Path:
    """Unpack an archive into a new folder: a tar file (plain, or compressed with gzip, bzip2 or xz) or a zip file.

    The folder appears when it is complete. If the archive is damaged or refused (see above), `ValueError` says why, and
    nothing is left behind.

    Args:
        archive: the file.
        target: the folder to create; it must not exist.
        progress: progress callback, in bytes of the archive; see `samuel_lab.data.Progress`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(f"{folder}/two.zip", "w") as file:
    ...         file.writestr("train/cat/1.png", b"not really")
    ...         file.writestr("../../evil", b"!")
    ...     unpack(f"{folder}/two.zip", f"{folder}/two")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: .../two.zip is refused: '../../evil' would be written outside the folder to unpack into
    """
    archive, target = Path(archive), Path(target)
    if not archive.is_file():
        raise FileNotFoundError(f"there is no archive {archive}")
    if target.exists():
        raise FileExistsError(f"{target} is there already; archives are unpacked into a new folder")
    unfinished = target.with_name(f".{target.name}.unpacking-{os.getpid()}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        for member in members(archive, progress=progress):
            path = unfinished / member.name
            if member.content is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("xb") as out:
                    shutil.copyfileobj(member.content, out)
            except FileExistsError:
                raise ValueError(f"{archive} is refused: it holds {member.name!r} twice") from None
        os.rename(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def members(archive: str | os.PathLike[str], *, progress: Progress | None = None) -> Iterator[Member]:
    """Iterate over the checked files and folders of an archive; `ValueError` for any that is refused.

    The content of a file must be read before the next iteration.

    Args:
        archive: the file.
        progress: progress callback, in bytes of the archive; see `samuel_lab.data.Progress`.
    """
    archive = Path(archive)
    size = archive.stat().st_size
    budget = Budget(archive, max(ALWAYS_ALLOWED, LARGEST_RATIO * size))
    with _telling_of_damage(archive), archive.open("rb") as file:
        for number, member in enumerate(_raw_members(archive, file, budget)):
            if number == MOST_FILES:
                raise ValueError(f"{archive} is refused: it holds more than {MOST_FILES} files")
            _refuse_name(archive, member.name)
            yield member
            if progress and number % 256 == 0:
                progress(f"unpacking {archive.name}", min(file.tell(), size), size)
    if progress:
        progress(f"unpacking {archive.name}", size, size)


@contextmanager
def _telling_of_damage(archive: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        raise ValueError(f"{archive} is damaged: {error}") from error
    except OSError as error:
        if error.errno is not None:  # such as a full disk: not the fault of the archive
            raise
        raise ValueError(f"{archive} is damaged: {error}") from error


def _raw_members(archive: Path, file: IO[bytes], budget: Budget) -> Iterator[Member]:
    try:
        tar = tarfile.open(fileobj=file, mode="r:*")  # noqa: SIM115  closed below, unless it is no tar file
    except tarfile.TarError:
        file.seek(0)
        if not zipfile.is_zipfile(file):
            raise ValueError(
                f"{archive} is damaged, or no archive of a known kind (tar, tar.gz, tar.bz2, tar.xz, zip)"
            ) from None
        yield from _zip_members(archive, file, budget)
        return
    with tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                kind = "a link" if member.islnk() or member.issym() else "neither a file nor a folder"
                raise ValueError(f"{archive} is refused: {member.name!r} is {kind}")
            content = tar.extractfile(member)
            yield Member(member.name, content and Content(content, budget))
            # tarfile keeps every member, and a data set has a million.
            tar.members.clear()  # pyright: ignore[reportAttributeAccessIssue]
        _refuse_cut_off(tar, budget)


def _refuse_cut_off(tar: tarfile.TarFile, budget: Budget) -> None:
    """Raise if a tar file lacks its end marker, which the standard library does not check.

    Reading to the end also verifies the checksums of the compression.
    """
    stream = tar.fileobj
    assert stream is not None
    stream.seek(tar.offset)
    if stream.read(tarfile.BLOCKSIZE) != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError("it is cut off")
    while share := stream.read(SHARE):
        budget.spend(len(share))


def _zip_members(archive: Path, file: IO[bytes], budget: Budget) -> Iterator[Member]:
    with zipfile.ZipFile(file) as zipped:
        for member in zipped.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                what = "a link" if kind == stat.S_IFLNK else "neither a file nor a folder"
                raise ValueError(f"{archive} is refused: {member.filename!r} is {what}")
            if member.flag_bits & 1:
                raise ValueError(f"{archive} is refused: {member.filename!r} is encrypted")
            # The name in the archive: ZipFile truncates names at a zero byte.
            content = None if member.is_dir() else Content(zipped.open(member), budget)
            yield Member(member.orig_filename, content)


def _refuse_name(archive: Path, name: str) -> None:
    if "\0" in name or "\\" in name:
        raise ValueError(f"{archive} is refused: {name!r} is not a name that every system reads the same way")
    if name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"{archive} is refused: {name!r} would be written outside the folder to unpack into")


class Budget:
    """Number of bytes that an archive may still unpack to.

    Args:
        archive: for messages.
        total: of all files.
    """

    def __init__(self, archive: Path, total: int):
        self.archive, self.total, self.left = archive, total, total

    def spend(self, count: int) -> None:
        """Subtract bytes; raises when none are left."""
        self.left -= count
        if self.left < 0:
            raise ValueError(
                f"{self.archive} is refused: it unpacks to more than {self.total} bytes, out of proportion to its size"
            )


class Content:
    """A file of an archive, which can be read once.

    Args:
        stream: the underlying file.
        budget: reduced by reading.
    """

    def __init__(self, stream: IO[bytes], budget: Budget):
        self.stream, self.budget = stream, budget

    def read(self, size: int = -1) -> bytes:
        """The next bytes: at most this many, or all if negative."""
        if size < 0:
            return b"".join(iter(lambda: self.read(SHARE), b""))
        with _telling_of_damage(self.budget.archive):
            share = self.stream.read(size)
        self.budget.spend(len(share))
        return share
