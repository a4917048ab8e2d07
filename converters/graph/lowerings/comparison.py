"""Comparisons, logic, bits, choices and bounds."""

import functools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from converters.graph.layout import is_array
from converters.graph.registry import ELEMENTWISE, lowers

_COMPARISONS = {
    "eq": jnp.equal,
    "ge": jnp.greater_equal,
    "gt": jnp.greater,
    "le": jnp.less_equal,
    "lt": jnp.less,
    "ne": jnp.not_equal,
}
_LOGIC = {
    "isfinite": jnp.isfinite,
    "isinf": jnp.isinf,
    "isnan": jnp.isnan,
    "isneginf": jnp.isneginf,
    "isposinf": jnp.isposinf,
    "signbit": jnp.signbit,
    "logical_and": jnp.logical_and,
    "logical_not": jnp.logical_not,
    "logical_or": jnp.logical_or,
    "logical_xor": jnp.logical_xor,
    "bitwise_not": jnp.bitwise_not,
}
_BITS = {
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "__and__": jnp.bitwise_and,
    "__or__": jnp.bitwise_or,
    "__xor__": jnp.bitwise_xor,
}


def promoted(function: Callable) -> Callable:
    """Bring an operand without axes to the type of one of its kind with axes, as torch does.

    JAX would take the wider type: beside bytes, torch's 300 is 44.
    """

    @functools.wraps(function)
    def computed(x, y, *rest, **named):
        if _is_tensor(x) and _is_tensor(y) and _one_kind(x.dtype, y.dtype):
            if x.ndim and not y.ndim:
                y = y.astype(x.dtype)
            elif y.ndim and not x.ndim:
                x = x.astype(y.dtype)
        return function(x, y, *rest, **named)

    return computed


def _is_tensor(value) -> bool:
    """Static tensors without axes may come as NumPy's numbers."""
    return is_array(value) or isinstance(value, np.generic)


def _one_kind(*dtypes) -> bool:
    return any(all(jnp.issubdtype(d, kind) for d in dtypes) for kind in (jnp.integer, jnp.floating))


for _names, _kinds in ((_COMPARISONS, ("Tensor", "Scalar")), (_BITS, ("Tensor", "Scalar"))):
    for _name, _function in _names.items():
        lowers(*(f"aten.{_name}.{kind}" for kind in _kinds), layout=ELEMENTWISE)(
            promoted(_function)
        )
for _name, _function in _LOGIC.items():
    lowers(f"aten.{_name}.default", layout=ELEMENTWISE)(_function)


@lowers(
    "aten.where.self",
    "aten.where.ScalarSelf",
    "aten.where.ScalarOther",
    "aten.where.Scalar",
    layout=ELEMENTWISE,
)
def where(condition, x, y):
    """x where the condition holds, else y."""
    return jnp.where(condition.astype(bool), x, y)


@lowers("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", layout=ELEMENTWISE)
def masked_fill(x, mask, value):
    """x with `value` where the mask is set."""
    return jnp.where(mask, jnp.asarray(value, x.dtype), x)


@lowers("aten.clamp.default", layout=ELEMENTWISE)
def clamp(x, low, high):
    """x within bounds; the gradient at a bound is zero, as in torch 2.15."""
    dtype = jnp.result_type(x, *(b for b in (low, high) if b is not None))
    x = jnp.asarray(x, dtype)
    if any(bound is not None and bound != bound for bound in (low, high)):
        return jnp.full_like(x, jnp.nan)
    if low is not None:
        x = jnp.where(x <= low, jnp.asarray(low, dtype), x)
    # Last, so that an upper bound below the lower one wins, as in torch.
    return x if high is None else jnp.where(x >= high, jnp.asarray(high, dtype), x)


@lowers("aten.clamp.Tensor", layout=ELEMENTWISE)
def clamp_to(x, low, high):
    """x within bounds that are tensors; they share the gradient where they are met."""
    x = x if low is None else promoted(jnp.maximum)(x, low)
    return x if high is None else promoted(jnp.minimum)(x, high)


@lowers("aten.clamp_min.default", layout=ELEMENTWISE)
def clamp_min(x, low):
    """x, or the bound where x is below."""
    return clamp(x, low, None)


@lowers("aten.clamp_max.default", layout=ELEMENTWISE)
def clamp_max(x, high):
    """x, or the bound where x is above."""
    return clamp(x, None, high)


lowers("aten.clamp_min.Tensor", layout=ELEMENTWISE)(promoted(jnp.maximum))
lowers("aten.clamp_max.Tensor", layout=ELEMENTWISE)(promoted(jnp.minimum))


@lowers("aten.isclose.default")
def isclose(x, y, rtol, atol, equal_nan):
    """Whether x and y agree within tolerances."""
    return jnp.isclose(x, y, rtol, atol, equal_nan)


@lowers("aten.isin.Tensor_Tensor")
def isin(elements, tests, assume_unique, invert):
    """Whether each element is among the tests."""
    del assume_unique
    return jnp.isin(elements, tests, invert=invert)


@lowers("aten.bucketize.Tensor")
def bucketize(x, boundaries, out_int32, right):
    """Number of the bucket each element falls in."""
    del out_int32
    return jnp.searchsorted(boundaries, x, side="right" if right else "left")
