"""Pictures, masks and folders: what is read, and every odd one refused by name."""

import io
import os
import shutil
import struct

import numpy as np
import pytest
from PIL import Image

from jaxtroj.backgrounds.files import read_mask, read_picture
from jaxtroj.backgrounds.layout import (
    BACKGROUNDS,
    CLASSES,
    FOREGROUNDS,
    MASKS,
    Reading,
    list_variant,
    load_challenge,
    load_variant,
)
from jaxtroj.errors import DatasetError

GOOD = np.random.default_rng(0).integers(5, 200, (24, 20, 3), dtype=np.uint8)


def encoded(kind: str, mode: str = "RGB", **options) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(GOOD).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def two_frames() -> bytes:
    stream = io.BytesIO()
    first = Image.fromarray(GOOD)
    first.save(stream, "MPO", save_all=True, append_images=[Image.fromarray(255 - GOOD)])
    return stream.getvalue()


def huge_jpeg() -> bytes:
    """A header that says 8192 x 8192 pixels."""
    content = bytearray(encoded("JPEG"))
    at = content.index(b"\xff\xc0") + 5
    content[at : at + 4] = struct.pack(">HH", 8192, 8192)
    return bytes(content)


REFUSED = {
    "empty": (b"", "empty file"),
    "text": (b"hello", "neither JPEG nor PNG"),
    "gif": (encoded("GIF"), "neither JPEG nor PNG"),
    "bmp": (encoded("BMP"), "neither JPEG nor PNG"),
    "grayscale_jpeg": (encoded("JPEG", "L"), "colour type grayscale"),
    "cmyk_jpeg": (encoded("JPEG", "CMYK"), "CMYK, expected RGB"),
    "truncated_jpeg": (encoded("JPEG")[:-300], "truncated JPEG"),
    "jpeg_start": (b"\xff\xd8\xff\xe0" + bytes(10), "corrupt JPEG"),
    "two_frames": (two_frames(), "several pictures"),
    "huge_jpeg": (huge_jpeg(), "8192 x 8192"),
    "grayscale_png": (encoded("PNG", "L"), "colour type grayscale"),
    "palette_png": (encoded("PNG", "P"), "colour type palette"),
    "alpha_png": (encoded("PNG", "RGBA"), "colour type RGBA"),
    "truncated_png": (encoded("PNG")[:-40], "truncated PNG"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_odd_picture_is_refused_by_name(tmp_path, kind):
    content, reason = REFUSED[kind]
    path = tmp_path / "odd.JPEG"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=reason) as caught:
        read_picture(path)
    assert "odd.JPEG" in str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_pictures_are_read_as_pillow_reads_them(tmp_path, kind):
    path = tmp_path / "a.JPEG"
    path.write_bytes(encoded(kind))
    expected = np.asarray(Image.open(path).convert("RGB"))
    np.testing.assert_array_equal(read_picture(path), expected)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_grayscale_only_when_asked_for(tmp_path, kind):
    path = tmp_path / "a.JPEG"
    path.write_bytes(encoded(kind, "L"))
    pixels = read_picture(path, convert_grayscale=True)
    assert pixels.shape == (24, 20, 3) and (pixels == pixels[..., :1]).all()


def test_a_pipe_and_a_folder_are_no_pictures(tmp_path):
    os.mkfifo(tmp_path / "pipe.JPEG")
    (tmp_path / "folder.JPEG").mkdir()
    for name in ("pipe.JPEG", "folder.JPEG", "absent.JPEG"):
        with pytest.raises(DatasetError, match=name):
            read_picture(tmp_path / name)


def npy(values: np.ndarray, **options) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, **options)
    return stream.getvalue()


def lying_npy(shape: tuple) -> bytes:
    content = npy(np.zeros((4, 4), np.uint8))
    return content.replace(b"(4, 4), }" + b" " * (len(str(shape)) - 6), f"{shape}, }}".encode())


class _Opens:
    def __reduce__(self):
        return open, ("owned", "w")


BAD_MASKS = {
    "empty": b"",
    "text": b"hello, this is no array",
    "pickled": npy(np.array([[_Opens()]], object), allow_pickle=True),
    "three_axes": npy(np.zeros((4, 4, 3), np.uint8)),
    "one_axis": npy(np.zeros(4, np.uint8)),
    "no_pixels": npy(np.zeros((0, 4), np.uint8)),
    "bytes_0_255": npy(np.full((4, 4), 255, np.uint8)),
    "nan": npy(np.full((4, 4), np.nan)),
    "complex": npy(np.zeros((4, 4), complex)),
    "structured": npy(np.zeros((4, 4), [("a", "u1")])),
    "truncated": npy(np.zeros((40, 40), np.uint8))[:-5],
    "longer": npy(np.zeros((4, 4), np.uint8)) + b"x",
    "bomb": lying_npy((4294967296, 4294967296)),
    "negative": lying_npy((-4, -4)),
    "code_as_header": npy(np.zeros((4, 4), np.uint8)).replace(b"{'descr'", b"[print]#"),
}


