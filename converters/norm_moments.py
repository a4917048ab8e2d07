"""What a norm sees of each image: mean and mean square of every channel over the pixels.

On CPUs XLA sums over pixels with a stride of all channels, and makes one sum of two that follow
each other. Sums of both moments together, one axis after another, stay apart: each row of pixels
lies in the cache, and they take two fifths to a fifteenth of the time.
"""

import math
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_STILL = 1e-3  # of a layer's mean variance, see `least_variance`
_MOST = 10.0  # times `upper_variance`; of 1,306 trained norms the mean is 3 times that at most


class NormMoments(NamedTuple):
    """Of each image what one norm sees, in its running deviations from its running means.

    Mean and mean square over the pixels, `[n, channels]`: over all images that the network was
    trained on they are about 0 and 1.
    """

    mean: jax.Array
    square: jax.Array


def moments_of(values: jax.Array, mean: jax.Array, var: jax.Array, pixels: int) -> NormMoments:
    """Moments over the last `pixels` axes before the channels, values `[..., channels]`.

    A channel that never varied in training counts as one that varied a little.
    """
    scale = jax.lax.rsqrt(jnp.maximum(var, least_variance(var)))
    count = math.prod(values.shape[-1 - pixels : -1])
    return NormMoments(*(total / count for total in _sums(values, mean, scale, pixels)))


def least_variance(var: Any, arrays: ModuleType = jnp) -> Any:
    """The variance below which no channel of a norm counts, of running variances `[..., channels]`.

    It is a share of the layer's mean. A convolution may give one channel a million times as much
    and the norm take it back; such channels would make the mean, and all others would count as
    still. So the mean is no more than a few times what a quarter of the channels reach.

    Args:
        var: where more axes stand before the channels, the same in each row.
        arrays: `jax.numpy` or `numpy`, whose array it is.
    """
    row = var.reshape(-1, var.shape[-1])[0]
    most = _STILL * _MOST * upper_variance(row, arrays)
    return arrays.minimum(_STILL * var.mean(), most) + jnp.finfo(jnp.float32).tiny


def upper_variance(var: Any, arrays: ModuleType = jnp) -> Any:
    """The variance that a quarter of a norm's channels exceed, of those that vary; `[channels]`.

    Dead channels are many in some trained networks, so the half of all might be among them. It is
    the second largest of few channels.
    """
    varying = (var > 0).sum()
    place = arrays.minimum(arrays.maximum(varying // 4, 1), arrays.maximum(varying - 1, 0))
    return arrays.sort(var)[var.shape[-1] - 1 - place]


def _both_sums(values, mean, scale, pixels: int) -> tuple[jax.Array, jax.Array]:
    """Of `(values - mean) * scale` and its square, over the last `pixels` axes before the channels.

    Its gradient is written out: it needs nothing but the values, which the norm keeps anyway.
    """
    first = (values - mean) * scale
    second, zero = jnp.square(first), jnp.zeros((), first.dtype)
    for _ in range(pixels):
        first, second = jax.lax.reduce((first, second), (zero, zero), _added, (first.ndim - 2,))
    return first, second


def _added(one, other):
    return one[0] + other[0], one[1] + other[1]


def _kept(values, mean, scale, pixels: int):
    return _both_sums(values, mean, scale, pixels), (values, mean, scale)


def _pulled_back(pixels: int, kept, pulls):
    values, mean, scale = kept
    first, second = (jnp.expand_dims(pull, tuple(range(-1 - pixels, -1))) for pull in pulls)
    apart = values - mean
    pull = first + 2 * apart * scale * second
    others = tuple(range(pull.ndim - 1))
    return pull * scale, -(pull * scale).sum(others), (pull * apart).sum(others)


_sums = jax.custom_vjp(_both_sums, nondiff_argnums=(3,))
_sums.defvjp(_kept, _pulled_back)
