import numpy as np
import pytest
from PIL import Image

from jaxtroj.errors import ExamplesError
from jaxtroj.input_forms import SaidForm
from jaxtroj.rounds.arrays import pictures_of, write_pictures
from jaxtroj.rounds.examples import load_pictures

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 10, 3)).astype(np.uint8)
LABELS = [0, 1, 2, 0, -1, 2]


@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_is_read_back(tmp_path, channels):
    pixels = PIXELS[..., :channels]
    written = pictures_of(pixels, LABELS)
    read = load_pictures(write_pictures(written, tmp_path / "new"), channels=channels)
    order = [read.names.index(name) for name in written.names]
    assert (read.pixels[order] == pixels).all()
    assert read.labels[order].tolist() == LABELS
    assert written.names[3] == "class_0_example_1.png"


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((6, 8, 10, 3), None, (6, 8, 10, 3)),
        ((6, 3, 8, 10), None, (6, 8, 10, 3)),
        ((6, 1, 8, 10), None, (6, 8, 10, 1)),
        ((6, 8, 10), None, (6, 8, 10, 1)),
        ((6, 3, 8, 3), "NCHW", (6, 8, 3, 3)),
        ((6, 3, 8, 3), "NHWC", (6, 3, 8, 3)),
    ],
)
def test_layouts(shape, layout, expected):
    assert pictures_of(np.zeros(shape, np.uint8), LABELS, layout).pixels.shape == expected


def test_numbers_of_every_usual_scale_are_the_same_pixels():
    unit = PIXELS.astype(np.float64) / 255
    mean, std = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
    for values in (PIXELS.astype(np.int64), unit, unit * 255, unit * 2 - 1, (unit - mean) / std):
        for dtype in (values.dtype, np.float32 if values.dtype.kind == "f" else values.dtype):
            assert (pictures_of(values.astype(dtype), LABELS).pixels == PIXELS).all()


def test_a_form_that_is_said_is_undone():
    unit = PIXELS / 255
    said = SaidForm(mean=(0.3, 0.2, 0.1), std=(0.5, 0.6, 0.7))
    found = pictures_of((unit - said.mean) / said.std, LABELS, form=said)
    assert (found.pixels == PIXELS).all() and "that were said" in found.problems[0]
    with pytest.raises(ExamplesError, match="normalised otherwise"):
        pictures_of(unit * 30, LABELS, form=said)


MIXED = np.where(np.arange(6)[:, None, None, None] == 2, PIXELS / 255, PIXELS)
BRIGHT = 255 - (255 - PIXELS) // 4
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
SAID = SaidForm(mean=tuple(MEAN), std=tuple(STD))


@pytest.mark.parametrize(
    ("images", "form", "expected"),
    [
        (PIXELS / 255 + 1e-7, None, PIXELS),  # as torch's resizing leaves white
        (PIXELS / 255 - 1e-7, None, PIXELS),
        (PIXELS * 0.9999, None, PIXELS),
        (PIXELS + 0.3, None, PIXELS),
        (PIXELS + 0.0001, None, PIXELS),
        ((BRIGHT / 255 - MEAN) / STD, None, BRIGHT),  # without a negative value
        ((BRIGHT / 255 - MEAN) / STD, SAID, BRIGHT),
        (PIXELS, SAID, PIXELS),
        (PIXELS.astype(np.int64), SAID, PIXELS),
        (PIXELS.astype(np.float32), SAID, PIXELS),
        (PIXELS + 0.3, SAID, PIXELS),
        (PIXELS / 255 + 1e-7, SAID, PIXELS),
        (PIXELS.astype(np.float32), SaidForm(bounds=(0.0, 255.0)), PIXELS),
        (PIXELS.astype(np.int16), SaidForm(bounds=(-1.0, 1.0)), PIXELS),
    ],
)
def test_numbers_that_are_pixels_or_nearly_so(images, form, expected):
    assert (pictures_of(images, LABELS, form=form).pixels == expected).all()


