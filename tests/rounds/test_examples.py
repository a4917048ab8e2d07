"""Example pictures: exact preprocessing, and every odd file that a folder may hold."""

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds import image_file, png_file
from jaxtroj.rounds.examples import examples_digest, load_examples

RANDOM = np.random.default_rng(0)
GOOD = RANDOM.integers(5, 200, (6, 5, 3), dtype=np.uint8)
REAL = Path(__file__).parents[2] / "../shared/data/trojai/round0_example_clean.png"


def png(pixels, mode=None, **options) -> bytes:
    stream = io.BytesIO()
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    (picture.convert(mode) if mode else picture).save(stream, "PNG", **options)
    return stream.getvalue()


def chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def header(width: int, height: int, bits: int = 8, colour_type: int = 2) -> bytes:
    fields = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    return png_file.SIGNATURE + chunk(b"IHDR", fields)


def write(folder: Path, **files: bytes) -> Path:
    for name, content in files.items():
        (folder / f"{name}.png").write_bytes(content)
    return folder


def test_bgr_and_min_max_are_nists(tmp_path):
    write(tmp_path, class_2_example_0=png(GOOD))
    examples = load_examples(tmp_path)
    expected = GOOD[..., ::-1].astype(np.float32)
    expected = expected - expected.min()
    expected = expected / expected.max()
    np.testing.assert_array_equal(examples.images[0], expected)
    assert examples.images.dtype == np.float32 and examples.labels.dtype == np.int32
    assert (examples.images.min(), examples.images.max()) == (0.0, 1.0)
    assert examples.channel_order == "BGR" and examples.problems == ()


def test_rgb_and_unit_range(tmp_path):
    write(tmp_path, class_0_example_0=png(GOOD))
    examples = load_examples(tmp_path, channel_order="RGB", normalization="unit")
    np.testing.assert_array_equal(examples.images[0], GOOD.astype(np.float32) / np.float32(255))


def test_real_round0_example(tmp_path):
    if not REAL.exists():
        pytest.skip("shared/data/trojai is not beside this checkout")
    (tmp_path / "class_0_example_0.png").write_bytes(REAL.read_bytes())
    examples = load_examples(tmp_path)
    assert examples.images.shape == (1, 224, 224, 3)
    assert (examples.images.min(), examples.images.max()) == (0.0, 1.0)


def test_natural_order_labels_and_limit(tmp_path):
    names = [f"class_{c}_example_{n}" for c in (0, 10, 2) for n in (10, 9, 0)]
    write(tmp_path, **dict.fromkeys(names, png(GOOD)), holiday=png(GOOD))
    (tmp_path / "data.csv").write_text("file,true_label\n")
    os.rename(tmp_path / "class_0_example_0.png", tmp_path / "class_0_example_0.PNG")
    every = load_examples(tmp_path)
    assert every.labels.tolist() == [0, 0, 0, 2, 2, 2, 10, 10, 10, -1]
    assert every.names[:3] == (
        "class_0_example_0.PNG",
        "class_0_example_9.png",
        "class_0_example_10.png",
    )
    assert load_examples(tmp_path, limit_per_class=1).labels.tolist() == [0, 2, 10, -1]


def test_limit_takes_the_next_usable_picture(tmp_path):
    broken = png(GOOD)[:-30]
    write(tmp_path, class_0_example_0=broken, class_0_example_1=png(GOOD))
    examples = load_examples(tmp_path, limit_per_class=1)
    assert examples.names == ("class_0_example_1.png",)
    assert "class_0_example_0.png" in examples.problems[0]


def test_picture_of_one_value_becomes_zeros_with_a_note(tmp_path):
    write(tmp_path, class_0_example_0=png(np.full((4, 4, 3), 90, np.uint8)))
    examples = load_examples(tmp_path)
    assert not examples.images.any()
    assert "one colour value" in examples.problems[0]


def animated() -> bytes:
    frames = [Image.fromarray(GOOD), Image.fromarray(255 - GOOD)]
    return png(frames[0], save_all=True, append_images=frames[1:])


def transparent(alpha: int) -> bytes:
    return png(np.dstack([GOOD, np.full(GOOD.shape[:2], alpha, np.uint8)]))


def gif() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(GOOD).save(stream, "GIF")
    return stream.getvalue()


