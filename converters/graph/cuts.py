"""`cut_by`: calls that cut one probability and keep it on its side of 0.5: clips and roundings."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from converters.graph.graph import CONSTANT, PARAM, Graph, Node, Ref
from converters.graph.module import attribute_of

_HALF = 0.5
_ROUND = "aten.round.default"
_CLAMPS = ("aten.clamp.default", "aten.clamp.Tensor", "aten.hardtanh.default")
_LOWER, _UPPER = "aten.maximum.default", "aten.minimum.default"
_MOVES = ("aten.view.default", "aten.reshape.default", "aten._to_copy.default")


def cut_by(graph: Graph, params: Mapping[str, Any], node: Node) -> Ref | None:
    """The value that a call cuts so; None for another call.

    Args:
      graph: of the network.
      params: its parameters by flat path; limits of a clip may be among them.
      node: the call.
    """
    if node.op == _ROUND:
        return _as_ref(node.args[0])
    if node.op in _CLAMPS:
        low, high = (*node.args[1:], None, None)[:2]
        limits = [_number(graph, params, one) for one in (low, high)]
        # A limit that is given and is no single number is not known to keep anything.
        is_known = limits.count(None) == (low, high).count(None)
        return _as_ref(node.args[0]) if is_known and _around_half(*limits) else None
    if node.op in (_LOWER, _UPPER):
        return _cut_at(graph, params, node)
    return None


def _cut_at(graph: Graph, params: Mapping[str, Any], node: Node) -> Ref | None:
    """As `cut_by`, of a maximum or minimum with one number."""
    for value, limit in (node.args[:2], node.args[1::-1]):
        number = _number(graph, params, limit)
        sides = (number, None) if node.op == _LOWER else (None, number)
        if number is not None and _around_half(*sides):
            return _as_ref(value)
    return None


def _around_half(low: float | None, high: float | None) -> bool:
    return (low is None or low < _HALF) and (high is None or high > _HALF)


def _as_ref(value: Any) -> Ref | None:
    return value if isinstance(value, Ref) else None


def _number(graph: Graph, params: Mapping[str, Any], value: Any) -> float | None:
    """A static argument of one number; None for anything else."""
    if isinstance(value, int | float):
        return float(value)
    made = {name: node for node in graph.nodes for name in node.outputs if name}
    while isinstance(value, Ref) and value.name in made and made[value.name].op in _MOVES:
        value = made[value.name].args[0]
    if not isinstance(value, Ref):
        return None
    array = np.zeros(0)
    if value.name.startswith(CONSTANT):
        array = graph.constants[int(value.name.removeprefix(CONSTANT))].array()
    elif value.name.startswith(PARAM):
        array = np.asarray(params[attribute_of(value.name.removeprefix(PARAM))])
    return float(array.reshape(())) if array.size == 1 else None
