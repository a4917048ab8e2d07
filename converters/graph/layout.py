"""Feature maps that lie in memory with channels last, while the graph speaks of channels first.

torch's graphs say NCHW; XLA on CPU runs NCHW convolutions 15 to 20 times slower inside loops. So
convolutions, pools and norms hand on `ChannelsLast` values, elementwise operators work on them as
they are, and whatever else needs torch's order gets it by a transposition.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class ChannelsLast:
    """A value `[n, c, ...]` of the graph, held as `[n, ..., c]`."""

    array: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape torch knows, channels second."""
        n, *space, c = self.array.shape
        return (n, c, *space)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim

    @property
    def dtype(self):
        """Element type."""
        return self.array.dtype


def is_array(value: Any) -> bool:
    """Whether a lowering's argument is a tensor."""
    return isinstance(value, (ChannelsLast, jax.Array, np.ndarray))


def logical(value: Any) -> Any:
    """An argument with every `ChannelsLast` in torch's order, tuples included."""
    if isinstance(value, ChannelsLast):
        return jnp.moveaxis(value.array, -1, 1)
    if isinstance(value, tuple):
        return tuple(logical(part) for part in value)
    return value


def physical(value: Any) -> Any:
    """An array with channels last, from either order."""
    return value.array if isinstance(value, ChannelsLast) else jnp.moveaxis(value, 1, -1)


def axis_of(dim: int, ndim: int) -> int:
    """Where dimension `dim` of torch's order lies in a `ChannelsLast` array.

    >>> [axis_of(dim, 4) for dim in (0, 1, 2, -1)]
    [0, 3, 1, 2]
    """
    dim = dim % ndim
    return 0 if dim == 0 else ndim - 1 if dim == 1 else dim - 1


def agree(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
    """Arguments of an elementwise operator in one layout, and whether that is channels last.

    Channels last is kept where no argument has more dimensions than the one that is; arrays of
    fewer dimensions broadcast as in torch, from the right.
    """
    arrays = [a for a in _leaves(args) if is_array(a)]
    rank = max((a.ndim for a in arrays), default=0)
    if not any(isinstance(a, ChannelsLast) and a.ndim == rank for a in arrays):
        return logical(args), False
    return _align(args, rank), True


def _leaves(args: tuple[Any, ...]):
    for arg in args:
        if isinstance(arg, tuple):
            yield from _leaves(arg)
        else:
            yield arg


def _align(value: Any, rank: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_align(part, rank) for part in value)
    if isinstance(value, ChannelsLast) and value.ndim == rank:
        return value.array
    if not is_array(value) or value.ndim == 0:
        return value
    array = logical(value)
    return jnp.moveaxis(jnp.reshape(array, (1,) * (rank - array.ndim) + array.shape), 1, -1)
