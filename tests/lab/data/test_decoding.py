import io
import itertools
import os
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from samuel_lab.data.decoding import Damaged, centre_crop, decode_files, random_crop, whole_image
from samuel_lab.data.unpack import members


def encoded(pixels, kind="PNG", **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **options)
    return out.getvalue()


def smooth(width, height):
    """An image that looks much the same at any resolution."""
    down, across = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    return (255 * np.stack([down, across, (down + across) / 2], axis=-1)).astype(np.uint8)


def noise(width, height):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def test_the_centre_of_an_image_of_128_pixels_is_cut_out_without_resizing():
    pixels = noise(128, 128)
    assert np.array_equal(centre_crop(encoded(pixels), 112), pixels[8:120, 8:120])


@pytest.mark.parametrize(("width", "height"), [(256, 256), (500, 256), (256, 301), (64, 64), (1, 1), (3, 900)])
def test_the_centre_is_a_square_of_the_size_asked_for_from_any_image(width, height):
    crop = centre_crop(encoded(smooth(width, height)), 32)
    assert crop.shape == (32, 32, 3)
    middle = smooth(width, height)[height // 2, width // 2].astype(int)
    assert np.abs(crop[16, 16] - middle).max() < 20


@pytest.mark.parametrize(
    "crop",
    [lambda file: centre_crop(file, 64), lambda file: random_crop(file, 64, (1, 2, 3))],
    ids=["centre", "random"],
)
def test_a_large_jpeg_is_decoded_small_and_looks_the_same(crop):
    pixels = smooth(1600, 1200)
    fast, exact = crop(encoded(pixels, "JPEG", quality=95)), crop(encoded(pixels))
    assert np.abs(fast.astype(int) - exact).max() <= 4


def test_a_random_part_is_a_function_of_its_seeds():
    file = encoded(noise(60, 50))
    assert np.array_equal(random_crop(file, 32, (0, 1, 2)), random_crop(file, 32, (0, 1, 2)))
    crops = {random_crop(file, 32, seeds).tobytes() for seeds in ((0, 1, 2), (0, 1, 3), (0, 2, 2), (1, 1, 2))}
    assert len(crops) == 4


def test_random_parts_have_the_areas_and_ratios_of_the_recipe_and_half_are_flipped():
    file = encoded(smooth(200, 200))
    parts = np.array([_extent(random_crop(file, 64, (0, 0, number))) for number in range(400)])
    down, across, flipped = parts.T
    areas, ratios = down * across, across / down
    assert 0.05 < areas.min() < 0.15
    assert 0.85 < areas.max() <= 1.01
    assert 0.7 < ratios.min() < 0.8
    assert 1.25 < ratios.max() < 1.4
    assert 160 < flipped.sum() < 240


def _extent(crop):
    """How much of the smooth image is to be seen, down and across, and whether left is right."""
    red, green = crop[..., 0].mean(1).astype(float), crop[..., 1].mean(0).astype(float)
    stretch = 64 / 62 / 255
    return (red[-2] - red[1]) * stretch, abs(green[-2] - green[1]) * stretch, green[-1] < green[0]


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 400), (400, 1), (3, 2)])
def test_images_that_no_part_fits_into_give_their_middle(width, height):
    assert random_crop(encoded(noise(width, height)), 16, (0, 0, 0)).shape == (16, 16, 3)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "CMYK", "1"])
def test_images_of_any_mode_become_rgb(mode):
    out = io.BytesIO()
    Image.fromarray(smooth(32, 32)).convert(mode).save(out, "JPEG" if mode == "CMYK" else "PNG")
    assert whole_image(out.getvalue(), (32, 32)).shape == (32, 32, 3)


@pytest.mark.parametrize(
    "content",
    [b"", b"I am a text", encoded(noise(32, 32))[:-900], encoded(noise(99, 99), "JPEG")[:1500]],
    ids=["empty", "text", "half a png", "half a jpeg"],
)
def test_what_is_not_a_whole_image_is_damaged(content):
    for decode in (lambda: centre_crop(content, 8), lambda: random_crop(content, 8, (0,))):
        with pytest.raises(Damaged):
            decode()


def test_an_image_that_claims_to_be_gigantic_is_damaged_and_not_decoded():
    header = bytearray(encoded(np.zeros((1, 1, 3), np.uint8)))
    header[16:24] = (60_000).to_bytes(4, "big") * 2
    header[29:33] = zlib.crc32(header[12:29]).to_bytes(4, "big")
    with pytest.raises(Damaged, match="decompression bomb"):
        centre_crop(bytes(header), 8)


def test_a_file_that_is_gone_is_an_error_and_not_damage(tmp_path):
    with pytest.raises(FileNotFoundError, match="gone.png"):
        centre_crop(str(tmp_path / "gone.png"), 8)


def test_many_files_are_decoded_in_worker_processes_into_one_array(tmp_path):
    pixels = [np.full((2, 2, 3), number % 251, np.uint8) for number in range(600)]
    files = [encoded(one) for one in pixels]
    files[3] = b"damaged"
    names = [f"{number}.png" for number in range(600)]
    heard = []
    labels, facts = decode_files(
        names,
        files,
        np.arange(600, dtype=np.int32) % 2,
        ("even", "odd"),
        2,
        tmp_path / "out.npy",
        crop=False,
        what="squares",
        workers=2,
        progress=lambda *told: heard.append(told),
    )
    array = np.load(tmp_path / "out.npy")
    assert array.shape == (599, 2, 2, 3)
    assert np.array_equal(array, np.array([one for number, one in enumerate(pixels) if number != 3]))
    assert labels.tolist() == [number % 2 for number in range(600) if number != 3]
    assert facts == {"damaged_count": 1, "damaged": ["3.png: not a JPEG or PNG image"]}
    assert heard[-1] == ("decoding squares", 600, 600)


ORPHANS = """
import os, signal
from samuel_lab.data.decoding import team

if __name__ == "__main__":
    print(team(2).submit(os.getpid).result() != os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ORPHANS)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    # The workers have the same standard output: it ends when the last of them does.
    ended = subprocess.run(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, timeout=60, env=environment
    )
    assert ended.returncode == -signal.SIGKILL
    assert ended.stdout == "True\n"


def test_a_class_of_which_nothing_is_left_is_refused(tmp_path):
    files = [encoded(np.zeros((2, 2, 3), np.uint8))] * 200 + [b"damaged"]
    labels = np.array([0] * 200 + [1], np.int32)
    with pytest.raises(ValueError, match="every image of class 'rare' is damaged: 200"):
        decode_files(
            [str(number) for number in range(201)],
            files,
            labels,
            ("common", "rare"),
            2,
            tmp_path / "out.npy",
            crop=False,
            what="squares",
        )


@pytest.mark.parametrize(("name", "side"), [("cifar10-jpeg.tar.xz", 32), ("imagenette-128px.tar.xz", 128)])
def test_the_first_images_of_real_archives_are_decoded(shared, name, side):
    files = (member.content for member in members(shared(name)) if member.content)
    for content in itertools.islice(files, 40):
        assert whole_image(content.read(), (side, side)).std() > 0