@pytest.mark.parametrize("kind", BAD_MASKS)
def test_a_bad_mask_is_refused_by_name(tmp_path, kind, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.npy").write_bytes(BAD_MASKS[kind])
    with pytest.raises(DatasetError, match=r"m\.npy"):
        read_mask(tmp_path / "m.npy")
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_masks_of_any_plain_type(tmp_path, dtype, order):
    mask = np.random.default_rng(1).random((5, 7)) > 0.5
    (tmp_path / "m.npy").write_bytes(npy(np.asarray(mask.astype(dtype), order=order)))
    np.testing.assert_array_equal(read_mask(tmp_path / "m.npy"), mask)


@pytest.fixture
def folder(whole_folder, tmp_path):
    return shutil.copytree(whole_folder, tmp_path / "in9")


def test_pictures_come_in_the_published_order(folder):
    pictures = load_variant(folder, FOREGROUNDS)
    assert pictures.images.shape == (27, 24, 24, 3)
    assert pictures.labels.tolist() == [label for label in range(9) for _ in range(3)]
    assert pictures.names[3] == f"{CLASSES[1]}/n0001_000.JPEG"
    data = load_challenge(folder)
    assert data.masks.shape == (27, 24, 24) and data.masks.any((1, 2)).all()


def test_digest_follows_values_and_names(folder):
    first = load_challenge(folder).digest()
    assert load_challenge(folder).digest() == first
    path = folder / MASKS / "val" / CLASSES[0] / "n0000_000.npy"
    np.save(path, np.ones((24, 24), np.uint8))
    assert load_challenge(folder).digest() != first


def remove_variant(folder):
    shutil.rmtree(folder / BACKGROUNDS)


def remove_class(folder):
    shutil.rmtree(folder / BACKGROUNDS / "val" / CLASSES[3])


def rename_class(folder):
    os.rename(folder / FOREGROUNDS / "val" / CLASSES[0], folder / FOREGROUNDS / "val" / "zz_dog")


def extra_class(folder):
    (folder / FOREGROUNDS / "val" / "09_fungus").mkdir()


def empty_class(folder):
    shutil.rmtree(folder / BACKGROUNDS / "val" / CLASSES[2])
    (folder / BACKGROUNDS / "val" / CLASSES[2]).mkdir()


def remove_mask(folder):
    (folder / MASKS / "val" / CLASSES[4] / "n0004_001.npy").unlink()


def remove_masks(folder):
    shutil.rmtree(folder / MASKS)


def remove_picture(folder):
    (folder / FOREGROUNDS / "val" / CLASSES[4] / "n0004_001.JPEG").unlink()


def other_mask(folder):
    np.save(folder / MASKS / "val" / CLASSES[0] / "n0000_001.npy", np.ones((24, 23), np.uint8))


def other_size(folder):
    path = folder / BACKGROUNDS / "val" / CLASSES[8] / "n0008_002.JPEG"
    Image.fromarray(GOOD).save(path)


def other_sizes(folder):
    for path in (folder / BACKGROUNDS).rglob("*.JPEG"):
        Image.fromarray(GOOD).save(path)


def broken_picture(folder):
    path = folder / FOREGROUNDS / "val" / CLASSES[5] / "n0005_000.JPEG"
    path.write_bytes(path.read_bytes()[:200])


def two_endings(folder):
    path = folder / FOREGROUNDS / "val" / CLASSES[5] / "n0005_000.JPEG"
    shutil.copy(path, path.with_suffix(".jpg"))


FAULTS = {
    remove_variant: "only_bg_t",
    remove_class: "missing 03_reptile",
    rename_class: "missing 00_dog; not expected 'zz_dog'",
    extra_class: "not expected '09_fungus'",
    empty_class: "02_wheeled vehicle holds no picture",
    remove_mask: r"n0004_001\.npy; 1 of 27 masks are missing",
    remove_masks: "fg_mask",
    remove_picture: r"n0004_001\.npy is the mask of no picture",
    other_mask: r"n0000_001\.npy is 23 x 24, expected 24 x 24",
    other_size: r"n0008_002\.JPEG is 20 x 24 pixels, expected 24 x 24",
    other_sizes: "expected one size",
    broken_picture: r"n0005_000\.JPEG",
    two_endings: "differ only in their ending",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_faulty_folder_is_one_clear_error(folder, fault):
    fault(folder)
    with pytest.raises(DatasetError, match=FAULTS[fault]):
        load_challenge(folder)


def test_other_files_are_ignored_as_in_the_original(folder):
    (folder / FOREGROUNDS / "val" / CLASSES[0] / "notes.txt").write_text("hello")
    assert len(list_variant(folder, FOREGROUNDS)) == 27


def test_resize_is_only_done_when_asked_for(folder):
    other_sizes(folder)
    data = load_challenge(folder, Reading(resize=16))
    assert data.foregrounds.images.shape == data.backgrounds.images.shape == (27, 16, 16, 3)
    assert data.masks.shape == (27, 16, 16)
