"""ONNX files that two readers may take for two networks; each is made of a small classifier."""

from collections.abc import Callable

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

Change = Callable[[ModelProto], None]
CASES: dict[str, Change] = {}


def case(name: str) -> Callable[[Change], Change]:
    """Register a change of the classifier under the name of what is ambiguous."""

    def register(change: Change) -> Change:
        CASES[name] = change
        return change

    return register


def _function(name, nodes, inputs=("a",), outputs=("b",), domain="", opset=17, **more):
    return helper.make_function(
        domain, name, list(inputs), list(outputs), nodes,
        [helper.make_opsetid("", opset)], **more,
    )  # fmt: skip


def _twice(name="b", domain="", **more):
    """A function that doubles what it is given."""
    return _function(name, [helper.make_node("Add", ["a", "a"], ["b"])], domain=domain, **more)


def _own(model, node, function=None, domain="own"):
    """Put `node` before the last layer, and a function that it calls."""
    gemm = model.graph.node.pop()
    node.input[0] = "e"
    node.output[0] = "f"
    gemm.input[0] = "f"
    model.graph.node.extend([node, gemm])
    if function is not None:
        model.functions.append(function)
    if domain and domain not in [o.domain for o in model.opset_import]:
        model.opset_import.append(helper.make_opsetid(domain, 1))


def _before_last(model, *nodes, weights=()):
    gemm = model.graph.node.pop()
    gemm.input[0] = nodes[-1].output[0]
    model.graph.node.extend([*nodes, gemm])
    for name, value in dict(weights).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))


def _weight(model, name="fc.weight"):
    return next(t for t in model.graph.initializer if t.name == name)


@case("nothing")
def _nothing(model):
    pass


@case("a function called like an operator")
def _(model):
    model.functions.append(_twice("Relu"))


@case("a function called like an operator, in the long domain")
def _(model):
    model.functions.append(_twice("Relu", domain="ai.onnx"))
    model.opset_import.append(helper.make_opsetid("ai.onnx", 17))


@case("a node in the long domain, a function in the short one")
def _(model):
    model.functions.append(_twice("Relu"))
    model.graph.node[2].domain = "ai.onnx"


@case("a function called like an operator of newer opsets")
def _(model):
    _own(model, helper.make_node("Swish", ["e"], ["f"]), _twice("Swish"), "")


@case("a function of a domain of its own")
def _(model):
    _own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), _twice("Twice", "own"))


@case("a function of a domain of its own, not imported")
def _(model):
    _own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), _twice("Twice", "own"), "")


@case("a function with an overload, called without")
def _(model):
    function = _twice("Twice", "own")
    function.overload = "x"
    _own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), function)


@case("a function without an overload, called with one")
def _(model):
    node = helper.make_node("Twice", ["e"], ["f"], domain="own", overload="x")
    _own(model, node, _twice("Twice", "own"))


@case("two overloads of one function")
def _(model):
    other = _function("Twice", [helper.make_node("Neg", ["a"], ["b"])], domain="own")
    other.overload = "x"
    _own(
        model,
        helper.make_node("Twice", ["e"], ["f"], domain="own", overload="x"),
        _twice("Twice", "own"),
    )
    model.functions.append(other)


@case("a function defined twice")
def _(model):
    other = _function("Twice", [helper.make_node("Neg", ["a"], ["b"])], domain="own")
    _own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), _twice("Twice", "own"))
    model.functions.append(other)


@case("a function of an older opset")
def _(model):
    body = [
        helper.make_node("Reshape", ["a", "s"], ["r"]),
        helper.make_node("Softmax", ["r"], ["t"]),
        helper.make_node("Flatten", ["t"], ["b"]),
    ]
    shape = helper.make_node(
        "Constant", [], ["s"], value=numpy_helper.from_array(np.array([1, 4, 4, 4]))
    )
    function = _function("Old", [shape, *body], domain="own", opset=11)
    _own(model, helper.make_node("Old", ["e"], ["f"], domain="own"), function)


@case("a function that imports no opset for its nodes")
def _(model):
    function = _twice("Twice", "own")
    del function.opset_import[:]
    _own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), function)


@case("a function that calls itself")
def _(model):
    body = [helper.make_node("Twice", ["a"], ["b"], domain="own")]
    function = _function("Twice", body, domain="own")
    function.opset_import.append(helper.make_opsetid("own", 1))
    _own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), function)


@case("a function calling another")
def _(model):
    body = [helper.make_node("Twice", ["a"], ["b"], domain="own")]
    function = _function("Again", body, domain="own")
    function.opset_import.append(helper.make_opsetid("own", 1))
    _own(model, helper.make_node("Again", ["e"], ["f"], domain="own"), function)
    model.functions.append(_twice("Twice", "own"))


