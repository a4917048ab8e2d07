"""Several networks in one checkpoint: whether they are one and the same, else how to save one."""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np

from converters.errors import safe_repr
from converters.pickles.numpy_values import ArrayRef
from converters.pickles.standins import Standin
from converters.tensors import TensorRef

Decoder = Callable[[dict[str, Any]], dict[str, np.ndarray]]
"""Arrays of the checked descriptions in a state dict."""


_WRAPPED = re.compile(r"^(?:(?:module|_orig_mod|model|net|network)\.)+")
_MOST_NAMES = 10_000


def bare_name(name: Any) -> str:
    """A weight's name without what wrappers put before it."""
    return _WRAPPED.sub("", name) if isinstance(name, str) else ""


def twins_of(checkpoint: dict, keys: Sequence[str]) -> list[str]:
    """Other keys of a checkpoint that hold a network like the first of `keys`.

    That is most of its weights' names, or of the first parts of those where one is a whole module.
    """
    chosen = checkpoint[keys[0]] if keys else None
    others = {k: v for k, v in checkpoint.items() if k not in keys and isinstance(k, str)}
    return [key for key, part in others.items() if _are_alike(chosen, part)]


def _are_alike(one: Any, other: Any) -> bool:
    names, others = _names(one), _names(other)
    if isinstance(one, Standin) or isinstance(other, Standin):
        names, others = ({name.partition(".")[0] for name in n} for n in (names, others))
    return bool(names) and 2 * len(names & others) > len(names)


def _names(network: Any) -> set[str]:
    """Of the tensors of a state dict, or of the submodules of a module."""
    if isinstance(network, Standin):
        parts = network.state.get("_modules")
        return (
            {name for name in parts if isinstance(name, str)} if isinstance(parts, dict) else set()
        )
    if not isinstance(network, dict):
        return set()
    first = islice(network.items(), _MOST_NAMES)
    return {bare_name(name) for name, value in first if is_tensor(value)} - {""}


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
