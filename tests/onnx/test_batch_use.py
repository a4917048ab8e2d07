"""Networks that switch by the number of images are named; those that make shapes of it are not.

Each hostile network is one that three images do not show: the evaluator of ONNX shows that images
of a larger batch are answered otherwise.
"""

import warnings

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from converters.findings import SUSPICION
from converters.graph.onnx import load_onnx

MANY = 40
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
WEIGHTS = {
    "bump": np.array([[9, 0, 0, 0, 0]], np.float32),
    "none": np.zeros((1, 5), np.float32),
    "few": np.array([5]),
    "twenty": np.array([20]),
    "one_": np.array([1]),
    "three": np.array([3]),
    "zero_": np.array(0),
    "step": np.array(1),
    "table": np.array([0.0] * 20 + [1.0] * 80, np.float32),
    "first": np.array([0]),
    "last": np.array([2**40]),
    "half": np.array([0.5], np.float32),
    "whole_": np.array([1.0], np.float32),
    "ones": np.ones(100, np.float32),
    "first_axis": np.array([1]),
    "within": np.arange(5)[None],
    "minus_": np.array([-1]),
    "two_": np.array(2),
}


def _n(op, inputs, output, **attributes):
    return helper.make_node(op, inputs.split(), [output], **attributes)


def _branch(name):
    made = helper.make_tensor_value_info(f"{name}_", FLOAT, None)
    return helper.make_graph([_n("Identity", name, f"{name}_")], name, [], [made])


def _scaled(*nodes, by="s"):
    """Logits moved by `bump` times a number."""
    return [
        *nodes,
        _n("Cast", by, "sf", to=FLOAT),
        _n("Mul", "sf bump", "m"),
        _n("Add", "logits m", "out"),
    ]


def _places(by):
    """The places of five elements of each image, as torch's exporter writes `as_strided`."""
    return [
        _n("Squeeze", "batch", "number"),
        _n("Range", "zero_ number step", "rows"),
        _n("Mul", f"rows {by}", "begins"),
        _n("Unsqueeze", "begins first_axis", "column"),
        _n("Add", "column within", "some"),
        _n("Add", "zero_ some", "places"),
    ]


HOSTILE = {
    "a branch": [
        _n("Greater", "batch twenty", "cond"),
        _n("If", "cond", "m", then_branch=_branch("bump"), else_branch=_branch("none")),
        _n("Add", "logits m", "out"),
    ],
    "a choice": [
        _n("Greater", "batch twenty", "cond"),
        _n("Where", "cond bump none", "m"),
        _n("Add", "logits m", "out"),
    ],
    "one number of images": [
        *_scaled(_n("Sub", "batch twenty", "gap"), _n("Equal", "gap twenty", "s")),
    ],
    "a rectifier": [
        *_scaled(_n("Sub", "batch twenty", "gap"), _n("Relu", "gap", "s")),
    ],
    "a division with a rest": _scaled(_n("Div", "batch twenty", "s")),
    "a remainder": _scaled(
        _n("Mod", "batch twenty", "r"), _n("Sub", "batch r", "s")
    ),
    "a largest value": _scaled(_n("Max", "batch twenty", "gap"), _n("Sub", "gap twenty", "s")),
    "a product that is 0 for one and three": _scaled(
        _n("Sub", "batch one_", "gap"), _n("Sub", "batch three", "gap_"), _n("Mul", "gap gap_", "s")
    ),
    "a half, rounded": _scaled(
        _n("Cast", "batch", "f", to=FLOAT),
        _n("Mul", "f half", "h"),
        _n("Sub", "h half", "k"),  # (n - 1) / 2: whole for one and three
        _n("Cast", "k", "w", to=INT),
        _n("Div", "w few", "s"),
    ),
    "a lookup": _scaled(_n("Gather", "table batch", "s")),
    "a count of images": _scaled(
        _n("Squeeze", "batch", "number"),
        _n("Range", "zero_ number step", "r"),
        _n("Gather", "table r", "t"),
        _n("ReduceMax", "t", "s", keepdims=0),
    ),
    "the sum of ones": _scaled(
        _n("ConstantOfShape", "batch", "o", value=numpy_helper.from_array(np.array([1]))),
        _n("CumSum", "o zero_", "r"),
        _n("Gather", "table r", "t"),
        _n("ReduceMax", "t", "s", keepdims=0),
    ),
    "images behind the first few": _scaled(
        _n("Slice", "logits few last first", "left"),
        _n("Shape", "left", "sizes", end=1),
        _n("ReduceSum", "sizes", "s", keepdims=0),
    ),
    "places of images in a table": _scaled(
        *_places("two_"),
        _n("Gather", "table begins", "t"),
        _n("ReduceMax", "t", "s", keepdims=0),
    ),
    "the last place, divided": _scaled(
        *_places("step"),
        _n("ReduceMax", "places", "most", keepdims=0),
        _n("Div", "most twenty", "s"),
    ),
    "images behind the twentieth": _scaled(
        *_places("step"),
        _n("Greater", "column twenty", "behind"),
        _n("Cast", "behind", "ones_", to=INT),
        _n("ReduceMax", "ones_", "s", keepdims=0),
    ),
    "a table that moves": _scaled(
        _n("ConstantOfShape", "batch", "o"),
        _n("Concat", "o ones", "t", axis=0),
        _n("Gather", "t twenty", "g"),
        _n("Sub", "whole_ g", "s"),
    ),
}  # fmt: skip


