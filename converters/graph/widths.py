"""Numbers of the image in more bits than a scan has: refused where the bits could matter.

A scan computes in 32 bits. `(v + 1e12) - 1e12` in float64 is v, here it is 0; so is a product of
whole numbers beyond 2**31 that is divided again. Behind such operators a file could hide a second
network from the scan, which torch and onnxruntime run. Whole numbers are allowed where bounds show
that 32 bits hold them (`intervals`), float64 beside float32 where it prepares pixels by few steps
(`pixel_units`). A network that is float64 throughout is read, with a finding.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converters.errors import UnsupportedOperatorError
from converters.graph import registry
from converters.graph.graph import CONSTANT, INPUT, PARAM, Graph, Node, Ref, numpy_dtype
from converters.graph.intervals import ANY, Bounds, Intervals, bounds_of
from converters.graph.pixel_units import ADDED, STEPS, UNKNOWN, Scaled, Units, scaled_by, sizes_of
from converters.graph.structure import base_name

_IMAGE: Bounds = (-(2.0**16), 2.0**16)  # whatever a network takes pixels as
_HELD = {"int64": (-(2.0**31), 2.0**31 - 1), "uint64": (0, 2.0**32 - 1), "uint32": (0, 2.0**32 - 1)}
"""Types that jax cuts to 32 bits, or converts to otherwise, and the values that it holds."""
_FLOAT = 2.0**24
"""Up to here float32 holds every whole number."""


def refuse_wide(graph: Graph, params: Mapping[str, Any], by_operators: bool = False) -> None:
    """Refuse a network that computes of its image in 64 bits what 32 might not hold.

    Args:
      graph: for one image, with the logits as its only output.
      params: torch name -> array of every parameter.
      by_operators: whether each source of nodes is one operator of a file, whose inner types are
        ours; only what leaves it counts.

    Raises:
      UnsupportedOperatorError: names the operator, its type, and what to do.
    """
    given = dict(_given(graph, params))
    image = f"{INPUT}0"
    spans = {name: _span(array) for name, array in given.items()}
    known = Intervals({image: _IMAGE} | spans, graph.specs)
    sizes = {name: sizes_of(array) for name, array in given.items()}
    units = Units(sizes, graph.specs, {image: Scaled()})
    is_double = {s.dtype for s in (*graph.inputs, *dict(graph.params).values())} == {"float64"}
    inner = set(_inner(graph)) if by_operators else set()
    for node in graph.nodes:
        depends = any(name in units.scaled for name in node.refs())
        made = scaled_by(node, units) if depends else None
        for number, (name, spec) in enumerate(zip(node.outputs, node.specs, strict=True)):
            if name is None or spec is None:
                continue
            known.bounds[name] = _bounded(spec.dtype, bounds_of(node, number, known))
            if not depends:
                units.note_constant(node, name)
                continue
            units.scaled[name] = made or UNKNOWN
            if (node.source, spec.dtype) in inner:
                _refuse_long(node, spec.dtype, known)
                continue
            _refuse_beyond(node, spec.dtype, known.bounds[name])
            if spec.dtype == "float64" and not is_double and not (made and made.is_held):
                raise _too_wide(node)


def _inner(graph: Graph) -> Iterator[tuple[str, str]]:
    """Sources, with a wide type that no value has which they get from others or give to others."""
    makers = {name: node.source for node in graph.nodes for name in node.outputs if name}
    crossing = {(makers.get(ref.name), graph.specs[ref.name].dtype) for ref in graph.outputs}
    for node in graph.nodes:
        for name in node.refs():
            if name in makers and makers[name] != node.source:
                dtype = graph.specs[name].dtype
                crossing |= {(makers[name], dtype), (node.source, dtype)}
    for source in set(makers.values()):
        yield from {(source, dtype) for dtype in ("float64", *_HELD)} - crossing


def _given(graph: Graph, params: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for name, _ in graph.params:
        yield f"{PARAM}{name}", np.asarray(params[name])
    for number, constant in enumerate(graph.constants):
        yield f"{CONSTANT}{number}", constant.array()


def _span(array: np.ndarray) -> Bounds:
    if not array.size or array.dtype.kind == "c":
        return ANY
    least, most = float(array.min()), float(array.max())
    return (least, most) if math.isfinite(least) and math.isfinite(most) else ANY


def _bounded(dtype: str, bounds: Bounds) -> Bounds:
    """Cut by what a narrow type holds."""
    if dtype == "bool":
        return 0, 1
    kind = numpy_dtype(dtype)
    if kind.kind not in "iu" or dtype in _HELD:
        return bounds
    info = np.iinfo(kind)
    fits = info.min <= bounds[0] and bounds[1] <= info.max
    return bounds if fits else (float(info.min), float(info.max))


def _refuse_long(node: Node, dtype: str, known: Intervals) -> None:
    """Refuse whole numbers that an operator takes for floating ones of more than 24 bits."""
    taken = node.args[0] if node.args else None
    if base_name(node) != "_to_copy" or dtype != "float64" or not isinstance(taken, Ref):
        return
    if numpy_dtype(known.specs[taken.name].dtype).kind in "iu":
        if max(map(abs, known.bounds.get(taken.name, ANY))) > _FLOAT:
            raise registry.unsupported(
                node.op,
                node.source,
                "it computes of whole numbers of the image in float64, and nothing shows that they"
                " have 24 bits, as floating numbers have in a scan; expected bounds before it such"
                " as a Clip",
            )


def _refuse_beyond(node: Node, dtype: str, bounds: Bounds) -> None:
    least, most = _HELD.get(dtype, ANY)
    if not least <= bounds[0] <= bounds[1] <= most:
        raise registry.unsupported(
            node.op,
            node.source,
            f"it computes of the image in {dtype}, and nothing shows that 32 bits hold its values,"
            " as a scan has; expected int32, or bounds before it such as a Clip",
        )


def _too_wide(node: Node) -> UnsupportedOperatorError:
    return registry.unsupported(
        node.op,
        node.source,
        "it computes of the image in float64, beside float32, what may need more bits than a scan"
        f" has; expected float32 throughout, or up to {STEPS} steps that multiply pixels by 1e-6"
        f" to 1e6 in all and add up to {ADDED:.0f} times their unit",
    )
