"""Operator sets, attributes, and the order of nodes."""

import numpy as np
from onnx import AttributeProto, helper, numpy_helper

from tests.onnx.cases import CASES, before_last, case


@case("two versions of one operator set")
def _(model):
    before_last(
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
    before_last(model, helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5))
    model.graph.node[-2].attribute.append(helper.make_attribute("alpha", 0.9))


@case("an attribute of another type")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=2)
    before_last(model, node)


@case("an attribute whose type names another field")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].type = AttributeProto.INT
    before_last(model, node)


@case("an attribute with two fields")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].i = 3
    before_last(model, node)


@case("an attribute without a type")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].ClearField("type")
    before_last(model, node)


@case("an attribute that refers to a function's, outside of one")
def _(model):
    node = helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.5)
    node.attribute[0].ref_attr_name = "alpha"
    before_last(model, node)


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


@case("a domain of nowhere")
def _(model):
    model.graph.node[2].domain = "nowhere"
    model.opset_import.append(helper.make_opsetid("nowhere", 1))


@case("a domain that is not imported")
def _(model):
    model.graph.node[2].domain = "nowhere"
