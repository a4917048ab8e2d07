"""Weights, inputs, outputs and what is said of values."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.cases import before_last, case, own, weight


@case("a weight that is an input")
def _(model):
    info = helper.make_tensor_value_info("fc.bias", TensorProto.FLOAT, [5])
    model.graph.input.append(info)


@case("a weight that is an input, in an old file")
def _(model):
    model.ir_version = 3
    for tensor in model.graph.initializer:
        info = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        model.graph.input.append(info)


@case("an old file with weights that are no inputs")
def _(model):
    model.ir_version = 3


@case("a weight of another shape than its input")
def _(model):
    model.graph.input.append(helper.make_tensor_value_info("fc.bias", TensorProto.FLOAT, [1]))


@case("a weight of another type than its input")
def _(model):
    model.graph.input.append(helper.make_tensor_value_info("fc.bias", TensorProto.DOUBLE, [5]))


@case("two weights of one name")
def _(model):
    other = numpy_helper.from_array(np.full(5, 7, np.float32), "fc.bias")
    model.graph.initializer.append(other)


@case("a weight named like the image")
def _(model):
    zeros = np.zeros((1, 3, 8, 8), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(zeros, "image"))


@case("a sparse weight")
def _(model):
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("fc.bias", TensorProto.FLOAT, [1], [9.0]),
        helper.make_tensor("", TensorProto.INT64, [1], [2]),
        [5],
    )
    model.graph.initializer.remove(weight(model, "fc.bias"))
    model.graph.sparse_initializer.append(sparse)


@case("a weight both dense and sparse")
def _(model):
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("fc.bias", TensorProto.FLOAT, [1], [9.0]),
        helper.make_tensor("", TensorProto.INT64, [1], [2]),
        [5],
    )
    model.graph.sparse_initializer.append(sparse)


@case("a weight that a node makes again")
def _(model):
    model.graph.node.insert(0, helper.make_node("Neg", ["bn.mean"], ["fc.bias"]))


@case("a value described with another type")
def _(model):
    model.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.INT64, None))


@case("a value described with another shape")
def _(model):
    info = helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 9, 8, 8])
    model.graph.value_info.append(info)


@case("an output described with another type")
def _(model):
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


@case("an output listed twice")
def _(model):
    model.graph.output.append(model.graph.output[0])


@case("an output that is a weight")
def _(model):
    model.graph.output.insert(0, helper.make_tensor_value_info("fc.bias", TensorProto.FLOAT, None))


@case("an output that is the image")
def _(model):
    model.graph.output.insert(0, helper.make_tensor_value_info("image", TensorProto.FLOAT, None))


_TAKEN_AWAY = (
    helper.make_node("Cast", ["e"], ["wide"], to=TensorProto.DOUBLE),
    helper.make_node("Add", ["wide", "much"], ["more"]),
    helper.make_node("Sub", ["more", "much"], ["less"]),
    helper.make_node("Cast", ["less"], ["f"], to=TensorProto.FLOAT),
)
"""What 1e12 takes away of float32 stays in float64."""


@case("a second network in float64")
def _(model):
    before_last(model, *_TAKEN_AWAY, weights={"much": np.array([1e12])})


@case("a second network in float64, in a function")
def _(model):
    much = numpy_helper.from_array(np.array([1e12]), "much")
    nodes = [helper.make_node("Constant", [], ["much"], value=much), *_TAKEN_AWAY]
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Hide", ["e"], ["f"], nodes, opset)
    own(model, helper.make_node("Hide", ["e"], ["f"], domain="own"), function)


@case("a second network in int64")
def _(model):
    """Products beyond 32 bits that are divided again."""
    before_last(
        model,
        helper.make_node("Cast", ["e"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Mul", ["whole", "much"], ["more"]),
        helper.make_node("Div", ["more", "much"], ["less"]),
        helper.make_node("Cast", ["less"], ["f"], to=TensorProto.FLOAT),
        weights={"much": np.array([2**40])},
    )
