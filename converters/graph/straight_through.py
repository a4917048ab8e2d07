"""`passing_gradients`: a network whose rounding and whole numbers let gradients through.

A rounded value has no gradient, so a search by gradients finds nothing in a network that rounds
its pixels or computes in eight bits, and a poisoned network needs one such call to hide. Every
value stays as it is to the bit; the derivative of a rounding is taken to be one, and that of the
clip to the type of whole numbers too, at and beyond its bounds: pictures are full of black and
white, which lie on them. Below a bound that stands for 0 it is zero, since that is a relu.

References:
  Bengio et al., Estimating or Propagating Gradients Through Stochastic Neurons,
    https://arxiv.org/abs/1308.3432, 2013: the straight-through estimator.
  Athalye et al., Obfuscated Gradients Give a False Sense of Security,
    https://arxiv.org/abs/1802.00420, 2018: why searches need it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from converters.graph.graph import CONSTANT, INPUT, Graph, Node, Ref, TensorSpec
from converters.graph.module import GraphConfig
from converters.model import Model

_ROUNDINGS = ("round.default", "round.decimals", "floor.default", "ceil.default", "trunc.default")
_THROUGH = {f"aten.{name}": f"through.{name}" for name in _ROUNDINGS}
_CLAMP = "through.clamp.default"
_COPIES = ("aten._to_copy.default", "aten.to.dtype")
_SMALL = {"int8": 2**7, "uint8": 2**8, "int16": 2**15, "uint16": 2**16}
"""Whole types of which two can be added in float32 without rounding, and their largest sizes."""
_BOUNDS = {
    name: (0, 2 * size - 1) if name.startswith("u") else (-size, size - 1)
    for name, size in (("int8", 2**7), ("uint8", 2**7), ("int16", 2**15), ("uint16", 2**15))
}
_EXACT = 2.0**24
# These give values of their first argument, so none is larger.
_KEPT = frozenset(
    f"aten.{name}"
    for name in (
        *("view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints"),
        *("permute.default", "transpose.int", "t.default", "unsqueeze.default", "expand.default"),
        *("squeeze.default", "squeeze.dim", "squeeze.dims", "slice.Tensor", "select.int"),
        *("clone.default", "contiguous.default", "alias.default", "detach.default"),
        *("relu.default", "max_pool2d.default"),
    )
)
_SUMS = frozenset({"aten.sub.Tensor", "aten.add.Tensor"})


def passing_gradients(model: Model) -> tuple[Model, tuple[str, ...]]:
    """The model as searches use it, and the finding that says so.

    One that rounds nothing that comes from its input, or is no graph, comes back as it is.
    """
    network = model.config.core
    if not isinstance(network, GraphConfig):
        return model, ()
    graph, count = _through(network.graph)
    if not count:
        return model, ()
    changed = model.config.around(replace(network, graph=graph))
    places = "one place" if count == 1 else f"{count} places"
    found = f"the network rounds values in {places}; searches take gradients straight through"
    return replace(model, config=changed), (found,)


def _through(graph: Graph) -> tuple[Graph, int]:
    """The graph with gradients through its roundings, and how many of these there are."""
    moved = frozenset(_from_input(graph))
    carried = _carried(graph, moved)
    clipped = _clips(graph, carried)
    float_type = graph.float_dtype or "float32"
    nodes = []
    for node in graph.nodes:
        name = _result(node)[0]
        if name in carried:
            node = _as_floats(node, carried, float_type)
        elif name in clipped:
            node = replace(node, op=_CLAMP, args=(*node.args, clipped[name]), kwargs=())
        elif node.op in _THROUGH and name in moved:
            node = replace(node, op=_THROUGH[node.op])
        nodes.append(node)
    count = sum(node.op.startswith("through.") and node.op != _CLAMP for node in nodes)
    return replace(graph, nodes=tuple(nodes)), count


def _from_input(graph: Graph) -> Iterator[str]:
    """Names of the values that are computed from the input."""
    known = {f"{INPUT}{i}" for i in range(len(graph.inputs))}
    for node in graph.nodes:
        if any(name in known for name in node.refs()):
            made = [name for name in node.outputs if name is not None]
            known.update(made)
            yield from made


def _carried(graph: Graph, moved: Collection[str]) -> frozenset[str]:
    """Whole values made of floating ones that floating numbers can stand for in every use.

    Values that are made of each other are carried together or not at all.
    """
    sizes = _sizes(graph, moved)
    links: dict[str, list[str]] = {name: [] for name in sizes}
    spoilt = [ref.name for ref in graph.outputs if ref.name in sizes]
    for node in graph.nodes:
        name, used = _result(node)[0], [ref for ref in node.refs() if ref in sizes]
        if name in sizes:
            links[name] += used
            for other in used:
                links[other].append(name)
        elif not _gives_floats(node):
            spoilt += used
    while spoilt:
        spoilt += links.pop(spoilt.pop(), ())
    return frozenset(links)


def _clips(graph: Graph, carried: Collection[str]) -> dict[str, bool]:
    """Values that are clipped to the whole type that they become.

    With each, whether its lower bound stands for 0: so quantisers write a relu.
    """
    made = {node.outputs[0]: node for node in graph.nodes if node.outputs}
    found: dict[str, bool] = {}
    for node in graph.nodes:
        name, spec = _result(node)
        source = node.args[0] if node.op in _COPIES and name in carried else None
        if not isinstance(source, Ref) or spec is None:
            continue
        clip, bounds = made.get(source.name), _BOUNDS.get(spec.dtype)
        if clip is None or clip.op != "aten.clamp.default":
            continue
        if bounds is not None and clip.args[1:] == bounds:
            before = made.get(clip.args[0].name)
            found[source.name] = _zero_points(before, graph) == {bounds[0]}
    return found


def _zero_points(node: Node | None, graph: Graph) -> set[float]:
    """The whole numbers that stand for 0 after a call, which may add one; none if unknown."""
    if node is None or node.op != "aten.add.Tensor":
        return {0.0}
    added = node.args[1]
    if not isinstance(added, Ref):
        return {float(added)}
    if not added.name.startswith(CONSTANT):
        return set()
    return set(_static(graph, added.name).ravel().tolist())


def _sizes(graph: Graph, moved: Collection[str]) -> dict[str, float]:
    """Whole values made of floating ones by calls that are known: how large each can be."""
    found: dict[str, float] = {}
    for node in graph.nodes:
        name, spec = _result(node)
        if name is None or name not in moved or spec is None or not _is_whole(spec.dtype):
            continue
        size = _size(node, spec.dtype, found, graph)
        if size is not None:
            found[name] = size
    return found


def _size(node: Node, dtype: str, known: Mapping[str, float], graph: Graph) -> float | None:
    """How large a call's whole result can be; None where no floating number may stand for it."""
    first = node.args[0] if node.args else None
    if not isinstance(first, Ref):
        return None
    if node.op in _COPIES:
        is_entry = "float" in graph.specs[first.name].dtype
        given = float("inf") if is_entry else known.get(first.name)
        return None if given is None else min(given, float(_SMALL.get(dtype, float("inf"))))
    if node.op in _KEPT:
        return known.get(first.name)
    if node.op in _SUMS and dtype not in _SMALL:
        return _size_of_sum(node, known, graph)
    return None


