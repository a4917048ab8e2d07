"""New tensors, copies and casts. The caller brings every result to the type torch recorded."""

import jax.numpy as jnp
import numpy as np

from converters.graph.layout import is_array
from converters.graph.registry import ELEMENTWISE, OWN, lowers


@lowers(
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten.type_as.default",
    "aten.clone.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.detach_copy.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.lift_fresh_copy.default",
    "aten._conj.default",
    "aten.resolve_conj.default",
    "aten.resolve_neg.default",
    layout=OWN,
)
def same(x, *_args, **_kwargs):
    """x itself; the caller casts."""
    return x


@lowers("aten.copy.default")
def copy(x, source, non_blocking=False):
    """The source, repeated to x's shape."""
    del non_blocking
    return jnp.broadcast_to(source, x.shape)


def _filled(shape, value):
    if is_array(value):
        return jnp.broadcast_to(value, shape)
    return jnp.full(shape, value)


@lowers("aten.full.default")
def full(shape, value, dtype=None):
    """A tensor of one value."""
    return jnp.full(shape, value, dtype)


@lowers("aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor")
def full_like(x, value, dtype=None):
    """One value in x's shape."""
    del dtype
    return _filled(x.shape, value)


@lowers("aten.new_full.default")
def new_full(x, shape, value, dtype=None):
    """A tensor of one value, of x's type."""
    del x, dtype
    return _filled(shape, value)


@lowers("aten.zeros_like.default", "aten.zero.default", "aten.empty_like.default")
def zeros_like(x, dtype=None):
    """Zeros in x's shape."""
    del dtype
    return jnp.zeros(x.shape, x.dtype)


@lowers("aten.ones_like.default")
def ones_like(x, dtype=None):
    """Ones in x's shape."""
    del dtype
    return jnp.ones(x.shape, x.dtype)


@lowers("aten.new_zeros.default", "aten.new_empty.default", "aten.new_empty_strided.default")
def new_zeros(x, shape, strides=None, dtype=None):
    """Zeros of x's type."""
    del strides, dtype
    return jnp.zeros(shape, x.dtype)


@lowers("aten.new_ones.default")
def new_ones(x, shape, dtype=None):
    """Ones of x's type."""
    del dtype
    return jnp.ones(shape, x.dtype)


@lowers("aten.zeros.default", "aten.empty.memory_format")
def zeros(shape, dtype=None):
    """Zeros."""
    return jnp.zeros(shape, dtype)


@lowers("aten.ones.default")
def ones(shape, dtype=None):
    """Ones."""
    return jnp.ones(shape, dtype)


@lowers("aten.scalar_tensor.default")
def scalar_tensor(value, dtype=None):
    """One number."""
    return jnp.asarray(value, dtype)


@lowers("aten.arange.default")
def arange_to(end, dtype=None):
    """Numbers from 0."""
    return np.arange(end, dtype=dtype)


@lowers("aten.arange.start")
def arange_from(start, end, dtype=None):
    """Numbers from `start`."""
    return np.arange(start, end, dtype=dtype)


@lowers("aten.arange.start_step")
def arange(start, end, step=1, dtype=None):
    """Numbers from `start` in steps."""
    return np.arange(start, end, step, dtype=dtype)


@lowers("aten.linspace.default")
def linspace(start, end, steps, dtype=None):
    """Evenly spaced numbers, both ends among them."""
    return np.linspace(start, end, steps, dtype=dtype)


@lowers("aten.eye.default")
def eye(n, dtype=None):
    """Ones on the diagonal."""
    return np.eye(n, dtype=dtype)


@lowers("aten.eye.m")
def eye_of(n, m, dtype=None):
    """Ones on the diagonal."""
    return np.eye(n, m, dtype=dtype)


@lowers("aten.lift_fresh.default", layout=ELEMENTWISE)
def lift(x):
    """x itself."""
    return x
