"""Sequences and optional values: lists of tensors, and None."""

import torch

from converters.graph.onnx.operators import operator
from converters.graph.onnx.values import axes_of, ints, scalar


def _length(builder, _, inputs, __):
    return [builder.fresh("length", torch.tensor(len(inputs[0].data)), 0)]


def _has_element(builder, _, inputs, __):
    present = bool(inputs) and inputs[0] is not None and inputs[0].data is not None
    return [builder.fresh("present", torch.tensor(present), 0)]


def _empty(builder, _, __, ___):
    return [builder.fresh("sequence", [], 0)]


def _optional(builder, _, inputs, __):
    return [inputs[0] if inputs and inputs[0] is not None else builder.fresh("optional", None, 0)]


# These are known whatever the elements hold.
SPECIAL = {
    ("", "SequenceLength"): _length,
    ("", "SequenceEmpty"): _empty,
    ("", "Optional"): _optional,
    ("", "OptionalHasElement"): _has_element,
}
VERSIONS = {
    "SequenceLength": (11,),
    "SequenceEmpty": (11,),
    "Optional": (15, 28),
    "OptionalHasElement": (15, 18, 28),
}


@operator("OptionalGetElement", (15, 18, 28))
def get_element(call, x):
    """The value of an optional that has one."""
    if x is None:
        raise call.refuse("the optional is empty")
    return x


@operator("SequenceConstruct", (11,))
def construct(_, *tensors):
    """A sequence of these."""
    return list(tensors)


@operator("SequenceAt", (11,), static=(1,))
def at(_, sequence, position):
    """One element."""
    return sequence[int(scalar(position))]


@operator("SequenceErase", (11,), static=(1,))
def erase(_, sequence, position=None):
    """Without one element, the last by default."""
    index = -1 if position is None else int(scalar(position))
    left = list(sequence)
    del left[index]
    return left


@operator("SequenceInsert", (11,), static=(2,))
def insert(_, sequence, tensor, position=None):
    """With one more element, at the end by default."""
    left = list(sequence)
    left.insert(len(left) if position is None else int(scalar(position)), tensor)
    return left


@operator("ConcatFromSequence", (11,))
def concat(call, sequence):
    """Joined along an axis, or stacked on a new one."""
    if call["new_axis"]:
        return torch.stack(sequence, call["axis"])
    return torch.cat(sequence, axes_of([call["axis"]], sequence[0].dim())[0])


@operator("SplitToSequence", (11, 24), static=(1,))
def split(call, x, sizes=None):
    """Cut along an axis into parts of given sizes, or of one size each."""
    axis = axes_of([call["axis"]], x.dim())[0]
    if sizes is None:
        parts = torch.split(x, 1, axis)
        return list(parts) if call["keepdims"] else [part.squeeze(axis) for part in parts]
    given = ints(sizes)
    return list(torch.split(x, given[0] if sizes.ndim == 0 else given, axis))
