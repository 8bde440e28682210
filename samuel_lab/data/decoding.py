"""Decode image files to arrays, one by one or in worker processes.

Workers import this module and little else, so that they start fast: no JAX. An image that cannot be decoded is reported
as damaged; a file that cannot be read (missing, no permission) is an error, since results must not depend on it.
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

from samuel_lab.data import Progress

SUFFIXES = (".jpg", ".jpeg", ".png")
FORMATS = ("JPEG", "PNG")
"""Accepted formats, whatever the suffix: some of Pillow's decoders start other programs."""

NEARLY_ALL = 0.99
"""Minimum readable fraction of a split."""
NAMED = 20
"""Maximum number of damaged files named in a message."""
CHUNK = 256
"""Files per task of a worker."""

AREAS = (0.08, 1.0)
RATIOS = (3 / 4, 4 / 3)
TRIES = 10
CENTRE = 224 / 256
"""Side of the centre crop for tests, relative to the shorter side of the image."""


class Damaged(ValueError):
    """A file that is not a complete image; the message says why, without the name of the file."""


class WrongSize(ValueError):
    """An image of the wrong size; the message has the size, without the name of the file."""


def whole_image(file: str | bytes, size: tuple[int, int]) -> np.ndarray:
    """An image of the given size as an RGB array, unchanged.

    Args:
        file: path or content.
        size: width and height.
    """
    with _opened(file) as image:
        if image.size != size:
            raise WrongSize(f"{image.width} x {image.height} pixels instead of {size[0]} x {size[1]}")
        return _pixels(image)


def centre_crop(file: str | bytes, size: int) -> np.ndarray:
    """The centre crop of an image, for tests: 7/8 of its shorter side, resized to a square.

    For a side of 224 this equals resizing the shorter side to 256 and cropping, in one step; from an image of 128
    pixels, a side of 112 is cropped without resizing.

    Args:
        file: path or content.
        size: side of the square.
    """
    with _opened(file) as image:
        side = CENTRE * min(image.size)
        left, top = (image.width - side) / 2, (image.height - side) / 2
        return _resized(image, (left, top, left + side, top + side), size)


def random_crop(file: str | bytes, size: int, seeds: Sequence[int]) -> np.ndarray:
    """A random crop of an image, for training: 8 to 100 % of its area, aspect ratio 3:4 to 4:3, flipped half of the
    time.

    If ten draws do not fit into the image, the largest centre crop of an allowed ratio.

    Args:
        file: path or content.
        size: side of the square that the crop is resized to.
        seeds: of the random draws.
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
    """A crop of an image as a square; JPEG files are decoded at 1/2, 1/4 or 1/8 of their size if that is enough."""
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
    """The exception for an error of Pillow, which raises many kinds for damaged files."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
        return error
    if isinstance(error, UnidentifiedImageError):
        return Damaged("not a JPEG or PNG image")
    return Damaged(str(error))


# Many files, in worker processes


def cores() -> int:
    """Number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def team(workers: int, initializer: Any = None, initargs: tuple[Any, ...] = ()) -> ProcessPoolExecutor:
    """A pool of worker processes that ignore Ctrl-C and end with their parent, however it ends.

    Workers are spawned, since forking a process that runs JAX can hang; a script therefore needs `if __name__ ==
    "__main__":`.

    Args:
        workers: number of processes.
        initializer: called first in each, with `initargs`.
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
def explaining_killed_workers() -> Iterator[None]:
    """Replace the error of a broken pool by one that says what may have happened."""
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
    progress: Progress | None = None,
    workers: int | None = None,
) -> tuple[np.ndarray, dict[str, Any]]:
    """Decode image files into one `.npy` file, uint8 of shape (files, side, side, 3), without damaged ones.

    If more than 1 % are damaged, or all of a class, `ValueError` names them.

    Args:
        names: of the files, for messages.
        files: path or content of each.
        labels: of the files.
        classes: names of the labels.
        side: of the images.
        out: the file to write.
        crop: whether to take and resize the centre crop; otherwise images must have the right size.
        what: name of the data, for messages.
        progress: progress callback; see `samuel_lab.data.Progress`.
        workers: number of processes; None for the number of cores, and none for a few files.

    Returns:
        The labels of the decoded files, and facts about damaged ones.
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
        if progress:
            progress(f"decoding {what}", done, len(names))

    if len(chunks) <= 2:  # faster than starting a worker
        for chunk in chunks:
            note(_decode_chunk(*chunk))
    else:
        with explaining_killed_workers(), team(workers) as pool:
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
    """Facts about damaged files.

    Args:
        messages: one for each file, with its name.
    """
    return {"damaged_count": len(messages), "damaged": list(messages[:NAMED])}


def refuse_too_damaged(
    before: np.ndarray, after: np.ndarray, classes: Sequence[str], facts: dict[str, Any], what: str
) -> None:
    """Raise `ValueError` if too much of a split is damaged.

    Args:
        before: labels of all files.
        after: labels of the decoded ones.
        classes: names of the labels.
        facts: from `damage_facts`.
        what: name of the data, for messages.
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
    """Rewrite the file with the given rows only."""
    shorter = out.with_name(f"{out.name}.shorter")
    kept = np.lib.format.open_memmap(shorter, "w+", np.uint8, (len(rows), *array.shape[1:]))
    for first in range(0, len(rows), CHUNK):
        chosen = rows[first : first + CHUNK]
        kept[first : first + len(chosen)] = array[chosen]
    kept.flush()
    os.replace(shorter, out)


# Workers of a pipeline

_given: dict[str, Any] = {}
"""Arguments of `open_ring` in this worker."""


def receive_ring(memory: Any, shape: tuple[int, ...], seed: int) -> None:
    """Set up, in a worker, the shared memory of batches.

    Args:
        memory: shared by the workers and their parent.
        shape: (slots, images, side, side, channels).
        seed: for `random_crop`.
    """
    _given.update(ring=np.frombuffer(memory, np.uint8).reshape(shape), seed=seed)


def decode_into_ring(slot: int, work: list[tuple[int, str, tuple[int, int]]], training: bool) -> dict[int, str]:
    """Decode part of a batch, in a worker.

    Args:
        slot: place of the batch in the ring.
        work: for every image its place in the batch, its file, and the epoch and position that seed its crop.
        training: whether to take random crops, not the centre.

    Returns:
        The places of damaged files, with the reasons.
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
