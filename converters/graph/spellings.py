"""Calls of a graph in one spelling each, so that graphs of different exporters can be compared.

A linear layer is one call or a product and a sum, a pool can be a mean, parts are joined at once or
in steps, a number stands in the code or is a parameter. What has no entry here is taken verbatim.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from converters.graph.graph import CONSTANT, PARAM, Graph, Node, Ref

_RESHAPES = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "_unsafe_view.default", "reshape.default", "flatten.using_ints"),
        *("squeeze.dim", "squeeze.dims", "squeeze.default", "unsqueeze.default"),
        *("clone.default", "contiguous.default", "alias.default", "detach.default"),
        "view_copy.default",
    )
)
_CAT = "aten.cat.default"
_BATCH_NORMS = {
    # operator -> places of training and epsilon
    "aten.native_batch_norm.default": (5, 7),
    "aten.cudnn_batch_norm.default": (5, 7),
    "aten.batch_norm.default": (5, 7),
    "aten._native_batch_norm_legit.default": (5, 7),
    "aten._native_batch_norm_legit_no_training.default": (None, 6),
}


@dataclass(frozen=True)
class Call:
    """A call in its one spelling.

    Attributes:
      kind: what it computes.
      numbers: everything about it that is no value.
      operands: names of the values that it takes; None where one is left out.
    """

    kind: str
    numbers: tuple[Any, ...]
    operands: tuple[str | None, ...]


class Side:
    """One graph, with the node that made each value, and its parameters that are plain numbers."""

    def __init__(self, graph: Graph, scalars: Mapping[str, float]):
        self.graph, self.scalars = graph, scalars
        self.used_scalars: set[str] = set()
        self.makers: dict[str, tuple[Node, int]] = {}
        for node in graph.nodes:
            for k, name in enumerate(node.outputs):
                if name is not None:
                    self.makers[name] = node, k

    def source(self, name: str) -> str:
        """The value before any reshapes and joins of it alone."""
        while name in self.makers:
            node = self.makers[name][0]
            argument = node.args[0] if node.op in _RESHAPES else _only_part(node)
            if not isinstance(argument, Ref):
                break
            name = argument.name
        return name

    def number(self, value: Any) -> float | None:
        """The number that an argument is, written in the call or kept as a parameter."""
        if isinstance(value, Ref):
            name = value.name.removeprefix(PARAM)
            if not value.name.startswith(PARAM) or name not in self.scalars:
                return None
            self.used_scalars.add(name)
            return self.scalars[name]
        return float(value) if isinstance(value, (int, float)) else None

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.specs[name].shape

    def call(self, name: str) -> Call:
        """The call that made a value."""
        node, output = self.makers[name]
        spelling = _SPELLINGS.get(node.op)
        made = None if spelling is None else spelling(self, node, output)
        return _verbatim(node, output) if made is None else made


def _name(value: Any) -> str | None:
    return value.name if isinstance(value, Ref) else None


def _verbatim(node: Node, output: int) -> Call:
    """A call as it stands, with its values taken out of its arguments."""
    operands: list[str | None] = []

    def without(value: Any) -> Any:
        if isinstance(value, Ref):
            operands.append(value.name)
            return Ref("")
        if isinstance(value, tuple):
            return tuple(without(part) for part in value)
        return value

    numbers = (output, without(node.args), without(node.kwargs))
    return Call(node.op, numbers, tuple(operands))


def _two(value: Any) -> tuple[Any, ...]:
    """A number for height and width, as torch takes one for both."""
    value = value if isinstance(value, tuple) else (value,)
    return value * 2 if len(value) == 1 else value


def _convolution(side: Side, node: Node, output: int) -> Call | None:
    x, weight, bias, stride, padding, dilation, transposed, _, groups, *_ = node.args
    if transposed or len(side.shape(weight.name)) != 4:
        return None
    return _conv(x, weight, bias, stride, padding, dilation, groups)


def _conv2d(side: Side, node: Node, output: int) -> Call:
    return _conv(*node.args)


def _conv(x, weight, bias, stride, padding, dilation, groups) -> Call:
    numbers = (_two(stride), _two(padding), _two(dilation), groups)
    return Call("convolution", numbers, (_name(x), _name(weight), _name(bias)))


def _batch_norm(side: Side, node: Node, output: int) -> Call | None:
    training, eps = _BATCH_NORMS[node.op]
    if output != 0 or (training is not None and node.args[training]):
        return None
    # Files keep it in single precision.
    numbers = (float(f"{node.args[eps]:.6g}"),)
    return Call("batch norm", numbers, tuple(_name(a) for a in node.args[:5]))


def _max_pool(side: Side, node: Node, output: int) -> Call | None:
    if output != 0:
        return None
    x, window, stride, padding, dilation, ceil = node.args
    numbers = (_two(window), _two(stride or window), _two(padding), _two(dilation), ceil)
    return Call("maximum over windows", numbers, (_name(x),))


def _mean(side: Side, node: Node, output: int) -> Call | None:
    """The mean over height and width, whether the axes stay or go."""
    shape = side.shape(node.args[0].name)
    axes = node.args[1]
    if len(shape) != 4 or axes is None or dict(node.kwargs).get("dtype") is not None:
        return None
    if sorted(axis % 4 for axis in axes) != [2, 3]:
        return None
    return Call("mean of a map", (), (_name(node.args[0]),))


def _adaptive_mean(side: Side, node: Node, output: int) -> Call | None:
    whole = _two(node.args[1]) == (1, 1) and len(side.shape(node.args[0].name)) == 4
    return Call("mean of a map", (), (_name(node.args[0]),)) if whole else None


def _linear(side: Side, node: Node, output: int) -> Call | None:
    x, weight, bias = node.args
    return Call("linear", (), (_name(x), _name(weight), _name(bias)))


def _addmm(side: Side, node: Node, output: int) -> Call | None:
    """A product with a transposed matrix and a row added, which is a linear layer."""
    bias, x, matrix = node.args
    weight = _transposed(side, matrix)
    plain = all(value == 1 for _, value in node.kwargs)
    if not plain or weight is None or len(side.shape(bias.name)) != 1:
        return None
    return Call("linear", (), (_name(x), weight, _name(bias)))


def _transposed(side: Side, matrix: Any) -> str | None:
    """The matrix before it was transposed."""
    node, _ = side.makers.get(matrix.name, (None, 0))
    if node is None:
        return None
    ways = {"aten.t.default": (), "aten.transpose.int": (0, 1), "aten.permute.default": ((1, 0),)}
    same = node.op in ways and node.args[1:] == ways[node.op]
    return _name(node.args[0]) if same else None


def _scaled(side: Side, node: Node, output: int) -> Call | None:
    """A value times a number, or with a number added."""
    x, other = node.args
    number = side.number(other)
    if number is None or any(value != 1 for _, value in node.kwargs):
        return None
    # Files keep it in single precision.
    return Call(node.op, (float(f"{number:.6g}"),), (_name(x),))


def _slice(side: Side, node: Node, output: int) -> Call | None:
    """One place of an axis; the axis stays or goes."""
    x, axis, place = node.args
    if isinstance(place, Ref):
        if not place.name.startswith(CONSTANT):
            return None
        places = side.graph.constants[int(place.name.removeprefix(CONSTANT))].array()
        if places.size != 1:
            return None
        place = int(places.reshape(()))
    shape = side.shape(x.name)
    axis %= len(shape)
    return Call("one place of an axis", (axis, place % shape[axis]), (x.name,))


def _concatenation(side: Side, node: Node, output: int) -> Call:
    """Parts side by side, whether joined at once or in steps."""
    axis = _axis(side, node)
    return Call("concatenation", (axis,), tuple(_parts(side, node, axis)))


def _only_part(node: Node) -> Ref | None:
    """What a concatenation of one value joins."""
    return node.args[0][0] if node.op == _CAT and len(node.args[0]) == 1 else None


def _parts(side: Side, node: Node, axis: int) -> Iterator[str]:
    """The parts in order, those of parts in their place.

    Without recursion, and empty parts are not taken apart: a hostile file may nest joins as deep
    as it likes, and only parts of some extent are as few as the axis is long.
    """
    waiting = [part.name for part in reversed(node.args[0])]
    while waiting:
        name = waiting.pop()
        inner, _ = side.makers.get(name, (None, 0))
        joins = inner is not None and inner.op == _CAT and side.shape(name)[axis] > 0
        if inner is not None and joins and _axis(side, inner) == axis:
            waiting += [part.name for part in reversed(inner.args[0])]
        else:
            yield name


def _axis(side: Side, node: Node) -> int:
    axis = node.args[1] if len(node.args) > 1 else 0
    return axis % len(side.shape(node.outputs[0] or ""))


def _relu(side: Side, node: Node, output: int) -> Call:
    return Call("relu", (), (_name(node.args[0]),))


_SPELLINGS: Mapping[str, Callable[[Side, Node, int], Call | None]] = {
    "aten.convolution.default": _convolution,
    "aten._convolution.default": _convolution,
    "aten.conv2d.default": _conv2d,
    **dict.fromkeys(_BATCH_NORMS, _batch_norm),
    "aten.max_pool2d_with_indices.default": _max_pool,
    "aten.max_pool2d.default": _max_pool,
    "aten.mean.dim": _mean,
    "aten._adaptive_avg_pool2d.default": _adaptive_mean,
    "aten.adaptive_avg_pool2d.default": _adaptive_mean,
    "aten.linear.default": _linear,
    "aten.addmm.default": _addmm,
    "aten.relu.default": _relu,
    _CAT: _concatenation,
    "aten.select.int": _slice,
    "aten.index_select.default": _slice,
    "aten.mul.Tensor": _scaled,
    "aten.add.Tensor": _scaled,
}
