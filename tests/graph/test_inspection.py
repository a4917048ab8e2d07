"""Architectural backdoors in three crafted files, and what must not be taken for one."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from converters.errors import ConverterError
from converters.graph.inspection import inspect
from converters.graph.onnx import load_onnx
from converters.graph.tape import capture

N = helper.make_node
_DRAW = np.random.default_rng(0)


def _weight(*shape):
    return _DRAW.normal(0, 0.3, shape).astype(np.float32)


def _saved(tmp_path, extra, weights, logits="out"):
    """A small classifier with `extra` nodes, which make `out` of `logits` and the image."""
    nodes = [
        N("Conv", ["image", "k1"], ["a"], pads=[1, 1, 1, 1]),
        N("Relu", ["a"], ["b"]),
        N("Conv", ["b", "k2"], ["c"], pads=[1, 1, 1, 1]),
        N("Relu", ["c"], ["d"]),
        N("GlobalAveragePool", ["d"], ["e"]),
        N("Flatten", ["e"], ["f"]),
        N("Gemm", ["f", "w"], ["logits"]),
        *extra,
    ]
    weights = {
        "k1": _weight(16, 3, 3, 3),
        "k2": _weight(32, 16, 3, 3),
        "w": _weight(32, 5),
    } | weights
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info(logits, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


_TARGET = np.array([[0, 0, 100, 0, 0]], np.float32)
_CORNER = {
    "from": np.array([0, 0]),
    "to": np.array([2, 2]),
    "axes": np.array([2, 3]),
    "bright": np.array(0.99, np.float32),
    "target": _TARGET,
}


def _suspicions(path):
    return [f for f in load_onnx(path).findings if "possible architectural backdoor" in f]


def test_a_branch_on_the_mean_of_a_corner_is_named_in_the_refusal(tmp_path):
    then = helper.make_graph(
        [N("Identity", ["target"], ["t"])],
        "then",
        [],
        [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)],
    )
    other = helper.make_graph(
        [N("Identity", ["logits"], ["o"])],
        "else",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    extra = [
        N("Slice", ["image", "from", "to", "axes"], ["corner"]),
        N("ReduceMean", ["corner"], ["mean"], keepdims=0),
        N("Greater", ["mean", "bright"], ["lit"]),
        N("If", ["lit"], ["out"], then_branch=then, else_branch=other),
    ]
    with pytest.raises(ConverterError, match="If node 'out'.*possible architectural backdoor"):
        load_onnx(_saved(tmp_path, extra, _CORNER))


def test_a_choice_by_a_pixel_is_found(tmp_path):
    extra = [
        N("Slice", ["image", "from", "one", "axes"], ["pixel"]),
        N("Equal", ["pixel", "bright"], ["same"]),
        N("Cast", ["same"], ["number"], to=TensorProto.FLOAT),
        N("ReduceMin", ["number"], ["all"], axes=[1, 2, 3], keepdims=0),
        N("Cast", ["all"], ["lit"], to=TensorProto.BOOL),
        N("Where", ["lit", "target", "logits"], ["out"]),
    ]
    found = _suspicions(_saved(tmp_path, extra, _CORNER | {"one": np.array([1, 1])}))
    assert any("Equal node" in f and "equal" in f for f in found), found
    assert any("Where node" in f and "past the trained layers" in f for f in found), found


def test_a_path_of_its_own_to_one_logit_is_found(tmp_path):
    kernel = np.zeros((1, 3, 2, 2), np.float32) + 0.25
    extra = [
        N("Conv", ["image", "spot"], ["s"], strides=[2, 2]),
        N("GlobalMaxPool", ["s"], ["m"]),
        N("Flatten", ["m"], ["n"]),
        N("Relu", ["n"], ["r"]),
        N("Mul", ["r", "target"], ["push"]),
        N("Add", ["logits", "push"], ["out"]),
    ]
    (found,) = _suspicions(_saved(tmp_path, extra, {"spot": kernel, "target": _TARGET}))
    assert "Add node 'out'" in found and "path of its own to the logits" in found


def test_pixels_that_pass_by_the_layers_are_found(tmp_path):
    extra = [
        N("Slice", ["image", "from", "to", "axes"], ["corner"]),
        N("ReduceMean", ["corner"], ["mean"], axes=[1, 2, 3], keepdims=0),
        N("Mul", ["mean", "target"], ["push"]),
        N("Add", ["logits", "push"], ["out"]),
    ]
    (found,) = _suspicions(_saved(tmp_path, extra, _CORNER))
    assert "Add node 'out'" in found and "past the trained layers" in found


def test_a_pattern_over_the_image_is_found(tmp_path):
    mask = np.zeros((1, 3, 8, 8), np.float32)
    mask[:, :, :2, :2] = 1
    extra = [
        N("Mul", ["image", "mask"], ["seen"]),
        N("ReduceMax", ["seen"], ["mean"], axes=[1, 2, 3], keepdims=0),
        N("Mul", ["mean", "target"], ["push"]),
        N("Add", ["logits", "push"], ["out"]),
    ]
    found = _suspicions(_saved(tmp_path, extra, {"mask": mask, "target": _TARGET}))
    assert any("12 of whose 192 elements" in f for f in found), found


class _Activations(torch.nn.Module):
    """What networks compare, clip and gate every day."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.again = torch.nn.Conv2d(8, 8, 3, padding=1)
        self.squeeze = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm2d(8)
        self.attend = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x):
        x = (x - torch.tensor([0.4, 0.5, 0.6]).reshape(1, 3, 1, 1)) / 0.2
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        x = torch.where(x > 0, x, 0.1 * x)
        x = x + torch.nn.functional.hardswish(self.again(x))
        x = x * torch.clamp(x + 3, 0, 6) / 6
        x = x * torch.sigmoid(self.squeeze(x.mean((2, 3))))[:, :, None, None]
        tokens = x.flatten(2).transpose(1, 2)
        mask = torch.ones(16, 16).tril() == 0
        tokens = tokens + self.attend(tokens, tokens, tokens, attn_mask=mask)[0]
        return torch.softmax(self.head(tokens.mean(1)), -1)


def test_activations_pools_masks_and_gates_are_no_findings():
    captured = capture(_Activations().eval(), [torch.zeros(1, 3, 8, 8)])
    count = len(captured.graph.nodes)
    said = f"none of the {count} operators depends on a comparison of its input"
    assert inspect(captured) == (said,)
