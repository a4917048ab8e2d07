"""JPEG example pictures: as Pillow reads them, and every odd file that a folder may hold."""

import io
import struct
import time

import numpy as np
import pytest
from PIL import Image

from jaxtroj.rounds import image_file, jpeg_file
from jaxtroj.rounds.examples import examples_digest, load_examples, load_pictures, usual_size
from jaxtroj.rounds.image_file import ImageFileError, read_grey, read_header, read_rgb

GOOD = np.random.default_rng(0).integers(5, 200, (24, 20, 3), dtype=np.uint8)
PLAIN = (0xC0, 0xC1, 0xC2)


def jpeg(mode: str = "RGB", kind: str = "JPEG", **options) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(GOOD).convert(mode).save(stream, kind, **options)
    return stream.getvalue()


def shown(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def with_segments(*segments: bytes, content: bytes = jpeg()) -> bytes:
    """A picture with segments put in front of all others."""
    return content[:2] + b"".join(segments) + content[2:]


def changed(content: bytes, offset: int, new: bytes) -> bytes:
    """A picture with other bytes in its frame header: 2 the length, 4 bits, 5 size, 9 channels."""
    at = next(content.index(bytes((0xFF, marker))) for marker in PLAIN if
              bytes((0xFF, marker)) in content) + offset  # fmt: skip
    return content[:at] + new + content[at + len(new) :]


def turned() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by a quarter
    return jpeg(exif=exif)


def several() -> bytes:
    others = [Image.fromarray(255 - GOOD)]
    return jpeg(kind="MPO", save_all=True, append_images=others)


def scans(count: int) -> bytes:
    """A progressive picture whose last scan is said many times over."""
    content = jpeg(progressive=True)
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * count + b"\xff\xd9"


READ = {
    "baseline": jpeg(),
    "progressive": jpeg(progressive=True),
    "no_subsampling": jpeg(subsampling=0),
    "kept_as_rgb": jpeg(keep_rgb=True),
    "with_a_profile": jpeg(icc_profile=bytes(200_000)),
    "filled_up": with_segments(b"\xff\xff\xff" + segment(0xFE, b"comment")[1:]),
    "restarts": jpeg(restart_marker_blocks=1),
    "scans_in_a_note": with_segments(segment(0xE2, b"\xff\xda" * 300)),
    "something_behind": jpeg() + b"trailer",
    "turned": turned(),
    "adobe": jpeg(keep_rgb=True, comment=b"a comment"),
}


@pytest.mark.parametrize("kind", READ)
def test_pixels_are_as_they_lie_in_the_file(tmp_path, kind):
    path = tmp_path / "class_0_example_0.jpg"
    path.write_bytes(READ[kind])
    pixels, note = read_rgb(path)
    np.testing.assert_array_equal(pixels, shown(READ[kind]))
    assert note is None and pixels.shape == GOOD.shape and read_header(path).height == 24


REFUSED = {
    "start_only": (jpeg()[:3], "truncated JPEG"),
    "zeros": (b"\xff\xd8\xff\xe0" + bytes(10), "corrupt JPEG header"),
    "truncated_header": (jpeg()[:30], "truncated JPEG"),
    "truncated": (jpeg()[:-300], "truncated JPEG"),
    "no_scan": (jpeg()[: jpeg().index(b"\xff\xda")], "truncated JPEG"),
    "no_frame": (b"\xff\xd8" + segment(0xDA, bytes(10)), "no header before the pixels"),
    "short_frame": (b"\xff\xd8" + segment(0xC0, b"\x08") + segment(0xDA, b""), "corrupt JPEG"),
    "junk_between": (with_segments(segment(0xFE, b"") + bytes(3)), "corrupt JPEG header"),
    "end_first": (b"\xff\xd8\xff\xd9" + bytes(20), "corrupt JPEG header"),
    "cmyk": (jpeg("CMYK"), "CMYK, expected RGB"),
    "two_channels": (changed(jpeg(), 9, b"\x02"), "2 channels, expected"),
    "other_channels": (changed(jpeg(), 9, b"\x01"), "corrupt or truncated JPEG"),
    "twelve_bits": (changed(jpeg(), 4, b"\x0c"), "12 bits"),
    "lossless": (changed(jpeg(), 1, b"\xc3"), "coding SOF3"),
    "bomb": (changed(jpeg(), 5, struct.pack(">HH", 65535, 65535)), "65535 x 65535 pixels"),
    "just_too_large": (changed(jpeg(), 5, struct.pack(">HH", 4097, 4096)), "4096 x 4097 pixels"),
    "no_height": (changed(jpeg(), 5, struct.pack(">HH", 0, 20)), "20 x 0 pixels"),
    "two_headers": (with_segments(segment(0xC0, jpeg_file._FRAME.pack(8, 4, 4, 3))), "two headers"),
    "several_pictures": (several(), "several pictures"),
    "one_of_several": (with_segments(segment(0xE2, b"MPF\0" + bytes(80))), "several pictures"),
    "many_segments": (with_segments(*[segment(0xFE, b"")] * 1000), "more than 1000 segments"),
    "many_scans": (scans(300), "scans, expected at most 256"),
    "no_tables": (jpeg().replace(b"\xff\xdb", b"\xff\xfe"), "corrupt or truncated JPEG"),
    "only_a_start": (b"\xff\xd8\xff" + bytes(9), "corrupt JPEG header"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_one_odd_picture_is_left_out_and_named(tmp_path, kind):
    content, reason = REFUSED[kind]
    (tmp_path / "class_0_example_0.jpg").write_bytes(jpeg())
    (tmp_path / "class_0_example_1.JPEG").write_bytes(jpeg())
    (tmp_path / "odd.jpeg").write_bytes(content)
    examples = load_examples(tmp_path)
    assert examples.names == ("class_0_example_0.jpg", "class_0_example_1.JPEG")
    assert len(examples.problems) == 1
    assert "odd.jpeg" in examples.problems[0] and reason in examples.problems[0]


@pytest.mark.parametrize("kind", ["progressive", "turned", "adobe"])
def test_any_cut_and_any_changed_byte_is_read_or_refused(tmp_path, kind):
    """Without a warning, too: those of Pillow on EXIF would be errors here."""
    path, whole = tmp_path / "a.jpg", READ[kind]
    draw = np.random.default_rng(1)
    for place in range(0, len(whole), 3):
        flipped = bytearray(whole)
        flipped[place] = draw.integers(256)
        for content in (whole[:place], bytes(flipped)):
            path.write_bytes(content)
            try:
                read_rgb(path)
            except ImageFileError as error:
                assert "0x" not in str(error)  # no address, which would differ in every run


def test_grayscale_is_converted_with_a_note_or_read_as_it_is(tmp_path):
    path = tmp_path / "class_0_example_0.jpg"
    path.write_bytes(jpeg("L"))
    assert read_rgb(path)[1] == "grayscale converted to RGB"
    grey, note = read_grey(path)
    assert note is None and grey.shape == (24, 20, 1)
    np.testing.assert_array_equal(grey[..., 0], np.asarray(Image.open(path)))


def test_the_content_says_the_format_not_the_name(tmp_path):
    (tmp_path / "class_0_example_0.jpg").write_bytes(jpeg(kind="PNG"))
    (tmp_path / "class_0_example_0.png").write_bytes(jpeg())
    pictures = load_pictures(tmp_path)
    assert pictures.names == ("class_0_example_0.jpg", "class_0_example_0.png")
    np.testing.assert_array_equal(pictures.pixels, [GOOD, shown(jpeg())])
    assert pictures.labels.tolist() == [0, 0] and not pictures.problems


def test_names_of_both_formats_have_labels_and_count_for_the_digest(tmp_path):
    for name in ("class_3_example_10.JPG", "class_3_example_9.png", "class_12_example_0.jpeg"):
        (tmp_path / name).write_bytes(jpeg())
    (tmp_path / "class_1_trigger_2_example_0.jpg").write_bytes(jpeg())
    (tmp_path / "photo.jpg").write_bytes(jpeg())
    pictures, before = load_pictures(tmp_path), examples_digest(tmp_path)
    assert pictures.labels.tolist() == [3, 3, 12, -1]
    assert pictures.names[0] == "class_3_example_9.png" and usual_size(tmp_path) == (24, 20)
    assert "named as a poisoned example" in pictures.problems[0]
    (tmp_path / "class_12_example_0.jpeg").write_bytes(jpeg(quality=20))
    assert examples_digest(tmp_path) != before


def test_class_folders_hold_either(tmp_path):
    for folder, name in (("cat", "n1.JPEG"), ("dog", "1.png")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_bytes(jpeg())
    assert load_pictures(tmp_path).names == ("cat/n1.JPEG", "dog/1.png")


def test_caps_on_bytes_and_time(tmp_path, monkeypatch):
    path = tmp_path / "a.jpg"
    path.write_bytes(scans(200))
    started = time.perf_counter()
    read_rgb(path)
    assert time.perf_counter() - started < 5
    monkeypatch.setattr(image_file, "MAX_FILE_BYTES", 10)
    with pytest.raises(ImageFileError, match="larger than 10 bytes"):
        read_rgb(path)