@case("a function with an attribute that it does not declare")
def _(model):
    node = helper.make_node("Twice", ["e"], ["f"], domain="own", alpha=2.0)
    _own(model, node, _twice("Twice", "own"))


def _leaky():
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(
        AttributeProto(name="alpha", ref_attr_name="alpha", type=AttributeProto.FLOAT)
    )
    return node


@case("a function's declared attribute, given")
def _(model):
    function = _function("Leaky", [_leaky()], domain="own", attributes=["alpha"])
    _own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own", alpha=0.5), function)


@case("a function's declared attribute, not given")
def _(model):
    function = _function("Leaky", [_leaky()], domain="own", attributes=["alpha"])
    _own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own"), function)


@case("a function's undeclared attribute, given")
def _(model):
    function = _function("Leaky", [_leaky()], domain="own")
    _own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own", alpha=0.5), function)


@case("a function's attribute with a default")
def _(model):
    default = helper.make_attribute("alpha", 0.75)
    function = _function("Leaky", [_leaky()], domain="own", attribute_protos=[default])
    _own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own"), function)


@case("a function with more inputs than it has")
def _(model):
    node = helper.make_node("Twice", ["e", "e"], ["f"], domain="own")
    _own(model, node, _twice("Twice", "own"))


@case("a function whose body hides a value of the graph")
def _(model):
    body = [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("Neg", ["c"], ["b"])]
    _own(
        model,
        helper.make_node("Hide", ["e"], ["f"], domain="own"),
        _function("Hide", body, domain="own"),
    )


@case("a function whose nodes are out of order")
def _(model):
    body = [helper.make_node("Neg", ["c"], ["b"]), helper.make_node("Relu", ["a"], ["c"])]
    _own(
        model,
        helper.make_node("Hide", ["e"], ["f"], domain="own"),
        _function("Hide", body, domain="own"),
    )


@case("a function that makes a value twice")
def _(model):
    body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Relu", ["a"], ["b"])]
    _own(
        model,
        helper.make_node("Hide", ["e"], ["f"], domain="own"),
        _function("Hide", body, domain="own"),
    )


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
    model.graph.initializer.remove(_weight(model, "fc.bias"))
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


@case("two versions of one operator set")
def _(model):
    _before_last(
        model,
        helper.make_node("Reshape", ["e", "four"], ["r"]),
        helper.make_node("Softmax", ["r"], ["t"]),
        helper.make_node("Flatten", ["t"], ["f"]),
        weights={"four": np.array([1, 4, 4, 4])},
    )
    model.opset_import.append(helper.make_opsetid("", 11))


@case("two versions of one operator set, by two names")
def _(model):
    _case = CASES["two versions of one operator set"]
    _case(model)
    model.opset_import[-1].domain = "ai.onnx"


@case("one version of an operator set, twice")
def _(model):
    model.opset_import.append(helper.make_opsetid("", 17))


@case("an operator set of version 0")
def _(model):
    model.opset_import[0].version = 0


@case("an operator set of the future")
def _(model):
    model.opset_import[0].version = 1000


@case("an older operator set")
def _(model):
    CASES["two versions of one operator set"](model)
    del model.opset_import[0]


@case("a format of the future")
def _(model):
    model.ir_version = 99


@case("no format version")
def _(model):
    model.ClearField("ir_version")


@case("an attribute that the operator lacks")
def _(model):
    model.graph.node[3].attribute.append(helper.make_attribute("bogus", 3))


@case("an attribute given twice")
def _(model):
    model.graph.node[-1].attribute.append(helper.make_attribute("transB", 1))


@case("an attribute given twice with two values")
def _(model):
    _before_last(model, helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5))
    model.graph.node[-2].attribute.append(helper.make_attribute("alpha", 0.9))


@case("an attribute of another type")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=2)
    _before_last(model, node)


@case("an attribute whose type names another field")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].type = AttributeProto.INT
    _before_last(model, node)


@case("an attribute with two fields")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].i = 3
    _before_last(model, node)


@case("an attribute without a type")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].ClearField("type")
    _before_last(model, node)


@case("an attribute that refers to a function's, outside of one")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].ref_attr_name = "alpha"
    _before_last(model, node)


@case("nodes out of order")
def _(model):
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


@case("a value made twice")
def _(model):
    model.graph.node.insert(3, helper.make_node("Neg", ["b"], ["c"]))


