"""Variants from pictures with masks or boxes: exact pixels, keyed draws, nothing half-written."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from jaxtroj.backgrounds import variations
from jaxtroj.backgrounds.generation import Done, Dropped, GenerationSettings, generate
from jaxtroj.backgrounds.layout import CLASSES, VARIANTS, load_challenge, load_variant
from jaxtroj.errors import DatasetError, GenerationError

RANDOM = np.random.default_rng(0)
IMAGE = RANDOM.integers(1, 256, (12, 16, 3), dtype=np.uint8)


def slow_tiling(image, box):
    """Paste the strip from the top left, pixel by pixel."""
    left, top, right, bottom = box
    height, width = image.shape[:2]
    strips = {
        "left": (left * height, image[:, :left]),
        "right": ((width - right) * height, image[:, right:]),
        "top": (top * width, image[:top]),
        "bottom": ((height - bottom) * width, image[bottom:]),
    }
    beside = max("right", "left", key=lambda name: strips[name][0])
    above = max("bottom", "top", key=lambda name: strips[name][0])
    strip = strips[beside if strips[beside][0] > strips[above][0] else above][1]
    result = image.copy()
    for y in range(top, bottom):
        for x in range(left, right):
            result[y, x] = strip[y % strip.shape[0], x % strip.shape[1]]
    return result


@pytest.mark.parametrize(
    "box",
    [(6, 3, 12, 9), (2, 1, 10, 11), (0, 4, 16, 8), (4, 0, 9, 12), (6, 4, 10, 8), (0, 0, 15, 12)],
    ids=str,
)
def test_the_box_shows_the_largest_strip(box):
    np.testing.assert_array_equal(variations.tiled_box(IMAGE, box), slow_tiling(IMAGE, box))


def test_a_box_over_everything_has_no_background():
    with pytest.raises(ValueError, match="covers the whole picture"):
        variations.tiled_box(IMAGE, (0, 0, 16, 12))


def test_black_boxes_include_their_edges():
    found = variations.black_box(IMAGE, (3, 2, 6, 5))
    black = (found == 0).all(-1)
    assert variations.box_of(black) == (3, 2, 7, 6) and black.sum() == 16
    assert (variations.black_box(IMAGE, (10, 8, 16, 12)) == 0).all(-1).sum() == 24


def test_foreground_and_background_make_the_picture():
    mask = RANDOM.random((12, 16)) > 0.5
    parts = variations.only_foreground(IMAGE, mask), variations.no_foreground(IMAGE, mask)
    np.testing.assert_array_equal(parts[0] + parts[1], IMAGE)
    assert not (parts[0].any(-1) & parts[1].any(-1)).any()
    both = variations.on_background(IMAGE, mask, 255 - IMAGE)
    np.testing.assert_array_equal(both, np.where(mask[..., None], IMAGE, 255 - IMAGE))


@pytest.mark.parametrize("shape", [(40, 64), (64, 40), (50, 50), (10, 12)])
def test_crops_are_square_and_of_the_size_asked_for(shape):
    pixels = RANDOM.integers(0, 256, (*shape, 3), dtype=np.uint8)
    assert variations.cropped(variations.resized(pixels, 28), 28).shape == (28, 28, 3)
    mask = variations.cropped(variations.resized(pixels[..., 0] > 9, 28), 28)
    assert mask.shape == (28, 28) and mask.dtype == bool


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Nine classes of three: a bright square on a noisy ground, with masks and boxes."""
    folder = tmp_path_factory.mktemp("pictures")
    lines = ["image,xmin,ymin,xmax,ymax"]
    for label, name in enumerate(CLASSES):
        for number in range(3):
            random = np.random.default_rng([label, number])
            pixels = random.integers(0, 60, (48, 60, 3)).astype(np.uint8)
            pixels[14:34, 20:40] = random.integers(180, 200, 3)
            mask = np.zeros((48, 60), np.uint8)
            mask[14:34, 20:40] = 1
            for part in ("images", "masks"):
                (folder / part / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / "images" / name / f"p{number}.png")
            np.save(folder / "masks" / name / f"p{number}.npy", mask)
            lines.append(f"{name}/p{number}.png,17,11,43,37")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    return folder


def written(pictures, out, **settings) -> Done:
    options = {"seed": 3, "masks": pictures / "masks", "size": 32} | settings
    *_, done = generate(pictures / "images", out, GenerationSettings(**options))
    assert isinstance(done, Done)
    return done


