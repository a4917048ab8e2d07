"""Batch, layer, group, instance and root-mean-square normalisation."""

import math

import jax.numpy as jnp
from jax import lax

from converters.graph.layout import ChannelsLast, logical, physical
from converters.graph.precision import in_float32
from converters.graph.registry import OWN, Restricted, lowers


def _per_channel(x, mean, scale, shift):
    """x scale + (shift - mean scale) with one number per channel, channels last from three
    dimensions.

    In torch's and onnxruntime's order: a mean taken from x first would round x away where it and
    the shift are large and nearly equal.
    """
    moved = -mean * scale if shift is None else shift - mean * scale
    if x.ndim < 3:
        return logical(x) * scale + moved
    return ChannelsLast(physical(x) * scale + moved)


@in_float32
def _batch_norm(x, weight, bias, mean, var, training, eps):
    """Result, mean and reciprocal deviation that were used."""
    if training:
        if mean is not None:
            raise Restricted("it changes running statistics in training")
        values = physical(x) if x.ndim > 2 else logical(x)
        axes = tuple(range(values.ndim - 1))
        mean, var = values.mean(axes), values.var(axes)
    elif mean is None or var is None:
        raise Restricted("it has neither running statistics nor those of the batch")
    inverse = lax.rsqrt(var + eps)
    scale = inverse if weight is None else inverse * weight
    return _per_channel(x, mean, scale, bias), mean, inverse


@lowers(
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.default",
    "aten.cudnn_batch_norm.default",
    layout=OWN,
    restriction="evaluation, or statistics of the batch without running ones",
)
def native_batch_norm(x, weight, bias, mean, var, training, momentum, eps):
    """Batch norm; the statistics it also returns are empty in evaluation, as torch's are."""
    del momentum
    y, used, inverse = _batch_norm(x, weight, bias, mean, var, training, eps)
    empty = jnp.zeros((0,), inverse.dtype)
    return (y, used, inverse) if training else (y, empty, empty)


@lowers("aten._native_batch_norm_legit.no_stats", layout=OWN)
def batch_norm_no_stats(x, weight, bias, training, momentum, eps):
    """Batch norm with the statistics of the batch."""
    return native_batch_norm(x, weight, bias, None, None, training, momentum, eps)


@lowers("aten._native_batch_norm_legit_no_training.default", layout=OWN)
def batch_norm_inference(x, weight, bias, mean, var, momentum, eps):
    """Batch norm in evaluation."""
    return native_batch_norm(x, weight, bias, mean, var, False, momentum, eps)


@lowers("aten.batch_norm.default", layout=OWN)
def batch_norm(x, weight, bias, mean, var, training, momentum, eps, cudnn_enabled):
    """Batch norm as torch.export names it."""
    del momentum, cudnn_enabled
    return _batch_norm(x, weight, bias, mean, var, training, eps)[0]


@lowers("aten.instance_norm.default", layout=OWN)
@in_float32
def instance_norm(x, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn_enabled):
    """Normalisation of each channel of each picture."""
    del momentum, cudnn_enabled
    if not use_input_stats:
        return _batch_norm(x, weight, bias, mean, var, False, eps)[0]
    values = physical(x)
    axes = tuple(range(1, values.ndim - 1))
    y = (values - values.mean(axes, keepdims=True)) * lax.rsqrt(
        values.var(axes, keepdims=True) + eps
    )
    y = y if weight is None else y * weight
    return ChannelsLast(y if bias is None else y + bias)


@lowers("aten.native_layer_norm.default")
@in_float32
def native_layer_norm(x, shape, weight, bias, eps):
    """Normalisation over the last dimensions; also mean and reciprocal deviation."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    inverse = lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)
    y = centred * inverse
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, inverse


@lowers("aten.layer_norm.default")
def layer_norm(x, shape, weight, bias, eps, cudnn_enable):
    """Normalisation over the last dimensions."""
    del cudnn_enable
    return native_layer_norm(x, shape, weight, bias, eps)[0]


@lowers("aten.native_group_norm.default")
@in_float32
def native_group_norm(x, weight, bias, n, c, positions, groups, eps):
    """Normalisation over groups of channels; also mean and reciprocal deviation."""
    del positions
    grouped = x.reshape(n, groups, -1)
    mean = grouped.mean(-1, keepdims=True)
    centred = grouped - mean
    inverse = lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + eps)
    y = (centred * inverse).reshape(x.shape)
    channels = (1, c, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(channels)
    y = y if bias is None else y + bias.reshape(channels)
    return y, mean[..., 0], inverse[..., 0]


@lowers("aten.group_norm.default")
def group_norm(x, groups, weight, bias, eps, cudnn_enabled):
    """Normalisation over groups of channels."""
    del cudnn_enabled
    n, c = x.shape[:2]
    positions = math.prod(x.shape[2:])
    return native_group_norm(x, weight, bias, n, c, positions, groups, eps)[0]


@lowers("aten._fused_rms_norm.default")
@in_float32
def fused_rms_norm(x, shape, weight, eps):
    """x over its root mean square in the last dimensions; also the reciprocal of that."""
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    eps = jnp.finfo(x.dtype).eps if eps is None else eps
    inverse = lax.rsqrt(jnp.square(x).mean(axes, keepdims=True) + eps)
    return (x * inverse if weight is None else x * inverse * weight), inverse


@lowers("aten.rms_norm.default")
def rms_norm(x, shape, weight, eps):
    """x over its root mean square in the last dimensions."""
    return fused_rms_norm(x, shape, weight, eps)[0]
