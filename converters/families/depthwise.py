"""Convolution by kernels that see one channel each, as a sum over its taps, and its gradient.

XLA's CPU backend runs such a convolution tens of times slower than nine products of shifted views.
The gradient that JAX derives of these views is as slow: it pads once for each tap, and every one of
those pads computes anew all that lies before it. Here the gradient is one such convolution itself,
of the cotangent by the kernel turned round.

There are gradients of any order, but no forward-mode derivative (`jax.jvp`) of its own.
"""

from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import lax

from converters.families.windows import Pair, both_sides, pad, pair, windows


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def depthwise(x: jax.Array, kernel: jax.Array, stride: Pair, padding: Pair) -> jax.Array:
    """Convolution `[n, oh, ow, c]` of `[n, h, w, c]` by `[kh, kw, 1, c]`, padded on both sides."""
    return _summed(pad(x, both_sides(padding)), kernel, stride)


def _summed(x: jax.Array, kernel: jax.Array, stride: Pair) -> jax.Array:
    taps = kernel.reshape(-1, kernel.shape[-1])
    views = windows(x, pair(kernel.shape[:2]), stride)
    return reduce(jnp.add, [view * tap for view, tap in zip(views, taps, strict=True)])


def _forward(x, kernel, stride: Pair, padding: Pair):
    return depthwise(x, kernel, stride, padding), (x, kernel)


def _backward(stride: Pair, padding: Pair, known, cotangent):
    x, kernel = known
    return (
        _towards_input(cotangent, kernel, x.shape[1:3], stride, padding),
        _towards_kernel(cotangent, x, kernel.shape, stride, padding),
    )


def _towards_input(cotangent, kernel, size: Pair, stride: Pair, padding: Pair):
    """The cotangent spread by the stride, then convolved by the kernel turned round."""
    sides = []
    for axis in (0, 1):
        reach, spread = kernel.shape[axis] - 1, (cotangent.shape[1 + axis] - 1) * stride[axis] + 1
        low = reach - padding[axis]
        sides.append((low, size[axis] + reach - spread - low, stride[axis] - 1))
    zero = jnp.zeros((), cotangent.dtype)
    spread = lax.pad(cotangent, zero, ((0, 0, 0), *sides, (0, 0, 0)))
    return depthwise(spread, kernel[::-1, ::-1], (1, 1), (0, 0))


def _towards_kernel(cotangent, x, shape: tuple[int, ...], stride: Pair, padding: Pair):
    views = windows(pad(x, both_sides(padding)), pair(shape[:2]), stride)
    return jnp.stack([(view * cotangent).sum(axis=(0, 1, 2)) for view in views]).reshape(shape)


depthwise.defvjp(_forward, _backward)
