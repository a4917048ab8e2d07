"""Orders: sort, topk, quantiles by position. Equal elements stay in their order."""

import jax.numpy as jnp

from converters.graph.lowerings.reductions import picked
from converters.graph.registry import lowers


def _order(x, dim: int, descending: bool):
    return jnp.argsort(x, axis=dim, stable=True, descending=descending)


def _sorted(x, dim: int, descending: bool):
    if not x.ndim:
        return x, jnp.zeros((), int)
    return picked(x, _order(x, dim, descending), dim, True)


@lowers("aten.sort.default")
def sort(x, dim, descending):
    """Sorted values and where they came from."""
    return _sorted(x, dim, descending)


@lowers("aten.sort.stable")
def sort_stable(x, dim, descending, stable):
    """Sorted values and where they came from."""
    del stable
    return _sorted(x, dim, descending)


@lowers("aten.argsort.default")
def argsort(x, dim, descending):
    """Where the sorted values came from."""
    return _sorted(x, dim, descending)[1]


@lowers("aten.argsort.stable")
def argsort_stable(x, dim, descending, stable):
    """Where the sorted values came from."""
    del stable
    return _sorted(x, dim, descending)[1]


@lowers("aten.topk.default")
def topk(x, k, dim, largest, sorted_):
    """The k largest or smallest values in order, and where they came from."""
    del sorted_
    if not x.ndim:
        return x, jnp.zeros((), int)
    order = _order(x, dim, largest)
    return picked(x, jnp.take(order, jnp.arange(k), axis=dim), dim, True)


@lowers("aten.kthvalue.default")
def kthvalue(x, k, dim, keepdim):
    """The k-th smallest value and where it came from."""
    if not x.ndim:
        return x, jnp.zeros((), int)
    place = jnp.take(_order(x, dim, False), jnp.array([k - 1]), axis=dim)
    return picked(x, place, dim, keepdim)


@lowers("aten.median.dim")
def median_over(x, dim, keepdim):
    """The lower median, or the first that is not a number, and where it came from."""
    if not x.ndim:
        return x, jnp.zeros((), int)
    place = jnp.take(_order(x, dim, False), jnp.array([(x.shape[dim] - 1) // 2]), axis=dim)
    unknown = jnp.isnan(x)
    first = jnp.argmax(unknown, axis=dim, keepdims=True)
    place = jnp.where(unknown.any(axis=dim, keepdims=True), first, place)
    return picked(x, place, dim, keepdim)


@lowers("aten.median.default")
def median(x):
    """The lower median of all elements."""
    return median_over(x.reshape(-1), 0, False)[0]