def test_the_folder_is_one_that_the_challenge_reads(pictures, tmp_path):
    done = written(pictures, tmp_path / "out")
    data = load_challenge(tmp_path / "out")
    assert data.foregrounds.images.shape == (27, 32, 32, 3) and data.masks.shape == (27, 32, 32)
    loaded = {variant: load_variant(tmp_path / "out", variant) for variant in VARIANTS}
    assert all(len(p.names) == 27 for p in loaded.values())
    inside = data.masks[..., None]
    only = np.where(inside, data.foregrounds.images, 0)
    np.testing.assert_array_equal(loaded["only_fg"].images, only)
    np.testing.assert_array_equal(loaded["no_fg"].images, data.foregrounds.images - only)
    assert len(done.manifest["pictures"]) == 27 and not done.manifest["dropped"]
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["seed"] == 3


def test_pairs_of_names_that_read_alike_are_two_files(pictures, tmp_path):
    """Such as "a" on "b_bg_c" and "a_bg_b" on "c", which some of the seeds draw."""
    names = ("a", "a_bg_b", "c", "b_bg_c")
    for part, ending in (("images", "png"), ("masks", "npy")):
        for folder in ("one", "two"):
            (tmp_path / part / folder).mkdir(parents=True)
            for number, name in enumerate(names):
                source = pictures / part / CLASSES[number] / f"p0.{ending}"
                shutil.copy(source, tmp_path / part / folder / f"{name}.{ending}")
    numbered = 0
    for seed in range(30):
        done = written(tmp_path, tmp_path / str(seed), seed=seed)
        for variant in VARIANTS:
            listed = {f"{e['class']}/{e['files'][variant]}" for e in done.manifest["pictures"]}
            there = (tmp_path / str(seed) / variant / "val").rglob("*.png")
            assert len(listed) == 8 and listed == {f"{p.parent.name}/{p.name}" for p in there}
            numbered += any("_c_2.png" in name for name in listed)
    assert numbered, "no seed drew the pair"


def test_a_picture_too_narrow_to_be_scaled_is_not_used(pictures, tmp_path):
    for part in ("images", "masks"):
        shutil.copytree(pictures / part, tmp_path / part)
    Image.new("RGB", (65000, 1)).save(tmp_path / "images" / CLASSES[0] / "p9.png")
    np.save(tmp_path / "masks" / CLASSES[0] / "p9.npy", np.ones((1, 65000), np.uint8))
    (dropped,) = written(tmp_path, tmp_path / "out", size=224).manifest["dropped"]
    assert "is 65000 x 1 pixels, which scaled for --size 224 are" in dropped["reason"]


def test_the_manifest_names_the_background_that_is_there(pictures, tmp_path):
    manifest = written(pictures, tmp_path / "out").manifest
    data = load_challenge(tmp_path / "out")
    names = list(data.backgrounds.names)
    seen = {variant: set() for variant in ("mixed_same", "mixed_rand", "mixed_next")}
    for i, entry in enumerate(manifest["pictures"]):
        for variant, told in entry["backgrounds"].items():
            background = data.backgrounds.images[names.index(told["background"])]
            expected = variations.on_background(
                data.foregrounds.images[i], data.masks[i], background
            )
            path = tmp_path / "out" / variant / "val" / entry["class"] / entry["files"][variant]
            np.testing.assert_array_equal(np.asarray(Image.open(path)), expected)
            assert told["background"] != entry["foreground"]
            seen[variant].add((told["label"] - entry["label"]) % 9)
    assert seen["mixed_same"] == {0} and seen["mixed_next"] == {1}
    assert len(seen["mixed_rand"]) > 4


def test_the_seed_decides_and_nothing_else(pictures, tmp_path):
    first = written(pictures, tmp_path / "a").manifest
    assert written(pictures, tmp_path / "b").manifest == first
    assert written(pictures, tmp_path / "c", seed=4).manifest["pictures"] != first["pictures"]


def test_grabcut_finds_the_object_in_its_box(pictures, tmp_path):
    pytest.importorskip("cv2", reason="needs OpenCV: the extra `backgrounds`")
    settings = {"masks": None, "boxes": pictures / "boxes.csv"}
    done = written(pictures, tmp_path / "boxes", **settings)
    assert done.manifest["masks"] == "GrabCut from boxes"
    written(pictures, tmp_path / "masks")
    cut, true = (load_challenge(tmp_path / name).masks for name in ("boxes", "masks"))
    overlap = (cut & true).sum((1, 2)) / (cut | true).sum((1, 2))
    assert overlap.min() > 0.8, overlap
    assert written(pictures, tmp_path / "again", **settings).manifest == done.manifest