def _with(model, nodes):
    """A small classifier whose logits go through more nodes."""
    model.graph.node.extend(nodes)
    known = {tensor.name for tensor in model.graph.initializer}
    for name, value in WEIGHTS.items():
        if name not in known:
            model.graph.initializer.append(numpy_helper.from_array(value, name))
    model.graph.output[0].name = "out"
    return model


@pytest.mark.parametrize("name", HOSTILE)
def test_what_switches_by_the_number_of_images_is_named(make, save, name):
    model = _with(make.classifier(), HOSTILE[name])
    images = np.random.default_rng(0).random((MANY, 3, 8, 8), np.float32)
    runs = ReferenceEvaluator(model)
    (together,), (alone,) = (runs.run(None, {"image": x}) for x in (images, images[:1]))
    assert np.abs(together[:1] - alone).max() > 0.5, "the network is not hostile"
    said = [text for text in load_onnx(save(model)).findings if SUSPICION in text]
    assert said and "images" in said[0], said


USUAL = {
    "a class token for each image": [
        _n("Concat", "batch one_ few", "wanted", axis=0),
        _n("Shape", "wanted", "rank"),
        _n("ConstantOfShape", "rank", "same_ones", value=numpy_helper.from_array(np.array([1]))),
        _n("Neg", "same_ones", "minus"),
        _n("Equal", "wanted minus", "same"),
        _n("Where", "same same_ones wanted", "sizes"),
        _n("Expand", "bump sizes", "token"),
        _n("ReduceSum", "token first_axis", "m", keepdims=0),
        _n("Add", "logits m", "out"),
    ],
    "every element in its order": [
        *_places("few"),
        _n("Reshape", "logits minus_", "flat_"),
        _n("Gather", "flat_ places", "out"),
    ],
    "windows of an image": [
        _n("Mul", "batch few", "windows"),
        _n("Concat", "windows one_", "parted", axis=0),
        _n("Reshape", "logits parted", "apart"),
        _n("Shape", "apart", "sizes"),
        _n("Gather", "sizes first", "count"),
        _n("Div", "count few", "images"),
        _n("Concat", "images few", "whole", axis=0),
        _n("Reshape", "apart whole", "out"),
    ],
    "a state of zeros": [
        _n("Concat", "batch few", "sizes", axis=0),
        _n("ConstantOfShape", "sizes", "state"),
        _n("Add", "logits state", "out"),
    ],
}


@pytest.mark.parametrize("name", USUAL)
def test_shapes_made_of_the_number_of_images_are_usual(make, save, name):
    found = load_onnx(save(_with(make.classifier(), USUAL[name]))).findings
    assert not [text for text in found if "images" in text], found


class Attention(torch.nn.Module):
    """A class token, heads, and windows whose number of images is computed back."""

    def __init__(self):
        super().__init__()
        self.patches = torch.nn.Conv2d(3, 8, 4, 4)
        self.token = torch.nn.Parameter(torch.rand(1, 1, 8))
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.norm = torch.nn.GroupNorm(2, 8)
        self.last = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = self.norm(self.patches(x))
        windows = x.reshape(x.shape[0], 8, 2, 2, -1).permute(0, 2, 3, 4, 1).reshape(-1, 2, 8)
        images = windows.shape[0] // 8
        x = windows.view(images, -1, 8)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        return self.last(self.layer(x)[:, 0])


@pytest.mark.parametrize("dynamo", [False, True])
def test_exports_with_an_open_batch_are_usual(tmp_path, dynamo):
    if dynamo:
        pytest.importorskip("onnxscript", reason="torch's newer exporter needs it")
    torch.manual_seed(0)
    path, images = tmp_path / "net.onnx", torch.rand(2, 3, 16, 16)
    open_batch = {0: torch.export.Dim("n")} if dynamo else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Attention().eval(),
            (images,),
            path,
            dynamo=dynamo,
            input_names=["image"],
            dynamic_axes=None if dynamo else {"image": {0: "n"}},
            dynamic_shapes=[open_batch] if dynamo else None,
        )
    found = load_onnx(path).findings
    assert not [text for text in found if "images" in text or "image only" in text], found
