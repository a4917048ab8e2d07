"""What torch and onnxruntime compute in float32, though values of half precision go in and out.

Squares of numbers beyond 256 do not fit float16: their sums, and what divides by them, are only
right in float32. The caller of a lowering casts its results to the type that torch recorded.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import jax.numpy as jnp

from converters.graph.graph import HALF
from converters.graph.layout import ChannelsLast, is_array


def in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """A lowering given its arrays of half precision in float32."""

    @wraps(function)
    def lowering(*args, **kwargs):
        wide = {name: widened(value) for name, value in kwargs.items()}
        return function(*map(widened, args), **wide)

    return lowering


def widened(value: Any) -> Any:
    """An array of half precision in float32; anything else as it is."""
    return as_type(value, jnp.float32) if is_array(value) and is_half(value.dtype) else value


def is_half(dtype: Any) -> bool:
    """Whether a type, or its name, is of half precision."""
    return str(dtype) in HALF


def as_type(value: Any, dtype: Any) -> Any:
    """An array, in whatever layout, in another type; as it is for None."""
    if dtype is None:
        return value
    if isinstance(value, ChannelsLast):
        return ChannelsLast(value.array.astype(dtype))
    return value.astype(dtype)
