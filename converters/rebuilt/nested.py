"""Networks of torchvision as parts of a `Sequential`, and the layer that prepares their pictures.

torch runs the parts in the file's order, so such a file says what it computes as one of torch's own
layers does: each part is made as a whole network of its class is, from its own shapes and
attributes, and compared with what the file records like every other layer.
"""

import math
from typing import Any

from converters import families
from converters.errors import MismatchError, safe_repr
from converters.families.hyperparameters import check_modules
from converters.families.reference import empty_module
from converters.rebuilt.description import Description
from converters.rebuilt.making import built
from converters.rebuilt.table import class_entry, known_of
from converters.weights import Plain

NORMALIZE = "torchvision.transforms.transforms.Normalize"
"""Subtracts a mean from pictures and divides them by a deviation."""
_MOST_CHANNELS = 64
# Classes of families that have no entry in the table.
_OF_FAMILIES = ("torchvision.models.densenet.DenseNet", "torchvision.models.inception.Inception3")


def part(path: str, d: Description) -> Any | None:
    """What stands at `path`, if it is none of torch's layers; raises as `network`, `normalize`."""
    if d.modules[path].class_name == NORMALIZE:
        return normalize(path, d)
    return network(path, d)


def network(path: str, d: Description) -> Any | None:
    """The network at `path`, on torch's current device; None where its class is none of the table.

    Raises:
      MismatchError: it differs from the network that its class makes.
      UnsupportedArchitectureError: a variant of a family that is not converted.
    """
    if not is_network(d.modules[path].class_name):
        return None
    own = d.within(path)
    found = families.recognise(families.of_layers(own.shapes))
    if found is None:
        known = known_of(own.shapes, own.modules)
        return None if known is None else built(known.build, known, own)
    family, config = found
    config = family.with_hyperparameters(config, own.modules)
    check_modules(family, config, own.modules)
    return empty_module(config, own.shapes)


def is_network(class_name: str) -> bool:
    """Whether whole networks of a class are read, other than a `Sequential`."""
    found = class_entry(class_name)
    return class_name in _OF_FAMILIES or found is not None and bool(found.tensors)


def normalize(path: str, d: Description) -> Any:
    """torchvision's layer that prepares pictures, by its numbers.

    Raises:
      MismatchError: mean or deviation are no numbers, one for each channel, that can be used.
    """
    from torchvision.transforms import Normalize

    mean, std = (_numbers(path, key, d.attribute(path, key)) for key in ("mean", "std"))
    if not all(std):
        raise MismatchError(f"{path}.std holds a 0, expected numbers that pictures are divided by")
    return Normalize(mean, std)


def _numbers(path: str, key: str, value: Plain) -> list[float]:
    numbers = value if isinstance(value, tuple) else ()
    usable = [n for n in numbers if isinstance(n, int | float) and math.isfinite(n)]
    if not 1 <= len(usable) == len(numbers) <= _MOST_CHANNELS:
        raise MismatchError(
            f"{path}.{key} is {safe_repr(value)}, expected a list of finite numbers, one for each"
            " channel"
        )
    return [float(n) for n in usable]
