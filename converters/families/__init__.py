"""The hand-written Flax families, found by the names and shapes of the tensors in a file."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from converters.errors import MismatchError
from converters.families import dense_head, densenet, inception, resnet, rnn_head
from converters.families.family import Family, Shapes
from converters.families.nearest import refuse_nearly_fitting

# In the order in which files are compared with them; a new family is one row.
FAMILIES: dict[str, Family[Any]] = {
    family.name: family
    for family in (
        resnet.FAMILY,
        densenet.FAMILY,
        inception.FAMILY,
        rnn_head.FAMILY,
        dense_head.FAMILY,
    )
}


def standards() -> dict[str, Family[Any]]:
    """The family of every architecture that name and number of classes describe fully."""
    named = (f for f in FAMILIES.values() if f.standard is not None)
    return {architecture: family for family in named for architecture in family.architectures}


def standard(architecture: str, num_classes: int):
    """Configuration of a network by its architecture, torchvision's name for it.

    Raises:
      KeyError: the name is not one of `standards`.
    """
    known = standards()
    make = known[architecture].standard if architecture in known else None
    if make is None:
        raise KeyError(
            f"unknown architecture {architecture!r}; expected one of {', '.join(sorted(known))}"
        )
    return make(architecture, num_classes)


def build(architecture: str, num_classes: int, rngs):
    """Configuration and freshly initialised trainable NNX module of a standard architecture."""
    config = standard(architecture, num_classes)
    return config, config.build(rngs)


def family_of(config) -> Family[Any] | None:
    """The family that a configuration belongs to; None for that of a captured graph."""
    return next((f for f in FAMILIES.values() if f.config is type(config)), None)


def recognise(shapes: Shapes) -> tuple[Family[Any], Any] | None:
    """Family and configuration read off torch tensor shapes, or None for any other network.

    Raises:
      UnsupportedArchitectureError: a variant of a family that it does not convert.
    """
    for family in FAMILIES.values():
        config = family.recognise(shapes)
        if config is not None:
            return family, config
    return None


def refuse_like(shapes: Shapes) -> None:
    """Raise for a file that no family recognises and that comes near one.

    Raises:
      UnsupportedArchitectureError: most names are those of a family and some are not.
    """
    refuse_nearly_fitting(FAMILIES.values(), shapes)


def of_layers(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Shapes that can name a family's layer: convolutions have four dimensions, matrices two."""
    return {
        name: tuple(shape)
        for name, shape in shapes.items()
        if 0 not in shape and (len(shape) in (2, 4) or name.rpartition(".")[2].startswith("bias"))
    }


def current_names(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors under the names that torchvision writes today.

    Raises:
      MismatchError: a tensor is there under two of its names.
    """
    changes = [pair for family in FAMILIES.values() for pair in family.old_names.items()]
    renamed: dict[str, str] = {}
    for name in tensors:
        current = _renamed(name, changes)
        if current in renamed:
            raise MismatchError(
                f"{renamed[current]} and {name} are two names of one tensor; expected one of them"
            )
        renamed[current] = name
    return {current: tensors[name] for current, name in renamed.items()}


def _renamed(name: str, changes: list[tuple[str, str]]) -> str:
    for pattern, replacement in changes:
        name = re.sub(pattern, replacement, name)
    return name
