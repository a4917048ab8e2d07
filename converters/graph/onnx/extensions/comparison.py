"""Comparisons, logic and choice."""

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import ordered, widened


@operator("Equal", (7, 11, 13, 19), restrictions="text is refused")
@widened
def equal(_, a, b):
    """a == b."""
    return a == b


@operator("Greater", (7, 9, 13))
@ordered
def greater(_, a, b):
    """a > b."""
    return a > b


@operator("GreaterOrEqual", (12, 16))
@ordered
def greater_or_equal(_, a, b):
    """a >= b."""
    return a >= b


@operator("Less", (7, 9, 13))
@ordered
def less(_, a, b):
    """a < b."""
    return a < b


@operator("LessOrEqual", (12, 16))
@ordered
def less_or_equal(_, a, b):
    """a <= b."""
    return a <= b


@operator("And", (7,))
def logical_and(_, a, b):
    """Both."""
    return torch.logical_and(a, b)


@operator("Or", (7,))
def logical_or(_, a, b):
    """Either."""
    return torch.logical_or(a, b)


@operator("Xor", (7,))
def logical_xor(_, a, b):
    """One of both."""
    return torch.logical_xor(a, b)


@operator("Not", (1,))
def logical_not(_, x):
    """Negation."""
    return torch.logical_not(x)


@operator("Where", (9, 16))
def where(_, condition, a, b):
    """a where the condition holds, b elsewhere."""
    return torch.where(condition, a, b)
