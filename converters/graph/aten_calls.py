"""What a tape knows of ATen calls before it keeps them: by their names, schemas and arguments."""

from typing import Any

import torch

from converters.graph import registry

aten = torch.ops.aten
# Their result is their input.
SAME = {
    "aten.detach.default",
    "aten.alias.default",
    "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default",
    "aten.clone.default",
    "aten.contiguous.default",
}
# Kept as one call each: torch would unroll them or choose an implementation by device.
WHOLE = {
    "lstm": aten.lstm.input,
    "gru": aten.gru.input,
    "rnn_tanh": aten.rnn_tanh.input,
    "rnn_relu": aten.rnn_relu.input,
    "scaled_dot_product_attention": aten.scaled_dot_product_attention.default,
    "one_hot": aten.one_hot.default,
    "bilinear": aten.bilinear.default,
}
# Views by strides, which say nothing of the shape they were taken from.
STRIDED = {"aten.as_strided.default", "aten.as_strided_.default"}
# Writes what it claims to write in training only.
_CLAIMS_TO_WRITE = {"aten.rrelu_with_noise.default"}
# Made of a tensor's shape and type alone, so it decides nothing.
VALUE_FREE = {
    f"aten.{name}.default"
    for name in (
        *("empty_like", "full_like", "new_empty", "new_full"),
        *("new_ones", "new_zeros", "ones_like", "zeros_like"),
    )
}

UNWRITTEN = {
    "aten.empty.memory_format",
    *(f"aten.{name}.default" for name in ("empty_like", "empty_strided", "empty_permuted")),
    *(f"aten.{name}.default" for name in ("new_empty", "new_empty_strided")),
}
"""Calls that give memory as it is, for the network to write to."""


def taken_apart(name: str, args: tuple) -> bool:
    """Whether a call is a form of those kept whole that torch must take apart.

    That is recurrent layers over packed sequences.
    """
    if name == "lstm":
        return isinstance(args[1], torch.Tensor)
    return name in ("gru", "rnn_tanh", "rnn_relu") and isinstance(args[2], torch.Tensor)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors among arguments or results, lists and tuples taken apart."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for part in value for t in tensors_in(part)]
    return []


def returns_tensors(func) -> bool:
    """Whether all that a call returns are tensors, by its schema."""
    returns = func._schema.returns
    return not returns or all("Tensor" in str(r.type) for r in returns)


def shape_deciding(func, args: tuple) -> Any:
    """The arguments whose values decide the shape of a call's result."""
    if func is aten.index.Tensor:
        return [i for i in args[1] if i is not None and i.dtype in (torch.bool, torch.uint8)]
    if func is aten.repeat_interleave.Tensor:
        return args[:1]
    return args


def refuse_random(func, args: tuple, kwargs: dict, source: str) -> None:
    """Refuse a call whose result is drawn, as by dropout in training: UnsupportedOperatorError."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return
    trains = [
        args[i] if i < len(args) else kwargs.get(a.name, a.default_value)
        for i, a in enumerate(func._schema.arguments)
        if a.name in ("train", "training")
    ]
    if not trains or any(value is not False for value in trains):
        reason = "its result is random, so the network has no one answer"
        raise registry.unsupported(str(func), source, reason)


def functional(func, args: tuple, kwargs: dict, source: str) -> tuple[str, Any]:
    """Name of a call without its side effect, and the tensor it writes to, None if none."""
    written = [
        (args[i] if i < len(args) and not a.kwarg_only else kwargs.get(a.name), a.name)
        for i, a in enumerate(func._schema.arguments)
        if a.alias_info is not None and a.alias_info.is_write
    ]
    if not written or str(func) in _CLAIMS_TO_WRITE:
        return str(func), None
    packet, overload = str(func).rsplit(".", 1)
    name = f"{packet.removesuffix('_')}.{overload}"
    if len(written) > 1 or written[0][1] != "self" or not packet.endswith("_"):
        raise registry.unsupported(str(func), source, "it writes into tensors given to it")
    return name, written[0][0]
