"""ONNX files written again."""

import numpy as np
import onnx
from onnx import helper

from converters.graph.onnx.rewrite import with_weights


def test_a_number_keeps_its_shape(make, save):
    """`[1]` in the place of `[]` is another rank, which a Concat of sizes does not take."""
    nodes = [helper.make_node("Mul", ["x", "two"], ["y"])]
    path = save(make(nodes, {"x": [1, 3]}, ["y"], {"two": np.float32(2)}))
    (tensor,) = onnx.load_from_string(with_weights(path, {"two": np.float32(3)})).graph.initializer
    assert tuple(tensor.dims) == () and onnx.numpy_helper.to_array(tensor) == 3
