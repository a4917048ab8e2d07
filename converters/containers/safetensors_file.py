"""The safetensors container: an 8-byte length, a JSON header, then the tensors without gaps.

Format: the "Format" section of huggingface/safetensors; the checks are those of its tensor.rs.
"""

import json
import math
from typing import Any

import numpy as np

from converters.errors import CorruptFileError, TooLargeError, safe_repr
from converters.limits import Limits
from converters.tensors import (
    DTYPES,
    MAX_DIMENSIONS,
    StorageRef,
    is_count,
    materialise,
    tensor_view,
)

_LENGTH = 8
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "C64": "complex64",
}


def read_safetensors(data: bytes, limits: Limits) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors by name, in the order of the data, and the file's text metadata.

    Arrays are read-only and share the memory of ``data``. Tied weights stand in the file once; the
    metadata that `safetensors.torch.save_model` writes says the other names, which come last.

    Raises:
        CorruptFileError: truncated, malformed, or tensors that overlap, leave gaps or lie about
            their size.
        TooLargeError: a cap is exceeded.
    """
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    if len(data) < _LENGTH or start > len(data):
        raise CorruptFileError("the safetensors header ends past the end of the file")
    if start - _LENGTH > limits.header_bytes:
        raise TooLargeError(
            f"the header is larger than Limits.header_bytes = {limits.header_bytes}"
        )
    header = _parse(data[_LENGTH:start])
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CorruptFileError("the safetensors metadata is not a table of text")
    if len(header) > limits.tensors:
        raise TooLargeError(f"{len(header)} tensors, more than Limits.tensors = {limits.tensors}")
    content = memoryview(data)[start:]
    spans = sorted((_span(name, entry), name) for name, entry in header.items())
    _check_spans(spans, len(content))
    tensors = {
        name: _tensor(name, header[name], content[first:last], limits)
        for (first, last), name in spans
    }
    return tensors | _tied(tensors, metadata, limits), metadata


def _tied(
    tensors: dict[str, np.ndarray], metadata: dict[str, str], limits: Limits
) -> dict[str, np.ndarray]:
    """Tensors that are not in the file, under the name whose tensor they share.

    Only a weight tied to a weight, a bias to a bias: other metadata says other things.
    """
    tied = {
        name: tensors[kept]
        for name, kept in metadata.items()
        if kept in tensors and name not in tensors and _parameter(name) == _parameter(kept) != ""
    }
    stored = sum(tensor.nbytes for tensor in tensors.values())
    total = stored + sum(tensor.nbytes for tensor in tied.values())
    if len(tensors) + len(tied) > limits.tensors:
        raise TooLargeError(f"more tensors than Limits.tensors = {limits.tensors}, with tied ones")
    if total > limits.view_ratio * stored + limits.free_expansion_bytes:
        raise TooLargeError(
            f"with tied ones, the tensors take {total} bytes of {stored} stored bytes; at most "
            f"{limits.view_ratio} times that is read (Limits.view_ratio)"
        )
    return tied


def _parameter(name: str) -> str:
    """What a tensor is in its module, such as "weight"; empty for a name that names no module."""
    module, _, parameter = name.rpartition(".")
    return parameter if module else ""


def _parse(raw: bytes) -> dict[str, Any]:
    """The header as a dict; refuses duplicate keys."""
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise CorruptFileError(f"the safetensors header is not JSON: {reason}") from error
    if not isinstance(header, dict):
        raise CorruptFileError("the safetensors header is not a JSON object")
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise CorruptFileError("the safetensors header names a tensor twice")
    return result


def _span(name: str, entry: Any) -> tuple[int, int]:
    """First byte and end of a tensor within the data."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_count, offsets)):
        raise CorruptFileError(f"tensor {safe_repr(name)} has no data_offsets of two integers >= 0")
    return offsets[0], offsets[1]


def _check_spans(spans: list[tuple[tuple[int, int], str]], size: int) -> None:
    """Tensors follow one another and fill the data exactly."""
    position = 0
    for (first, last), name in spans:
        if first != position or last < first:
            raise CorruptFileError(
                f"tensor {safe_repr(name)} takes bytes {first} to {last}, expected to start at "
                f"{position}: tensors must not overlap or leave gaps"
            )
        position = last
    if position != size:
        raise CorruptFileError(f"the tensors take {position} bytes, the file holds {size}")


def _tensor(name: str, entry: dict[str, Any], content: memoryview, limits: Limits) -> np.ndarray:
    """The array of one header entry over its bytes."""
    code, shape = entry.get("dtype"), entry.get("shape")
    if not isinstance(code, str) or code not in _DTYPES:
        raise CorruptFileError(
            f"tensor {safe_repr(name)} has dtype {safe_repr(code)}, expected one of "
            f"{', '.join(_DTYPES)}"
        )
    dtype = DTYPES[_DTYPES[code]]
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(map(is_count, shape))
        or math.prod(shape) * dtype.itemsize != len(content)
    ):
        raise CorruptFileError(
            f"tensor {safe_repr(name)}: its shape does not give the {len(content)} bytes it takes"
        )
    numel = math.prod(shape)
    stride = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    # A tensor without elements may still carry huge dimensions, whose strides are meaningless.
    view = tensor_view(
        StorageRef(name, dtype, numel, numel),
        0,
        shape,
        stride if numel else [0] * len(shape),
        limits,
    )
    return materialise(view, content, big_endian=False)
