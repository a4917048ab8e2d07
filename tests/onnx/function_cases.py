"""Functions that a file defines itself."""

import numpy as np
from onnx import AttributeProto, helper, numpy_helper

from tests.onnx.cases import case, defined, own, twice


@case("a function called like an operator")
def _(model):
    model.functions.append(twice("Relu"))


@case("a function called like an operator, in the long domain")
def _(model):
    model.functions.append(twice("Relu", domain="ai.onnx"))
    model.opset_import.append(helper.make_opsetid("ai.onnx", 17))


@case("a node in the long domain, a function in the short one")
def _(model):
    model.functions.append(twice("Relu"))
    model.graph.node[2].domain = "ai.onnx"


@case("a function called like an operator of newer opsets")
def _(model):
    own(model, helper.make_node("Swish", ["e"], ["f"]), twice("Swish"), "")


@case("a function of a domain of its own")
def _(model):
    own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), twice("Twice", "own"))


@case("a function of a domain of its own, not imported")
def _(model):
    own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), twice("Twice", "own"), "")


@case("a function with an overload, called without")
def _(model):
    function = twice("Twice", "own")
    function.overload = "x"
    own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), function)


@case("a function without an overload, called with one")
def _(model):
    node = helper.make_node("Twice", ["e"], ["f"], domain="own", overload="x")
    own(model, node, twice("Twice", "own"))


@case("two overloads of one function")
def _(model):
    other = defined("Twice", [helper.make_node("Neg", ["a"], ["b"])], domain="own")
    other.overload = "x"
    own(
        model,
        helper.make_node("Twice", ["e"], ["f"], domain="own", overload="x"),
        twice("Twice", "own"),
    )
    model.functions.append(other)


@case("a function defined twice")
def _(model):
    other = defined("Twice", [helper.make_node("Neg", ["a"], ["b"])], domain="own")
    own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), twice("Twice", "own"))
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
    function = defined("Old", [shape, *body], domain="own", opset=11)
    own(model, helper.make_node("Old", ["e"], ["f"], domain="own"), function)


@case("a function that imports no opset for its nodes")
def _(model):
    function = twice("Twice", "own")
    del function.opset_import[:]
    own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), function)


@case("a function that calls itself")
def _(model):
    body = [helper.make_node("Twice", ["a"], ["b"], domain="own")]
    function = defined("Twice", body, domain="own")
    function.opset_import.append(helper.make_opsetid("own", 1))
    own(model, helper.make_node("Twice", ["e"], ["f"], domain="own"), function)


@case("a function calling another")
def _(model):
    body = [helper.make_node("Twice", ["a"], ["b"], domain="own")]
    function = defined("Again", body, domain="own")
    function.opset_import.append(helper.make_opsetid("own", 1))
    own(model, helper.make_node("Again", ["e"], ["f"], domain="own"), function)
    model.functions.append(twice("Twice", "own"))


@case("a function with an attribute that it does not declare")
def _(model):
    node = helper.make_node("Twice", ["e"], ["f"], domain="own", alpha=2.0)
    own(model, node, twice("Twice", "own"))


def _leaky():
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(
        AttributeProto(name="alpha", ref_attr_name="alpha", type=AttributeProto.FLOAT)
    )
    return node


@case("a function's declared attribute, given")
def _(model):
    function = defined("Leaky", [_leaky()], domain="own", attributes=["alpha"])
    own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own", alpha=0.5), function)


@case("a function's declared attribute, not given")
def _(model):
    function = defined("Leaky", [_leaky()], domain="own", attributes=["alpha"])
    own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own"), function)


@case("a function's undeclared attribute, given")
def _(model):
    function = defined("Leaky", [_leaky()], domain="own")
    own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own", alpha=0.5), function)


@case("a function's attribute with a default")
def _(model):
    default = helper.make_attribute("alpha", 0.75)
    function = defined("Leaky", [_leaky()], domain="own", attribute_protos=[default])
    own(model, helper.make_node("Leaky", ["e"], ["f"], domain="own"), function)


@case("a function with more inputs than it has")
def _(model):
    node = helper.make_node("Twice", ["e", "e"], ["f"], domain="own")
    own(model, node, twice("Twice", "own"))


@case("a function whose body hides a value of the graph")
def _(model):
    body = [helper.make_node("Relu", ["a"], ["c"]), helper.make_node("Neg", ["c"], ["b"])]
    own(
        model,
        helper.make_node("Hide", ["e"], ["f"], domain="own"),
        defined("Hide", body, domain="own"),
    )


@case("a function whose nodes are out of order")
def _(model):
    body = [helper.make_node("Neg", ["c"], ["b"]), helper.make_node("Relu", ["a"], ["c"])]
    own(
        model,
        helper.make_node("Hide", ["e"], ["f"], domain="own"),
        defined("Hide", body, domain="own"),
    )


@case("a function that makes a value twice")
def _(model):
    body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Relu", ["a"], ["b"])]
    own(
        model,
        helper.make_node("Hide", ["e"], ["f"], domain="own"),
        defined("Hide", body, domain="own"),
    )
