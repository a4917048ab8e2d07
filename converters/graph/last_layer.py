"""The last layer of a captured graph: the weight that its logits are made with.

It is the weight of the call nearest to the logits, on their way, that has one row or column for
each class, of two features or more: a bias `[1, classes]` is none. A 1 x 1 convolution before a
mean counts as such. Of a network of one output it must be a factor of a product, since there biases
and scales `[1, features]` of earlier layers have one row too.

Linear layers with nothing between them are one linear layer, however a file divides it: their
weights are multiplied (`linear_tail`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from converters.graph.graph import CONSTANT, PARAM, Graph, Node, Ref

_PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "convolution", "conv2d")
_MOVES = ("t", "transpose", "permute", "reshape", "view", "_to_copy", "clone", "unsqueeze")

# Places of the values and of the weight among the arguments, and whether its rows are the outputs.
_LINEAR = {
    "aten.linear.default": (0, 1, True),
    "aten.addmm.default": (1, 2, False),
    "aten.mm.default": (0, 1, False),
    "aten.matmul.default": (0, 1, False),
}
_TURNS = ("aten.t.default", "aten.transpose.int")
_COPIES = ("aten._to_copy.default", "aten.clone.default", "aten.detach.default",
           "aten.alias.default", "aten.contiguous.default")  # fmt: skip
# Calls that keep every value of a vector in its place, and those that squash logits at the end.
_PASSED = {
    *_COPIES, "aten.view.default", "aten.reshape.default", "aten._unsafe_view.default",
    "aten.flatten.using_ints", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.unsqueeze.default", "aten.dropout.default", "aten.native_dropout.default",
    "aten.feature_dropout.default",
}  # fmt: skip
_SQUASHED = ("aten._softmax.default", "aten.softmax.int", "aten._log_softmax.default",
             "aten.log_softmax.int", "aten.sigmoid.default", "through.saturated.default",
             "through.saturated.hard")  # fmt: skip
_SUMS = ("aten.add.Tensor", "aten.sub.Tensor")


@dataclass(frozen=True)
class Factor:
    """A weight of a linear layer.

    Attributes:
      name: of the parameter, a matrix.
      has_outputs_first: whether its rows are the outputs of the layer; else its columns.
      scale: what the layer multiplies it by.
    """

    name: str
    has_outputs_first: bool
    scale: float = 1.0


def linear_tail(graph: Graph) -> tuple[Factor, ...]:
    """The weights of the linear layers that a network ends in, with nothing but moves between.

    The last layer first; what squashes the logits behind it is passed over. Anything that is no
    linear layer of vectors ends them, and so does one that gives another number of values.
    """
    made = {name: node for node in graph.nodes for name in node.outputs if name}
    shapes = {name: spec.shape for name, spec in graph.params}
    factors, wanted = [], 0
    for factor in _factors(graph, made):
        given, taken = shapes[factor.name][:: 1 if factor.has_outputs_first else -1]
        if factors and given != wanted:
            break
        factors.append(factor)
        wanted = taken
    return tuple(factors)


def _factors(graph: Graph, made: dict[str, Node]) -> Iterator[Factor]:
    value, is_end = graph.outputs[0], True
    while isinstance(value, Ref) and (node := made.get(value.name)) is not None:
        if node.op in _LINEAR:
            place, other, outputs_first = _LINEAR[node.op]
            factor = _factor(graph, made, node.args[other], outputs_first)
            if factor is None:
                return
            scale = float(dict(node.kwargs).get("alpha", 1))
            yield replace(factor, scale=scale)
            value, is_end = node.args[place], False
        elif node.op in _PASSED or (is_end and node.op in _SQUASHED):
            value = node.args[0]
        elif node.op in _SUMS and _is_static(node.args[1]):
            value = node.args[0]
        else:
            return


def _factor(graph: Graph, made: dict[str, Node], weight: Any, outputs_first: bool) -> Factor | None:
    """The matrix that an argument is, turned or not; None for what calls make otherwise."""
    while isinstance(weight, Ref) and (node := made.get(weight.name)) is not None:
        if node.op not in (*_TURNS, *_COPIES):
            return None
        outputs_first ^= node.op in _TURNS
        weight = node.args[0]
    shapes = {f"{PARAM}{name}": spec.shape for name, spec in graph.params}
    if not isinstance(weight, Ref) or len(shapes.get(weight.name, ())) != 2:
        return None
    return Factor(weight.name.removeprefix(PARAM), outputs_first)


def _is_static(value: Any) -> bool:
    return not isinstance(value, Ref) or value.name.startswith((PARAM, CONSTANT))


def nearest_weight(graph: Graph, classes: int) -> str | None:
    """Name of that weight; None where no weight has a row for each class."""
    made = {name: node for node in graph.nodes for name in node.outputs if name}
    shapes = {f"{PARAM}{name}": spec.shape for name, spec in graph.params}
    waiting, seen = [ref.name for ref in graph.outputs], set()
    while waiting:  # breadth first from the logits: the first weight met is the nearest
        name = waiting.pop(0)
        if _rows_fit(shapes.get(name, ()), classes):
            return name.removeprefix(PARAM)
        if name in made and name not in seen:
            seen.add(name)
            waiting += _asked(made[name], classes)
    return None


def _asked(node: Node, classes: int) -> list[str]:
    """The values that a call uses, without weights that cannot be the one looked for."""
    is_factor = node.op.split(".")[1] in (*_PRODUCTS, *_MOVES)
    return [r for r in node.refs() if classes > 1 or is_factor or not r.startswith(PARAM)]


def _rows_fit(shape: tuple[int, ...], classes: int) -> bool:
    matrix = len(shape) == 2 or (len(shape) > 2 and set(shape[2:]) == {1})
    if not matrix or classes not in shape[:2]:
        return False
    return max(shape[:2]) > 1 if classes == 1 else min(shape[:2]) > 1


def rows_of(weight, classes: int) -> np.ndarray:
    """Rows float64 `[classes, features]` of such a weight.

    Of a square matrix the rows are taken for the classes, as torch's linear layers have them.
    """
    values = np.asarray(weight)
    matrix = values.reshape(values.shape[:2]).astype(np.float64)
    return matrix if len(matrix) == classes else matrix.T


def joined_rows(factors: tuple[Factor, ...], weights: tuple[Any, ...]) -> np.ndarray:
    """Rows float64 `[classes, features]` of linear layers in a row, the last one first."""
    product = np.ones(1)
    for factor, weight in zip(factors, weights, strict=True):
        matrix = np.asarray(weight, np.float64) * factor.scale
        matrix = matrix if factor.has_outputs_first else matrix.T
        product = product @ matrix if product.ndim > 1 else matrix
    return product
