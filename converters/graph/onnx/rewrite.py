"""An ONNX file with other values for its weights, every one inside the file."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from converters.errors import ConversionError, TooLargeError, safe_repr
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.read import read_onnx
from converters.weights import contiguous

_MOST_BYTES = 2**31 - 1  # of a protobuf message


def with_weights(
    path: Path, values: Mapping[str, np.ndarray], limits: OnnxLimits | None = None
) -> bytes:
    """The file's bytes with these values; all else is as it was, but nodes are put in order.

    Args:
      path: of the file.
      values: name of an initialiser, or of a constant's output -> array of its shape.
      limits: caps on sizes.

    Raises:
      LoadError: as `read_onnx`.
      ConversionError: a name is not in the file, or an array has another shape.
      TooLargeError: the file would be larger than ONNX allows.
    """
    file = read_onnx(path, limits)
    left = dict(values)
    for name, tensor in stored_tensors(file.model):
        old = file.weights.get(name)
        if name in left:
            _set(tensor, name, left.pop(name))
        elif old is not None:
            _set(tensor, name, old)
    if left:
        named = ", ".join(safe_repr(name) for name in list(left)[:5])
        raise ConversionError(f"the file has no weights {named}; they cannot be written back")
    if file.model.ByteSize() > _MOST_BYTES:
        raise TooLargeError("the file would be larger than 2 GiB, which ONNX does not allow")
    return file.model.SerializeToString(deterministic=True)


def stored_tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Initialisers, and the values of constants under the names of their outputs."""
    for tensor in model.graph.initializer:
        yield tensor.name, tensor
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                yield node.output[0], attribute.t


def _set(tensor: TensorProto, name: str, value: np.ndarray) -> None:
    if tuple(tensor.dims) != tuple(value.shape):
        raise ConversionError(
            f"weight {safe_repr(name)} has shape {tuple(tensor.dims)}, got {tuple(value.shape)}"
        )
    kind = tensor.data_type
    new = numpy_helper.from_array(contiguous(value), tensor.name)
    if new.data_type != kind:
        raise ConversionError(f"weight {safe_repr(name)} is not float32; export it as float32")
    tensor.CopyFrom(new)
