"""Walks the bytes of an ONNX file before protobuf parses them, to know what parsing would cost.

A parsed message takes far more memory than its bytes: an empty node is two bytes in the file and
hundreds in memory, a packed integer one byte and eight. So fields are counted first, in one pass
that allocates nothing. Format: https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from onnx import ModelProto, TensorProto

from converters.errors import CorruptFileError, TooLargeError
from converters.graph.onnx.limits import OnnxLimits

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 64
_TENSOR = TensorProto.DESCRIPTOR.full_name
# Wire types of the kinds of number in onnx.proto; everything else has a length.
_NUMBERS = {
    FieldDescriptor.TYPE_DOUBLE: _FIXED64,
    FieldDescriptor.TYPE_FLOAT: _FIXED32,
    **dict.fromkeys(
        (
            *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_INT32),
            *(FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM),
        ),
        _VARINT,
    ),
}


@dataclass(frozen=True)
class _Message:
    """One kind of message of onnx.proto.

    Attributes:
        name: in full.
        wires: number and wire type of every field there is.
        inner: number of a field -> the kind of message in it.
    """

    name: str
    wires: frozenset[tuple[int, int]]
    inner: Mapping[int, Descriptor]


@cache
def _message(descriptor: Descriptor) -> _Message:
    wires, inner = set(), {}
    for number, field in descriptor.fields_by_number.items():
        wires.add((number, _NUMBERS.get(field.type, _BYTES)))
        if field.message_type is not None:
            inner[number] = field.message_type
        elif field.is_repeated:
            wires.add((number, _BYTES))
    return _Message(descriptor.full_name, frozenset(wires), inner)


# Tensor data as it lies in memory, and packed integers that grow when parsed.
_RAW_FIELDS = {4, 9, 10}
_PACKED_FIELDS = {1, 5, 7, 11}


def check_cost(data: bytes, limits: OnnxLimits) -> None:
    """Refuse a file whose parsed form would be out of proportion.

    Raises:
        CorruptFileError: the bytes are no ONNX model, nested too deeply, or hold fields that only
            another reader might know.
        TooLargeError: more fields, text or packed integers than `limits` allows.
    """
    fields = text = packed = 0
    stack = [(0, len(data), ModelProto.DESCRIPTOR, 0)]
    while stack:
        at, end, descriptor, depth = stack.pop()
        if depth > _MAX_DEPTH:
            raise CorruptFileError(f"messages are nested more than {_MAX_DEPTH} deep")
        kind = _message(descriptor)
        tensor = kind.name == _TENSOR
        while at < end and fields <= limits.fields:
            number, wire, at, size = _field(data, at, end)
            fields += 1
            if (number, wire) not in kind.wires:
                raise CorruptFileError(
                    f"the file is no ONNX model: a message {kind.name} has no field {number} of "
                    f"wire type {wire}"
                )
            if number in kind.inner:
                if size:
                    stack.append((at, at + size, kind.inner[number], depth + 1))
            elif tensor and number in _PACKED_FIELDS and wire == _BYTES:
                packed += size
            elif not (tensor and number in _RAW_FIELDS):
                text += size
            at += size
        _check("fields", fields, limits.fields)
        _check("text_bytes", text, limits.text_bytes)
        _check("packed_bytes", packed, limits.packed_bytes)


def _check(name: str, found: int, cap: int) -> None:
    if found > cap:
        raise TooLargeError(
            f"the file has {name} of {found}, more than OnnxLimits.{name} = {cap}; "
            "pass larger limits if you trust it"
        )


def _field(data: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Number, wire type, start and size of the content of the field at `at`."""
    # Most keys and sizes are one byte, and a file may hold a million of them.
    key, at = (data[at], at + 1) if data[at] < 0x80 else _varint(data, at, end)
    wire = key & 7
    if wire == _BYTES:
        one = at < end and data[at] < 0x80
        size, at = (data[at], at + 1) if one else _varint(data, at, end)
    elif wire == _VARINT:
        size = _varint(data, at, end)[1] - at
    elif wire in (_FIXED32, _FIXED64):
        size = 4 if wire == _FIXED32 else 8
    else:
        raise CorruptFileError("the file is no ONNX model: not a protobuf message")
    if at + size > end:
        raise CorruptFileError("the ONNX file is truncated: a field ends past its message")
    return key >> 3, wire, at, size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift and not byte:
                raise CorruptFileError("the file is no ONNX model: a number in it is padded")
            return value, at
        shift += 7
    raise CorruptFileError("the file is no ONNX model: a number in it has no end")
