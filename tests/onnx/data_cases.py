"""How tensors lie in a file, and numbers at the ends of their types."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.cases import before_last, case, weight


@case("raw and typed data")
def _(model):
    weight(model, "fc.bias").float_data.extend([9.0] * 5)


@case("typed data of another type")
def _(model):
    tensor = weight(model, "fc.bias")
    tensor.ClearField("raw_data")
    tensor.double_data.extend([9.0] * 5)


@case("typed data that is too long")
def _(model):
    tensor = weight(model, "fc.bias")
    tensor.ClearField("raw_data")
    tensor.float_data.extend([9.0] * 6)


@case("raw data that is too long")
def _(model):
    weight(model, "fc.bias").raw_data += b"\0" * 4


@case("a segment of a tensor")
def _(model):
    tensor = weight(model, "fc.bias")
    tensor.segment.begin, tensor.segment.end = 0, 5


@case("half precision written beyond its bits")
def _(model):
    before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.FLOAT16, dims=[1])
    tensor.int32_data.append(0x13C00)
    model.graph.initializer.append(tensor)


@case("bytes written beyond their bits")
def _(model):
    before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.INT8, dims=[1])
    tensor.int32_data.append(300)
    model.graph.initializer.append(tensor)


@case("a boolean of 2, raw")
def _(model):
    before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.BOOL, dims=[1], raw_data=b"\2")
    model.graph.initializer.append(tensor)


@case("a boolean of 2, typed")
def _(model):
    before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.BOOL, dims=[1])
    tensor.int32_data.append(2)
    model.graph.initializer.append(tensor)


@case("text")
def _(model):
    tensor = TensorProto(name="word", data_type=TensorProto.STRING, dims=[1], string_data=[b"x"])
    model.graph.initializer.append(tensor)


@case("two tensors in a constant")
def _(model):
    node = helper.make_node("Constant", [], ["k"], value_float=2.0)
    node.attribute.append(helper.make_attribute("value_int", 3))
    before_last(model, node, helper.make_node("Mul", ["e", "k"], ["f"]))


@case("single and double precision in one sum")
def _(model):
    before_last(
        model,
        helper.make_node("Mul", ["e", "k"], ["f"]),
        weights={"k": np.array([2.0], np.float64)},
    )


@case("whole numbers divided")
def _(model):
    before_last(
        model,
        helper.make_node("Div", ["minus", "two"], ["q"]),
        helper.make_node("Cast", ["q"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
        weights={"minus": np.array([-7]), "two": np.array([2])},
    )


@case("a clip whose ends are exchanged")
def _(model):
    before_last(
        model,
        helper.make_node("Clip", ["e", "low", "high"], ["f"]),
        weights={"low": np.array(1.0, np.float32), "high": np.array(0.2, np.float32)},
    )


@case("a large number cast")
def _(model):
    before_last(
        model,
        helper.make_node("Cast", ["k"], ["i"], to=TensorProto.INT8),
        helper.make_node("Cast", ["i"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
        weights={"k": np.array([1000.0], np.float32)},
    )


@case("a negative gather index")
def _(model):
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 0, 1, 2, 3]), "pick"))
    model.graph.node[-1].output[0] = "l"
    model.graph.node.append(helper.make_node("Gather", ["l", "pick"], ["logits"], axis=1))


@case("a gather index out of range")
def _(model):
    model.graph.initializer.append(numpy_helper.from_array(np.array([5, 0, 1, 2, 3]), "pick"))
    model.graph.node[-1].output[0] = "l"
    model.graph.node.append(helper.make_node("Gather", ["l", "pick"], ["logits"], axis=1))


@case("rounding of halves")
def _(model):
    before_last(
        model,
        helper.make_node("Round", ["k"], ["g"]),
        helper.make_node("Mul", ["e", "g"], ["f"]),
        weights={"k": np.array([2.5], np.float32)},
    )
