"""A small ONNX file with most of what such files have."""

from functools import cache
from typing import Any

import numpy as np

SHAPE = (1, 3, 8, 8)


@cache
def onnx_file() -> bytes:
    """A classifier with a function, a branch, a loop and arithmetic of shapes."""
    from onnx import TensorProto, helper, numpy_helper

    node, info, draw = helper.make_node, helper.make_tensor_value_info, np.random.default_rng(0)

    def weight(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.3, shape).astype(np.float32)

    def described(*names: str) -> list[Any]:
        return [info(name, TensorProto.FLOAT, None) for name in names]

    then = helper.make_graph([node("Abs", ["c"], ["u"])], "then", [], described("u"))
    other = helper.make_graph([node("Neg", ["c"], ["o"])], "else", [], described("o"))
    state = [info("i", TensorProto.INT64, []), info("was", TensorProto.BOOL, [])]
    on = info("on", TensorProto.BOOL, [])
    body = helper.make_graph(
        [node("Tanh", ["s"], ["t"]), node("Identity", ["was"], ["on"])],
        "body", [*state, *described("s")], [on, *described("t")],
    )  # fmt: skip
    function = helper.make_function(
        "own", "Soft", ["a"], ["b"],
        [node("Sigmoid", ["a"], ["g"]), node("Mul", ["a", "g"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("Conv", ["image", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["a", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"]),
        node("Soft", ["b"], ["c"], domain="own"),
        node("If", ["yes"], ["d"], then_branch=then, else_branch=other),
        node("Conv", ["d", "second.weight"], ["e"], group=2, strides=[2, 2]),
        node("LeakyRelu", ["e"], ["f"], alpha=0.2),
        node("Loop", ["three", "yes", "f"], ["g"], body=body),
        node("MaxPool", ["g"], ["h"], kernel_shape=[2, 2]),
        node("Shape", ["h"], ["shape"]),
        node("Gather", ["shape", "zero"], ["first"]),
        node("Concat", ["first", "rest"], ["flat"], axis=0),
        node("Reshape", ["h", "flat"], ["j"]),
        node("Gemm", ["j", "fc.weight", "fc.bias"], ["k"], transB=1),
        node("Clip", ["k", "low", "high"], ["l"]),
        node("Add", ["l", "more"], ["logits"]),
    ]
    weights = {
        "conv.weight": weight(4, 3, 3, 3), "conv.bias": weight(4), "bn.weight": weight(4) + 1,
        "bn.bias": weight(4), "bn.mean": weight(4), "bn.var": np.abs(weight(4)) + 0.5,
        "second.weight": weight(6, 2, 3, 3), "fc.weight": weight(5, 24), "fc.bias": weight(5),
        "more": weight(1, 5), "low": np.array(-3, np.float32), "high": np.array(3, np.float32),
        "zero": np.array([0]), "rest": np.array([-1]), "three": np.array(3), "yes": np.array(True),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [info("image", TensorProto.FLOAT, list(SHAPE))], described("logits"),
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=sets, functions=[function], ir_version=9)
    return model.SerializeToString()
