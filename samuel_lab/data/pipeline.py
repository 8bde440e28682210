"""Batches of images, decoded in worker processes while the network trains.

The parent determines the content of a batch, so batches do not depend on the number or the speed of workers. Workers
write pixels into a ring of batches in shared memory and report damaged files. The memory is an unlinked file, freed
when the last process ends, in any way.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samuel_lab.data import Progress, Split
from samuel_lab.data.batches import Order
from samuel_lab.data.cache import cached, listing_state
from samuel_lab.data.decoding import (
    cores,
    decode_files,
    decode_into_ring,
    explaining_killed_workers,
    receive_ring,
    team,
)
from samuel_lab.data.folders import Files

MEAN = (123.675, 116.28, 103.53)
"""Mean and deviation of the red, green and blue of ImageNet's images, from 0 to 255."""
STD = (58.395, 57.12, 57.375)

LARGEST_JOB = 32
"""Images per task of a worker: few, so that all workers finish a batch at about the same time."""


class Pipeline:
    """Batches of images for every step, decoded ahead of time in worker processes.

    For training, every image is a random crop, 8 to 100 % of the area with an aspect ratio from 3:4 to 4:3, resized to
    a square, and flipped half of the time. It is seeded by seed, epoch and position in the epoch: a batch is a function
    of seed and step, for any number of workers and of processes that share the batch. Otherwise it is the centre crop.

    A damaged file is replaced by the next good one of its class, and named in `damaged`. A file that cannot be read, or
    a killed worker, raises an error and ends the pipeline.

    Workers are spawned: a script that makes a pipeline needs its `if __name__ == "__main__":`.

    Args:
        files: the image files; see `samuel_lab.data.folders.image_folder`.
        batch: images per step, over all processes.
        seed: of the order of the files and the crops.
        size: the side of the square.
        training: whether to take random crops, not the centre.
        workers: number of processes; None for the number of cores.
        prefetch: batches decoded ahead.
        shard: (part, parts) of every batch for this process.
    """

    def __init__(
        self,
        files: Files,
        batch: int,
        seed: int = 0,
        size: int = 224,
        training: bool = True,
        workers: int | None = None,
        prefetch: int = 4,
        shard: tuple[int, int] = (0, 1),
    ):
        for name, value, least in (
            ("size", size, 1),
            ("prefetch", prefetch, 0),
            ("workers", 1 if workers is None else workers, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
        self.order = Order(len(files), batch, seed, shard)
        self.files, self.size, self.training = files, size, training
        self.workers, self.prefetch = cores() if workers is None else workers, prefetch
        self._next_of_class = _next_of_class(files.labels)
        self._damaged: dict[int, str] = {}
        self._count = batch // shard[1]
        shape = (prefetch + 1, self._count, size, size, 3)
        memory: Any = multiprocessing.get_context("spawn").RawArray(ctypes.c_uint8, int(np.prod(shape)))
        self._ring = np.frombuffer(memory, np.uint8).reshape(shape)
        self._pool: ProcessPoolExecutor | None = team(self.workers, receive_ring, (memory, shape, seed))
        self._coming: dict[int, _Batch] = {}

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches per epoch."""
        return self.order.steps_per_epoch

    @property
    def damaged(self) -> tuple[str, ...]:
        """The damaged files found so far, with the reasons."""
        return tuple(f"{self.files.paths[number]}: {why}" for number, why in sorted(self._damaged.items()))

    def batch(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """The images of a step, uint8 of shape (count, size, size, 3), and their labels, int32.

        Consecutive steps are decoded ahead; any other step is decoded on request.

        Args:
            step: number of steps before.
        """
        if self._pool is None:
            raise ValueError("this pipeline is closed")
        wanted = range(step, step + self.prefetch + 1)
        self.order.positions(step)  # raises for an invalid step
        try:
            with explaining_killed_workers():
                self._drop_all_but(wanted)
                for coming in wanted:
                    if coming not in self._coming:
                        self._coming[coming] = self._asked_for(coming)
                batch = self._coming.pop(step)
                self._await(batch)
            images = self._ring[batch.slot].copy()  # the slot is free for another batch
        except BaseException:
            self.close()
            raise
        return images, self.files.labels[batch.indices]

    def close(self) -> None:
        """End the workers. A closed pipeline raises on further calls."""
        pool, self._pool = self._pool, None
        self._coming.clear()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
            self._ring = np.empty(0, np.uint8)  # releases the shared memory

    def _asked_for(self, step: int) -> _Batch:
        """A batch in progress."""
        indices = self.order.indices(step)
        epoch = step // self.steps_per_epoch
        draws = [(epoch, int(position)) for position in self.order.positions(step)]
        taken = {batch.slot for batch in self._coming.values()}
        slot = next(slot for slot in range(len(self._ring)) if slot not in taken)
        batch = _Batch(slot, indices, draws, [])
        sources = {place: self._readable(number) for place, number in enumerate(indices.tolist())}
        each = min(LARGEST_JOB, -(-self._count // self.workers))
        for first in range(0, self._count, each):
            batch.jobs.append(self._job(batch, list(range(first, min(first + each, self._count))), sources))
        return batch

    def _job(self, batch: _Batch, places: list[int], sources: dict[int, int]) -> _Job:
        work = [(place, self.files.paths[sources[place]], batch.draws[place]) for place in places]
        assert self._pool is not None
        future = self._pool.submit(decode_into_ring, batch.slot, work, self.training)
        return _Job({place: sources[place] for place in places}, future)

    def _await(self, batch: _Batch) -> None:
        """Wait for a batch, and replace damaged files."""
        while batch.jobs:
            job = batch.jobs.pop()
            found = job.future.result()
            if found:
                self._damaged.update({job.sources[place]: why for place, why in found.items()})
                replaced = {place: self._readable(job.sources[place]) for place in found}
                batch.jobs.append(self._job(batch, list(replaced), replaced))

    def _readable(self, number: int) -> int:
        """A file, or the next one of its class that is not known to be damaged."""
        candidate = number
        while candidate in self._damaged:
            candidate = int(self._next_of_class[candidate])
            if candidate == number:
                raise ValueError(
                    f"every file of the class of {self.files.paths[number]} is damaged ({self._damaged[number]})"
                )
        return candidate

    def _drop_all_but(self, steps: range) -> None:
        """Discard batches that are no longer needed, once no worker writes into their slots."""
        for step in [step for step in self._coming if step not in steps]:
            futures = [job.future for job in self._coming.pop(step).jobs]
            wait([future for future in futures if not future.cancel()])


class _Job(NamedTuple):
    sources: dict[int, int]
    """The work of a batch: place, file and seeds of every image."""
    future: Future[dict[int, str]]


class _Batch(NamedTuple):
    slot: int
    indices: np.ndarray
    draws: list[tuple[int, int]]
    jobs: list[_Job]


def _next_of_class(labels: np.ndarray) -> np.ndarray:
    """For every file, the next one with the same label, cyclically."""
    following = np.empty(len(labels), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        following[members] = np.roll(members, -1)
    return following


def centre_crops(
    files: Files,
    classes: Sequence[str],
    size: int = 224,
    cache: str | os.PathLike[str] | None = None,
    *,
    progress: Progress | None = None,
) -> tuple[Split, dict[str, Any]]:
    """The centre crops of images, decoded once into the cache: a test split and its facts.

    Args:
        files: the image files.
        classes: the names of the labels.
        size: the side of the square.
        cache: the folder of the cache; see `samuel_lab.data.cache.cache_folder`.
        progress: progress callback; see `samuel_lab.data.Progress`.
    """
    root = os.path.commonpath([os.path.dirname(path) for path in files.paths])
    names = [os.path.relpath(path, root) for path in files.paths]

    def build(folder: Path) -> dict[str, Any]:
        out = folder / "inputs.npy"
        labels, facts = decode_files(
            names,
            files.paths,
            files.labels,
            classes,
            size,
            out,
            crop=True,
            what=f"the centres of {len(names)} images",
            progress=progress,
        )
        np.save(folder / "labels.npy", labels)
        return facts

    key = {"root": root, "size": size, "count": len(names)}
    entry = cached("centres", key, listing_state(root, names), build, cache=cache)
    return Split(entry.arrays["inputs"], np.array(entry.arrays["labels"])), {**entry.facts, "checksum": entry.checksum}
