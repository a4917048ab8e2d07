"""Matrix products."""

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import widened


@operator("MatMul", (1, 9, 13))
@widened
def matmul(_, a, b):
    """Product of the last two axes, the others broadcast."""
    return torch.matmul(a, b)


@operator("Gemm", (6, 7, 9, 11, 13))
def gemm(call, a, b, c=None):
    """alpha A B + beta C, A and B transposed on request."""
    a = a.t() if call["transA"] else a
    if call["alpha"] == 1 and call["beta"] == 1 and _is_linear(call, a, b, c):
        return torch.nn.functional.linear(a, b, c)
    result = torch.matmul(a, b.t() if call["transB"] else b)
    if call["alpha"] != 1:
        result = (call["alpha"] * result).to(a.dtype)
    if c is None or call["beta"] == 0:
        return result
    return result + (c if call["beta"] == 1 else (call["beta"] * c).to(c.dtype))


def _is_linear(call, a, b, c) -> bool:
    """The form of torch's linear layers, which is one call."""
    fits = c is None or (c.dim() == 1 and c.shape[0] == b.shape[0])
    return bool(call["transB"]) and a.is_floating_point() and fits


@operator("Einsum", (12, 28))
def einsum(call, *inputs):
    """Einstein's summation."""
    return torch.einsum(call["equation"].replace(" ", ""), *inputs)


@operator("MatMulInteger", (10,))
def matmul_integer(_, a, b, a_zero=None, b_zero=None):
    """Product of 8-bit matrices around their zero points, in 32 bits."""
    a, b = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        zero = a_zero.to(torch.int32)
        a = a - (zero.unsqueeze(-1) if zero.dim() == 1 and zero.numel() > 1 else zero)
    if b_zero is not None:
        b = b - b_zero.to(torch.int32)
    # Exact, as in ConvInteger, and floating: gradients pass straight through.
    return torch.matmul(a.double(), b.double()).to(torch.int32)
