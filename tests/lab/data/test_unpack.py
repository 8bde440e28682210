"""What is in an archive is not trusted."""

import io
import lzma
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from samuel_lab.data import unpack as unpacking
from samuel_lab.data.unpack import unpack


def tar_with(path: Path, *members: tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for member in members:
            content = b"x" * member.size
            tar.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 3) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = size if kind == tarfile.REGTYPE else 0
    return info


def zip_with(path: Path, name: str, mode: int = stat.S_IFREG | 0o644) -> Path:
    info = zipfile.ZipInfo("placeholder")
    info.filename = name  # the constructor would tidy the name up
    info.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("fine.txt", b"fine")
        file.writestr(info, b"../../etc/passwd")
    return path


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_archives_of_every_kind_unpack_to_what_was_packed(tmp_path, kind):
    contents = {"a/b/one.txt": b"1" * 100_000, "a/two.txt": b"", "./three.txt": b"3"}
    archive = tmp_path / f"it.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("empty/", b"")
            for name, content in contents.items():
                file.writestr(name, content)
    else:
        with tarfile.open(archive, f"w:{kind.removeprefix('tar').removeprefix('.')}") as tar:
            tar.addfile(entry("empty", tarfile.DIRTYPE))
            for name, content in contents.items():
                tar.addfile(entry(name, size=len(content)), io.BytesIO(content))
    heard = []
    target = unpack(archive, tmp_path / "new" / "target", progress=lambda *told: heard.append(told))
    assert {name: (target / name).read_bytes() for name in contents} == contents
    assert (target / "empty").is_dir()
    assert everything_in(tmp_path / "new") == {
        f"target{name}" for name in ("", "/a", "/a/b", "/a/b/one.txt", "/a/two.txt", "/three.txt", "/empty")
    }
    assert heard[-1] == (f"unpacking it.{kind}", archive.stat().st_size, archive.stat().st_size)


BAD_MEMBERS = {
    "parent": (entry("../../evil"), "'../../evil' would be written outside"),
    "parent in the middle": (entry("a/../../evil"), "outside"),
    "absolute": (entry("/tmp/evil"), "outside"),
    "symbolic link outside": (entry("door", tarfile.SYMTYPE, "/etc"), "'door' is a link"),
    "symbolic link upwards": (entry("door", tarfile.SYMTYPE, "../.."), "is a link"),
    "symbolic link inside": (entry("door", tarfile.SYMTYPE, "fine.txt"), "is a link"),
    "hard link": (entry("door", tarfile.LNKTYPE, "/etc/passwd"), "is a link"),
    "device": (entry("null", tarfile.CHRTYPE), "neither a file nor a folder"),
    "pipe": (entry("pipe", tarfile.FIFOTYPE), "neither a file nor a folder"),
    "backslashes": (entry("..\\..\\evil"), "not a name that every system"),
    "the same name again": (entry("fine.txt"), "'fine.txt' twice"),
}


@pytest.mark.parametrize("name", BAD_MEMBERS)
def test_a_tar_file_with_anything_but_plain_files_in_their_place_is_refused_whole(tmp_path, name):
    member, message = BAD_MEMBERS[name]
    archive = tar_with(tmp_path / "bad.tar", entry("fine.txt"), member)
    with pytest.raises(ValueError, match=message):
        unpack(archive, tmp_path / "deep" / "er" / "target")
    assert everything_in(tmp_path) == {"bad.tar", "deep", "deep/er"}


def test_nothing_is_written_through_a_link_that_came_before(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = tar_with(tmp_path / "bad.tar", entry("door", tarfile.SYMTYPE, str(outside)), entry("door/evil"))
    with pytest.raises(ValueError, match="is a link"):
        unpack(archive, tmp_path / "target")
    assert everything_in(tmp_path) == {"bad.tar", "outside"}


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [
        ("../../evil", stat.S_IFREG, "outside"),
        ("/tmp/evil", stat.S_IFREG, "outside"),
        ("..\\..\\evil", stat.S_IFREG, "every system"),
        ("door", stat.S_IFLNK, "is a link"),
        ("null", stat.S_IFCHR, "neither a file nor a folder"),
        ("fine.txt/evil", stat.S_IFREG, "Not a directory|exists"),
    ],
    ids=["parent", "absolute", "backslashes", "link", "device", "below a file"],
)
def test_so_is_a_zip_file(tmp_path, name, mode, message):
    archive = zip_with(tmp_path / "bad.zip", name, mode | 0o644)
    with pytest.raises((ValueError, OSError), match=message):
        unpack(archive, tmp_path / "target")
    assert everything_in(tmp_path) == {"bad.zip"}