def _size_of_sum(node: Node, known: Mapping[str, float], graph: Graph) -> float | None:
    """As `_size`, of the sum or difference of two values, of which one may be static."""
    sizes = [_summand_size(arg, known, graph) for arg in node.args[:2]]
    if dict(node.kwargs).get("alpha", 1) != 1:
        return None
    total = sum(size for size in sizes if size is not None)
    return total if None not in sizes and total < _EXACT else None


def _summand_size(arg: Any, known: Mapping[str, float], graph: Graph) -> float | None:
    """How large a summand can be; None where nobody knows."""
    if isinstance(arg, Ref):
        return known.get(arg.name, _static_size(graph, arg.name))
    return abs(arg) if isinstance(arg, int) else None


def _static_size(graph: Graph, name: str) -> float | None:
    """The largest size in a static tensor; None for other values."""
    if not name.startswith(CONSTANT):
        return None
    return float(np.abs(_static(graph, name)).max(initial=0))


def _static(graph: Graph, name: str) -> np.ndarray:
    """A static tensor as float64."""
    return graph.constants[int(name.removeprefix(CONSTANT))].array().astype(np.float64)


def _result(node: Node) -> tuple[str | None, TensorSpec | None]:
    """Name and type of a call's first result; None where it has none."""
    return (node.outputs[0], node.specs[0]) if node.outputs else (None, None)


def _gives_floats(node: Node) -> bool:
    """Whether a call only brings values to a floating type."""
    spec = _result(node)[1]
    return node.op in _COPIES and spec is not None and "float" in spec.dtype


def _as_floats(node: Node, carried: frozenset[str], float_type: str) -> Node:
    """A call with a whole result as one that gives the same numbers, floating."""
    (spec, *others) = node.specs
    assert spec is not None  # `_sizes` asked for its type
    specs = (replace(spec, dtype=float_type), *others)
    source = node.args[0]
    if node.op in _COPIES and (source.name not in carried or spec.dtype in _SMALL):
        return replace(
            node, op="through.whole.default", args=(source, spec.dtype), kwargs=(), specs=specs
        )
    if node.op in _COPIES:
        return replace(node, op="aten.clone.default", args=(source,), kwargs=(), specs=specs)
    return replace(node, specs=specs)


def _is_whole(dtype: str) -> bool:
    return dtype.startswith(("int", "uint"))
