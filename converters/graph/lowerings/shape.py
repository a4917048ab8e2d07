"""Shapes, orders and joins: what moves elements without looking at them."""

import jax.numpy as jnp
from jax import lax

from converters.graph.layout import ChannelsLast, axis_of, logical
from converters.graph.registry import OWN, Restricted, lowers


@lowers(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.view_copy.default",
)
def reshape(x, shape):
    """x in another shape; -1 is what is left."""
    return jnp.reshape(x, shape)


@lowers("aten.flatten.using_ints")
def flatten(x, start, end):
    """Dimensions from `start` to `end` as one."""
    if not x.ndim:
        return x.reshape(1)
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


@lowers("aten.unflatten.int")
def unflatten(x, dim, sizes):
    """One dimension as several."""
    dim = dim % x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


@lowers("aten.permute.default", "aten.permute_copy.default", layout=OWN)
def permute(x, dims):
    """Dimensions in another order; what only renames the layout moves nothing."""
    dims = tuple(d % max(x.ndim, 1) for d in dims)
    if isinstance(x, ChannelsLast):
        return jnp.transpose(x.array, [axis_of(d, x.ndim) for d in dims])
    if x.ndim > 2 and dims == (0, x.ndim - 1, *range(1, x.ndim - 1)):
        return ChannelsLast(jnp.asarray(x))
    return jnp.transpose(x, dims)


@lowers("aten.transpose.int", "aten.swapaxes.default", "aten.transpose_copy.int")
def transpose(x, a, b):
    """Two dimensions exchanged."""
    return jnp.swapaxes(x, a, b) if x.ndim else x


@lowers("aten.t.default", "aten.numpy_T.default", "aten.t_copy.default")
def matrix_transpose(x):
    """Dimensions in reverse order."""
    return jnp.transpose(x)


@lowers("aten.mT.default", "aten.adjoint.default")
def last_transpose(x):
    """The last two dimensions exchanged."""
    return jnp.swapaxes(x, -1, -2)


@lowers("aten.movedim.intlist", "aten.movedim.int")
def movedim(x, source, destination):
    """Dimensions moved elsewhere."""
    return jnp.moveaxis(x, source, destination)


@lowers("aten.expand.default", "aten.expand_copy.default", "aten.broadcast_to.default")
def expand(x, shape, implicit=False):
    """x repeated along dimensions of size 1; -1 keeps a size."""
    del implicit
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(o if s == -1 else s for s, o in zip(shape, own, strict=True)))


@lowers("aten.expand_as.default")
def expand_as(x, other):
    """x repeated to another's shape."""
    return jnp.broadcast_to(x, other.shape)


@lowers("aten.unsqueeze.default", "aten.unsqueeze_copy.default")
def unsqueeze(x, dim):
    """A dimension of size 1 more."""
    return jnp.expand_dims(x, dim)


@lowers("aten.squeeze.default")
def squeeze(x):
    """No dimension of size 1."""
    return jnp.squeeze(x)


@lowers("aten.squeeze.dim", "aten.squeeze.dims", "aten.squeeze_copy.dims")
def squeeze_dims(x, dims):
    """Without those of the dimensions that have size 1."""
    dims = (dims,) if isinstance(dims, int) else dims
    return jnp.squeeze(x, tuple(d % x.ndim for d in dims if x.ndim and x.shape[d] == 1))


@lowers("aten.cat.default", "aten.concat.default", layout=OWN)
def concatenate(parts, dim):
    """Tensors joined along a dimension; empty vectors are skipped, as torch does."""
    parts = [p for p in parts if p.ndim != 1 or p.shape[0]] or list(parts[:1])
    last = [isinstance(p, ChannelsLast) for p in parts]
    if any(last) and parts[0].ndim > 2:
        arrays = [p.array if isinstance(p, ChannelsLast) else jnp.moveaxis(p, 1, -1) for p in parts]
        return ChannelsLast(jnp.concatenate(arrays, axis_of(dim, arrays[0].ndim)))
    return jnp.concatenate([logical(p) for p in parts], dim)


@lowers("aten.stack.default")
def stack(parts, dim):
    """Tensors joined along a new dimension."""
    return jnp.stack(parts, dim)


