from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


@pytest.fixture
def shared() -> Callable[[str], Path]:
    """A file of real data, or a skipped test."""

    def find(name: str) -> Path:
        if not (SHARED / name).is_file():
            pytest.skip(f"{name} is not in {SHARED}, the folder of real data beside the repository")
        return SHARED / name

    return find


MakeImages = Callable[..., Path]


@pytest.fixture(scope="session")
def make_images() -> MakeImages:
    """Makes an image folder. The first pixel of an image says which class it is of, the second its number."""

    def make(root: Path, classes, train=2, test=1, size=32, suffix=".png", splits=("train", "test")) -> Path:
        rng = np.random.default_rng(0)
        for split, count in zip(splits, (train, test), strict=True):
            for label, name in enumerate(classes):
                folder = root / split / name
                folder.mkdir(parents=True)
                for number in range(count):
                    pixels = rng.integers(0, 256, (size, size, 3), np.uint8)
                    pixels[0, 0, 0], pixels[0, 1, 0] = label, number
                    Image.fromarray(pixels).save(folder / f"{number:04d}{suffix}")
        return root

    return make
