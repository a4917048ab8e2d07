"""Values and steps: what a graph becomes while it is built."""

from collections.abc import MutableMapping, Sequence
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


@dataclass(frozen=True)
class Units:
    """In what a tensor of whole numbers is measured.

    Attributes:
        kind: type of the whole numbers.
        scale, zero: as `DequantizeLinear` takes them; `zero` may be absent.
    """

    kind: torch.dtype
    scale: torch.Tensor
    zero: torch.Tensor | None = None


def units_of(inputs: Sequence[Value | None]) -> Units:
    """Those of the inputs of a `DequantizeLinear`."""
    data: list[Any] = [None if value is None else value.data for value in inputs]
    return Units(data[0].dtype, data[1], data[2] if len(data) > 2 else None)


def is_moved(data: torch.Tensor, made: Value) -> bool:
    """Whether a constant was made of another by moving its elements, or by nothing at all."""
    if made.kind == DATA or not isinstance(made.data, torch.Tensor):
        return False
    one, other = data.reshape(-1), made.data.reshape(-1)
    return one.shape == other.shape and one.sort().values.equal(other.sort().values)


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
