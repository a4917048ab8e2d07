"""What a captured network is called: a digest of its structure, and a line to read.

Names of nodes and weights, their values, the order of the file, the batch, the size of the pictures
and the number of classes do not matter; operators, their numbers, shapes of weights and who feeds
whom do.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from converters.graph.graph import CONSTANT, INPUT, DType, Graph, Node, Ref

_DIGITS = 8
# Larger tables of whole numbers may be weights; so may floating constants of any size.
_SMALL_TABLE = 16
# Arguments after the first are sizes, which follow from the picture's.
_SIZED = ("view", "reshape", "_unsafe_view", "expand", "resize")
_LAYERS = {
    "conv": ("convolution", "_convolution", "conv1d", "conv2d", "conv3d"),
    "batch norm": ("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm"),
    "layer norm": ("layer_norm", "native_layer_norm"),
    "group norm": ("group_norm", "native_group_norm", "instance_norm"),
    "linear": ("linear", "addmm", "mm"),
    "matrix products": ("matmul", "bmm", "baddbmm"),
    "attention": ("scaled_dot_product_attention",),
    "softmax": ("softmax", "_softmax"),
    "recurrent": ("lstm", "gru", "rnn_tanh", "rnn_relu"),
    "max pool": ("max_pool2d", "max_pool2d_with_indices"),
}
_PARTS = ("slice", "narrow")
_KINDS = {name: kind for kind, names in _LAYERS.items() for name in names}


def architecture_of(graph: Graph) -> str:
    """A name by structure, such as "graph:3f2a91c4"."""
    lines = json.dumps(list(_lines(graph)), separators=(",", ":"))
    return f"graph:{hashlib.sha256(lines.encode()).hexdigest()[:_DIGITS]}"


def outline(graph: Graph) -> str:
    """The layers in words, such as "conv x13, batch norm x12, residual adds x6, linear x1"."""
    counts: Counter[str] = Counter()
    fed = {f"{INPUT}{i}" for i in range(len(graph.inputs))}
    parts: set[str | None] = set()
    for node in graph.nodes:
        operands = [name for name in node.refs() if name in fed]
        if operands:
            fed.update(name for name in node.outputs if name is not None)
        name = base_name(node)
        if name in _KINDS:
            counts[_KINDS[name]] += 1
        elif name in _PARTS:
            parts.update(node.outputs)
        elif name == "add" and _joins_branches(graph, set(operands), parts):
            counts["residual adds"] += 1
    order = [*list(_LAYERS)[:1], "batch norm", "residual adds", *_LAYERS]
    kinds = [kind for kind in dict.fromkeys(order) if counts[kind]]
    return ", ".join(f"{kind} x{counts[kind]}" for kind in kinds) or "no layer"


def _joins_branches(graph: Graph, operands: set[str], parts: set[str | None]) -> bool:
    """Whether a sum is of values of one size: no zero point, no neighbours as a norm sums them."""
    sizes = {graph.specs[name].shape for name in operands}
    return len(operands) > 1 and len(sizes) == 1 and not operands & parts


def described(name: str, graph: Graph) -> str:
    """The finding that says what a network is called, and its layers."""
    return f"{name} has {outline(graph)}"


def outline_in(findings: Iterable[str], name: str) -> str:
    """The layers that a finding by `described` tells of a network; "" where none does.

    >>> outline_in(["graph:3f2a91c4 has conv x13, linear x1"], "graph:3f2a91c4")
    'conv x13, linear x1'
    """
    start = f"{name} has "
    return next((found.removeprefix(start) for found in findings if found.startswith(start)), "")


def base_name(node: Node) -> str:
    """An operator without namespace and overload.

    >>> base_name(Node("aten.add.Tensor", (), (), (), ()))
    'add'
    """
    return node.op.split(".")[1] if node.op.count(".") else node.op


def _lines(graph: Graph) -> Iterator[list[Any]]:
    """Every value in the order in which the outputs lead to it, operands by their numbers."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name is not None}
    numbers: dict[str, int] = {}
    head = _head(graph)
    for output in graph.outputs:
        pending = [output.name]
        while pending:
            name = pending[-1]
            node = makers.get(name)
            missing = [] if node is None else [r for r in _operands(node) if r not in numbers]
            if name in numbers or not missing:
                pending.pop()
                if name not in numbers:
                    numbers[name] = len(numbers)
                    yield _line(graph, name, node, numbers, head)
            else:
                pending += reversed(missing)
    yield ["outputs", *(numbers[output.name] for output in graph.outputs)]


def _head(graph: Graph) -> dict[str, int]:
    """Weights of the last layers before the outputs, and how many classes those have."""
    fed = {f"{INPUT}{i}" for i in range(len(graph.inputs))}
    for node in graph.nodes:
        if fed.intersection(node.refs()):
            fed.update(name for name in node.outputs if name is not None)
    found: dict[str, int] = {}
    for output in graph.outputs:
        # Back to the last calls that take the image's values and weights of several dimensions.
        reached = {output.name: output.name in fed}
        classes = math.prod(graph.specs[output.name].shape)
        for node in reversed(graph.nodes):
            hit = [reached[name] for name in node.outputs if name in reached]
            if not hit:
                continue
            last = not any(hit) or base_name(node) in _KINDS
            reached |= {n: False for n in node.refs() if n not in fed}
            reached |= {n: True for n in node.refs() if n in fed and not last}
        found |= {name: classes for name, on in reached.items() if not on}
    return found


def _operands(node: Node) -> list[str]:
    return [] if _is_filled(node) else list(node.refs())


def _is_filled(node: Node) -> bool:
    """Whether a call is a weight whose elements are all the same."""
    spec = node.specs[0]
    return node.op == "aten.full.default" and spec is not None and math.prod(spec.shape) > 1


def _line(
    graph: Graph, name: str, node: Node | None, numbers: dict[str, int], head: dict[str, int]
) -> list[Any]:
    if node is not None and not _is_filled(node):
        args = node.args[:1] if base_name(node) in _SIZED else node.args
        return [node.op, node.outputs.index(name), _plain(args, numbers), _plain(node.kwargs, {})]
    if name.startswith(INPUT):
        return [name]
    shape = ["classes" if n == head.get(name) else n for n in graph.specs[name].shape]
    if not name.startswith(CONSTANT):
        return ["weight", shape]
    constant = graph.constants[int(name.removeprefix(CONSTANT))]
    array = constant.array()
    known = array.dtype.kind in "biu" and array.size <= _SMALL_TABLE
    return ["constant", shape, constant.spec.dtype, array.tolist() if known else None]


def _plain(value: Any, numbers: dict[str, int]) -> Any:
    if isinstance(value, Ref):
        return {"value": numbers.get(value.name, -1)}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return [_plain(part, numbers) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
