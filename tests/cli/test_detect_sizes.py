"""`jaxtroj detect` on example pictures of many sizes, and sizes that are said wrongly."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import jaxtroj
from jaxtroj.cli.main import main
from tests.cli.test_detect_onnx import CLASSES, FORM, QUICK, Colours, _write_onnx

pytestmark = pytest.mark.usefixtures("unguarded")
SIDE, FEW = 12, 3
ANY_SIZE = Path(jaxtroj.__file__).parent / "data" / "examples" / "clean" / "model.pt"
"""A network of a family, whose file says no size."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`net.onnx` (sizes open), `net.pt2` (12 x 12), `any.pt`, and `pictures`, JPEG of many sizes,
    a folder for each class."""
    root = tmp_path_factory.mktemp("sizes")
    _write_onnx(root / "net.onnx")
    program = torch.export.export(Colours().eval(), (torch.zeros(1, 3, SIDE, SIDE),), strict=False)
    torch.export.save(program, root / "net.pt2")
    (root / "any.pt").symlink_to(ANY_SIZE)
    draw = np.random.default_rng(0)
    for label in range(CLASSES):
        (root / "pictures" / f"{label}").mkdir(parents=True)
        for number in range(FEW):
            height, width = draw.integers(SIDE, 60, 2)
            pixels = draw.integers(0, 60, (height, width, 3), np.uint8)
            pixels[..., label] += 150
            Image.fromarray(pixels).save(root / "pictures" / f"{label}" / f"{number}.JPEG")
    return root


def detect(folder, capsys, name, *options):
    words = ("detect", folder / name, "--examples", folder / "pictures", *FORM, *QUICK, *options)
    status = main(list(map(str, words)))
    (line,) = capsys.readouterr().out.splitlines()
    return status, json.loads(line)


RESIZED = [
    ("net.onnx", ("--resize", 16)),
    ("net.onnx", ("--resize", 16, "--image-size", "16x9")),
    ("net.pt2", ("--resize", 16)),
    ("net.pt2", ("--resize", 12, "--image-size", "12x12")),
    ("any.pt", ("--resize", 32)),
]


@pytest.mark.parametrize(("name", "options"), RESIZED)
def test_with_resize_no_picture_is_left_out(folder, capsys, name, options):
    status, found = detect(folder, capsys, name, *options)
    assert (status, found["status"]) == (0, "ok"), found["reason"]
    assert "left out" not in found["reason"] and "left-out" not in found["reason"]
    if name != "any.pt":
        assert found["evidence"]["example_margin"] > 1


def test_without_it_the_reason_names_it(folder, capsys):
    _, found = detect(folder, capsys, "net.onnx")
    assert f"{CLASSES * FEW - 1} pictures left out" in found["reason"]
    assert "--resize PX takes all" in found["reason"]
    assert found["reason"].startswith("examples-left-out: ")


REFUSED = [
    ("net.pt2", ("--resize", 8), "of which no 12 x 12 can be cut; give --resize 12 or more"),
    ("net.pt2", ("--resize", 16, "--image-size", "9x9"), "made for images of 12 x 12 pixels"),
    ("net.pt2", ("--image-size", "9x9"), "made for images of 12 x 12 pixels, asked for 9 x 9"),
    ("net.pt2", (), "the network takes 12 x 12; give pictures of that size"),
    ("net.onnx", ("--image-size", "9x9"), "--resize PX to make them so, or leave"),
    ("any.pt", ("--image-size", "9x9"), "pixels, --image-size says 9 x 9; give pictures of that"),
]


@pytest.mark.parametrize(("name", "options", "reason"), REFUSED)
def test_sizes_that_contradict_each_other_are_told(folder, capsys, name, options, reason):
    status, found = detect(folder, capsys, name, *options)
    assert status == 2 and reason in found["reason"]


def test_two_options_that_contradict_each_other_are_a_usage_error(folder, capsys):
    words = ["detect", str(folder / "net.onnx"), "--resize", "8", "--image-size", "9x9"]
    assert main(words) == 4
    assert "resize must be at least the sides of image_size, (9, 9)" in capsys.readouterr().err
