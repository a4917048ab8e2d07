"""Several networks in one checkpoint: whether they are one and the same, else how to save one."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from converters.errors import safe_repr
from converters.pickles.numpy_values import ArrayRef
from converters.tensors import TensorRef

Decoder = Callable[[dict[str, Any]], dict[str, np.ndarray]]
"""Arrays of the checked descriptions in a state dict."""


def is_tensor(value: Any) -> bool:
    """Whether an unpickled value describes a tensor or an array."""
    return isinstance(value, (TensorRef, ArrayRef))


def are_equal(networks: Sequence[Any], decode: Decoder) -> bool:
    """Whether these are state dicts with the same tensors, bit for bit.

    They must hold nothing else, so that no reader finds something else in one of them.
    """
    if not all(_is_plain(network) for network in networks):
        return False
    first, *others = networks
    if any(other.keys() != first.keys() for other in others):
        return False
    expected = decode(first)
    return all(_same(expected, decode(other)) for other in others)


def _is_plain(network: Any) -> bool:
    return isinstance(network, dict) and all(
        isinstance(name, str) and is_tensor(value) for name, value in network.items()
    )


def _same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(_bits(array) == _bits(other[name]) for name, array in one.items())


def _bits(array: np.ndarray) -> tuple[np.dtype, tuple[int, ...], bytes]:
    """By bits a NaN equals itself, and 0 is not -0."""
    return array.dtype, array.shape, array.tobytes()


def how_to_save(path: Sequence[str], key: str, classes: Sequence[str] = ()) -> str:
    """The line of torch that saves one network of a checkpoint, in a file of its own.

    Args:
        path: keys to the dict that holds the networks.
        key: of the network.
        classes: full names of the other classes in it, which torch has to be told of.

    >>> how_to_save(["best"], "ema")
    "torch.save(torch.load(FILE, weights_only=True)['best']['ema'], 'one.pth')"
    """
    place = "".join(f"[{safe_repr(part)}]" for part in (*path, key))
    line = f"torch.save(torch.load(FILE, weights_only=True){place}, 'one.pth')"
    if not classes:
        return line
    return f"torch.serialization.add_safe_globals([{', '.join(classes)}]); {line}"
