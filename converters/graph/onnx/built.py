"""Values and steps: what a graph becomes while it is built."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import torch

from converters.errors import ConversionError, safe_repr

CONSTANT, WEIGHT, DATA = range(3)


@dataclass(frozen=True)
class Value:
    """A value of the graph while it is built.

    Attributes:
        name: unique in the built module.
        data: tensor, list of tensors (a sequence) or None (an absent optional).
        kind: CONSTANT, WEIGHT or DATA.
    """

    name: str
    data: Any
    kind: int


@dataclass(frozen=True)
class Step:
    """One module call: the names it reads (None for an absent input) and the names it makes."""

    node: str
    module: torch.nn.Module
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]


Scope = MutableMapping[str, Value | None]


def lookup(name: str, scope: Scope) -> Value | None:
    """The value of a name; raises ConversionError where nothing makes it."""
    try:
        return scope[name]
    except KeyError:
        raise ConversionError(
            f"value {safe_repr(name)} is used and never made: a weight is missing or the nodes "
            "form a cycle"
        ) from None
