"""The examples of every step as a function of the step, and batches assembled on the device.

There is no state: `Order.indices(step)` and `Resident.batch(step)` depend on the step only, so a resumed run sees the
same batches.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from samuel_lab.data import Split, permutation

AUGMENTATIONS = (None, "crop-flip")
PADDING = 4
"""Maximum shift of "crop-flip" in each direction, in pixels."""


class Order:
    """The examples of every step: each once per epoch, in a new order every epoch.

    The order is a function of seed and epoch, so steps can be accessed in any order. The incomplete last batch of an
    epoch is dropped. If there are fewer examples than a batch holds, batches are cut from the concatenated orders of
    all epochs: counts of examples differ by at most one, and some come twice in a batch.

    Args:
        count: number of examples.
        batch: examples per step.
        seed: not negative.
        shard: (part, parts) of every batch for this process; a batch must split evenly.

    >>> order = Order(count=10, batch=4, seed=0)
    >>> order.steps_per_epoch, order.indices(0).tolist(), order.indices(1).tolist(), order.indices(2).tolist()
    (2, [0, 8, 9, 3], [7, 5, 1, 2], [3, 7, 4, 2])
    >>> Order(10, 4, 0, shard=(1, 2)).indices(0).tolist()
    [9, 3]
    """

    def __init__(self, count: int, batch: int, seed: int = 0, shard: tuple[int, int] = (0, 1)):
        self.count = _at_least(count, 1, "count")
        self.batch = _at_least(batch, 1, "batch")
        self.seed = _at_least(seed, 0, "seed")
        part, parts = (operator.index(number) for number in shard)
        if not 0 <= part < parts:
            raise ValueError(f"shard must be (part, parts) with 0 <= part < parts, got {tuple(shard)}")
        if self.batch % parts:
            raise ValueError(f"a batch of {self.batch} does not split evenly into {parts} parts")
        self.shard = (part, parts)
        self.steps_per_epoch = max(1, self.count // self.batch)
        self._epoch = -1
        self._permutation = np.arange(0)

    def indices(self, step: int) -> np.ndarray:
        """The examples of a step, in this process's part of the batch.

        Args:
            step: number of steps before.
        """
        positions = self.positions(step)
        if self.count >= self.batch:
            return self._order_of(step // self.steps_per_epoch)[positions]
        passes, places = np.divmod(step * self.batch + positions, self.count)
        return np.array([self._order_of(epoch)[place] for epoch, place in zip(passes, places, strict=True)])

    def positions(self, step: int) -> np.ndarray:
        """The positions of a step's examples in their epoch, which seed their random draws.

        Args:
            step: number of steps before.
        """
        step = _at_least(step, 0, "step")
        part, parts = self.shard
        size = self.batch // parts
        first = (step % self.steps_per_epoch) * self.batch + part * size
        return np.arange(first, first + size)

    def _order_of(self, epoch: int) -> np.ndarray:
        if epoch != self._epoch:
            self._epoch, self._permutation = epoch, permutation(self.count, self.seed, int(epoch))
        return self._permutation


def statistics(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel of some images, exact up to the final rounding.

    A constant channel gets the deviation 1, to allow division.

    Args:
        split: images, usually of the training split.

    >>> images = np.array([0, 2, 4, 6], np.uint8).reshape(4, 1, 1, 1)
    >>> statistics(Split(images, np.zeros(4, np.int32)))
    ((3.0,), (2.23606797749979,))
    """
    if split.inputs.dtype != np.uint8:
        raise ValueError(f"only images have statistics; these inputs are {split.inputs.dtype}, tokens")
    if not len(split):
        raise ValueError("there are no images to take the mean of")
    channels = split.inputs.shape[-1]
    pixels = split.inputs[0].size
    # Sum over images first, which adds long rows, and over pixels at the end.
    total, squares = np.zeros(pixels, np.uint64), np.zeros(pixels, np.uint64)
    rows = max(1, 2**22 // pixels)  # in chunks: it may be larger than memory
    for first in range(0, len(split), rows):
        share = np.asarray(split.inputs[first : first + rows]).reshape(-1, pixels).astype(np.uint32)
        total += share.sum(0, dtype=np.uint64)
        squares += np.square(share, out=share).sum(0, dtype=np.uint64)
    total, squares = total.reshape(-1, channels).sum(0), squares.reshape(-1, channels).sum(0)
    count = split.inputs.size // channels
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    return tuple(mean.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())


def normalised(inputs: jax.Array, mean: Any, std: Any, dtype: DTypeLike = jnp.float32) -> jax.Array:
    """Images normalised by mean and deviation of each channel; tokens unchanged.

    Args:
        inputs: uint8 images with the channels last, or int32 tokens.
        mean: of each channel.
        std: of each channel.
        dtype: of the result.

    >>> normalised(jnp.array([[1, 5]], jnp.uint8), mean=(3.0, 3.0), std=(2.0, 2.0))
    Array([[-1.,  1.]], dtype=float32)
    """
    if inputs.dtype != jnp.uint8:
        return inputs
    wide = inputs.astype(jnp.float32)
    return ((wide - jnp.asarray(mean, jnp.float32)) / jnp.asarray(std, jnp.float32)).astype(dtype)


def cropped_and_flipped(images: jax.Array, key: jax.Array, padding: int = PADDING) -> jax.Array:
    """Images, each shifted by up to `padding` pixels in both directions and flipped horizontally half of the time.

    Gaps are filled with zeros: for normalised images, the mean colour.

    Args:
        images: of shape (count, height, width, channels).
        key: for the random draws.
        padding: maximum shift in pixels.

    >>> cropped_and_flipped(jnp.ones((2, 8, 8, 3)), jax.random.key(0)).shape
    (2, 8, 8, 3)
    """
    count, height, width, _ = images.shape
    for_places, for_flips = jax.random.split(key)
    places = jax.random.randint(for_places, (count, 2), 0, 2 * padding + 1)
    flips = jax.random.bernoulli(for_flips, shape=(count,))
    edge = (padding, padding)
    padded = jnp.pad(images, ((0, 0), edge, edge, (0, 0)))

    def moved(image, place, flip):
        image = jax.lax.dynamic_slice(image, (place[0], place[1], 0), (height, width, image.shape[-1]))
        return jnp.where(flip, image[:, ::-1], image)

    return jax.vmap(moved)(padded, places, flips)


class Resident:
    """Training examples on the device; batches are gathered, augmented and normalised there.

    A batch is a function of seed and step. In a jitted training step,
    `prepare(data, order.indices(step), step)` does the same as `batch(step)`.

    Args:
        split: the examples; images stay uint8 on the device.
        batch: examples per step.
        seed: of the order and the augmentation.
        augment: None, or "crop-flip": shift by up to 4 pixels and flip horizontally half of the time.
        mean: of each channel; from the split if None. Tokens have none.
        std: of each channel, likewise.
        dtype: of the images returned.

    >>> images = np.arange(4 * 2 * 2, dtype=np.uint8).reshape(4, 2, 2, 1)
    >>> resident = Resident(Split(images, np.arange(4, dtype=np.int32)), batch=2, seed=0)
    >>> inputs, labels = resident.batch(0)
    >>> inputs.shape, inputs.dtype, labels
    ((2, 2, 2, 1), dtype('float32'), Array([0, 3], dtype=int32))
    """

    def __init__(
        self,
        split: Split,
        batch: int,
        seed: int = 0,
        augment: str | None = None,
        mean: Any = None,
        std: Any = None,
        dtype: DTypeLike = jnp.float32,
    ):
        if augment not in AUGMENTATIONS:
            raise ValueError(f'augment must be None or "crop-flip", got {augment!r}')
        images = split.inputs.dtype == np.uint8
        if augment and not images:
            raise ValueError(f"augment={augment!r} changes images; these inputs are tokens")
        self.order = Order(len(split), batch, seed)
        self.augment = augment
        self.dtype = dtype
        if images and (mean is None or std is None):
            known = statistics(split)
            mean, std = (known[0] if mean is None else mean), (known[1] if std is None else std)
        self.mean, self.std = _numbers(mean), _numbers(std)
        self.data = _on_device(split.inputs), _on_device(split.labels)
        self._key = jax.random.key(self.order.seed)

    @property
    def steps_per_epoch(self) -> int:
        """Number of whole batches per epoch."""
        return self.order.steps_per_epoch

    def batch(self, step: int) -> tuple[jax.Array, jax.Array]:
        """The inputs and labels of a step.

        Args:
            step: number of steps before.
        """
        indices = self.order.indices(step).astype(np.int32)
        return _prepared_at_once(
            self.data, indices, self._key, np.uint32(step), self.mean, self.std, augment=self.augment, dtype=self.dtype
        )

    def prepare(self, data: tuple[jax.Array, jax.Array], indices: Any, step: Any) -> tuple[jax.Array, jax.Array]:
        """The same from the data and the indices of a step, as a pure function for tracing.

        Args:
            data: `self.data`, passed as an argument so that it is not compiled in as a constant.
            indices: `self.order.indices(step)`.
            step: number of steps before, which seeds the augmentation.
        """
        return _prepared(data, indices, self._key, step, self.mean, self.std, augment=self.augment, dtype=self.dtype)


def _prepared(
    data: tuple[jax.Array, jax.Array],
    indices: Any,
    key: jax.Array,
    step: Any,
    mean: Any,
    std: Any,
    *,
    augment: str | None,
    dtype: DTypeLike,
) -> tuple[jax.Array, jax.Array]:
    inputs, labels = (array.at[indices].get(mode="promise_in_bounds") for array in data)
    inputs = normalised(inputs, mean, std, dtype)
    if augment:
        inputs = cropped_and_flipped(inputs, jax.random.fold_in(key, step))
    return inputs, labels


# Compiled once for all of equal shapes, such as the trials of a study.
_prepared_at_once = jax.jit(_prepared, static_argnames=("augment", "dtype"))
_normalised_at_once = jax.jit(normalised, static_argnames="dtype")


class Exam:
    """Test examples on the device, in batches of equal size.

    The last batch is padded with zeros, and the mask is 0 for padding: sums of `mask * values`, divided by `count`, are
    means over the examples.

    Args:
        split: the examples; images stay uint8 on the device.
        batch: examples per batch; at most their number.
        mean: of each channel of the training images; see `statistics`. Tokens have none.
        std: of each channel, likewise.
        dtype: of the images returned.

    >>> split = Split(np.full((5, 2, 2, 1), 9, np.uint8), np.arange(5, dtype=np.int32))
    >>> exam = Exam(split, batch=3, mean=(8.0,), std=(2.0,))
    >>> inputs, labels, mask = exam.batches()
    >>> inputs.shape, labels.tolist(), mask.tolist(), float(inputs[0, 0, 0, 0, 0])
    ((2, 3, 2, 2, 1), [[0, 1, 2], [3, 4, 0]], [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]], 0.5)
    """

    def __init__(self, split: Split, batch: int, mean: Any = None, std: Any = None, dtype: DTypeLike = jnp.float32):
        if not len(split):
            raise ValueError("there are no test examples")
        if split.inputs.dtype == np.uint8 and (mean is None or std is None):
            raise ValueError("images need the mean and std of the training images: see `statistics`")
        self.count = len(split)
        self.size = min(_at_least(batch, 1, "batch"), self.count)
        self.mean, self.std, self.dtype = _numbers(mean), _numbers(std), dtype
        filled = -len(split) % self.size
        self.data = (
            self._stacked(split.inputs, filled),
            self._stacked(split.labels, filled),
            self._stacked(np.ones(len(split), np.float32), filled),
        )

    def __len__(self) -> int:
        return len(self.data[1])

    def batch(self, number: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The inputs, labels and mask of one batch, for sets too large to be normalised at once.

        Args:
            number: index of the batch.
        """
        if not 0 <= operator.index(number) < len(self):
            raise IndexError(f"there is no batch {number}: there are {len(self)}")
        return self._normalised(tuple(array[number] for array in self.data))

    def __iter__(self) -> Iterator[tuple[jax.Array, jax.Array, jax.Array]]:
        return (self.batch(number) for number in range(len(self)))

    def batches(self) -> tuple[jax.Array, jax.Array, jax.Array]:
        """All inputs, labels and masks, of shape (batches, size, ...)."""
        return self._normalised(self.data)

    def _normalised(self, data: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
        inputs, labels, mask = data
        return _normalised_at_once(inputs, self.mean, self.std, dtype=self.dtype), labels, mask

    def _stacked(self, array: np.ndarray, filled: int) -> jax.Array:
        padded = np.concatenate([array, np.zeros((filled, *array.shape[1:]), array.dtype)]) if filled else array
        return _on_device(padded.reshape(-1, self.size, *array.shape[1:]))


def _on_device(array: np.ndarray) -> jax.Array:
    # A copy: on a CPU, JAX may otherwise alias the memory-mapped file, which could change.
    return jnp.array(array, copy=True)


def _numbers(given: Any) -> jax.Array | None:
    """Constants on the device, to avoid a transfer at every step."""
    return None if given is None else jnp.asarray(given, jnp.float32)


def _at_least(number: Any, least: int, name: str) -> int:
    try:
        number = operator.index(number)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {number!r}") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number
