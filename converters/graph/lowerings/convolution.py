"""Convolutions of one, two and three dimensions, transposed ones too, with channels last."""

import jax.numpy as jnp
from jax import lax

from converters.families import layers
from converters.graph.layout import ChannelsLast, logical, physical
from converters.graph.registry import OWN, Restricted, lowers

_NAMES = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def each(value, space: int) -> tuple[int, ...]:
    """One number per spatial dimension."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * space if len(values) == 1 else values


def batched(x, space: int):
    """x `[n, ..., c]` of `space` spatial dimensions, and whether it had a batch."""
    if x.ndim == space + 2:
        return physical(x), True
    return physical(logical(x)[None]), False


def unbatched(y, had_batch: bool):
    """What `batched` took apart, put together again."""
    return ChannelsLast(y) if had_batch else logical(ChannelsLast(y))[0]


@lowers(
    "aten.convolution.default",
    "aten._convolution.default",
    "aten._convolution.deprecated",
    "aten.convolution_overrideable.default",
    layout=OWN,
)
def convolution(
    x, weight, bias, stride, padding, dilation, transposed, output_padding, groups, *_flags
):
    """Convolution of `[n, c, ...]` by `[out, in / groups, ...]`, or its transpose."""
    space = weight.ndim - 2
    if space not in _NAMES:
        raise Restricted(f"a convolution over {space} spatial dimensions")
    x, had_batch = batched(x, space)
    stride, padding, dilation = (each(v, space) for v in (stride, padding, dilation))
    if transposed:
        y = _transposed(x, weight, stride, padding, dilation, each(output_padding, space), groups)
    else:
        y = _forward(x, weight, stride, [(p, p) for p in padding], dilation, groups)
    return unbatched(y if bias is None else y + bias, had_batch)


def _forward(x, weight, stride, padding, dilation, groups):
    if groups == 1 and set(weight.shape[2:]) == {1} and not any(map(any, padding)):
        # A product that reads torch's order of weights as it lies, where a kernel would be copied.
        every = tuple(slice(None, None, step) for step in stride)
        return jnp.einsum("...c,dc->...d", x[:, *every], weight.reshape(weight.shape[:2]))
    kernel = jnp.moveaxis(weight, (0, 1), (-1, -2))
    plain = x.ndim == 4 and set(dilation) == {1} and all(low == high for low, high in padding)
    if plain and jnp.issubdtype(x.dtype, jnp.floating):
        sides = tuple(low for low, _ in padding)
        return layers.convolve(x, kernel, stride, sides, groups)
    return lax.conv_general_dilated(
        x,
        kernel,
        stride,
        padding,
        rhs_dilation=dilation,
        dimension_numbers=_NAMES[x.ndim - 2],
        feature_group_count=groups,
    )


def _transposed(x, weight, stride, padding, dilation, output_padding, groups):
    """The gradient of a convolution as one of its own: `weight` is `[in, out / groups, ...]`."""
    space = weight.ndim - 2
    width, *size = weight.shape[1:]
    kernel = jnp.flip(weight, tuple(range(2, space + 2)))
    kernel = kernel.reshape(groups, weight.shape[0] // groups, width, *size)
    kernel = jnp.moveaxis(kernel, (1, 0, 2), (-3, -2, -1)).reshape(*size, -1, groups * width)
    reach = [d * (k - 1) for d, k in zip(dilation, size, strict=True)]
    sides = [
        (r - p, r - p + extra) for r, p, extra in zip(reach, padding, output_padding, strict=True)
    ]
    return lax.conv_general_dilated(
        x,
        kernel,
        (1,) * space,
        sides,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=_NAMES[space],
        feature_group_count=groups,
    )


@lowers("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", layout=OWN)
def conv(x, weight, bias, stride, padding, dilation, groups):
    """Convolution as torch.export names it."""
    return convolution(x, weight, bias, stride, padding, dilation, False, (0,), groups)


@lowers("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding", layout=OWN)
def conv_named_padding(x, weight, bias, stride, padding, dilation, groups):
    """Convolution with "same" or "valid" padding; an odd pixel of padding goes to the end."""
    space = weight.ndim - 2
    stride, dilation = each(stride, space), each(dilation, space)
    totals = [
        d * (k - 1) if padding == "same" else 0
        for d, k in zip(dilation, weight.shape[2:], strict=True)
    ]
    x, had_batch = batched(x, space)
    sides = [(total // 2, total - total // 2) for total in totals]
    y = _forward(x, weight, stride, sides, dilation, groups)
    return unbatched(y if bias is None else y + bias, had_batch)


@lowers(
    "aten.conv_transpose1d.default",
    "aten.conv_transpose2d.input",
    "aten.conv_transpose3d.input",
    layout=OWN,
)
def conv_transpose(x, weight, bias, stride, padding, output_padding, groups, dilation):
    """Transposed convolution as torch.export names it."""
    return convolution(x, weight, bias, stride, padding, dilation, True, output_padding, groups)
