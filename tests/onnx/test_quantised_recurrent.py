"""onnxruntime's quantised LSTM against numbers that onnxruntime 1.31.1 gave for these weights."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from converters.errors import UnsupportedOperatorError
from converters.graph.onnx import to_torch
from converters.graph.replay import run
from converters.graph.tape import capture

HIDDEN, INPUTS, STEPS = 3, 4, 5
# What onnxruntime gave as the last hidden state, directions one after another.
LAST_STATES = {
    ("bidirectional", False): [-0.06511, 0.16801, -0.17291, -0.04969, 0.13404, -0.02348],
    ("bidirectional", True): [-0.12009, 0.14319, -0.17645, -0.05400, 0.09142, -0.02535],
    ("reverse", False): [-0.63367, -0.12044, 0.08591],
    ("forward", False): [-0.67916, 0.01074, 0.21089],
}


def _model(direction, per_column=False, lengths=None):
    rng = np.random.default_rng(0)
    directions = 2 if direction == "bidirectional" else 1
    w = rng.integers(-128, 128, (directions, INPUTS, 4 * HIDDEN)).astype(np.int8)
    r = rng.integers(-128, 128, (directions, HIDDEN, 4 * HIDDEN)).astype(np.int8)
    b = rng.normal(size=(directions, 8 * HIDDEN)).astype(np.float32)
    shape = (directions, 4 * HIDDEN) if per_column else (directions,)
    scales = [rng.uniform(0.005, 0.01, shape).astype(np.float32) for _ in range(2)]
    zero = np.zeros(shape, np.int8)
    values = {"w": w, "r": r, "b": b, "ws": scales[0], "wz": zero, "rs": scales[1], "rz": zero}
    if lengths is not None:
        values["lengths"] = np.int32(lengths)
    names = ["x", "w", "r", "b", "lengths" if lengths else "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        names,
        ["y", "h", "c"],
        domain="com.microsoft",
        hidden_size=HIDDEN,
        direction=direction,
    )
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [STEPS, 1, INPUTS])
    results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yhc"]
    weights = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph([node], "net", [image], results, weights)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _inputs():
    return np.random.default_rng(1).normal(size=(STEPS, 1, INPUTS)).astype(np.float32)


@pytest.mark.parametrize(("direction", "per_column"), LAST_STATES)
def test_last_states_are_those_of_onnxruntime(direction, per_column):
    module = to_torch(_model(direction, per_column), {"x": (STEPS, 1, INPUTS)})
    outputs, states, _ = module(torch.from_numpy(_inputs()))
    expected = LAST_STATES[direction, per_column]
    np.testing.assert_allclose(states.numpy().ravel(), expected, atol=2e-5)
    assert outputs.shape == (STEPS, len(expected) // HIDDEN, 1, HIDDEN)


def test_jax_computes_what_torch_computes():
    module = to_torch(_model("bidirectional"), {"x": (STEPS, 1, INPUTS)})
    inputs = _inputs()
    captured = capture(module, [torch.from_numpy(inputs)])
    ours = run(captured.graph, captured.params, [inputs])
    for value, expected in zip(ours, module(torch.from_numpy(inputs)), strict=True):
        np.testing.assert_allclose(value, expected.numpy(), atol=1e-5)


def test_lengths_are_refused():
    with pytest.raises(UnsupportedOperatorError, match="lengths per example"):
        module = to_torch(_model("forward", lengths=[3]), {"x": (STEPS, 1, INPUTS)})
        module(torch.from_numpy(_inputs()))
