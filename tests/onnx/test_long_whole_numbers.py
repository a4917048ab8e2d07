"""Whole numbers of more than 24 bits inside one ONNX operator, which float32 would round."""

import jax.numpy as jnp
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from onnx.reference import ReferenceEvaluator

from converters.errors import UnsupportedOperatorError
from converters.opening import open_model

node = helper.make_node
WEIGHTS = np.random.default_rng(0).normal(size=(48, 3)).astype(np.float32)
LARGE = 2**30


def network(nodes, **constants):
    """`[n, 3, 4, 4]` to logits `[n, 3]`: the nodes take whole tenths `i` and give `p`."""
    before = [
        node("Mul", ["x", "ten"], ["tenths"]),
        node("Cast", ["tenths"], ["i"], to=TensorProto.INT32),
    ]
    after = [
        node("Cast", ["p"], ["floats"], to=TensorProto.FLOAT),
        node("Flatten", ["floats"], ["row"]),
        node("MatMul", ["row", "w"], ["y"]),
    ]
    held = {"ten": np.float32(10), "w": WEIGHTS, "large": np.int32(LARGE)} | constants
    graph = helper.make_graph(
        [*before, *nodes, *after],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def test_the_mean_of_large_whole_numbers_is_whole(tmp_path):
    """Twice 2**30 is beyond 31 bits and wraps, so only one number is averaged."""
    made = network(
        [
            node("Add", ["i", "large"], ["moved"]),
            node("Unsqueeze", ["moved", "last"], ["wide"]),
            node("ReduceMean", ["wide"], ["mean"], axes=[4], keepdims=0),
            node("Sub", ["mean", "large"], ["p"]),
        ],
        last=np.array([4]),
    )
    save(made, tmp_path / "net.onnx")
    image = np.random.default_rng(1).random((1, 3, 4, 4)).astype(np.float32)
    wanted = np.asarray([*ReferenceEvaluator(made).run(None, {"x": image})])[0]
    model = open_model(tmp_path / "net.onnx").model
    found = model(jnp.asarray(image.transpose(0, 2, 3, 1)))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)


def test_a_floating_power_of_large_whole_numbers_is_refused(tmp_path):
    nodes = [
        node("Add", ["i", "large"], ["moved"]),
        node("Pow", ["moved", "one"], ["power"]),
        node("Sub", ["power", "large"], ["p"]),
    ]
    save(network(nodes, one=np.float32(1)), tmp_path / "net.onnx")
    with pytest.raises(UnsupportedOperatorError, match="24 bits"):
        open_model(tmp_path / "net.onnx")


def test_a_floating_power_of_small_whole_numbers_is_read(tmp_path):
    nodes = [
        node("Clip", ["i", "none", "most"], ["few"]),
        node("Pow", ["few", "one"], ["p"]),
    ]
    made = network(nodes, one=np.float32(1), none=np.int32(0), most=np.int32(255))
    save(made, tmp_path / "net.onnx")
    open_model(tmp_path / "net.onnx")