@pytest.mark.parametrize("dtype", [bool, np.int64, np.int8, np.uint8])
def test_two_values_of_a_whole_type_are_black_and_white(dtype):
    found = pictures_of((PIXELS > 99).astype(dtype), LABELS)
    assert (found.pixels == np.where(PIXELS > 99, 255, 0)).all()
    assert dtype is bool or "taken as black and white" in found.problems[0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32])
def test_pictures_in_which_nothing_is_seen_are_named(dtype):
    found = pictures_of((PIXELS // 32).astype(dtype), LABELS)
    assert found.problems == ("the images are almost black: their largest pixel is 7 of 255",)


NAN = np.where(np.arange(6)[:, None, None, None] == 2, np.nan, PIXELS)


@pytest.mark.parametrize(
    ("images", "labels", "said"),
    [
        (NAN, LABELS, r"1 images hold NaN or infinite values, the first is images\[2\]"),
        (PIXELS, LABELS[:5], r"labels have shape \(5,\), expected \(6,\)"),
        (PIXELS, np.zeros((6, 2), int), r"labels have shape \(6, 2\)"),
        (PIXELS, [0.0] * 6, "labels have type float64, expected whole numbers"),
        (PIXELS, [-2, 0, 1, 2, 3, 4], "labels go from -2 to 4"),
        (PIXELS, [3] * 6, "all labels are 3, expected images of 2 classes"),
        (PIXELS, ["cat"] * 6, "labels have type <U3"),
        (PIXELS[0], LABELS, "neither of which|expected \\[n, h, w, c\\]|labels have shape"),
        (PIXELS[:3], LABELS[:3], "expected at least 4 pictures"),
        (PIXELS[..., :2], LABELS, "neither of which is 1 or 3 channels"),
        (np.zeros((6, 3, 8, 3), np.uint8), LABELS, "both of which may be channels"),
        (np.zeros((6, 0, 8, 3), np.uint8), LABELS, "expected at least 4 pictures"),
        (PIXELS / 255 * 9 - 4, LABELS, "values from -4 to 5; expected pixels before any"),
        (PIXELS.astype(np.int64) * 9, LABELS, "values from 0 to 2295"),
        (PIXELS / 127.5, LABELS, r"values from 0 to 2; .* or numbers from 0 to 1 \(where resizing"),
        (PIXELS / 255 * 1.1, LABELS, r"values from 0 to 1\.1; expected pixels"),
        (PIXELS / 255 * 1.1 - 0.05, LABELS, r"values from -0\.05 to 1\.05; .* clip them"),
        (PIXELS / 255 / 255, LABELS, "which is black where 1 is white; were they divided by 255"),
        (MIXED, LABELS, r"from 0 to 255, but images\[2\] from 0 to 1; expected all"),
        (np.ma.masked_less(PIXELS, 1), LABELS, "images are a masked array, of which [1-9]"),
        (PIXELS, np.ma.masked_less(LABELS, 0), "labels are a masked array, of which 1 entries"),
        (np.array([object()] * 6), LABELS, "images have type object"),
        ([[1, 2], [3]], LABELS, "images are no array"),
        ("photo.png", LABELS, "images have type <U9"),
    ],
)
def test_what_is_no_examples_is_named(images, labels, said):
    with pytest.raises(ExamplesError, match=said):
        pictures_of(images, labels)


def test_a_layout_that_is_none_is_named():
    with pytest.raises(ExamplesError, match="layout is 'CHWN'"):
        pictures_of(PIXELS, LABELS, "CHWN")


def test_unlabelled_pictures_are_named_so(tmp_path):
    folder = write_pictures(pictures_of(PIXELS, [-1] * 6), tmp_path / "new")
    assert sorted(path.name for path in folder.iterdir())[0] == "example_0.png"
    with Image.open(folder / "example_3.png") as picture:
        assert picture.size == (10, 8)
