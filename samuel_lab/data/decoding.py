"""Image files to arrays, one at a time or many at once in worker processes.

Workers import this module and little else, so that they start fast: no JAX. An image that cannot be decoded is damaged,
and named to the caller; a file that cannot be read (gone, or no permission) is an error, since what would come instead
of it today might not come tomorrow.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from samuel_lab.data import Tell

SUFFIXES = (".jpg", ".jpeg", ".png")
FORMATS = ("JPEG", "PNG")
"""Whatever a file is called. Pillow knows formats that start other programs, which no data set needs."""

NEARLY_ALL = 0.99
"""The share of a split that must be readable."""
NAMED = 20
"""How many damaged files are named."""
CHUNK = 256
"""Files that a worker decodes before it reports."""

AREAS = (0.08, 1.0)
RATIOS = (3 / 4, 4 / 3)
TRIES = 10
CENTRE = 224 / 256
"""The side of the centre that is looked at in a test, as a share of the shorter side of the image."""


class Damaged(ValueError):
    """A file that is no image, or no longer a whole one; says what is wrong with it, and not which file it is."""


class WrongSize(ValueError):
    """An image of another size than all should have; says which, and not which file it is."""


def whole_image(file: str | bytes, size: tuple[int, int]) -> np.ndarray:
    """An image as it is, in RGB, if it has the size it should have.

    Args:
        file: its path, or what is in it.
        size: width and height.
    """
    with _opened(file) as image:
        if image.size != size:
            raise WrongSize(f"{image.width} x {image.height} pixels instead of {size[0]} x {size[1]}")
        return _pixels(image)


def centre_crop(file: str | bytes, size: int) -> np.ndarray:
    """The middle of an image, for a test: 7/8 of its shorter side, resized to a square.

    For a side of 224 that is to resize the shorter side to 256 and cut the centre out, in one step; and of an image
    of 128 pixels, a side of 112 is cut out without any resizing.

    Args:
        file: its path, or what is in it.
        size: the side of the square.
    """
    with _opened(file) as image:
        side = CENTRE * min(image.size)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        return _resized(image, (left, top, left + side, top + side), size)


def random_crop(file: str | bytes, size: int, seeds: Sequence[int]) -> np.ndarray:
    """A random part of an image, for training: 8 to 100 % of its area, of a ratio from 3:4 to 4:3, maybe flipped.

    If ten such parts do not fit into the image, it is the largest part in the middle whose ratio is allowed.

    Args:
        file: its path, or what is in it.
        size: the side of the square that the part is resized to.
        seeds: what is drawn follows from these.
    """
    draws = np.random.Generator(np.random.Philox(np.random.SeedSequence(list(seeds))))
    with _opened(file) as image:
        box = _random_box(image.size, draws)
        pixels = _resized(image, box, size)
    return pixels[:, ::-1] if draws.random() < 0.5 else pixels


def _random_box(size: tuple[int, int], draws: np.random.Generator) -> tuple[float, float, float, float]:
    width, height = size
    for _ in range(TRIES):
        area = draws.uniform(*AREAS) * width * height
        ratio = np.exp(draws.uniform(*np.log(RATIOS)))
        across, down = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if 0 < across <= width and 0 < down <= height:
            left, top = int(draws.integers(width - across + 1)), int(draws.integers(height - down + 1))
            return left, top, left + across, top + down
    across, down = min(width, height * RATIOS[1]), min(height, width / RATIOS[0])
    left, top = (width - across) / 2, (height - down) / 2
    return left, top, left + across, top + down


def _opened(file: str | bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(file) if isinstance(file, bytes) else file, formats=FORMATS)
    except Exception as error:
        raise _damage(error) from error


def _resized(image: Image.Image, box: tuple[float, float, float, float], size: int) -> np.ndarray:
    """A part of an image as a square; a JPEG file is decoded at a half, a quarter or an eighth where that is enough."""
    width, height = image.size
    enough = (width * size / (box[2] - box[0]), height * size / (box[3] - box[1]))
    try:
        image.draft("RGB", (int(np.ceil(enough[0])), int(np.ceil(enough[1]))))
        across, down = image.width / width, image.height / height
        box = (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
        return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR, box=box))
    except Exception as error:
        raise _damage(error) from error


def _pixels(image: Image.Image) -> np.ndarray:
    try:
        return np.asarray(image.convert("RGB"))
    except Exception as error:
        raise _damage(error) from error


def _damage(error: Exception) -> Exception:
    """What to raise for an error of Pillow's, which has many kinds of them for damaged files."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
        return error
    if isinstance(error, UnidentifiedImageError):
        return Damaged("not a JPEG or PNG image")
    return Damaged(str(error))


# Many files, in worker processes


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def team(workers: int, initializer: Any = None, initargs: tuple[Any, ...] = ()) -> ProcessPoolExecutor:
    """Worker processes that leave Ctrl-C to their parent and end when it does, however it ends.

    They are started afresh (spawned), since forking a process that runs JAX can hang. As with everything that spawns,
    a script that gets here needs its `if __name__ == "__main__":`.

    Args:
        workers: how many.
        initializer: called in each with `initargs` before anything else.
        initargs: its arguments.
    """
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, initializer=_begin, initargs=(initializer, initargs))


def _begin(initializer: Any, initargs: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def leave_with_parent():
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave_with_parent, daemon=True).start()
    if initializer:
        initializer(*initargs)


@contextmanager
def telling_of_killed_workers() -> Iterator[None]:
    """In place of the error that a worker process is gone, raise one that says what may have happened."""
    try:
        yield
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a worker process that decodes images ended unexpectedly: it was killed (for memory, perhaps), or could "
            'not start (a script needs `if __name__ == "__main__":` around what it does)'
        ) from error


