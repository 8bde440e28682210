import numpy as np
import pytest

from samuel_lab.data import Dataset, Split, permutation


def numbered(labels) -> Split:
    """A split in which the pixel of every image is its place."""
    labels = np.array(labels, np.int32)
    return Split(np.arange(len(labels), dtype=np.uint8).reshape(-1, 1, 1, 1), labels)


def test_only_keeps_the_order_of_examples_and_renumbers_classes_in_the_order_given():
    split = numbered([3, 1, 2, 1, 0, 3]).only([3, 1])
    assert split.inputs.ravel().tolist() == [0, 1, 3, 5]
    assert split.labels.tolist() == [0, 1, 1, 0]
    assert split.labels.dtype == np.int32


@pytest.mark.parametrize(
    ("classes", "message"),
    [([], "one or more"), ([1, 1], "different"), ([7], "no example of class 7"), ([-1], "no example of class -1")],
)
def test_only_refuses_classes_that_are_not_there(classes, message):
    with pytest.raises(ValueError, match=message):
        numbered([0, 1]).only(classes)


def test_first_keeps_at_most_so_many_of_each_class():
    split = numbered([0, 0, 1, 0, 1, 1, 2]).first(2)
    assert split.inputs.ravel().tolist() == [0, 1, 2, 4, 6]
    with pytest.raises(ValueError, match="at least 1, got 0"):
        split.first(0)


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        (np.zeros((2, 8, 8, 1), np.float32), np.zeros(2, np.int32), "got float32"),
        (np.zeros((2, 8, 8), np.uint8), np.zeros(2, np.int32), r"of shape \(2, 8, 8\)"),
        (np.zeros((2, 5), np.int32), np.zeros(3, np.int32), r"labels must be int32 of shape \(2,\)"),
        (np.zeros((2, 5), np.int32), np.zeros(2, np.int64), "got int64"),
    ],
    ids=["float images", "no channels", "too many labels", "wide labels"],
)
def test_a_split_refuses_arrays_that_are_neither_images_nor_tokens(inputs, labels, message):
    with pytest.raises(ValueError, match=message):
        Split(inputs, labels)


def test_a_dataset_needs_no_facts():
    split = numbered([0])
    assert Dataset("one", split, split, ("zero",)).facts == {}


def test_permutations_do_not_change_with_the_version_of_numpy():
    assert permutation(8, 0).tolist() == [0, 3, 7, 5, 1, 2, 6, 4]
    assert permutation(8, 0, 1).tolist() != permutation(8, 0, 2).tolist()
