"""The last layer of a captured graph: the weight that its logits are made with.

It is the weight of the call nearest to the logits, on their way, that has one row or column for
each class, of two features or more: a bias `[1, classes]` is none. A 1 x 1 convolution before a
mean counts as such. Of a network of one output it must be a factor of a product, since there biases
and scales `[1, features]` of earlier layers have one row too.
"""

import numpy as np

from converters.graph.graph import PARAM, Graph, Node

_PRODUCTS = ("linear", "addmm", "mm", "matmul", "bmm", "convolution", "conv2d")
_MOVES = ("t", "transpose", "permute", "reshape", "view", "_to_copy", "clone", "unsqueeze")


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