def _cut(x, sizes, dim):
    """Consecutive parts of x of these sizes."""
    last = isinstance(x, ChannelsLast)
    array, axis = (x.array, axis_of(dim, x.ndim)) if last else (jnp.asarray(x), dim)
    edges = [sum(sizes[: i + 1]) for i in range(len(sizes) - 1)]
    parts = jnp.split(array, edges, axis)
    return tuple(ChannelsLast(part) if last else part for part in parts)


@lowers("aten.split_with_sizes.default", "aten.split_with_sizes_copy.default", layout=OWN)
def split_with_sizes(x, sizes, dim):
    """Consecutive parts of given sizes."""
    return _cut(x, sizes, dim)


@lowers("aten.split.Tensor", "aten.split.sizes", "aten.split_copy.Tensor", layout=OWN)
def split(x, size, dim):
    """Consecutive parts of one size, the last may be smaller."""
    if not isinstance(size, int):
        return _cut(x, size, dim)
    total = x.shape[dim]
    if total == 0:
        return _cut(x, (0,), dim)
    return _cut(x, tuple(min(size, total - i) for i in range(0, total, size)), dim)


@lowers("aten.chunk.default", layout=OWN)
def chunk(x, chunks, dim):
    """At most that many consecutive parts of one size."""
    return split(x, max(1, -(-x.shape[dim] // chunks)), dim)


@lowers("aten.tensor_split.sections")
def tensor_split(x, sections, dim):
    """That many consecutive parts, the first ones larger by one."""
    return tuple(jnp.array_split(x, sections, dim))


@lowers("aten.unbind.int", "aten.unbind_copy.int")
def unbind(x, dim):
    """The slices along a dimension."""
    return tuple(jnp.moveaxis(x, dim, 0))


@lowers("aten.repeat.default", "aten.tile.default")
def repeat(x, repeats):
    """x repeated along its dimensions, new ones in front."""
    return jnp.tile(x, repeats)


@lowers("aten.repeat_interleave.self_int")
def repeat_interleave(x, repeats, dim, output_size=None):
    """Each element repeated."""
    return jnp.repeat(x, repeats, axis=dim, total_repeat_length=output_size)


@lowers("aten.flip.default")
def flip(x, dims):
    """Dimensions in reverse."""
    return jnp.flip(x, dims)


@lowers("aten.roll.default")
def roll(x, shifts, dims):
    """x rotated along dimensions, flat if none is given."""
    return jnp.roll(x, shifts, dims) if dims else jnp.roll(x, shifts[0] if shifts else 0)


@lowers("aten.rot90.default")
def rot90(x, k, dims):
    """x turned by right angles."""
    return jnp.rot90(x, k, dims)


@lowers("aten.pixel_shuffle.default")
def pixel_shuffle(x, factor):
    """Channels as pixels: `[..., c r r, h, w]` to `[..., c, h r, w r]`."""
    *lead, c, h, w = x.shape
    x = x.reshape(-1, c // factor**2, factor, factor, h, w)
    return x.transpose(0, 1, 4, 2, 5, 3).reshape(*lead, -1, h * factor, w * factor)


@lowers("aten.pixel_unshuffle.default")
def pixel_unshuffle(x, factor):
    """Pixels as channels, the inverse of `pixel_shuffle`."""
    *lead, c, h, w = x.shape
    x = x.reshape(-1, c, h // factor, factor, w // factor, factor)
    return x.transpose(0, 1, 3, 5, 2, 4).reshape(*lead, -1, h // factor, w // factor)


@lowers("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(x, groups):
    """Channels of several groups dealt in turn."""
    n, c, *space = x.shape
    return x.reshape(n, groups, c // groups, *space).swapaxes(1, 2).reshape(x.shape)


@lowers("aten.view.dtype", restriction="whole numbers of one size")
def view_as_type(x, dtype):
    """The same memory as another type.

    Of floating numbers a graph has values only: it may run in another precision than its file.
    """
    if {x.dtype.kind, dtype.kind} - set("iub") or x.dtype.itemsize != dtype.itemsize:
        raise Restricted(f"memory of type {x.dtype} is read as {dtype}")
    if "b" in (x.dtype.kind, dtype.kind):
        return x.astype(dtype)
    return lax.bitcast_convert_type(x, dtype)
