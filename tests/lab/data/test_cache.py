import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from samuel_lab.data.cache import cache_folder, cached, file_state, listing_state


class Builder:
    """Builds entries of one array, and counts."""

    def __init__(self):
        self.times = 0

    def __call__(self, folder: Path) -> dict:
        self.times += 1
        np.save(folder / "numbers.npy", np.arange(1000))
        return {"times": self.times}


@pytest.fixture
def build() -> Builder:
    return Builder()


def opened(cache, build, state=1, **options):
    return cached("numbers", {"path": "p"}, state, build, cache=cache, **options)


def test_an_entry_is_made_once_and_then_memory_mapped_read_only(tmp_path, build):
    first, second = opened(tmp_path, build), opened(tmp_path, build, verify=True)
    assert build.times == 1
    assert second.facts == {"times": 1}
    assert second.checksum == first.checksum
    assert isinstance(second.arrays["numbers"], np.memmap)
    assert np.array_equal(second.arrays["numbers"], np.arange(1000))
    with pytest.raises(ValueError, match="read-only"):
        second.arrays["numbers"][0] = 1


def test_other_keys_are_other_entries_and_the_same_content_has_the_same_checksum(tmp_path, build):
    one = opened(tmp_path, build)
    other = cached("numbers", {"path": "q"}, 1, build, cache=tmp_path)
    assert build.times == 2
    assert one.folder != other.folder
    assert one.checksum == other.checksum


def test_an_entry_whose_source_has_changed_is_made_again_without_disturbing_those_who_read_the_old_one(tmp_path, build):
    old = opened(tmp_path, build, state=[1, {"size": 2}])
    assert opened(tmp_path, build, state=[1, {"size": 2}]).facts == {"times": 1}
    new = opened(tmp_path, build, state=[1, {"size": 3}])
    assert new.facts == {"times": 2}
    assert new.folder == old.folder
    assert int(old.arrays["numbers"].sum()) == 499_500


def cut(folder):
    array = folder / "numbers.npy"
    array.write_bytes(array.read_bytes()[:-8])


def remove(folder):
    (folder / "numbers.npy").unlink()


def spoil_header(folder):
    array = folder / "numbers.npy"
    array.write_bytes(b"?" * array.stat().st_size)


def tear_manifest(folder):
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text()[:-40])


def empty_manifest(folder):
    (folder / "manifest.json").write_text('{"format": "samuel-cache", "version": 1, "files": []}')


def newer_manifest(folder):
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": 99}))


@pytest.mark.parametrize("damage", [cut, remove, spoil_header, tear_manifest, empty_manifest, newer_manifest])
def test_a_damaged_entry_is_noticed_and_made_again(tmp_path, build, damage):
    damage(opened(tmp_path, build).folder)
    with pytest.warns(UserWarning, match=r"cache .*numbers-.* is damaged \(.+\) and is made again"):
        entry = opened(tmp_path, build)
    assert np.array_equal(entry.arrays["numbers"], np.arange(1000))
    assert build.times == 2


def test_a_changed_byte_is_noticed_where_checksums_are_asked_for(tmp_path, build):
    array = opened(tmp_path, build).folder / "numbers.npy"
    content = bytearray(array.read_bytes())
    content[-1] ^= 1
    array.write_bytes(content)
    with pytest.warns(UserWarning, match="numbers.npy is damaged"):
        entry = opened(tmp_path, build, verify=True)
    assert np.array_equal(entry.arrays["numbers"], np.arange(1000))


def test_no_pickle_is_read_from_the_cache(tmp_path):
    def build(folder):
        np.save(folder / "objects.npy", np.array([{"a": 1}], object), allow_pickle=True)
        return {}

    with pytest.raises(ValueError, match="[Oo]bject arrays|Array can't be memory-mapped"):
        cached("objects", {}, 1, build, cache=tmp_path)


def test_an_entry_that_could_not_be_made_leaves_nothing_but_its_lock(tmp_path):
    def build(folder):
        np.save(folder / "half.npy", np.zeros(3))
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        cached("numbers", {"path": "p"}, 1, build, cache=tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_what_a_killed_process_left_behind_does_no_harm(tmp_path, build):
    folder = opened(tmp_path, build).folder
    for leftover in ("making", "old"):
        half = tmp_path / f".{folder.name}.{leftover}"
        half.mkdir()
        (half / "numbers.npy").write_bytes(b"half")
    assert opened(tmp_path, build, state=2).facts == {"times": 2}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([folder.name, f".{folder.name}.lock"])


def test_what_is_beside_the_arrays_can_be_looked_at_too(tmp_path, build):
    def whole(folder, facts):
        return facts["times"] == 2

    opened(tmp_path, build)
    with pytest.warns(UserWarning, match="files are missing"):
        assert opened(tmp_path, build, whole=whole).facts == {"times": 2}


TWO = """
import sys
from pathlib import Path
import numpy as np
from samuel_lab.data.cache import cached

def build(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    print("building", flush=True)
    sys.stdin.readline()  # until the test says so
    np.save(folder / "numbers.npy", np.arange(10))
    return {}

print("starting", flush=True)
print(cached("numbers", {}, 1, build, cache=sys.argv[1]).arrays["numbers"].sum(), flush=True)
"""


def test_two_processes_that_want_the_same_entry_at_once_build_it_once(tmp_path):
    log = tmp_path / "log"
    root = Path(__file__).parents[3]

    def start() -> subprocess.Popen:
        command = [sys.executable, "-c", TWO, str(tmp_path / "cache"), str(log)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)

    with start() as one:
        assert one.stdout
        assert [one.stdout.readline(), one.stdout.readline()] == ["starting\n", "building\n"]
        with start() as other:
            assert other.stdout
            assert other.stdout.readline() == "starting\n"
            assert one.communicate("go on\n", timeout=60)[0] == "45\n"
            assert other.communicate("go on\n", timeout=60)[0] == "45\n"
    assert log.read_text() == "built\n"


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.delenv("SAMUEL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "samuel"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "samuel"
    monkeypatch.setenv("SAMUEL_CACHE", str(tmp_path / "mine"))
    assert cache_folder() == tmp_path / "mine"
    assert cache_folder(tmp_path / "given") == tmp_path / "given"


def test_a_cache_that_cannot_be_written_is_told_with_a_way_out(tmp_path, build):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="choose another folder, or set SAMUEL_CACHE"):
        opened(tmp_path / "file", build)
    assert build.times == 0


def test_names_of_entries_cannot_lead_elsewhere(tmp_path, build):
    with pytest.raises(ValueError, match=r"got '../evil'"):
        cached("../evil", {}, 1, build, cache=tmp_path)


def test_the_state_of_files_changes_with_their_size_their_time_and_their_names(tmp_path):
    import os

    one = tmp_path / "one"
    one.write_bytes(b"abc")
    states = [listing_state(tmp_path, ["one"])]
    os.utime(one, ns=(1, 1))
    states.append(listing_state(tmp_path, ["one"]))
    one.write_bytes(b"abcd")
    os.utime(one, ns=(1, 1))
    states.append(listing_state(tmp_path, ["one"]))
    one.rename(tmp_path / "two")
    states.append(listing_state(tmp_path, ["two"]))
    assert len(set(states)) == 4
    assert file_state(tmp_path / "two") == [4, 1]