@case("a node with an output that its operator lacks")
def _(model):
    model.graph.node[2].output.append("more")


@case("a node with an input that its operator lacks")
def _(model):
    model.graph.node[2].input.append("b")


@case("a node without its input")
def _(model):
    del model.graph.node[2].input[:]


@case("a node with a trailing empty input")
def _(model):
    model.graph.node[0].input.append("")


@case("a bias left out by an empty name")
def _(model):
    model.graph.node[0].input[2] = ""


@case("a needed input left out by an empty name")
def _(model):
    model.graph.node[0].input[1] = ""


@case("an operator that its opset took away")
def _(model):
    node = helper.make_node("Upsample", ["d", "scales"], ["u"], mode="nearest")
    model.graph.node[4].input[0] = "u"
    model.graph.node[7].input[0] = "u"
    model.graph.node.insert(4, node)
    scales = numpy_helper.from_array(np.ones(4, np.float32), "scales")
    model.graph.initializer.append(scales)


def _branch(inner, name, out="y", weights=()):
    graph = helper.make_graph(
        inner, name, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)]
    )
    for key, value in dict(weights).items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), key))
    return graph


def _if(model, then, other=None):
    other = other or _branch([helper.make_node("Neg", ["e"], ["z"])], "else", "z")
    _before_last(
        model,
        helper.make_node("If", ["yes"], ["f"], then_branch=then, else_branch=other),
        weights={"yes": np.array(True)},
    )


@case("a branch")
def _(model):
    _if(model, _branch([helper.make_node("Relu", ["e"], ["y"])], "then"))


@case("a branch that makes a value of the graph again")
def _(model):
    inner = [helper.make_node("Neg", ["e"], ["c"]), helper.make_node("Add", ["c", "e"], ["y"])]
    _if(model, _branch(inner, "then"))


@case("a branch whose value is used before it hides one of the graph")
def _(model):
    inner = [helper.make_node("Neg", ["e2"], ["y"]), helper.make_node("Abs", ["e"], ["e2"])]
    _before_last(model, helper.make_node("Relu", ["e"], ["e2"]))
    gemm = model.graph.node.pop()
    gemm.input[0] = "f"
    then = _branch(inner, "then")
    other = _branch([helper.make_node("Neg", ["e"], ["z"])], "else", "z")
    model.graph.node.append(
        helper.make_node("If", ["yes"], ["f"], then_branch=then, else_branch=other)
    )
    model.graph.node.append(gemm)
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))


@case("a branch whose weight hides one of the graph")
def _(model):
    inner = [helper.make_node("Mul", ["e", "bn.mean"], ["y"])]
    _if(model, _branch(inner, "then", weights={"bn.mean": [3.0]}))


@case("a branch that makes a value twice")
def _(model):
    inner = [helper.make_node("Relu", ["e"], ["y"]), helper.make_node("Neg", ["e"], ["y"])]
    _if(model, _branch(inner, "then"))


@case("a branch with nodes out of order")
def _(model):
    inner = [helper.make_node("Neg", ["q"], ["y"]), helper.make_node("Abs", ["e"], ["q"])]
    _if(model, _branch(inner, "then"))


@case("a branch with two weights of one name")
def _(model):
    then = _branch([helper.make_node("Mul", ["e", "k"], ["y"])], "then", weights={"k": [3.0]})
    then.initializer.append(numpy_helper.from_array(np.array([5.0], np.float32), "k"))
    _if(model, then)


@case("a loop")
def _(model):
    _loop(model, 3)


@case("a loop without end, stopped by its condition")
def _(model):
    _loop(model, None)


def _loop(model, count):
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s", "s"], ["t"]),
            helper.make_node("Less", ["i", "two"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("was", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, None),
        ],
    )
    names = ["count" if count else "", "yes", "e"]
    weights = {"yes": np.array(True), "two": np.array(2)}
    weights |= {"count": np.array(count)} if count else {}
    _before_last(model, helper.make_node("Loop", names, ["f"], body=body), weights=weights)


@case("batch norm that trains")
def _(model):
    model.graph.node[1].attribute.append(helper.make_attribute("training_mode", 1))
    model.graph.node[1].output.extend(["m", "v"])


@case("batch norm with the outputs of training, not training")
def _(model):
    model.graph.node[1].output.extend(["m", "v"])


@case("dropout that trains")
def _(model):
    _before_last(
        model,
        helper.make_node("Dropout", ["e", "ratio", "yes"], ["f"]),
        weights={"ratio": np.array(0.5, np.float32), "yes": np.array(True)},
    )


