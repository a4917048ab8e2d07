"""NHWC layers as NNX modules, lowered the way XLA runs them fastest.

Convolutions are NHWC/HWIO throughout. XLA on CPU is many times slower for NCHW inside loops, and
its convolution falls off a cliff (80x) for maps smaller than the kernel; see `_lowering`.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from converters.families.depthwise import depthwise
from converters.families.windows import Pair, both_sides, pad, pair, windows

# Below this many output positions a convolution is a matrix product over gathered patches. Measured
# on 2 CPU cores: 7x7x512 maps gain 1.2x forward and 1.6x with gradients, 2x2 maps 80x.
_PATCH_POSITIONS = 49
# Kernels up to this many taps are unrolled where they see one channel each. Measured on 2 CPU
# cores, four 56x56x144 maps by 3x3: 1.5 ms forward and 6 with gradients, XLA's convolution 76, 145;
# four 14x14x384 maps by 7x7: 1.3 and 13, XLA's 38 and 65.
_UNROLLED_TAPS = 49
_HE_FAN_OUT = nnx.initializers.variance_scaling(2.0, "fan_out", "normal")


class Conv(nnx.Module):
    """2-D convolution, NHWC images and HWIO kernel `[kh, kw, cin / groups, cout]`."""

    def __init__(
        self,
        cin: int,
        cout: int,
        kernel_size: int | Pair,
        *,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        groups: int = 1,
        use_bias: bool = False,
        rngs: nnx.Rngs,
    ):
        if cin % groups or cout % groups:
            raise ValueError(f"{cin} to {cout} channels do not divide into {groups} groups")
        self.stride, self.padding, self.groups = pair(stride), pair(padding), groups
        shape = (*pair(kernel_size), cin // groups, cout)
        self.kernel = nnx.Param(_HE_FAN_OUT(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros((cout,))) if use_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        y = convolve(x, self.kernel[...], self.stride, self.padding, self.groups)
        return y if self.bias is None else y + self.bias[...]


def convolve(x: jax.Array, kernel: jax.Array, stride: Pair, padding: Pair, groups: int):
    """Convolution of `[n, h, w, cin]` by `[kh, kw, cin / groups, cout]`, padded on both sides."""
    lowering = _lowering(x.shape, kernel.shape, stride, padding, groups)
    if lowering == "product":
        return jnp.einsum("nhwc,cd->nhwd", x[:, :: stride[0], :: stride[1]], kernel[0, 0])
    if lowering == "patches":
        patches = _patches(x, pair(kernel.shape[:2]), stride, padding)
        return jnp.einsum("nhwk,kd->nhwd", patches, kernel.reshape(-1, kernel.shape[-1]))
    if lowering == "taps":
        return _by_channel(x, kernel, stride, padding)
    return lax.conv_general_dilated(
        x,
        kernel,
        stride,
        both_sides(padding),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def _lowering(shape, kernel_shape, stride: Pair, padding: Pair, groups: int) -> str:
    """Choose between a matrix product, gathered patches, unrolled taps and XLA's convolution."""
    if groups > 1:
        single = kernel_shape[2] == 1 and math.prod(kernel_shape[:2]) <= _UNROLLED_TAPS
        return "taps" if single else "convolution"
    if kernel_shape[:2] == (1, 1) and padding == (0, 0):
        return "product"
    positions = math.prod(
        (shape[1 + i] + 2 * padding[i] - kernel_shape[i]) // stride[i] + 1 for i in (0, 1)
    )
    return "patches" if positions <= _PATCH_POSITIONS else "convolution"


def _by_channel(x: jax.Array, kernel: jax.Array, stride: Pair, padding: Pair) -> jax.Array:
    """Convolution by kernels `[kh, kw, 1, cout]` that see one channel each, cout / c a channel."""
    copies = kernel.shape[-1] // x.shape[-1]
    x = jnp.repeat(x, copies, axis=-1) if copies > 1 else x
    return depthwise(x, kernel, stride, padding)


def _patches(x: jax.Array, window: Pair, stride: Pair, padding: Pair) -> jax.Array:
    return jnp.concatenate(list(windows(pad(x, both_sides(padding)), window, stride)), axis=-1)


class Identity(nnx.Module):
    """Takes the place of a batch norm that was folded into the convolution before it."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return x


def kept_norm(config, width: int, rngs: nnx.Rngs):
    """Batch norm, or nothing where it was folded into the convolution before it.

    `config` says `eps` and whether they are `folded`.
    """
    return Identity() if config.folded else batch_norm(width, config.eps, rngs)


def batch_norm(features: int, eps: float, rngs: nnx.Rngs) -> nnx.BatchNorm:
    """Batch norm with torch's momentum (0.1 there is 0.9 here)."""
    return nnx.BatchNorm(features, momentum=0.9, epsilon=eps, rngs=rngs)
