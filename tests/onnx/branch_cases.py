"""Branches, loops and training."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.onnx.cases import before_last, case


def _branch(inner, name, out="y", weights=()):
    graph = helper.make_graph(
        inner, name, [], [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)]
    )
    for key, value in dict(weights).items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.float32), key))
    return graph


def _if(model, then, other=None):
    other = other or _branch([helper.make_node("Neg", ["e"], ["z"])], "else", "z")
    before_last(
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
    before_last(model, helper.make_node("Relu", ["e"], ["e2"]))
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


def _never(*inner):
    """The branch that does not run."""
    return _branch([*inner, helper.make_node("Neg", ["e"], ["z"])], "else", "z")


_RELU = helper.make_node("Relu", ["e"], ["y"])


@case("an attribute of another type in a branch that does not run")
def _(model):
    inner = helper.make_node("Softmax", ["e"], ["q"], axis="one")
    _if(model, _branch([_RELU], "then"), _never(inner))


@case("an unknown attribute in a branch that does not run")
def _(model):
    inner = helper.make_node("Softmax", ["e"], ["q"], shape=3)
    _if(model, _branch([_RELU], "then"), _never(inner))


@case("too many inputs in a branch that does not run")
def _(model):
    inner = helper.make_node("Abs", ["e", "e"], ["q"])
    _if(model, _branch([_RELU], "then"), _never(inner))


@case("an unknown attribute in a loop that does not run")
def _(model):
    _loop(model, 0)
    attribute = model.graph.node[-2].attribute[0]
    attribute.g.node[0].attribute.append(helper.make_attribute("shape", 3))


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
    names = ["" if count is None else "count", "yes", "e"]
    weights = {"yes": np.array(True), "two": np.array(2)}
    weights |= {} if count is None else {"count": np.array(count)}
    before_last(model, helper.make_node("Loop", names, ["f"], body=body), weights=weights)


@case("batch norm that trains")
def _(model):
    model.graph.node[1].attribute.append(helper.make_attribute("training_mode", 1))
    model.graph.node[1].output.extend(["m", "v"])


@case("batch norm with the outputs of training, not training")
def _(model):
    model.graph.node[1].output.extend(["m", "v"])


@case("dropout that trains")
def _(model):
    before_last(
        model,
        helper.make_node("Dropout", ["e", "ratio", "yes"], ["f"]),
        weights={"ratio": np.array(0.5, np.float32), "yes": np.array(True)},
    )


@case("dropout that does not train")
def _(model):
    before_last(
        model,
        helper.make_node("Dropout", ["e", "ratio"], ["f", "mask"]),
        weights={"ratio": np.array(0.5, np.float32)},
    )


@case("dropout whose mask is used")
def _(model):
    before_last(
        model,
        helper.make_node("Dropout", ["e", "ratio"], ["f1", "mask"]),
        helper.make_node("Cast", ["mask"], ["m"], to=1),
        helper.make_node("Mul", ["f1", "m"], ["f"]),
        weights={"ratio": np.array(0.5, np.float32)},
    )


@case("random numbers")
def _(model):
    before_last(
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
