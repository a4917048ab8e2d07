"""Fourier transforms as products with small matrices, windows, mel filters."""

import math

import numpy as np
import torch

from converters.graph.guard import bounded
from converters.graph.onnx.operators import operator
from converters.graph.onnx.types import torch_type
from converters.graph.onnx.values import axes_of, scalar


def _fitted(x, axis: int, length: int):
    """Cut or filled up with zeros along an axis."""
    size = x.shape[axis]
    if size >= length:
        return x.narrow(axis, 0, length)
    missing = [*x.shape]
    missing[axis] = length - size
    return torch.cat([x, torch.zeros(missing, dtype=x.dtype)], axis)


def _product(x, axis: int, matrix: np.ndarray):
    """Along one axis, times a matrix `[size, out]`."""
    weights = torch.from_numpy(matrix).to(x.dtype)
    return torch.matmul(x.movedim(axis, -1), weights).movedim(-1, axis)


def _transform(x, axis: int, length: int, inverse: bool, bins: int):
    """`[..., 1 or 2]` to `[..., 2]`: the first `bins` frequencies."""
    bounded(length * bins)
    x = _fitted(x, axis, length)
    angle = 2 * math.pi * np.outer(np.arange(length), np.arange(bins)) / length
    share = 1 / length if inverse else 1.0
    cos, sin = np.cos(angle) * share, np.sin(angle) * (share if inverse else -share)
    real = x[..., 0]
    parts = _product(real, axis, cos), _product(real, axis, sin)
    if x.shape[-1] == 2:
        imaginary = x[..., 1]
        parts = (
            parts[0] - _product(imaginary, axis, sin),
            parts[1] + _product(imaginary, axis, cos),
        )
    return torch.stack(parts, -1)


def _real_inverse(x, axis: int, length: int):
    """From the lower half of the frequencies of a real signal back to it."""
    bins = length // 2 + 1
    bounded(length * bins)
    x = _fitted(x, axis, bins)
    angle = 2 * math.pi * np.outer(np.arange(bins), np.arange(length)) / length
    weight = np.full(bins, 2 / length)
    weight[0] = 1 / length
    if length % 2 == 0:
        weight[-1] = 1 / length
    cos, sin = np.cos(angle) * weight[:, None], np.sin(angle) * weight[:, None]
    return (_product(x[..., 0], axis, cos) - _product(x[..., 1], axis, sin)).unsqueeze(-1)


def _dft(call, x, length, axis: int):
    axis = axes_of([axis], x.dim())[0]
    if axis == x.dim() - 1:
        raise ValueError("the last axis holds real and imaginary parts")
    one_sided, inverse = bool(call["onesided"]), bool(call["inverse"])
    if length is None:
        count = 2 * (x.shape[axis] - 1) if inverse and one_sided else x.shape[axis]
    else:
        count = int(scalar(length))
    if count < 1:
        raise ValueError(f"a transform of {count} values, expected at least 1")
    if inverse and one_sided:
        return _real_inverse(x, axis, count)
    return _transform(x, axis, count, inverse, count // 2 + 1 if one_sided else count)


@operator("DFT", (17,), static=(1,))
def dft_attribute(call, x, length=None):
    """The axis as an attribute."""
    return _dft(call, x, length, call["axis"])


@operator("DFT", (20,), static=(1, 2))
def dft(call, x, length=None, axis=None):
    """Discrete Fourier transform, its inverse, and those of real signals."""
    return _dft(call, x, length, -2 if axis is None else int(scalar(axis)))


@operator("STFT", (17,), static=(1, 3))
def stft(call, x, hop, window=None, length=None):
    """Fourier transforms of overlapping windows."""
    step = int(scalar(hop))
    if length is not None:
        size = int(scalar(length))
    else:
        size = x.shape[1] if window is None else window.shape[0]
    x = x.unsqueeze(-1) if x.dim() == 2 else x
    frames = x.unfold(1, size, step).transpose(2, 3)
    if window is not None:
        frames = frames * window.reshape(1, 1, -1, 1)
    return _transform(frames, 2, size, False, size // 2 + 1 if call["onesided"] else size)


def _window(call, size, coefficients):
    count = int(scalar(size))
    period = count if call["periodic"] else count - 1
    angle = 2 * math.pi * torch.arange(count, dtype=torch.float64) / period
    total = torch.stack([c * torch.cos(k * angle) for k, c in enumerate(coefficients)]).sum(0)
    return total.to(torch_type(call["output_datatype"]))


@operator("HannWindow", (17,), static=(0,))
def hann(call, size):
    """A cosine bell."""
    return _window(call, size, (0.5, -0.5))


@operator("HammingWindow", (17,), static=(0,))
def hamming(call, size):
    """A cosine bell on a pedestal."""
    return _window(call, size, (25 / 46, -21 / 46))


@operator("BlackmanWindow", (17,), static=(0,))
def blackman(call, size):
    """Two cosines."""
    return _window(call, size, (0.42, -0.5, 0.08))


@operator("MelWeightMatrix", (17,), static=(0, 1, 2, 3, 4))
def mel_weights(call, bins, length, rate, low, high):
    """Triangular filters, evenly spaced in mel."""
    count, size = int(scalar(bins)), int(scalar(length))
    bounded((count + 2) * (size // 2 + 1))
    edges = [2595 * math.log10(1 + float(scalar(edge)) / 700) for edge in (low, high)]
    step = (edges[1] - edges[0]) / (count + 2)
    hertz = 700 * (10 ** ((np.arange(count + 2) * step + edges[0]) / 2595) - 1)
    corners = ((size + 1) * hertz // int(scalar(rate))).astype(np.int64)
    places = np.arange(size // 2 + 1)
    filters = np.zeros((len(places), count))
    for k in range(count):
        left, centre, right = corners[k : k + 3]
        if centre > left:
            rising = (places >= left) & (places <= centre)
            filters[rising, k] = (places[rising] - left) / (centre - left)
        else:
            filters[centre, k] = 1
        falling = (places >= centre) & (places < right)
        filters[falling, k] = (right - places[falling]) / max(right - centre, 1)
    return torch.from_numpy(filters).to(torch_type(call["output_datatype"]))
