"""Factors of a graph that take values below normal floats and back: refused, as in weights.

torch and onnxruntime compute with such values, XLA takes them for 0: see
`converters.weights.refuse_extremes`. Numbers that are only added, or put in the place of others,
such as the least number of an attention mask, take no value anywhere.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converters.graph.graph import CONSTANT, INPUT, PARAM, Graph, Node, Ref
from converters.graph.intervals import MOVED
from converters.graph.structure import base_name
from converters.weights import refuse_extremes

_PLACED = frozenset(
    "add sub rsub where masked_fill clamp minimum maximum eq ne lt le gt ge full full_like pad"
    " constant_pad_nd fill copy index_put scatter select_scatter slice_scatter".split()
)
"""Operators that multiply by nothing that they are given."""
_LARGEST = float(np.finfo(np.float32).max)
_LEAST = 3e38
"""Sizes from here on are those of least numbers, by which masks are multiplied before any image."""


def refuse_extreme_factors(graph: Graph, params: Mapping[str, Any]) -> None:
    """Refuse weights, constants and plain numbers of a graph that are so small and so large.

    Args:
      graph: with all parameters and constants.
      params: torch name -> array of every parameter.

    Raises:
      ConversionError: names two of them.
    """
    names = {f"{PARAM}{name}": name for name, _ in graph.params}
    arrays = {f"{CONSTANT}{k}": constant.array() for k, constant in enumerate(graph.constants)}
    arrays |= {key: np.asarray(params[name]) for key, name in names.items()}
    factors, divisors = _factors(graph)
    found = {names.get(key, key): _single(arrays[key]) for key in sorted(factors & arrays.keys())}
    for key in sorted(divisors & arrays.keys()):
        found[f"1 / {names.get(key, key)}"] = _inverse(_single(arrays[key]))
    numbers = np.array([*_numbers(graph)], np.float32)
    refuse_extremes(found | {"plain numbers in products": numbers})


def _single(array: np.ndarray) -> np.ndarray:
    """Floating values as scans have them; of whole ones and others none."""
    return array.astype(np.float32) if array.dtype.kind not in "biuc" else np.zeros(0, np.float32)


def _inverse(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # of a subnormal number
        return np.nan_to_num(1 / array[array != 0])


def _factors(graph: Graph) -> tuple[set[str], set[str]]:
    """Values that something may be multiplied by, and divided by; those that are moved before."""
    factors: set[str] = set()
    divisors: set[str] = set()
    for node in reversed(graph.nodes):
        name, taken = base_name(node), _taken(node)
        if name in MOVED:
            for found in (factors, divisors):
                found.update(taken if found.intersection(filter(None, node.outputs)) else ())
        elif name == "div":
            factors.update(taken[:1])
            divisors.update(taken[1:])
        elif name not in _PLACED:
            factors.update(taken)
    return factors, divisors


def _taken(node: Node) -> list[str]:
    """Values that a call gets, but for an attention's mask."""
    if "scaled_dot_product" not in node.op:
        return list(node.refs())
    return [value.name for value in node.args[:3] if isinstance(value, Ref)]


def _numbers(graph: Graph) -> Iterator[float]:
    """Plain numbers that something is multiplied by; the inverse of those that divide it."""
    of_image = {f"{INPUT}0"}
    for node in graph.nodes:
        depends = not of_image.isdisjoint(node.refs())
        of_image.update(filter(None, node.outputs if depends else ()))
        if base_name(node) not in ("mul", "div"):
            continue
        for place, value in enumerate(node.args[:2]):
            if type(value) in (int, float) and value and (depends or abs(value) < _LEAST):
                size = float(min(abs(value), _LARGEST))
                yield 1 / size if place and base_name(node) == "div" else size
