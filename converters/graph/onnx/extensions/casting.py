"""Changes of type."""

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.types import torch_type

_FLOAT8 = (
    torch.float8_e4m3fn,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2,
    torch.float8_e5m2fnuz,
)
_VERSIONS = (19, 21, 23, 24, 25)


def cast_to(x: torch.Tensor, dtype: torch.dtype, saturate: bool = True) -> torch.Tensor:
    """`x` in another type; eight-bit floats take their largest value on overflow if `saturate`."""
    if dtype not in _FLOAT8:
        return x.float().to(dtype) if x.dtype in _FLOAT8 else x.to(dtype)
    wide, bound = x.to(torch.float32), torch.finfo(dtype).max
    if saturate:
        return torch.clamp(wide, -bound, bound).to(dtype)
    if dtype == torch.float8_e4m3fn:
        # torch clips this type on overflow; half a step above the largest value still rounds down.
        wide = torch.where(torch.abs(wide) > bound + 16, torch.full_like(wide, torch.nan), wide)
    return wide.to(dtype)


@operator("Cast", (6, 9, 13, *_VERSIONS, 28), restrictions="text and 4-bit types are refused")
def cast(call, x):
    """The type named by `to`."""
    return cast_to(x, torch_type(call["to"]), bool(call["saturate"] in (None, 1)))


@operator("CastLike", (15, *_VERSIONS), restrictions="text and 4-bit types are refused")
def cast_like(call, x, like):
    """The type of another value."""
    return cast_to(x, like.dtype, bool(call["saturate"] in (None, 1)))


@operator("BitCast", (26,), restrictions="4-bit types are refused")
def bit_cast(call, x):
    """The same bits read as another type of the same width."""
    target = torch_type(call["to"])
    if target.itemsize != x.element_size():
        raise call.refuse(f"{x.dtype} and {target} differ in width")
    return x.contiguous().view(target)
