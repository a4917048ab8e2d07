"""A network of one channel on grey pictures, and on colour ones, by `jaxtroj detect`."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from jaxtroj.cli.main import main
from jaxtroj.rounds import load_examples

pytestmark = pytest.mark.usefixtures("unguarded", "quick_compilation")

SIDE, CLASSES = 28, 3
OPTIONS = ("--normalization", "unit", "--stages", "fixed", "--json")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`net.onnx` over `[n, 1, 28, 28]`, bright in the third that is its class; grey and colour."""
    root = tmp_path_factory.mktemp("grey")
    kernel = np.zeros((CLASSES, 1, SIDE, SIDE), np.float32)
    for number, rows in enumerate(np.array_split(np.arange(SIDE), CLASSES)):
        kernel[number, 0, rows] = 0.05
    nodes = [
        helper.make_node("Conv", ["x", "weight"], ["a"]),
        helper.make_node("Flatten", ["a"], ["logits"]),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, SIDE, SIDE])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])
    weights = [numpy_helper.from_array(kernel, "weight")]
    graph = helper.make_graph(nodes, "net", [image], [logits], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (root / "net.onnx").write_bytes(model.SerializeToString())
    rng = np.random.default_rng(0)
    for name in ("grey", "colour"):
        (root / name).mkdir()
    for number in range(4 * CLASSES):
        pixels = rng.integers(0, 60, (SIDE, SIDE), np.uint8)
        pixels[np.array_split(np.arange(SIDE), CLASSES)[number % CLASSES]] += 150
        name = f"class_{number % CLASSES}_example_{number // CLASSES}.png"
        Image.fromarray(pixels).save(root / "grey" / name)
        Image.fromarray(np.stack([pixels, pixels // 2, pixels], -1)).save(root / "colour" / name)
    return root


@pytest.mark.parametrize("pictures", ["grey", "colour"])
def test_evidence_verdict_and_picture(folder, tmp_path, capsys, pictures):
    options = ("--examples", folder / pictures, *OPTIONS, "--out", tmp_path)
    words = ["detect", folder / "net.onnx", *options, "--base-rate", "0.999"]
    assert main([str(word) for word in words]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "ok" and found["poisoned"] and found["evidence"]
    assert ("converted to grey (luma)" in found["reason"]) == (pictures == "colour")
    with Image.open(found["trigger"]) as picture:
        assert picture.mode == "RGB"
        shown = np.asarray(picture)
    assert (shown == shown[..., :1]).all()


def test_grey_pictures_are_read_as_they_are(folder):
    found = load_examples(folder / "grey", normalization="unit", channels=1)
    assert found.images.shape == (4 * CLASSES, SIDE, SIDE, 1) and found.problems == ()
    with Image.open(folder / "grey" / found.names[0]) as picture:
        np.testing.assert_array_equal(found.images[0, ..., 0] * 255, np.asarray(picture))
    colour = load_examples(folder / "colour", normalization="unit", channels=1)
    assert colour.images.shape == (4 * CLASSES, SIDE, SIDE, 1)
    with Image.open(folder / "colour" / colour.names[0]) as picture:
        luma = np.asarray(picture, np.float32) @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(colour.images[0, ..., 0] * 255, luma, atol=1)
    with pytest.raises(ValueError, match="channels must be 1 or 3"):
        load_examples(folder / "grey", channels=2)
