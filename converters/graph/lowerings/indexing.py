"""Elements by index tensors: gathering, scattering, embedding."""

import jax.numpy as jnp
import numpy as np

from converters.graph.registry import Restricted, lowers


def _static(index) -> bool:
    return isinstance(index, np.ndarray)


def _indices(indices: tuple) -> tuple:
    """torch's index tensors for jax; masks must be constants, whole dimensions are None."""
    out = []
    for index in indices:
        if index is None:
            out.append(slice(None))
        elif index.dtype in (bool, np.uint8):
            if not _static(index):
                raise Restricted("a mask that depends on the input decides the shape")
            out.extend(np.nonzero(index))
        else:
            out.append(index)
    return tuple(out)


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index_(x, indices):
    """Elements by index tensors, one per leading dimension."""
    return jnp.asarray(x)[_indices(indices)]


@lowers("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default")
def index_put(x, indices, values, accumulate, unsafe=False):
    """x with elements replaced, or added to."""
    del unsafe
    x = jnp.asarray(x)
    masks = [i for i in indices if i is not None and i.dtype in (bool, np.uint8)]
    if masks and not all(map(_static, masks)):
        return _put_masked(x, indices, values, accumulate)
    place = x.at[_indices(indices)]
    return place.add(values) if accumulate else place.set(values)


def _put_masked(x, indices, values, accumulate):
    """One mask over the leading dimensions and one value for all of them."""
    if len(indices) != 1 or np.size(values) != 1:
        raise Restricted("a mask that depends on the input picks out several values")
    mask = indices[0].astype(bool)
    mask = mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))
    value = jnp.asarray(values).reshape(()).astype(x.dtype)
    return jnp.where(mask, x + value if accumulate else value, x)


@lowers("aten.index_select.default")
def index_select(x, dim, index):
    """Slices along a dimension."""
    return jnp.take(x, jnp.atleast_1d(index), axis=dim) if x.ndim else jnp.asarray(x)


@lowers("aten.take.default")
def take(x, index):
    """Elements by their flat position."""
    return jnp.take(x.reshape(-1), index)


@lowers("aten.take_along_dim.default")
def take_along(x, index, dim):
    """Elements by their position along a dimension."""
    if dim is None:
        return jnp.take_along_axis(x.reshape(-1), index.reshape(-1), 0)
    return jnp.take_along_axis(x, index, dim)


def _grid(x, dim: int, index) -> tuple:
    """Index tensors that let `index` decide one dimension and leave the others."""
    dim = dim % x.ndim
    axes = np.ogrid[tuple(slice(n) for n in index.shape)]
    return tuple(index if axis == dim else axes[axis] for axis in range(x.ndim))


def _vector(x):
    return jnp.asarray(x).reshape(-1) if not x.ndim else jnp.asarray(x)


@lowers("aten.gather.default")
def gather(x, dim, index, sparse_grad=False):
    """Elements whose position along a dimension is given; the other axes may be shorter."""
    del sparse_grad
    return _vector(x)[_grid(_vector(x), dim, _vector(index))].reshape(index.shape)


def _scatter(x, dim, index, source, how: str):
    flat, index_ = _vector(x), _vector(index)
    place = flat.at[_grid(flat, dim, index_)]
    if hasattr(source, "ndim"):
        source = _vector(source)
        if source.ndim:
            source = source[tuple(slice(n) for n in index_.shape)]
    return getattr(place, how)(source).reshape(x.shape)


@lowers("aten.scatter.src", "aten.scatter.value")
def scatter(x, dim, index, source):
    """x with elements replaced along a dimension."""
    return _scatter(x, dim, index, source, "set")


_REDUCES = {
    "add": "add",
    "multiply": "multiply",
    "sum": "add",
    "prod": "multiply",
    "amax": "max",
    "amin": "min",
}


@lowers("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_combining(x, dim, index, source, reduce):
    """x with elements added or multiplied in along a dimension."""
    return _scatter(x, dim, index, source, _REDUCES[reduce])


@lowers("aten.scatter_add.default")
def scatter_add(x, dim, index, source):
    """x with elements added along a dimension."""
    return _scatter(x, dim, index, source, "add")


@lowers("aten.scatter_reduce.two", restriction="sum, prod, amax, amin of what is there already")
def scatter_reduce(x, dim, index, source, reduce, include_self):
    """x with elements combined along a dimension."""
    if reduce not in _REDUCES or not include_self:
        raise Restricted(f"{reduce!r} with include_self={include_self}")
    return _scatter(x, dim, index, source, _REDUCES[reduce])


def _slices(x, dim: int, index) -> tuple:
    index_: list = [slice(None)] * x.ndim
    index_[dim] = index
    return tuple(index_)


@lowers("aten.index_add.default")
def index_add(x, dim, index, source, alpha):
    """x with slices added along a dimension."""
    return jnp.asarray(x).at[_slices(x, dim, index)].add(alpha * source)


@lowers("aten.index_copy.default")
def index_copy(x, dim, index, source):
    """x with slices replaced along a dimension."""
    return jnp.asarray(x).at[_slices(x, dim, index)].set(source)


@lowers("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(x, dim, index, value):
    """x with slices filled along a dimension."""
    return jnp.asarray(x).at[_slices(x, dim, index)].set(value)


@lowers("aten.embedding.default")
def embedding(weight, index, padding_idx=-1, scale_grad=False, sparse=False):
    """Rows of a table."""
    del padding_idx, scale_grad, sparse
    return jnp.take(weight, index, axis=0)


@lowers("aten.one_hot.default")
def one_hot(index, classes):
    """Ones at the positions given; a number outside of them is an error in torch."""
    if classes < 1:
        raise Restricted("the number of classes depends on the input")
    return (jnp.expand_dims(index, -1) == np.arange(classes)).astype(int)
