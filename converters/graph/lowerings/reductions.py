"""Reductions over dimensions, and running sums and the like."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from converters.graph.layout import ChannelsLast, axis_of, logical
from converters.graph.lowerings.arithmetic import square_root
from converters.graph.precision import as_type, in_float32, widened
from converters.graph.registry import OWN, Restricted, lowers


def _axes(dim, ndim: int) -> tuple[int, ...]:
    """Dimensions as torch gives them (None or none at all means every one), counted from 0."""
    if dim is None or dim == ():
        return tuple(range(ndim))
    dims = (dim,) if isinstance(dim, int) else dim
    return tuple(sorted(d % max(ndim, 1) for d in dims)) if ndim else ()


def reduced(function, x, dim=None, keepdim=False) -> Any:
    """`function(x, axis=..., keepdims=...)` over torch's dimensions, in the layout x has."""
    axes = _axes(dim, x.ndim)
    if not isinstance(x, ChannelsLast):
        return function(x, axis=axes, keepdims=keepdim)
    last = tuple(axis_of(d, x.ndim) for d in axes)
    kept = ChannelsLast(function(x.array, axis=last, keepdims=True))
    return kept if keepdim else jnp.squeeze(logical(kept), axes)


@lowers("aten.sum.dim_IntList", layout=OWN)
def sum_over(x, dim, keepdim, dtype=None):
    """Sum over dimensions."""
    x = as_type(x, dtype)
    return reduced(lambda a, **k: jnp.sum(a, dtype=_wide(a), **k), x, dim, keepdim)


@lowers("aten.sum.default", layout=OWN)
def sum_all(x, dtype=None):
    """Sum of all elements."""
    return sum_over(x, None, False, dtype)


@lowers("aten.mean.dim", layout=OWN)
@in_float32
def mean_over(x, dim, keepdim, dtype=None):
    """Mean over dimensions."""
    del dtype  # unlike a sum it is not taken of numbers in that type
    return reduced(jnp.mean, x, dim, keepdim)


@lowers("aten.mean.default", layout=OWN)
def mean_all(x, dtype=None):
    """Mean of all elements."""
    return mean_over(x, None, False, dtype)


def _wide(x):
    """The type to add up in: whole numbers in the widest, as torch does; half ones in float32."""
    return jax.dtypes.canonicalize_dtype(np.int64) if x.dtype.kind in "biu" else None


@lowers("aten.nansum.default")
def nansum(x, dim, keepdim, dtype=None):
    """Sum over dimensions, NaN as zero."""
    x = as_type(x, dtype)
    return reduced(lambda a, **k: jnp.nansum(a, dtype=_wide(a), **k), x, dim, keepdim)


@lowers("aten.amax.default", layout=OWN)
def amax(x, dim, keepdim):
    """Maximum over dimensions; equal maxima share the gradient."""
    return reduced(jnp.max, x, dim, keepdim)


@lowers("aten.amin.default", layout=OWN)
def amin(x, dim, keepdim):
    """Minimum over dimensions; equal minima share the gradient."""
    return reduced(jnp.min, x, dim, keepdim)


@lowers("aten.max.default")
def max_all(x):
    """Largest element."""
    return jnp.max(x)


@lowers("aten.min.default")
def min_all(x):
    """Smallest element."""
    return jnp.min(x)


@lowers("aten.aminmax.default")
def aminmax(x, dim, keepdim):
    """Minimum and maximum."""
    return reduced(jnp.min, x, dim, keepdim), reduced(jnp.max, x, dim, keepdim)


def picked(x, order, dim: int, keepdim: bool):
    """Values at positions `order` (with the dimension kept) and the positions."""
    values = jnp.take_along_axis(x, order, axis=dim)
    return (values, order) if keepdim else (jnp.squeeze(values, dim), jnp.squeeze(order, dim))


def _extreme(function, x, dim, keepdim):
    if not x.ndim:
        return x, jnp.zeros((), int)
    return picked(x, function(x, axis=dim, keepdims=True), dim, keepdim)


@lowers("aten.max.dim")
def max_over(x, dim, keepdim):
    """Maximum over a dimension and its first position."""
    return _extreme(jnp.argmax, x, dim, keepdim)


@lowers("aten.min.dim")
def min_over(x, dim, keepdim):
    """Minimum over a dimension and its first position."""
    return _extreme(jnp.argmin, x, dim, keepdim)


@lowers("aten.argmax.default")
def argmax(x, dim, keepdim):
    """First position of the maximum."""
    return jnp.argmax(x, axis=dim if x.ndim else None, keepdims=keepdim)


@lowers("aten.argmin.default")
def argmin(x, dim, keepdim):
    """First position of the minimum."""
    return jnp.argmin(x, axis=dim if x.ndim else None, keepdims=keepdim)


@lowers("aten.prod.default")
def product(x, dtype=None):
    """Product of all elements."""
    return product_over(x, None, False, dtype)


@lowers("aten.prod.dim_int")
def product_over(x, dim, keepdim, dtype=None):
    """Product over a dimension; half ones step by step in their own type, as torch does."""
    x = as_type(x, dtype)
    return reduced(lambda a, **k: jnp.prod(a, dtype=_wide(a) or a.dtype, **k), x, dim, keepdim)


