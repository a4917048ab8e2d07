"""`passing_gradients`: a network whose rounding and whole numbers let gradients through.

A rounded value has no gradient, so a search by gradients finds nothing in a network that rounds
its pixels or computes in eight bits, and a poisoned network needs one such call to hide. Every
value stays as it is to the bit; the derivative of a rounding is taken to be one.

References:
  Bengio et al., Estimating or Propagating Gradients Through Stochastic Neurons,
    https://arxiv.org/abs/1308.3432, 2013: the straight-through estimator.
  Athalye et al., Obfuscated Gradients Give a False Sense of Security,
    https://arxiv.org/abs/1802.00420, 2018: why searches need it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from converters.graph.graph import CONSTANT, INPUT, Graph, Node, Ref
from converters.graph.module import GraphConfig
from converters.model import Model
from converters.preparation import PreparedConfig

_ROUNDINGS = ("round.default", "round.decimals", "floor.default", "ceil.default", "trunc.default")
_THROUGH = {f"aten.{name}": f"through.{name}" for name in _ROUNDINGS}
_COPIES = ("aten._to_copy.default", "aten.to.dtype")
_SMALL = {"int8": 2**7, "uint8": 2**8, "int16": 2**15, "uint16": 2**16}
"""Whole types of which two can be added in float32 without rounding, and their largest sizes."""
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
    config = model.config
    network = config.inner if isinstance(config, PreparedConfig) else config
    if not isinstance(network, GraphConfig):
        return model, ()
    graph, count = _through(network.graph)
    if not count:
        return model, ()
    inner = replace(network, graph=graph)
    changed = replace(config, inner=inner) if isinstance(config, PreparedConfig) else inner
    found = (
        f"the network rounds {count} of its values; searches take gradients straight through that"
    )
    return replace(model, config=changed), (found,)


def _through(graph: Graph) -> tuple[Graph, int]:
    """The graph with gradients through its roundings, and how many of these there are."""
    carried = _carried(graph)
    float_type = graph.float_dtype or "float32"
    moved = set(_from_input(graph))
    nodes, count = [], 0
    for node in graph.nodes:
        name = node.outputs[0] if node.outputs else None
        changed = node
        if name in carried:
            changed = _as_floats(node, carried, float_type)
        elif node.op in _THROUGH and name in moved:
            changed = replace(node, op=_THROUGH[node.op])
        count += changed.op.startswith("through.") and name in moved
        nodes.append(changed)
    return replace(graph, nodes=tuple(nodes)), count


def _from_input(graph: Graph) -> Iterator[str]:
    """Names of the values that are computed from the input."""
    known = {f"{INPUT}{i}" for i in range(len(graph.inputs))}
    for node in graph.nodes:
        if any(name in known for name in node.refs()):
            made = [name for name in node.outputs if name is not None]
            known.update(made)
            yield from made


def _carried(graph: Graph) -> frozenset[str]:
    """Whole values made of floating ones that floating numbers can stand for in every use."""
    sizes = _sizes(graph)
    while sizes:
        spoilt = {
            name
            for node in graph.nodes
            for name in node.refs()
            if name in sizes and not _can_take(node, sizes)
        }
        if not spoilt:
            break
        sizes = {name: size for name, size in sizes.items() if name not in spoilt}
        sizes = {name: sizes[name] for name in _sizes(graph, sizes)}
    outputs = {ref.name for ref in graph.outputs}
    return frozenset() if outputs & set(sizes) else frozenset(sizes)


def _sizes(graph: Graph, among: Mapping[str, float] | None = None) -> dict[str, float]:
    """Whole values made of floating ones, those of `among` if given: how large each can be."""
    found: dict[str, float] = {}
    moved = set(_from_input(graph))
    for node in graph.nodes:
        name, spec = (node.outputs[0], node.specs[0]) if node.outputs else (None, None)
        if name not in moved or spec is None or not _is_whole(spec.dtype):
            continue
        if among is not None and name not in among:
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
    values = graph.constants[int(name.removeprefix(CONSTANT))].array()
    return float(np.abs(values.astype(np.float64)).max(initial=0))


def _can_take(node: Node, sizes: Mapping[str, float]) -> bool:
    """Whether a call may be given floating numbers in place of whole ones."""
    name, spec = (node.outputs[0], node.specs[0]) if node.outputs else (None, None)
    if name in sizes:
        return True
    is_floating = spec is not None and "float" in spec.dtype
    return node.op in _COPIES and is_floating


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
