import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samuel_lab.data import Split
from samuel_lab.data.batches import Exam, Order, Resident, cropped_and_flipped, normalised, statistics


def images(count=12, side=8, channels=3, seed=0) -> Split:
    rng = np.random.default_rng(seed)
    return Split(rng.integers(0, 256, (count, side, side, channels), np.uint8), np.arange(count, dtype=np.int32))


sizes = st.integers(1, 40)
seeds = st.integers(0, 2**32)


@given(count=sizes, batch=sizes, seed=seeds, epoch=st.integers(0, 5))
def test_an_epoch_sees_every_example_once_but_for_what_does_not_fill_a_batch(count, batch, seed, epoch):
    order = Order(count, batch, seed)
    if count < batch:
        return
    first = epoch * order.steps_per_epoch
    seen = np.concatenate([order.indices(step) for step in range(first, first + order.steps_per_epoch)])
    assert len(seen) == count - count % batch
    assert len(set(seen.tolist())) == len(seen)
    assert set(seen.tolist()) <= set(range(count))


@given(count=st.integers(1, 10), more=st.integers(1, 30), seed=seeds, steps=st.integers(1, 6))
def test_with_fewer_examples_than_a_batch_each_comes_as_often_as_any_other_give_or_take_one(count, more, seed, steps):
    order = Order(count, count + more, seed)
    assert order.steps_per_epoch == 1
    seen = np.concatenate([order.indices(step) for step in range(steps)])
    times = np.bincount(seen, minlength=count)
    assert times.max() - times.min() <= 1
    assert times.sum() == steps * (count + more)


@given(count=sizes, batch=sizes, seed=seeds, steps=st.lists(st.integers(0, 200), min_size=1, max_size=8))
def test_the_order_is_a_function_of_the_step_in_whatever_sequence_steps_are_asked_for(count, batch, seed, steps):
    asked = Order(count, batch, seed)
    for step in steps:
        assert np.array_equal(asked.indices(step), Order(count, batch, seed).indices(step))


@given(count=sizes, size=st.integers(1, 8), parts=st.integers(1, 5), seed=seeds, step=st.integers(0, 50))
def test_the_parts_of_all_processes_make_up_the_batch(count, size, parts, seed, step):
    whole = Order(count, size * parts, seed)
    shards = [Order(count, size * parts, seed, shard=(part, parts)) for part in range(parts)]
    assert np.array_equal(np.concatenate([shard.indices(step) for shard in shards]), whole.indices(step))
    assert np.array_equal(np.concatenate([shard.positions(step) for shard in shards]), whole.positions(step))


def test_epochs_and_seeds_have_orders_of_their_own():
    order = Order(100, 50, seed=0)
    beginnings = [order.indices(step).tolist() for step in (0, 2, 4)] + [Order(100, 50, seed=1).indices(0).tolist()]
    assert len({tuple(beginning) for beginning in beginnings}) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 4), "count must be at least 1, got 0"),
        ((4, 0), "batch must be at least 1, got 0"),
        ((4, 2, -1), "seed must be at least 0, got -1"),
        ((9, 6, 0, (0, 4)), "a batch of 6 does not split evenly into 4 parts"),
        ((9, 6, 0, (2, 2)), r"got \(2, 2\)"),
    ],
    ids=["count", "batch", "seed", "uneven", "part"],
)
def test_impossible_orders_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Order(*arguments)


def test_impossible_steps_are_refused():
    with pytest.raises(ValueError, match="step must be at least 0, got -1"):
        Order(4, 2).indices(-1)
    with pytest.raises(TypeError, match="step must be a whole number, got 1.5"):
        Order(4, 2).indices(1.5)


def test_statistics_are_those_of_every_channel():
    split = images(count=50, side=9)
    mean, std = statistics(split)
    flat = split.inputs.reshape(-1, 3).astype(float)
    np.testing.assert_allclose(mean, flat.mean(0), rtol=1e-12)
    np.testing.assert_allclose(std, flat.std(0), rtol=1e-12)


def test_a_channel_that_never_changes_can_be_divided_by():
    assert statistics(Split(np.full((3, 2, 2, 1), 255, np.uint8), np.zeros(3, np.int32))) == ((255.0,), (1.0,))
    with pytest.raises(ValueError, match="tokens"):
        statistics(Split(np.zeros((3, 2), np.int32), np.zeros(3, np.int32)))


def test_resident_batches_are_the_examples_of_the_order_normalised():
    split = images()
    resident = Resident(split, batch=4, seed=3)
    assert resident.data[0].dtype == jnp.uint8
    mean, std = statistics(split)
    for step in (0, 2, 5):
        inputs, labels = resident.batch(step)
        indices = Order(12, 4, 3).indices(step)
        assert labels.tolist() == split.labels[indices].tolist()
        np.testing.assert_allclose(inputs, (split.inputs[indices] - np.array(mean)) / np.array(std), atol=1e-5)
    assert np.asarray(inputs).dtype == np.float32


def test_images_come_in_the_type_asked_for():
    inputs, _ = Resident(images(), batch=4, dtype=jnp.bfloat16).batch(0)
    assert inputs.dtype == jnp.bfloat16


