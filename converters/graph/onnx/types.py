"""ONNX element types in torch and NumPy."""

import ml_dtypes
import numpy as np
import torch
from onnx import TensorProto, numpy_helper

from converters.errors import CorruptFileError, UnsupportedOperatorError, safe_repr

TORCH_TYPES: dict[int, torch.dtype] = {
    TensorProto.FLOAT: torch.float32,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.UINT16: torch.uint16,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.BOOL: torch.bool,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.DOUBLE: torch.float64,
    TensorProto.UINT32: torch.uint32,
    TensorProto.UINT64: torch.uint64,
    TensorProto.COMPLEX64: torch.complex64,
    TensorProto.COMPLEX128: torch.complex128,
    TensorProto.BFLOAT16: torch.bfloat16,
    TensorProto.FLOAT8E4M3FN: torch.float8_e4m3fn,
    TensorProto.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2: torch.float8_e5m2,
    TensorProto.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
}
# NumPy has these types only through ml_dtypes, and torch cannot take them from NumPy.
_BIT_VIEWS = {
    torch.bfloat16: (ml_dtypes.bfloat16, torch.int16, np.int16),
    torch.float8_e4m3fn: (ml_dtypes.float8_e4m3fn, torch.uint8, np.uint8),
    torch.float8_e4m3fnuz: (ml_dtypes.float8_e4m3fnuz, torch.uint8, np.uint8),
    torch.float8_e5m2: (ml_dtypes.float8_e5m2, torch.uint8, np.uint8),
    torch.float8_e5m2fnuz: (ml_dtypes.float8_e5m2fnuz, torch.uint8, np.uint8),
}
_FROM_NUMPY = {np.dtype(view[0]): (dtype, view) for dtype, view in _BIT_VIEWS.items()}
_DATA_FIELDS = frozenset(
    "raw_data float_data int32_data string_data int64_data double_data uint64_data".split()
)
# What 32-bit fields may hold for narrower types.
_RANGES: dict[int, tuple[int, int]] = {
    TensorProto.BOOL: (0, 1),
    TensorProto.INT8: (-(2**7), 2**7 - 1),
    TensorProto.UINT8: (0, 2**8 - 1),
    TensorProto.INT16: (-(2**15), 2**15 - 1),
    TensorProto.UINT16: (0, 2**16 - 1),
    TensorProto.FLOAT16: (0, 2**16 - 1),
    TensorProto.BFLOAT16: (0, 2**16 - 1),
    TensorProto.FLOAT8E4M3FN: (0, 2**8 - 1),
    TensorProto.FLOAT8E4M3FNUZ: (0, 2**8 - 1),
    TensorProto.FLOAT8E5M2: (0, 2**8 - 1),
    TensorProto.FLOAT8E5M2FNUZ: (0, 2**8 - 1),
}


def torch_type(element_type: int) -> torch.dtype:
    """The torch type of an element type; raises UnsupportedOperatorError for text and 4 bits."""
    try:
        return TORCH_TYPES[element_type]
    except KeyError:
        known = dict((v, k) for k, v in TensorProto.DataType.items())
        name = known.get(element_type, safe_repr(element_type))
        raise UnsupportedOperatorError(f"tensors of type {name} are not supported") from None


def array_of(proto: TensorProto) -> np.ndarray:
    """The values of a tensor that lies in the file itself.

    Raises:
        CorruptFileError: dimensions and data disagree, or the data lies elsewhere.
    """
    if proto.data_location == TensorProto.EXTERNAL:
        raise CorruptFileError(
            f"tensor {safe_repr(proto.name)} lies in another file that was not read"
        )
    torch_type(proto.data_type)
    _check_one_way(proto)
    try:
        return numpy_helper.to_array(proto)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        name, dims = safe_repr(proto.name), [safe_repr(d) for d in proto.dims[:8]]
        raise CorruptFileError(
            f"tensor {name} of dimensions {dims} does not fit its data: {safe_repr(str(error))}"
        ) from error


def _check_one_way(proto: TensorProto) -> None:
    """Refuse data that is there twice, or beyond the bits of its type, which readers cut off."""
    held = {field.name for field, _ in proto.ListFields()} & _DATA_FIELDS
    if len(held) > 1 or proto.HasField("segment"):
        raise CorruptFileError(f"tensor {safe_repr(proto.name)} holds its data in two ways")
    low, high = _RANGES.get(proto.data_type, (-(2**63), 2**64))
    if not all(low <= value <= high for value in proto.int32_data):
        raise CorruptFileError(
            f"tensor {safe_repr(proto.name)} holds a number from outside {low} to {high}"
        )
    if proto.data_type == TensorProto.BOOL and set(proto.raw_data) - {0, 1}:
        raise CorruptFileError(f"tensor {safe_repr(proto.name)} holds booleans other than 0 and 1")


def tensor_from(array: np.ndarray) -> torch.Tensor:
    """A torch tensor that shares memory where it can; raises UnsupportedOperatorError for text."""
    array = np.asarray(array)
    if array.dtype in _FROM_NUMPY:
        dtype, (_, torch_bits, bits) = _FROM_NUMPY[array.dtype]
        raw = np.array(array, copy=True, order="C").reshape(-1).view(bits)
        return torch.from_numpy(raw).view(torch_bits).view(dtype).reshape(array.shape)
    if array.dtype.kind not in "biufc":
        raise UnsupportedOperatorError(f"arrays of type {array.dtype} are not supported")
    native = array.astype(array.dtype.newbyteorder("="), order="C", copy=False)
    # torch warns on read-only memory; nothing of ours writes into weights.
    if not native.flags.writeable or not native.flags.c_contiguous:
        native = np.array(native, order="C")
    return torch.from_numpy(native)


def numpy_from(tensor: torch.Tensor) -> np.ndarray:
    """A NumPy array of the same values, ml_dtypes for what NumPy lacks."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype in _BIT_VIEWS:
        target, torch_bits, _ = _BIT_VIEWS[tensor.dtype]
        flat = tensor.reshape(-1).view(torch_bits).numpy().view(target)
        return flat.reshape(tuple(tensor.shape))
    return tensor.numpy()
