"""Steps behind a softmax that multiply all classes by one positive number, or add one to all.

They keep the order of the classes, as long as float32 rounds no two of them together that differ:
beside 1e6 all probabilities are one number, and the first class wins.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from converters.graph.graph import CONSTANT, PARAM, Graph, Node, Ref
from converters.graph.module import attribute_of

_MOST_ADDED = 10.0  # times what a probability of 1 has become: rounds as 1e-6 of it does
_LOG_RANGE = 60  # binary orders that all factors together may reach up or down
_LOG = "aten.log.default"
# Calls that give one number many times, or an array in another shape, and the place of either.
_FILLED = {
    "aten.full.default": 1,
    "aten.scalar_tensor.default": 0,
    "aten.view.default": 0,
    "aten.reshape.default": 0,
    "aten.expand.default": 0,
}


class Affine(NamedTuple):
    """What a call makes of each value of `source`: `factor * value + addend`."""

    source: Ref
    factor: float
    addend: float


def affine_of(graph: Graph, params: Mapping[str, Any], node: Node) -> Affine | None:
    """Such a step, with a factor above 0; None for another call.

    Args:
      graph: of the network.
      params: its parameters by flat path; the numbers may be among them.
      node: the call.
    """
    name = node.op.split(".")[1]
    if name not in ("mul", "div", "add", "sub") or node.op.split(".")[2] not in (
        "Tensor",
        "Scalar",
    ):
        return None
    pairs = [node.args[:2], node.args[1::-1]] if name in ("mul", "add") else [node.args[:2]]
    for source, other in pairs:
        number = _uniform(graph, params, other)
        if number is None or not isinstance(source, Ref) or not _keeps_shape(graph, node, source):
            continue
        alpha = float(dict(node.kwargs).get("alpha", 1))
        moved = {"add": alpha * number, "sub": -alpha * number}.get(name, 0.0)
        factor = {"mul": number, "div": 1 / number if number else math.inf}.get(name, 1.0)
        fits = source is node.args[0] or alpha == 1
        return Affine(source, factor, moved) if fits and 0 < factor < math.inf else None
    return None


def keeps_apart(
    graph: Graph, params: Mapping[str, Any], nodes: Sequence[Node], is_exact: bool
) -> bool:
    """Whether probabilities that differ still do after these calls, up to 1e-6 of them.

    Args:
      graph, params: see `affine_of`.
      nodes: the calls in their order; those that are neither such a step nor a logarithm move
        values at most.
      is_exact: whether they must to the bit, since many may be next to 1, as sigmoids are.
    """
    steps = [affine_of(graph, params, node) for node in nodes]
    if not any(steps):
        return True
    if is_exact and not all(step is None or _is_exact(step) for step in steps):
        return False
    gain, added, most = 1.0, 0.0, 0.0
    for node, step in zip(nodes, steps, strict=True):
        if step is not None:
            gain, added = gain * step.factor, added * step.factor + step.addend
            most = most * step.factor + abs(step.addend)
        elif node.op == _LOG and (is_exact or added < 0):
            return False
        elif node.op == _LOG:
            gain, added, most = gain / (gain + added), 0.0, 0.0
        if most > _MOST_ADDED * gain or not 2.0**-_LOG_RANGE <= gain <= 2.0**_LOG_RANGE:
            return False
    return True


def _is_exact(step: Affine) -> bool:
    return step.addend == 0 and math.frexp(step.factor)[0] == 0.5


def _keeps_shape(graph: Graph, node: Node, source: Ref) -> bool:
    spec = node.specs[0]
    return spec is not None and spec.shape == graph.specs[source.name].shape


def _uniform(graph: Graph, params: Mapping[str, Any], value: Any) -> float | None:
    """A static argument whose numbers are all one, finite; None for anything else."""
    made = {name: node for node in graph.nodes for name in node.outputs if name}
    while isinstance(value, Ref) and value.name in made and made[value.name].op in _FILLED:
        value = made[value.name].args[_FILLED[made[value.name].op]]
    array = np.zeros(0)
    if isinstance(value, int | float):
        array = np.asarray([value], np.float64)
    elif isinstance(value, Ref) and value.name.startswith(CONSTANT):
        array = graph.constants[int(value.name.removeprefix(CONSTANT))].array()
    elif isinstance(value, Ref) and value.name.startswith(PARAM):
        array = np.asarray(params[attribute_of(value.name.removeprefix(PARAM))])
    is_one = array.size > 0 and bool((array == array.flat[0]).all())
    return float(array.flat[0]) if is_one and math.isfinite(array.flat[0]) else None
