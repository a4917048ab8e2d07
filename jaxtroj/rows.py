"""Rows of arrays cut out, joined and padded.

XLA compiles a program for each shape of such a step: on CPUs hundreds of small ones took a first
scan longer than the network's. So NumPy does them there, to which arrays of jax are no copy.
Elsewhere pictures stay where they are, on the device or off it: only the rows asked for move.
"""

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")
"""An array with leading rows, or a pytree of such arrays."""


def taken(tree: Tree, index) -> Tree:
    """The rows at `index`, a number, a slice, None or an integer array, of every leaf.

    >>> taken({"a": jnp.arange(3)}, slice(1, 3))["a"].tolist()
    [1, 2]
    """
    return jax.tree.map(lambda leaf: jax.device_put(_where_cut(leaf)[index]), tree)


def joined(parts: Sequence[Tree]) -> Tree:
    """All rows of some trees of one structure, at least one."""

    def leaf(*leaves: jax.Array) -> jax.Array:
        own = [_where_cut(each) for each in leaves]
        return jax.device_put(_library(own[0]).concatenate(own))

    return parts[0] if len(parts) == 1 else jax.tree.map(leaf, *parts)


def padded(rows, size: int) -> jax.Array:
    """Rows `[n, ...]` with zeros after them, `[size, ...]`; as they are where none is missing.

    >>> padded(jnp.ones((1, 2)), 2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    missing = size - len(rows)
    if not missing:
        return jax.device_put(rows)
    own = _where_cut(rows)
    return jax.device_put(_library(own).pad(own, [(0, missing), *[(0, 0)] * (own.ndim - 1)]))


def _where_cut(leaf):
    return np.asarray(leaf) if jax.default_backend() == "cpu" else leaf


def _library(leaf):
    return np if isinstance(leaf, np.ndarray) else jnp
