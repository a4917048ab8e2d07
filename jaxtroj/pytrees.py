"""Frozen dataclasses as pytrees of jax, of which two of different classes are never taken for one.

`jax.tree_util.register_dataclass` (jax 0.10.2) gives objects of two classes with as many fields
structures that compare equal. Their hashes differ, so that a jitted function mostly keeps them
apart; but a run was seen in which one answered for an object of one class by the program of
another. Nodes that are registered by functions compare their types.
"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

import jax

T = TypeVar("T")


def pytree(cls: type[T]) -> type[T]:
    """Register a dataclass, as a decorator above `dataclass`.

    Its fields are children, but for those of `metadata={"static": True}`, which are hashable values
    that belong to the structure.
    """
    found = fields(cls)  # pyright: ignore[reportArgumentType]
    own = tuple(field.name for field in found if not field.metadata.get("static", False))
    static = tuple(field.name for field in found if field.name not in own)
    keys = tuple(map(jax.tree_util.GetAttrKey, own))

    def flattened(value: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return _values(value, own), _values(value, static)

    def with_keys(value: T) -> tuple[tuple[tuple[Any, Any], ...], tuple[Any, ...]]:
        return tuple(zip(keys, _values(value, own), strict=True)), _values(value, static)

    def unflattened(structure: Iterable[Any], children: Iterable[Any]) -> T:
        return cls(**dict(zip((*own, *static), (*children, *structure), strict=True)))

    jax.tree_util.register_pytree_with_keys(cls, with_keys, unflattened, flattened)
    return cls


def _values(value: object, names: Iterable[str]) -> tuple[Any, ...]:
    return tuple(getattr(value, name) for name in names)
