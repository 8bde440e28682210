import numpy as np
import pytest

from samuel_lab.data.digits import digits


def test_the_digits_are_split_class_by_class_with_a_fifth_for_the_test():
    data = digits()
    for label in range(10):
        train, test = np.sum(data.train.labels == label), np.sum(data.test.labels == label)
        assert test / (train + test) == pytest.approx(0.2, abs=0.01)
    assert len(data.train) + len(data.test) == 1797
    assert data.classes == tuple("0123456789")
    assert data.facts["train"] == len(data.train)


def test_no_image_is_in_both_splits_and_none_is_lost():
    from sklearn.datasets import load_digits

    data = digits()
    both = np.concatenate([data.train.inputs, data.test.inputs])[..., 0]
    labels = np.concatenate([data.train.labels, data.test.labels])
    ours = sorted((image.tobytes(), int(label)) for image, label in zip(both, labels, strict=True))
    loaded = load_digits()
    theirs = sorted(
        (image.tobytes(), int(label))
        for image, label in zip(loaded.images.astype(np.uint8), loaded.target, strict=True)
    )
    assert ours == theirs


def test_the_seed_decides_the_split_and_any_beginning_is_mixed():
    again, other = digits(seed=0), digits(seed=1)
    assert np.array_equal(digits().test.inputs, again.test.inputs)
    assert not np.array_equal(digits().test.inputs, other.test.inputs)
    assert len(np.unique(again.train.labels[:100])) == 10