def test_tokens_pass_through():
    tokens = np.arange(20, dtype=np.int32).reshape(5, 4)
    inputs, labels = Resident(Split(tokens, np.arange(5, dtype=np.int32)), batch=5).batch(0)
    assert inputs.dtype == jnp.int32
    assert np.array_equal(inputs, tokens[np.asarray(labels)])


def test_augmented_batches_are_a_function_of_seed_and_step():
    split = images()

    def batch(seed, step):
        return np.asarray(Resident(split, batch=12, seed=seed, augment="crop-flip", mean=0, std=1).batch(step)[0])

    asked = Resident(split, batch=12, seed=0, augment="crop-flip", mean=0, std=1)
    _ = asked.batch(7)
    assert np.array_equal(np.asarray(asked.batch(2)[0]), batch(0, 2))
    assert not np.array_equal(batch(0, 0), batch(0, 1))
    assert not np.array_equal(batch(0, 0), batch(1, 0))


def test_preparing_inside_another_jitted_function_gives_the_same_batch():
    resident = Resident(images(), batch=4, augment="crop-flip")
    inside = jax.jit(lambda data, indices, step: resident.prepare(data, indices, step))
    alone = resident.batch(5)
    together = inside(resident.data, resident.order.indices(5), 5)
    assert all(np.array_equal(a, b) for a, b in zip(alone, together, strict=True))


def test_moved_images_are_the_same_pixels_elsewhere_with_zeros_at_the_edge():
    side, padding = 12, 4
    image = np.arange(1, side * side * 2 + 1, dtype=np.float32).reshape(side, side, 2)
    padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
    moved = {
        (down, across, flip): padded[down : down + side, across : across + side][:, :: -1 if flip else 1].tobytes()
        for down in range(9)
        for across in range(9)
        for flip in (False, True)
    }
    out = np.asarray(cropped_and_flipped(jnp.asarray(np.repeat(image[None], 600, 0)), jax.random.key(0)))
    places = {content: place for place, content in moved.items()}
    found = [places[one.tobytes()] for one in out]
    assert {down for down, _, _ in found} == set(range(9))
    assert {across for _, across, _ in found} == set(range(9))
    assert 250 < sum(flip for _, _, flip in found) < 350


def test_what_cannot_be_augmented_is_refused():
    with pytest.raises(ValueError, match="got 'mixup'"):
        Resident(images(), batch=4, augment="mixup")
    with pytest.raises(ValueError, match="these inputs are tokens"):
        Resident(Split(np.zeros((5, 4), np.int32), np.zeros(5, np.int32)), batch=2, augment="crop-flip")


@pytest.mark.parametrize(("count", "batch"), [(1, 1), (7, 3), (6, 3), (5, 9), (4, 1)])
def test_an_exam_has_every_example_once_and_masks_the_rest(count, batch):
    tokens = np.arange(1, 3 * count + 1, dtype=np.int32).reshape(count, 3)
    exam = Exam(Split(tokens, np.arange(count, dtype=np.int32)), batch)
    inputs, labels, mask = exam.batches()
    assert inputs.shape == (len(exam), exam.size, 3)
    kept = np.asarray(mask).ravel() == 1
    assert kept.sum() == count == exam.count
    assert np.array_equal(np.asarray(inputs).reshape(-1, 3)[kept], tokens)
    assert np.asarray(labels).ravel()[kept].tolist() == list(range(count))


def test_an_exam_is_normalised_like_the_training_and_one_batch_is_the_same_as_in_all():
    split = images(count=7)
    exam = Exam(split, 3, mean=(100.0, 110.0, 120.0), std=(50.0, 60.0, 70.0))
    inputs, labels, mask = exam.batches()
    expected = normalised(jnp.asarray(split.inputs), (100.0, 110.0, 120.0), (50.0, 60.0, 70.0))
    np.testing.assert_allclose(inputs.reshape(-1, 8, 8, 3)[:7], expected, atol=1e-6)
    for number in range(len(exam)):
        one = exam.batch(number)
        assert all(np.array_equal(a, b[number]) for a, b in zip(one, (inputs, labels, mask), strict=True))
    assert exam.data[0].dtype == jnp.uint8


def test_an_exam_of_images_needs_statistics_and_examples():
    with pytest.raises(ValueError, match="need the mean and std"):
        Exam(images(), 4)
    with pytest.raises(ValueError, match="there are no test examples"):
        Exam(Split(np.zeros((0, 3), np.int32), np.zeros(0, np.int32)), 4)
    exam = Exam(images(), 4, mean=0, std=1)
    with pytest.raises(IndexError, match="no batch 3: there are 3"):
        exam.batch(3)


def test_what_is_on_the_device_does_not_change_with_the_arrays_it_came_from():
    memory = np.zeros(12 * 8 * 8 * 3 + 64, np.uint8)
    memory = memory[-memory.ctypes.data % 64 :][: 12 * 8 * 8 * 3]  # where JAX could use it as it is
    split = Split(memory.reshape(12, 8, 8, 3), np.arange(12, dtype=np.int32))
    resident = Resident(split, batch=12, mean=0, std=1)
    memory[:] = 255
    assert not resident.batch(0)[0].any()