@lowers("aten.logsumexp.default")
def logsumexp(x, dim, keepdim):
    """Logarithm of the sum of exponentials."""
    return reduced(jax.nn.logsumexp, x, dim, keepdim)


@lowers("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_of(x, dim=None, keepdim=False):
    """Whether all elements are non-zero."""
    return reduced(jnp.all, x, dim, keepdim)


@lowers("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_of(x, dim=None, keepdim=False):
    """Whether an element is non-zero."""
    return reduced(jnp.any, x, dim, keepdim)


@lowers("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(x, dim=None):
    """Number of elements that are not zero."""
    return reduced(jnp.count_nonzero, x, dim)


@in_float32
def _spread(x, dim, correction, keepdim):
    """Variance and mean over dimensions; the degrees of freedom are n - correction."""
    mean = reduced(jnp.mean, x, dim, True)
    axes = _axes(dim, x.ndim)
    count = math.prod(x.shape[a] for a in axes)
    squares = reduced(jnp.sum, jnp.square(x - mean), dim, keepdim)
    freedom = count - (1 if correction is None else correction)
    return squares / max(freedom, 0), mean if keepdim else jnp.squeeze(mean, axes)


@lowers("aten.var.correction")
def variance(x, dim, correction, keepdim):
    """Variance."""
    return _spread(x, dim, correction, keepdim)[0]


@lowers("aten.std.correction")
def deviation(x, dim, correction, keepdim):
    """Standard deviation; its gradient is 0 where it is 0, as torch has it."""
    return square_root(_spread(x, dim, correction, keepdim)[0])


@lowers("aten.var_mean.correction")
def variance_and_mean(x, dim, correction, keepdim):
    """Variance and mean."""
    return _spread(x, dim, correction, keepdim)


@lowers("aten.std_mean.correction")
def deviation_and_mean(x, dim, correction, keepdim):
    """Standard deviation and mean."""
    spread, mean = _spread(x, dim, correction, keepdim)
    return square_root(spread), mean


@lowers("aten.norm.ScalarOpt_dim", "aten.norm.Scalar", "aten.norm.ScalarOpt_dim_dtype")
def norm(x, p=2, dim=None, keepdim=False, dtype=None):
    """The p-norm; its gradient at zero is zero."""
    return vector_norm(x, 2 if p is None else p, dim, keepdim, dtype)


@lowers("aten.linalg_vector_norm.default")
@in_float32
def vector_norm(x, order, dim, keepdim, dtype=None):
    """The norm of that order over dimensions; its gradient at zero is zero."""
    del dtype
    size = jnp.abs(x)
    if order in (math.inf, -math.inf):
        return reduced(jnp.max if order > 0 else jnp.min, size, dim, keepdim)
    if order == 0:
        return reduced(jnp.sum, (x != 0).astype(x.dtype), dim, keepdim)
    if order == 1:
        return reduced(jnp.sum, size, dim, keepdim)
    total = reduced(
        jnp.sum, jnp.power(size, int(order) if order == int(order) else order), dim, keepdim
    )
    if order < 0:
        return jnp.power(total, 1 / order).astype(total.dtype)
    is_zero = total == 0  # not of NaN, which stays
    safe = jnp.where(is_zero, 1, total)
    root = jnp.sqrt(safe) if order == 2 else jnp.power(safe, 1 / order)
    return jnp.where(is_zero, 0, root).astype(root.dtype)


@lowers("aten.cumsum.default")
def cumsum(x, dim, dtype=None):
    """Running sum."""
    x = widened(as_type(x, dtype))
    return jnp.cumsum(x, axis=dim, dtype=_wide(x)) if x.ndim else x


@lowers("aten.cumprod.default")
def cumprod(x, dim, dtype=None):
    """Running product."""
    x = widened(as_type(x, dtype))
    return jnp.cumprod(x, axis=dim, dtype=_wide(x)) if x.ndim else x


@lowers("aten.logcumsumexp.default")
@in_float32
def logcumsumexp(x, dim):
    """Running logarithm of the sum of exponentials."""
    return lax.cumlogsumexp(x, axis=dim % x.ndim) if x.ndim else x


def _running(better, x, dim):
    """Running extreme and its last position."""
    place = jnp.broadcast_to(
        jnp.arange(x.shape[dim]).reshape([-1 if a == dim % x.ndim else 1 for a in range(x.ndim)]),
        x.shape,
    )

    def choose(left, right):
        # What is not a number is beyond all numbers, as in torch.
        later = better(right[0], left[0]) | jnp.isnan(right[0])
        return jnp.where(later, right[0], left[0]), jnp.where(later, right[1], left[1])

    return lax.associative_scan(choose, (x, place), axis=dim % x.ndim)


@lowers("aten.cummax.default")
def cummax(x, dim):
    """Running maximum and its last position."""
    if not x.ndim:
        raise Restricted("a running maximum of a single number")
    return _running(jnp.greater_equal, x, dim)


@lowers("aten.cummin.default")
def cummin(x, dim):
    """Running minimum and its last position."""
    if not x.ndim:
        raise Restricted("a running minimum of a single number")
    return _running(jnp.less_equal, x, dim)


@lowers("aten.trace.default")
def trace(x):
    """Sum of the diagonal."""
    return jnp.trace(x)
