"""Numbers of the image in more bits than a scan has: refused where the bits could matter.

A scan computes in 32 bits. `(v + 1e12) - 1e12` in float64 is v, here it is 0; so is a product of
whole numbers beyond 2**31 that is divided again. Behind such operators a file could hide a second
network from the scan, which torch and onnxruntime run. Whole numbers are allowed where bounds show
that 32 bits hold them, float64 beside float32 where it prepares pixels: few steps of arithmetic
with constants of ordinary size. A network that is float64 throughout is read, with a finding.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.errors import UnsupportedOperatorError
from converters.graph import registry
from converters.graph.graph import (
    CONSTANT,
    INPUT,
    PARAM,
    Graph,
    Node,
    Ref,
    TensorSpec,
    numpy_dtype,
)

Bounds = tuple[float, float]
"""Least and largest value of a tensor."""
_ANY: Bounds = (-math.inf, math.inf)
_IMAGE: Bounds = (-(2.0**16), 2.0**16)  # whatever a network takes pixels as
_HELD = {"int64": (-(2.0**31), 2.0**31 - 1), "uint64": (0, 2.0**32 - 1), "uint32": (0, 2.0**32 - 1)}
"""Types that jax cuts to 32 bits, or converts to otherwise, and the values that it holds."""
_STEPS = 8
_ORDINARY = (1e-6, 1e6)
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "rsub", "neg"})
# Results are elements of what is given.
_MOVED = frozenset(
    "view reshape _unsafe_view permute transpose t expand squeeze unsqueeze slice select cat stack"
    " index gather clone contiguous flatten repeat alias detach lift_fresh_copy split unbind flip"
    " _to_copy max_pool2d amax amin copy index_select unfold tile roll as_strided narrow".split()
)
_AVERAGED = frozenset({"mean", "avg_pool2d", "_adaptive_avg_pool2d", "softmax", "_softmax"})
_WITHIN: Mapping[str, Bounds] = {
    "sigmoid": (0, 1), "softmax": (0, 1), "_softmax": (0, 1), "tanh": (-1, 1), "relu6": (0, 6),
    "hardsigmoid": (0, 1), "sign": (-1, 1), "sin": (-1, 1), "cos": (-1, 1), "erf": (-1, 1),
}  # fmt: skip
_ROUNDED = frozenset({"round", "floor", "ceil", "trunc"})
_INDICES = frozenset(
    "argmax argmin argsort topk sort max min median cummax cummin bucketize searchsorted"
    " max_pool2d_with_indices".split()
)


@dataclass(frozen=True)
class _Known:
    """What is known of a graph's values.

    Attributes:
      bounds: of each.
      of_image: those that depend on the image.
      sizes: of parameters and constants the least absolute value that is not 0, and the largest.
      specs: shape and type of each.
    """

    bounds: dict[str, Bounds]
    of_image: set[str]
    sizes: dict[str, Bounds]
    specs: Mapping[str, TensorSpec]


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
    bounds = {f"{INPUT}0": _IMAGE} | {name: _span(array) for name, array in given.items()}
    sizes = {name: _sizes(array) for name, array in given.items()}
    known = _Known(bounds, {f"{INPUT}0"}, sizes, graph.specs)
    is_double = {s.dtype for s in (*graph.inputs, *dict(graph.params).values())} == {"float64"}
    inner = set(_inner(graph)) if by_operators else set()
    steps = 0
    for node in graph.nodes:
        depends = any(name in known.of_image for name in node.refs())
        for number, (name, spec) in enumerate(zip(node.outputs, node.specs, strict=True)):
            if name is None or spec is None:
                continue
            known.bounds[name] = _bounded(spec.dtype, _bounds_of(node, number, known))
            if depends:
                known.of_image.add(name)
            if not depends or (node.source, spec.dtype) in inner:
                continue
            _refuse_beyond(node, spec.dtype, known.bounds[name])
            steps += _step(node, known) if spec.dtype == "float64" and not is_double else 0
            if steps > _STEPS:
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
        return _ANY
    least, most = float(array.min()), float(array.max())
    return (least, most) if math.isfinite(least) and math.isfinite(most) else _ANY


def _sizes(array: np.ndarray) -> Bounds:
    found = np.abs(array[array != 0])
    return _span(found) if found.size else (1, 1)  # zeros alone are ordinary


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


def _refuse_beyond(node: Node, dtype: str, bounds: Bounds) -> None:
    least, most = _HELD.get(dtype, _ANY)
    if not least <= bounds[0] <= bounds[1] <= most:
        raise registry.unsupported(
            node.op,
            node.source,
            f"it computes of the image in {dtype}, and nothing shows that 32 bits hold its values,"
            " as a scan has; expected int32, or bounds before it such as a Clip",
        )


def _step(node: Node, known: _Known) -> int:
    """How many steps of arithmetic a node in float64 is; raises where it is not allowed."""
    name = _name(node)
    if name in _MOVED | _AVERAGED:
        return 0
    if name in _ARITHMETIC and _is_with_ordinary(node, known):
        return 1
    raise _too_wide(node)


def _too_wide(node: Node) -> UnsupportedOperatorError:
    return registry.unsupported(
        node.op,
        node.source,
        "it computes of the image in float64, beside float32, what may need more bits than a scan"
        f" has; expected float32 throughout, or up to {_STEPS} steps with constants from 1e-6 to"
        " 1e6",
    )


def _is_with_ordinary(node: Node, known: _Known) -> bool:
    """Whether one operand is of the image, and the other is 0 or of ordinary size throughout."""
    fixed = [v for v in node.args[:2] if not (isinstance(v, Ref) and v.name in known.of_image)]
    return len(fixed) >= len(node.args[:2]) - 1 and all(_is_ordinary(v, known) for v in fixed)


def _is_ordinary(value: Any, known: _Known) -> bool:
    if isinstance(value, Ref):
        least, most = known.sizes.get(value.name, _ANY)
    else:
        least, most = _sizes(np.asarray(value))
    return _ORDINARY[0] <= least <= most <= _ORDINARY[1]


def _name(node: Node) -> str:
    """`add` of `aten.add.Tensor`."""
    return node.op.split(".")[1]


def _bounds(value: Any, known: _Known) -> Bounds:
    if isinstance(value, Ref):
        return known.bounds.get(value.name, _ANY)
    if isinstance(value, tuple):
        parts = [_bounds(part, known) for part in value]
        return _joined(parts) if parts else _ANY
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value), float(value)
    return _ANY


def _joined(parts: Sequence[Bounds]) -> Bounds:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _bounds_of(node: Node, number: int, known: _Known) -> Bounds:
    """Bounds of a result, by interval arithmetic; unbounded where no rule is known."""
    name, given = _name(node), [_bounds(value, known) for value in node.args]
    if name in _INDICES and (number or name.startswith(("arg", "bucket", "search"))):
        return 0, float(_size(node, known))
    if name in _WITHIN:
        return _WITHIN[name]
    if name in _INDICES:  # of one tensor, or the larger or smaller of two
        return _joined([_bounds(value, known) for value in node.args if isinstance(value, Ref)])
    if name in _MOVED | _AVERAGED | _ROUNDED:
        return _rounded(*given[0]) if name in _ROUNDED else given[0]
    return _RULES[name](given, node, known) if name in _RULES else _ANY


def _rounded(least: float, most: float) -> Bounds:
    """To whole numbers, outwards."""
    is_finite = math.isfinite(least) and math.isfinite(most)
    return (math.floor(least), math.ceil(most)) if is_finite else (least, most)


def _size(node: Node, known: _Known) -> int:
    """Elements of what a node is given, at most."""
    return max((math.prod(known.specs[ref].shape) for ref in node.refs()), default=1)


def _corners(one: Bounds, other: Bounds, operation: Callable[[float, float], float]) -> Bounds:
    """Bounds of a monotone operation; unbounded where an operand is."""
    if not all(map(math.isfinite, (*one, *other))):
        return _ANY
    found = [operation(a, b) for a in one for b in other]
    return min(found), max(found)


def _sum(given: Sequence[Bounds], node: Node, known: _Known) -> Bounds:
    scale = dict(node.kwargs).get("alpha", 1)
    sign = -1 if _name(node) == "sub" else 1
    return _corners(given[0], given[1], lambda a, b: a + sign * scale * b)


def _quotient(given: Sequence[Bounds], node: Node, known: _Known) -> Bounds:
    least, most = given[1]
    if least <= 0 <= most:
        return _ANY
    return _rounded(*_corners(given[0], given[1], lambda a, b: a / b))


def _clamped(given: Sequence[Bounds], node: Node, known: _Known) -> Bounds:
    low, high = given[0]
    bounds = (*given[1:3], _ANY, _ANY)
    lower = bounds[0] if node.args[1:2] != (None,) else _ANY
    upper = bounds[1] if node.args[2:3] != (None,) else _ANY
    return max(low, lower[0]), min(max(high, lower[1]), upper[1])


def _total(given: Sequence[Bounds], node: Node, known: _Known) -> Bounds:
    count = _size(node, known)
    return min(0, count * given[0][0]), max(0, count * given[0][1])


def _remainder(given: Sequence[Bounds], node: Node, known: _Known) -> Bounds:
    most = max(map(abs, given[1]))
    return -most, most


_RULES: Mapping[str, Callable[[Sequence[Bounds], Node, _Known], Bounds]] = {
    "add": _sum,
    "sub": _sum,
    "mul": lambda given, *_: _corners(given[0], given[1], lambda a, b: a * b),
    "div": _quotient,
    "floor_divide": _quotient,
    "neg": lambda given, *_: (-given[0][1], -given[0][0]),
    "abs": lambda given, *_: (0, max(map(abs, given[0]))),
    "relu": lambda given, *_: (max(0, given[0][0]), max(0, given[0][1])),
    "clamp": _clamped,
    "hardtanh": _clamped,
    "minimum": lambda given, *_: (min(given[0][0], given[1][0]), min(given[0][1], given[1][1])),
    "maximum": lambda given, *_: (max(given[0][0], given[1][0]), max(given[0][1], given[1][1])),
    "where": lambda given, *_: _joined(given[1:3]),
    "sum": _total,
    "cumsum": _total,
    "remainder": _remainder,
    "fmod": _remainder,
    "zeros_like": lambda *_: (0, 0),
    "ones_like": lambda *_: (1, 1),
    "full_like": lambda given, *_: given[1],
    "one_hot": lambda *_: (0, 1),
}
"""Operator -> bounds of its result, by those of its arguments."""