REFUSED = {
    "zero_byte": (b"", "empty file"),
    "text": (b"hello", "neither JPEG nor PNG"),
    "signature_only": (png_file.SIGNATURE, "truncated"),
    "truncated": (png(GOOD)[:-40], "truncated"),
    "flipped_bits": (png(GOOD)[:45] + b"\xff\xff\xff" + png(GOOD)[48:], "corrupt"),
    "sixteen_bit": (png(np.full((6, 5), 40000, np.uint16)), "16 bits"),
    "bomb": (header(2**31 - 1, 2**31 - 1) + chunk(b"IDAT", b"x"), "pixels"),
    "zero_width": (header(0, 5), "pixels"),
    "second_header": (
        header(5, 6) + header(60000, 60000)[8:] + png(GOOD)[33:],
        "corrupt",
    ),
    "unknown_colour_type": (header(5, 6, 8, 5), "corrupt PNG header"),
    "animated": (animated(), "animated"),
    "broken_animation": (
        header(5, 6) + chunk(b"acTL", bytes(8)) + png(GOOD)[33:],
        "animated",
    ),
    "transparent": (transparent(10), "transparent"),
    "transparent_palette": (png(GOOD, "P", transparency=bytes(256)), "transparent"),
    "transparent_colour": (png(GOOD, transparency=tuple(GOOD[0, 0].tolist())), "transparent"),
    "gif": (gif(), "neither JPEG nor PNG"),
    "text_bomb": (
        header(5, 6) + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**23))) + png(GOOD)[33:],
        "corrupt",
    ),
    "other_size": (png(GOOD[:, :3]), "where most are"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_one_odd_picture_is_left_out_and_named(tmp_path, kind):
    content, reason = REFUSED[kind]
    write(tmp_path, class_0_example_0=png(GOOD), class_0_example_1=png(GOOD), odd=content)
    examples = load_examples(tmp_path)
    assert examples.names == ("class_0_example_0.png", "class_0_example_1.png")
    assert len(examples.problems) == 1
    assert "odd.png" in examples.problems[0] and reason in examples.problems[0]


@pytest.mark.parametrize("kind", sorted(REFUSED.keys() - {"other_size"}))
def test_only_odd_pictures_is_one_clear_error(tmp_path, kind):
    content, reason = REFUSED[kind]
    write(tmp_path, class_0_example_0=content)
    with pytest.raises(ExamplesError, match=reason):
        load_examples(tmp_path)


CONVERTED = {
    "grayscale": (png(GOOD, "L"), "grayscale"),
    "one_bit": (png(GOOD, "1"), "grayscale"),
    "palette": (png(GOOD, "P"), "palette"),
    "gray_alpha": (png(GOOD, "LA"), "alpha dropped"),
    "opaque_alpha": (transparent(255), "alpha dropped"),
}


@pytest.mark.parametrize("kind", CONVERTED)
def test_convertible_picture_is_used_with_a_note(tmp_path, kind):
    content, note = CONVERTED[kind]
    write(tmp_path, class_0_example_0=png(GOOD), class_0_example_1=content)
    examples = load_examples(tmp_path)
    assert examples.images.shape == (2, 6, 5, 3)
    assert len(examples.problems) == 1 and note in examples.problems[0]


def test_a_class_without_pictures_left_is_named(tmp_path):
    write(tmp_path, class_0_example_0=png(GOOD), class_1_example_0=b"")
    assert any("class 1 has no usable" in line for line in load_examples(tmp_path).problems)


def test_poisoned_examples_are_never_taken_for_clean_ones(tmp_path):
    write(tmp_path, class_0_example_0=png(GOOD), class_0_trigger_1_example_0=png(GOOD))
    assert load_examples(tmp_path).names == ("class_0_example_0.png",)


def test_links_pipes_and_folders_named_png(tmp_path):
    write(tmp_path, class_0_example_0=png(GOOD))
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nothing")
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    examples = load_examples(tmp_path)
    assert len(examples.names) == 1
    text = " ".join(examples.problems)
    assert all(name in text for name in ("loop.png", "gone.png", "folder.png"))
    assert examples_digest(tmp_path) == examples_digest(tmp_path)


def test_missing_and_empty_folders(tmp_path):
    with pytest.raises(ExamplesError, match="cannot read"):
        load_examples(tmp_path / "absent")
    with pytest.raises(ExamplesError, match="no picture in"):
        load_examples(tmp_path)
    with pytest.raises(ExamplesError, match="no picture in"):
        examples_digest(tmp_path)


def test_caps(tmp_path, monkeypatch):
    write(tmp_path, class_0_example_0=png(GOOD), class_0_example_1=png(GOOD))
    monkeypatch.setattr("jaxtroj.rounds.examples.MAX_BATCH_BYTES", 6 * 5 * 3 * 4)
    with pytest.raises(ExamplesError, match="limit per class"):
        load_examples(tmp_path)
    assert len(load_examples(tmp_path, limit_per_class=1).names) == 1
    monkeypatch.setattr(image_file, "MAX_FILE_BYTES", 10)
    with pytest.raises(ExamplesError, match="larger than 10 bytes"):
        load_examples(tmp_path)


def test_digest_follows_names_and_contents_only(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        write(folder, class_0_example_0=png(GOOD))
    (second / "data.csv").write_text("ignored")
    assert examples_digest(first) == examples_digest(second)
    os.rename(second / "class_0_example_0.png", second / "class_1_example_0.png")
    assert examples_digest(first) != examples_digest(second)


@pytest.mark.parametrize(
    "arguments", [{"channel_order": "GBR"}, {"limit_per_class": 0}, {"normalization": "z"}]
)
def test_wrong_arguments(tmp_path, arguments):
    with pytest.raises(ValueError, match="must be"):
        load_examples(tmp_path, **arguments)