def decode_files(
    names: Sequence[str],
    files: Sequence[str | bytes],
    labels: np.ndarray,
    classes: Sequence[str],
    side: int,
    out: Path,
    *,
    crop: bool,
    what: str,
    tell: Tell | None = None,
    workers: int | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Decode image files into one `.npy` file, of uint8 with shape (files, side, side, 3), leaving damaged ones out.

    If more than 1 % are damaged, or all of a class, `ValueError` names them.

    Args:
        names: what the files are called in messages.
        files: the path of each, or what is in it.
        labels: of each.
        classes: the names of the labels.
        side: of the images.
        out: the file to write.
        crop: whether to cut the centre out and resize it; if not, images must have the right size.
        what: what this is, for messages.
        tell: called as work goes on; see `samuel_lab.data.Tell`.
        workers: how many processes; as many as there are cores if None, and none for a few files.

    Returns:
        The labels of what was decoded, and facts about what was not.
    """
    array = np.lib.format.open_memmap(out, "w+", np.uint8, (len(names), side, side, 3))
    chunks = [
        (str(out), first, list(names[first : first + CHUNK]), list(files[first : first + CHUNK]), side, crop)
        for first in range(0, len(names), CHUNK)
    ]
    workers = min(workers or cores(), len(chunks))
    damaged: dict[int, str] = {}
    done = 0

    def note(chunk_result: tuple[int, dict[int, str]]) -> None:
        nonlocal done
        count, found = chunk_result
        done += count
        damaged.update(found)
        if tell:
            tell(f"decoding {what}", done, len(names))

    if len(chunks) <= 2:  # faster than starting a worker
        for chunk in chunks:
            note(_decode_chunk(*chunk))
    else:
        with telling_of_killed_workers(), team(workers) as pool:
            try:
                for future in as_completed([pool.submit(_decode_chunk, *chunk) for chunk in chunks]):
                    note(future.result())
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    readable = np.setdiff1d(np.arange(len(names)), list(damaged))
    facts = damage_facts([damaged[number] for number in sorted(damaged)])
    refuse_too_damaged(labels, labels[readable], classes, facts, what)
    array.flush()
    if damaged:
        _keep_rows(array, readable, out)
    return labels[readable], facts


def damage_facts(messages: Sequence[str]) -> dict[str, Any]:
    """What the facts of a data set say about damaged files.

    Args:
        messages: one for each, which names it.
    """
    return {"damaged_count": len(messages), "damaged": list(messages[:NAMED])}


def refuse_too_damaged(
    before: np.ndarray, after: np.ndarray, classes: Sequence[str], facts: dict[str, Any], what: str
) -> None:
    """Raise if too much of a split is damaged to go on without it.

    Args:
        before: the labels of all files.
        after: the labels of those that could be decoded.
        classes: the names of the labels.
        facts: from `damage_facts`.
        what: what this is, for messages.
    """
    named = "; ".join(facts["damaged"])
    if len(after) < NEARLY_ALL * len(before):
        raise ValueError(f"{what}: {facts['damaged_count']} of {len(before)} images are damaged: {named}")
    left = Counter(after.tolist())
    for label in np.unique(before).tolist():
        if not left[label]:
            raise ValueError(f"{what}: every image of class {classes[label]!r} is damaged: {named}")


def _decode_chunk(
    out: str, first: int, names: list[str], files: list[str | bytes], side: int, crop: bool
) -> tuple[int, dict[int, str]]:
    array = np.load(out, mmap_mode="r+", allow_pickle=False)
    damaged = {}
    for number, (name, file) in enumerate(zip(names, files, strict=True), start=first):
        try:
            array[number] = centre_crop(file, side) if crop else whole_image(file, (side, side))
        except Damaged as damage:
            damaged[number] = f"{name}: {damage}"
        except WrongSize as wrong:
            raise ValueError(f"{name} has {wrong}") from None
    return len(names), damaged


def _keep_rows(array: np.ndarray, rows: np.ndarray, out: Path) -> None:
    """Write the file again, with some of its rows only."""
    shorter = out.with_name(f"{out.name}.shorter")
    kept = np.lib.format.open_memmap(shorter, "w+", np.uint8, (len(rows), *array.shape[1:]))
    for first in range(0, len(rows), CHUNK):
        chosen = rows[first : first + CHUNK]
        kept[first : first + len(chosen)] = array[chosen]
    kept.flush()
    os.replace(shorter, out)


# What the workers of a pipeline do

_given: dict[str, Any] = {}
"""What a worker was given at its start."""


def receive_ring(memory: Any, shape: tuple[int, ...], seed: int) -> None:
    """Remember, in a worker, the memory that batches are written into.

    Args:
        memory: shared by all workers and their parent.
        shape: (slots, images, side, side, channels).
        seed: for `random_crop`.
    """
    _given.update(ring=np.frombuffer(memory, np.uint8).reshape(shape), seed=seed)


def decode_into_ring(slot: int, work: list[tuple[int, str, tuple[int, int]]], training: bool) -> dict[int, str]:
    """Decode some images of a batch, in a worker.

    Args:
        slot: of the ring, that the batch is in.
        work: for every image its place in the batch, its file, and the epoch and the position to draw by.
        training: whether to take a random part, and not the centre.

    Returns:
        The places whose files are damaged, and what is wrong with each.
    """
    ring, seed = _given["ring"], _given["seed"]
    size = ring.shape[2]
    damaged = {}
    for place, path, draw in work:
        try:
            ring[slot, place] = random_crop(path, size, (seed, *draw)) if training else centre_crop(path, size)
        except Damaged as damage:
            damaged[place] = str(damage)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, path) from None
    return damaged
