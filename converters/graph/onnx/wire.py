"""Walks the bytes of an ONNX file before protobuf parses them, to know what parsing would cost.

A parsed message takes far more memory than its bytes: an empty node is two bytes in the file and
hundreds in memory, a packed integer one byte and eight. So fields are counted first, in one pass
that allocates nothing. Format: https://protobuf.dev/programming-guides/encoding.
"""

from converters.errors import CorruptFileError, TooLargeError
from converters.graph.onnx.limits import OnnxLimits

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_DEPTH = 64
# Field number -> message kind of onnx.proto, for the fields that hold messages.
_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 8: "leaf", 14: "leaf", 20: "training", 25: "function"},
    "graph": {
        1: "node",
        5: "tensor",
        11: "info",
        12: "info",
        13: "info",
        14: "notes",
        15: "sparse",
    },
    "node": {5: "attribute", 9: "leaf"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        14: "type",
        15: "type",
        22: "sparse",
        23: "sparse",
    },
    "function": {7: "node", 9: "leaf", 11: "attribute", 12: "info", 14: "leaf"},
    "training": {1: "graph", 2: "graph", 3: "leaf", 4: "leaf"},
    "sparse": {1: "tensor", 2: "tensor"},
    "info": {2: "type", 4: "leaf"},
    "notes": {2: "leaf"},
    "type": {1: "kind", 4: "kind", 5: "kind", 8: "kind", 9: "kind"},
    "kind": {1: "type", 2: "shape"},
    "shape": {1: "leaf"},
    "tensor": {3: "leaf", 13: "leaf"},
    "leaf": {},
}
# Tensor data as it lies in memory, and packed integers that grow when parsed.
_RAW_FIELDS = {4, 9, 10}
_PACKED_FIELDS = {1, 5, 7, 11}


def check_cost(data: bytes, limits: OnnxLimits) -> None:
    """Refuse a file whose parsed form would be out of proportion.

    Raises:
        CorruptFileError: the bytes are no protobuf message, or nested too deeply.
        TooLargeError: more fields, text or packed integers than `limits` allows.
    """
    fields = text = packed = 0
    stack = [(0, len(data), "model", 0)]
    while stack:
        at, end, kind, depth = stack.pop()
        if depth > _MAX_DEPTH:
            raise CorruptFileError(f"messages are nested more than {_MAX_DEPTH} deep")
        inner = _MESSAGES[kind]
        while at < end and fields <= limits.fields:
            number, wire, at, size = _field(data, at, end)
            fields += 1
            if wire == _BYTES and number in inner:
                stack.append((at, at + size, inner[number], depth + 1))
            elif kind == "tensor" and number in _PACKED_FIELDS and wire == _BYTES:
                packed += size
            elif not (kind == "tensor" and number in _RAW_FIELDS):
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
    key, at = _varint(data, at, end)
    wire = key & 7
    if wire == _BYTES:
        size, at = _varint(data, at, end)
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
    if at < end and data[at] < 0x80:  # most numbers are one byte
        return data[at], at + 1
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise CorruptFileError("the file is no ONNX model: a number in it has no end")
