"""The one registry of lowerings: ATen operator -> function of jax arrays.

A lowering takes the operator's arguments as its schema lists them, defaults spelt out, tensors as
jax arrays (static constants as numpy arrays) and types as numpy types. Results are brought to the
type torch recorded by the caller, and their shape is checked there.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from converters.errors import UnsupportedOperatorError
from converters.graph.graph import Graph

# How a lowering takes feature maps that lie in memory with channels last; see `layout`.
LOGICAL, ELEMENTWISE, OWN = "logical", "elementwise", "own"
FAMILIES = (
    "activations",
    "adaptive",
    "arithmetic",
    "attention",
    "comparison",
    "convolution",
    "creation",
    "indexing",
    "linear",
    "normalisation",
    "padding",
    "pooling",
    "recurrent",
    "reductions",
    "resampling",
    "shape",
    "slicing",
    "sorting",
    "straight_through",
)


@dataclass(frozen=True)
class Lowering:
    """A function for an operator.

    Attributes:
      function: the operator on jax arrays.
      layout: "logical" takes arrays in torch's layout; "elementwise" may be given any one layout;
        "own" is given `ChannelsLast` values as they are and decides itself.
      restriction: what of the operator is not supported, "" if all is.
    """

    function: Callable[..., Any]
    layout: str
    restriction: str


class Restricted(Exception):
    """Raised by a lowering for a case it does not cover; the caller adds operator and node."""


_LOWERINGS: dict[str, Lowering] = {}


def lowers(*operators: str, layout: str = LOGICAL, restriction: str = ""):
    """Register a function as the lowering of ATen operators, such as "aten.relu.default".

    Raises:
      ValueError: an operator has a lowering already.
    """

    def register(function):
        taken = [operator for operator in operators if operator in _LOWERINGS]
        if taken or len(set(operators)) < len(operators):
            raise ValueError(
                f"{function} lowers {', '.join(taken or operators)}, which has a lowering already; "
                "an operator has one"
            )
        _LOWERINGS.update(dict.fromkeys(operators, Lowering(function, layout, restriction)))
        return function

    return register


@cache
def _load() -> dict[str, Lowering]:
    for family in FAMILIES:
        import_module(f"converters.graph.lowerings.{family}")
    return _LOWERINGS


def is_supported(operator: str) -> bool:
    """Whether the operator has a lowering."""
    return operator in _load()


def lowering_of(operator: str, source: str = "") -> Lowering:
    """The lowering of an operator.

    Raises:
      UnsupportedOperatorError: there is none.
    """
    found = _load().get(operator)
    if found is None:
        raise unsupported(operator, source, "it has no lowering to JAX")
    return found


def unsupported(operator: str, source: str, reason: str) -> UnsupportedOperatorError:
    """The error for an operator, or a form of it, that cannot be lowered."""
    return UnsupportedOperatorError(
        f"{operator} at {source or 'the top of the network'}: {reason}. Rewrite that part of the "
        "network with supported operators (docs/operators.md), or register a lowering for it in "
        "converters/graph/lowerings.",
        operator,
        source,
    )


def require(graph: Graph) -> Graph:
    """The graph itself, once every operator in it is known to have a lowering.

    Raises:
      UnsupportedOperatorError: for the first that has none, naming the others.
    """
    unknown = {n.op: n.source for n in reversed(graph.nodes) if not is_supported(n.op)}
    if unknown:
        raise missing(dict(reversed(unknown.items())))
    return graph


def missing(sources: Mapping[str, str]) -> UnsupportedOperatorError:
    """The error for operators without a lowering: the first, naming the others.

    Args:
      sources: operator -> where it stands, in the order of the network.
    """
    operator, source = next(iter(sources.items()))
    others = sorted(set(sources) - {operator})
    reason = "it has no lowering to JAX"
    reason += f"; nor have {', '.join(others)}" if others else ""
    return unsupported(operator, source, reason)


def supported_operators() -> dict[str, str]:
    """Operator of torch -> restriction, sorted; the support table."""
    known = sorted(_load().items())
    return {name: one.restriction for name, one in known if not name.startswith("through.")}
