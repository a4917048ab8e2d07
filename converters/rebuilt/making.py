"""`built`: the torch network of a table's entry, of the widths of a file, without its weights."""

import re
import warnings
from collections.abc import Mapping
from typing import Any

from converters.errors import MismatchError
from converters.families.torch_layers import resize
from converters.rebuilt.description import Description, Shape
from converters.rebuilt.table import Build, KnownNetwork

# What constructors of torchvision raise for numbers that make no network.
_REFUSALS = (
    *(ValueError, TypeError, ZeroDivisionError, OverflowError, IndexError),
    *(RuntimeError, AssertionError),
)


def built(build: Build, family: KnownNetwork, described: Description) -> Any:
    """A network without memory for weights, of the widths of the file.

    Raises:
      MismatchError: its constructor does not take what the file says.
    """
    import torch

    with torch.device("meta"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = build(described).eval()
        except _REFUSALS as error:
            raise MismatchError(
                f"{family.name} cannot be made of these weights: {error}"
            ) from error
        _fit(module, described.shapes, family.free)
    return module


def _fit(module: Any, shapes: Mapping[str, Shape], free: str) -> None:
    """Layers whose width torchvision fixes take that of the file; kernels and groups stay."""
    for path, layer in module.named_modules():
        shape = shapes.get(f"{path}.weight")
        weight = getattr(layer, "weight", None)
        if shape is None or weight is None or not re.fullmatch(free, path):
            continue
        same = len(shape) == weight.ndim and shape[2:] == tuple(weight.shape[2:])
        if same and 0 not in shape and getattr(layer, "groups", 1) == 1:
            resize(layer, shape)