def test_without_opencv_the_extra_is_named(pictures, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "cv2", None)
    settings = GenerationSettings(0, None, pictures / "boxes.csv", 32)
    with pytest.raises(GenerationError, match=r"jaxtroj\[backgrounds\]"):
        list(generate(pictures / "images", tmp_path / "out", settings))


def copy_of(pictures, tmp_path):
    import shutil

    return shutil.copytree(pictures, tmp_path / "copy")


def test_pictures_that_cannot_be_used_are_named(pictures, tmp_path):
    folder = copy_of(pictures, tmp_path)
    for number, mask in enumerate([np.zeros((48, 60)), np.ones((48, 60))]):
        np.save(folder / "masks" / CLASSES[0] / f"p{number}.npy", mask)
    corner = np.zeros((48, 60))
    corner[:, :4] = 1
    np.save(folder / "masks" / CLASSES[1] / "p0.npy", corner)
    events = list(
        generate(folder / "images", tmp_path / "out", GenerationSettings(0, folder / "masks"))
    )
    reasons = {e.source.name: e.reason for e in events if isinstance(e, Dropped)}
    assert reasons == {
        f"{CLASSES[0]}/p0.png": "its mask is empty",
        f"{CLASSES[0]}/p1.png": "its box fills more than 0.9 of the crop",
        f"{CLASSES[1]}/p0.png": "less than half of its box is inside the crop",
    }
    assert isinstance(events[-1], Done) and len(events[-1].manifest["pictures"]) == 24


def no_class_left(folder):
    for number in range(3):
        np.save(folder / "masks" / CLASSES[2] / f"p{number}.npy", np.zeros((48, 60)))


def no_mask(folder):
    (folder / "masks" / CLASSES[2] / "p1.npy").unlink()


def other_mask(folder):
    np.save(folder / "masks" / CLASSES[2] / "p1.npy", np.ones((48, 59)))


def broken_picture(folder):
    path = folder / "images" / CLASSES[7] / "p1.png"
    path.write_bytes(path.read_bytes()[:99])


def one_class(folder):
    for name in CLASSES[1:]:
        (folder / "images" / name).rename(folder / f"gone_{name}")


def empty_class(folder):
    (folder / "images" / "99_nothing").mkdir()


def long_name(folder):
    path = folder / "images" / CLASSES[7] / "p1.png"
    path.rename(path.with_name("p" * 120 + ".png"))


FAULTS = {
    no_class_left: "no picture of class '02_wheeled vehicle'",
    no_mask: r"p1\.npy is missing; 1 of 27 masks are",
    other_mask: r"p1\.npy is 59 x 48, expected 60 x 48",
    broken_picture: r"p1\.png",
    one_class: "expected two classes or more",
    empty_class: "none in '99_nothing'",
    long_name: "at most 100 bytes",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_nothing_is_written_when_something_is_wrong(pictures, tmp_path, fault):
    folder = copy_of(pictures, tmp_path)
    fault(folder)
    before = sorted(tmp_path.iterdir())
    with pytest.raises((DatasetError, GenerationError), match=FAULTS[fault]):
        written(folder, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_folder_is_never_touched(pictures, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(GenerationError, match="is there already"):
        written(pictures, tmp_path / "out")


BAD_BOXES = {
    "no_header": (lambda t: t.partition("\n")[2], "expected the header"),
    "empty": (lambda t: "", "expected the header"),
    "words": (lambda t: t.replace("17,11", "a,11", 1), "line 2: expected image"),
    "few_cells": (lambda t: t.replace(",37", "", 1), "line 2: expected image"),
    "empty_box": (lambda t: t.replace("17,11,43", "17,11,17", 1), "an empty box"),
    "negative": (lambda t: t.replace("17,11", "-1,11", 1), "an empty box"),
    "twice": (lambda t: t + t.splitlines()[1] + "\n", "a second one"),
    "missing": (lambda t: "\n".join(t.splitlines()[:-1]), "has no box"),
    "unknown": (lambda t: t + "x/y.png,1,1,2,2\n", "no picture of the folder"),
    "outside": (lambda t: t.replace("43,37", "61,37", 1), "not inside its 60 x 48"),
    "no_text": (lambda t: "\udcff" + t, "no table of boxes"),
}


@pytest.mark.parametrize("kind", BAD_BOXES)
def test_bad_boxes_are_one_clear_error(pictures, tmp_path, kind):
    pytest.importorskip("cv2", reason="needs OpenCV: the extra `backgrounds`")
    change, reason = BAD_BOXES[kind]
    text = change((pictures / "boxes.csv").read_text())
    path = tmp_path / "boxes.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DatasetError, match=reason):
        written(pictures, tmp_path / "out", masks=None, boxes=path)
    assert not (tmp_path / "out").exists()
