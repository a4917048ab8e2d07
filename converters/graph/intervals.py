"""Bounds of a graph's values by interval arithmetic: what whole numbers of an image can become."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from converters.graph.graph import Node, Ref, TensorSpec
from converters.graph.structure import base_name

Bounds = tuple[float, float]
"""Least and largest value of a tensor."""
ANY: Bounds = (-math.inf, math.inf)
MOVED = frozenset(
    "view reshape _unsafe_view permute transpose t expand squeeze unsqueeze slice select cat stack"
    " index gather clone contiguous flatten repeat alias detach lift_fresh_copy split unbind flip"
    " _to_copy max_pool2d amax amin index_select unfold tile roll as_strided narrow".split()
)
"""Operators whose results are elements of what is given."""
AVERAGED = frozenset({"mean", "avg_pool2d", "_adaptive_avg_pool2d"})
"""Operators whose results are means of elements, unless one `has_divisor`."""
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
class Intervals:
    """What is known of a graph's values.

    Attributes:
      bounds: of each, as far as they were worked out.
      specs: shape and type of each.
    """

    bounds: dict[str, Bounds]
    specs: Mapping[str, TensorSpec]


def bounds_of(node: Node, number: int, known: Intervals) -> Bounds:
    """Bounds of a result, by interval arithmetic; unbounded where no rule is known."""
    name, given = base_name(node), [_bounds(value, known) for value in node.args]
    if name in _INDICES and (number or name.startswith(("arg", "bucket", "search"))):
        return 0, float(count_given(node, known.specs))
    if name in _WITHIN:
        return _WITHIN[name]
    if name in _INDICES:  # of one tensor, or the larger or smaller of two
        return joined([_bounds(value, known) for value in node.args if isinstance(value, Ref)])
    if name == "avg_pool2d" and has_divisor(node):
        most = max(map(abs, _total(given, node, known)))
        return -most, most
    if name in MOVED | AVERAGED | _ROUNDED:
        return _rounded(*given[0]) if name in _ROUNDED else given[0]
    return _RULES[name](given, node, known) if name in _RULES else ANY


def joined(parts: Sequence[Bounds]) -> Bounds:
    """Bounds of what is one of several values."""
    return min(low for low, _ in parts), max(high for _, high in parts)


def has_divisor(node: Node) -> bool:
    """Whether a pool divides by a number of its own, so that it is no average."""
    given = (*node.args[6:7], dict(node.kwargs).get("divisor_override"))
    return any(value is not None for value in given)


def count_given(node: Node, specs: Mapping[str, TensorSpec]) -> int:
    """Elements of what a node is given, at most."""
    return max((math.prod(specs[ref].shape) for ref in node.refs()), default=1)


def _bounds(value: Any, known: Intervals) -> Bounds:
    if isinstance(value, Ref):
        return known.bounds.get(value.name, ANY)
    if isinstance(value, tuple):
        parts = [_bounds(part, known) for part in value]
        return joined(parts) if parts else ANY
    if isinstance(value, (bool, int, float)) and math.isfinite(value):
        return float(value), float(value)
    return ANY


def _rounded(least: float, most: float) -> Bounds:
    """To whole numbers, outwards."""
    is_finite = math.isfinite(least) and math.isfinite(most)
    return (math.floor(least), math.ceil(most)) if is_finite else (least, most)


def _corners(one: Bounds, other: Bounds, operation: Callable[[float, float], float]) -> Bounds:
    """Bounds of a monotone operation; unbounded where an operand is."""
    if not all(map(math.isfinite, (*one, *other))):
        return ANY
    found = [operation(a, b) for a in one for b in other]
    return min(found), max(found)


def _sum(given: Sequence[Bounds], node: Node, known: Intervals) -> Bounds:
    scale = dict(node.kwargs).get("alpha", 1)
    sign = 1 if base_name(node) == "add" else -1
    return _corners(given[0], given[1], lambda a, b: a + sign * scale * b)


def _quotient(given: Sequence[Bounds], node: Node, known: Intervals) -> Bounds:
    least, most = given[1]
    if least <= 0 <= most:
        return ANY
    return _rounded(*_corners(given[0], given[1], lambda a, b: a / b))


def _clamped(given: Sequence[Bounds], node: Node, known: Intervals) -> Bounds:
    low, high = given[0]
    bounds = (*given[1:3], ANY, ANY)
    lower = bounds[0] if node.args[1:2] != (None,) else ANY
    upper = bounds[1] if node.args[2:3] != (None,) else ANY
    return max(low, lower[0]), min(max(high, lower[1]), upper[1])


def _total(given: Sequence[Bounds], node: Node, known: Intervals) -> Bounds:
    count = count_given(node, known.specs)
    return min(0, count * given[0][0]), max(0, count * given[0][1])


def _remainder(given: Sequence[Bounds], node: Node, known: Intervals) -> Bounds:
    most = max(map(abs, given[1]))
    return -most, most


_RULES: Mapping[str, Callable[[Sequence[Bounds], Node, Intervals], Bounds]] = {
    "add": _sum,
    "sub": _sum,
    "rsub": lambda given, *more: _sum([given[1], given[0]], *more),
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
    "where": lambda given, *_: joined(given[1:3]),
    "copy": lambda given, *_: given[1],
    "sum": _total,
    "cumsum": _total,
    "remainder": _remainder,
    "fmod": _remainder,
    "zeros_like": lambda *_: (0, 0),
    "ones_like": lambda *_: (1, 1),
    "full": lambda given, *_: given[1],
    "full_like": lambda given, *_: given[1],
    "one_hot": lambda *_: (0, 1),
}
"""Operator -> bounds of its result, by those of its arguments."""
