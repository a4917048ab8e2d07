"""Changes that make an ONNX file which two readers may take for two networks.

Each changes a small classifier; `tests.onnx.second_readings` has them all.
"""

from collections.abc import Callable

import numpy as np
from onnx import ModelProto, helper, numpy_helper

Change = Callable[[ModelProto], None]
CASES: dict[str, Change] = {}


def case(name: str) -> Callable[[Change], Change]:
    """Register a change of the classifier under the name of what is ambiguous."""

    def register(change: Change) -> Change:
        CASES[name] = change
        return change

    return register


def defined(name, nodes, inputs=("a",), outputs=("b",), domain="", opset=17, **more):
    """A function of the file."""
    return helper.make_function(
        domain, name, list(inputs), list(outputs), nodes,
        [helper.make_opsetid("", opset)], **more,
    )  # fmt: skip


def twice(name="b", domain="", **more):
    """A function that doubles what it is given."""
    return defined(name, [helper.make_node("Add", ["a", "a"], ["b"])], domain=domain, **more)


def own(model, node, function=None, domain="own"):
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


def before_last(model, *nodes, weights=()):
    """Put nodes before the last layer, and the weights that they take."""
    gemm = model.graph.node.pop()
    gemm.input[0] = nodes[-1].output[0]
    model.graph.node.extend([*nodes, gemm])
    for name, value in dict(weights).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))


def weight(model, name="fc.weight"):
    """An initialiser by its name."""
    return next(t for t in model.graph.initializer if t.name == name)