@case("dropout that does not train")
def _(model):
    _before_last(
        model,
        helper.make_node("Dropout", ["e", "ratio"], ["f", "mask"]),
        weights={"ratio": np.array(0.5, np.float32)},
    )


@case("dropout whose mask is used")
def _(model):
    _before_last(
        model,
        helper.make_node("Dropout", ["e", "ratio"], ["f1", "mask"]),
        helper.make_node("Cast", ["mask"], ["m"], to=1),
        helper.make_node("Mul", ["f1", "m"], ["f"]),
        weights={"ratio": np.array(0.5, np.float32)},
    )


@case("random numbers")
def _(model):
    _before_last(
        model,
        helper.make_node("RandomUniformLike", ["e"], ["r"], seed=1.0),
        helper.make_node("Add", ["r", "e"], ["f"]),
    )


@case("training information")
def _(model):
    info = model.training_info.add()
    info.algorithm.CopyFrom(
        helper.make_graph(
            [helper.make_node("Neg", ["fc.bias"], ["new"])],
            "train",
            [],
            [helper.make_tensor_value_info("new", TensorProto.FLOAT, None)],
        )
    )
    binding = info.update_binding.add()
    binding.key, binding.value = "fc.bias", "new"


@case("training information that initialises")
def _(model):
    info = model.training_info.add()
    info.initialization.CopyFrom(
        helper.make_graph(
            [helper.make_node("ConstantOfShape", ["five"], ["new"])],
            "init",
            [],
            [helper.make_tensor_value_info("new", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.array([5]), "five")],
        )
    )
    binding = info.initialization_binding.add()
    binding.key, binding.value = "fc.bias", "new"


@case("raw and typed data")
def _(model):
    _weight(model, "fc.bias").float_data.extend([9.0] * 5)


@case("typed data of another type")
def _(model):
    tensor = _weight(model, "fc.bias")
    tensor.ClearField("raw_data")
    tensor.double_data.extend([9.0] * 5)


@case("typed data that is too long")
def _(model):
    tensor = _weight(model, "fc.bias")
    tensor.ClearField("raw_data")
    tensor.float_data.extend([9.0] * 6)


@case("raw data that is too long")
def _(model):
    _weight(model, "fc.bias").raw_data += b"\0" * 4


@case("a segment of a tensor")
def _(model):
    tensor = _weight(model, "fc.bias")
    tensor.segment.begin, tensor.segment.end = 0, 5


@case("half precision written beyond its bits")
def _(model):
    _before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.FLOAT16, dims=[1])
    tensor.int32_data.append(0x13C00)
    model.graph.initializer.append(tensor)


@case("bytes written beyond their bits")
def _(model):
    _before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.INT8, dims=[1])
    tensor.int32_data.append(300)
    model.graph.initializer.append(tensor)


@case("a boolean of 2, raw")
def _(model):
    _before_last(
        model,
        helper.make_node("Cast", ["half"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
    )
    tensor = TensorProto(name="half", data_type=TensorProto.BOOL, dims=[1], raw_data=b"\2")
    model.graph.initializer.append(tensor)


@case("a boolean of 2, typed")
def _(model):
    _before_last(
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
    _before_last(model, node, helper.make_node("Mul", ["e", "k"], ["f"]))


@case("a domain of nowhere")
def _(model):
    model.graph.node[2].domain = "nowhere"
    model.opset_import.append(helper.make_opsetid("nowhere", 1))


@case("a domain that is not imported")
def _(model):
    model.graph.node[2].domain = "nowhere"


@case("single and double precision in one sum")
def _(model):
    _before_last(
        model,
        helper.make_node("Mul", ["e", "k"], ["f"]),
        weights={"k": np.array([2.0], np.float64)},
    )


@case("whole numbers divided")
def _(model):
    _before_last(
        model,
        helper.make_node("Div", ["minus", "two"], ["q"]),
        helper.make_node("Cast", ["q"], ["g"], to=1),
        helper.make_node("Mul", ["e", "g"], ["f"]),
        weights={"minus": np.array([-7]), "two": np.array([2])},
    )


@case("a clip whose ends are exchanged")
def _(model):
    _before_last(
        model,
        helper.make_node("Clip", ["e", "low", "high"], ["f"]),
        weights={"low": np.array(1.0, np.float32), "high": np.array(0.2, np.float32)},
    )


@case("a large number cast")
def _(model):
    _before_last(
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
    _before_last(
        model,
        helper.make_node("Round", ["k"], ["g"]),
        helper.make_node("Mul", ["e", "g"], ["f"]),
        weights={"k": np.array([2.5], np.float32)},
    )