@pytest.mark.parametrize("kind", ["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9, 0.99])
def test_an_archive_that_is_cut_off_anywhere_is_told_and_leaves_nothing_behind(tmp_path, kind, share):
    whole = tmp_path / f"it.{kind}"
    noise = [bytes((7 * place * place + number) % 251 for place in range(5000)) for number in range(4)]
    if kind == "zip":
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as file:
            for number, content in enumerate(noise):
                file.writestr(f"{number}.txt", content)
    else:
        with tarfile.open(whole, f"w:{kind.removeprefix('tar').removeprefix('.')}") as tar:
            for number, content in enumerate(noise):
                tar.addfile(entry(f"{number}.txt", size=len(content)), io.BytesIO(content))
    content = whole.read_bytes()
    # The last blocks of a plain tar file are empty: the cut is in what comes before them.
    used = 4 * (512 + 5120) if kind == "tar" else len(content)
    whole.write_bytes(content[: int(share * used)])
    with pytest.raises(ValueError, match=f"it.{kind} is damaged"):
        unpack(whole, tmp_path / "target")
    assert everything_in(tmp_path) == {f"it.{kind}"}


def test_a_tar_file_that_is_cut_off_between_two_files_is_told_too(tmp_path):
    archive = tar_with(tmp_path / "it.tar", entry("one"), entry("two"))
    archive.write_bytes(archive.read_bytes()[: 2 * 512])
    with pytest.raises(ValueError, match="damaged: it is cut off"):
        unpack(archive, tmp_path / "target")


def test_a_changed_byte_in_compressed_data_is_noticed(tmp_path):
    archive = tar_with(tmp_path / "it.tar.xz", entry("one", size=5000), mode="w:xz")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        unpack(archive, tmp_path / "target")


def test_what_is_no_archive_is_told_with_the_kinds_that_are(tmp_path):
    (tmp_path / "notes.tar.gz").write_text("I am a letter")
    with pytest.raises(ValueError, match=r"notes.tar.gz is damaged, or no archive .*tar.xz, zip"):
        unpack(tmp_path / "notes.tar.gz", tmp_path / "target")


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED", 10_000)
    bomb = tar_with(tmp_path / "bomb.tar.xz", entry("zeros", size=5_000_000), mode="w:xz")
    assert 100 * bomb.stat().st_size < 5_000_000
    with pytest.raises(ValueError, match="out of proportion to its size"):
        unpack(bomb, tmp_path / "target")
    assert everything_in(tmp_path) == {"bomb.tar.xz"}


def test_a_bomb_behind_the_end_of_the_archive_is_refused_too(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "ALWAYS_ALLOWED", 10_000)
    plain = tar_with(tmp_path / "it.tar", entry("one"))
    bomb = tmp_path / "bomb.tar.xz"
    bomb.write_bytes(lzma.compress(plain.read_bytes() + bytes(5_000_000)))
    with pytest.raises(ValueError, match="out of proportion"):
        unpack(bomb, tmp_path / "target")


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "MOST_FILES", 2)
    archive = tar_with(tmp_path / "many.tar", *(entry(str(number)) for number in range(3)))
    with pytest.raises(ValueError, match="more than 2 files"):
        unpack(archive, tmp_path / "target")


def test_an_archive_that_is_not_there_and_a_target_that_is_are_told(tmp_path):
    with pytest.raises(FileNotFoundError, match="no archive .*none.tar"):
        unpack(tmp_path / "none.tar", tmp_path / "target")
    with pytest.raises(FileExistsError, match="is there already"):
        unpack(tar_with(tmp_path / "it.tar", entry("one")), tmp_path)
