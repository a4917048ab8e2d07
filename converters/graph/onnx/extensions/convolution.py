"""Convolutions."""

import torch
import torch.nn.functional as F

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import ints

# What sliding windows do not cover, for the support table.
WINDOWS = "1, 2 or 3 spatial axes; auto_pad without dilations or values behind windows"
_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def window(call, size, kernel) -> tuple[list[int], list[int], list[int], list[int]]:
    """Strides, dilations, padding before and padding after of a sliding window.

    Args:
        call: the node.
        size: spatial sizes of the input.
        kernel: spatial sizes of the kernel.
    """
    rank = len(kernel)
    strides = list(call["strides"] or [1] * rank)
    dilations = list(call["dilations"] or [1] * rank)
    mode = call["auto_pad"] or "NOTSET"
    if mode == "VALID":
        return strides, dilations, [0] * rank, [0] * rank
    if mode == "NOTSET":
        pads = list(call["pads"] or [0] * 2 * rank)
        if len(pads) != 2 * rank or len(strides) != rank or len(dilations) != rank:
            raise ValueError(f"pads {pads[:8]} do not fit a kernel of {rank} axes")
        return strides, dilations, pads[:rank], pads[rank:]
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise call.refuse(f"auto_pad {mode}")
    first, last = _same_pads(call, size, kernel, strides, dilations)
    return strides, dilations, *((first, last) if mode == "SAME_UPPER" else (last, first))


def _same_pads(call, size, kernel, strides, dilations) -> tuple[list[int], list[int]]:
    """The smaller and the larger half of the padding with which each stride gives one value.

    onnxruntime refuses dilations here or leaves them out, and where two values or more lie behind
    the last window it lets the first begin further in than others do.
    """
    totals = [(-(-n // s) - 1) * s + k - n for n, k, s in zip(size, kernel, strides, strict=True)]
    if max(dilations) > 1 or min(totals) < -1:
        raise call.refuse(
            f"auto_pad {call['auto_pad']} with dilations {dilations}, strides {strides} and a "
            f"kernel of {list(kernel)}, which runtimes pad otherwise; export it with pads instead"
        )
    small = [max(total, 0) // 2 for total in totals]
    return small, [max(total, 0) - half for total, half in zip(totals, small, strict=True)]


def pad_spatial(x, before, after, value=0.0):
    """Pad the last axes with one value."""
    if not any(before) and not any(after):
        return x
    pairs = [pad for k in reversed(range(len(before))) for pad in (before[k], after[k])]
    return F.pad(x, pairs, value=value)


def convolve(call, x, weight, bias=None):
    """A convolution as the node's attributes say."""
    rank = weight.dim() - 2
    if rank not in _CONV or x.dim() != weight.dim():
        raise call.refuse(f"{rank} spatial axes; 1, 2 and 3 are covered")
    strides, dilations, before, after = window(call, x.shape[2:], weight.shape[2:])
    padding = before
    if before != after or min(before) < 0:
        x, padding = pad_spatial(x, before, after), [0] * rank
    return _CONV[rank](x, weight, bias, strides, padding, dilations, call["group"])


@operator("Conv", (1, 11, 22), restrictions=WINDOWS)
def conv(call, x, weight, bias=None):
    """Cross-correlation."""
    return convolve(call, x, weight, bias)


@operator("ConvInteger", (10,), restrictions=WINDOWS)
def conv_integer(call, x, weight, x_zero=None, w_zero=None):
    """Convolution of 8-bit values around their zero points; padding counts as the zero point."""
    x, weight = x.to(torch.int32), weight.to(torch.int32)
    if x_zero is not None:
        x = x - x_zero.to(torch.int32)
    if w_zero is not None:
        weight = weight - w_zero.to(torch.int32).reshape([-1] + [1] * (weight.dim() - 1))
    # Exact: products of 9-bit values, summed in 53 bits.
    return convolve(call, x.double(), weight.double()).to(torch.int32)


@operator(
    "ConvTranspose",
    (1, 11, 22),
    restrictions="1, 2 or 3 spatial axes; auto_pad without values behind windows",
)
def conv_transpose(call, x, weight, bias=None):
    """The transpose of a convolution; the output is computed whole, then cropped or padded."""
    rank = weight.dim() - 2
    if rank not in _TRANSPOSED:
        raise call.refuse(f"{rank} spatial axes; 1, 2 and 3 are covered")
    strides = list(call["strides"] or [1] * rank)
    dilations = list(call["dilations"] or [1] * rank)
    extra = list(call["output_padding"] or [0] * rank)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + e
        for n, s, k, d, e in zip(
            x.shape[2:], strides, weight.shape[2:], dilations, extra, strict=True
        )
    ]
    before, after = _transposed_pads(call, x.shape[2:], strides, full)
    y = _TRANSPOSED[rank](x, weight, None, strides, 0, 0, call["group"], dilations)
    trims = [-b for b in before], [e - a for e, a in zip(extra, after, strict=True)]
    y = pad_spatial(y, *trims)
    return y if bias is None else y + bias.reshape([-1] + [1] * rank)


def _transposed_pads(call, size, strides, full) -> tuple[list[int], list[int]]:
    """What to cut off the full output before and after each axis."""
    rank, mode = len(size), call["auto_pad"] or "NOTSET"
    wanted = call["output_shape"]
    if wanted is None and mode in ("NOTSET", "VALID"):
        pads = list(call["pads"] or [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
        return pads[:rank], pads[rank:]
    target = list(wanted)[-rank:] if wanted else [n * s for n, s in zip(size, strides, strict=True)]
    totals = [f - t for f, t in zip(full, target, strict=True)]
    if mode in ("SAME_UPPER", "SAME_LOWER") and min(totals) < 0:
        raise call.refuse(
            f"auto_pad {mode} with strides {strides} and {target} values to make of {full}, which "
            "runtimes fill otherwise; export it with pads and output_padding instead"
        )
    # What an output_shape asks for beyond the full output goes behind it.
    small = [max(total, 0) // 2 for total in totals]
    large = [max(total, 0) - half for total, half in zip(totals, small, strict=True)]
    before = small if mode == "SAME_UPPER" else large
    return before, [total - b for total, b in zip(totals, before, strict=True)]


@operator("Col2Im", (18,), static=(1, 2), restrictions="2 spatial axes")
def col2im(call, x, image_shape, block_shape):
    """Sums sliding blocks into an image."""
    image, block = ints(image_shape), ints(block_shape)
    if len(image) != 2:
        raise call.refuse(f"{len(image)} spatial axes; 2 are covered")
    strides = list(call["strides"] or [1, 1])
    dilations = list(call["dilations"] or [1, 1])
    top, left, bottom, right = call["pads"] or [0] * 4
    padded = (image[0] + top + bottom, image[1] + left + right)
    y = F.fold(x, padded, (block[0], block[1]), tuple(dilations), 0, tuple(strides))
    return y[:, :, top : top + image[0], left : left + image[1]]
