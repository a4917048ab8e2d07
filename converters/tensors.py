"""Tensor descriptions as files give them: checked first, turned into arrays afterwards."""

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from converters.errors import CorruptFileError, TooLargeError, safe_repr
from converters.limits import Limits

# numpy's own limit is 64; no layer of a network needs more than 8.
MAX_DIMENSIONS = 32

# Element types by the name torch gives them ("torch.float32" or "torch.FloatStorage").
DTYPES = {
    "float16": np.dtype(np.float16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "int64": np.dtype(np.int64),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
}


@dataclass(frozen=True, eq=False)
class StorageRef:
    """A run of elements inside a storage that is still in the file.

    Attributes:
        key: name of the storage in its container.
        dtype: element type; ``uint8`` for untyped storages.
        numel: elements of this run.
        root_numel: elements of the whole storage.
        first: index of the run's first element in the whole storage.
    """

    key: str
    dtype: np.dtype
    numel: int
    root_numel: int
    first: int = 0


@dataclass(frozen=True, eq=False)
class TensorRef:
    """A strided view of a `StorageRef`; shape, stride and offset are in elements."""

    storage: StorageRef
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor once it is laid out contiguously."""
        return math.prod(self.shape) * self.dtype.itemsize


def is_count(value: object) -> bool:
    """Whether ``value`` is an integer >= 0 that fits 63 bits (``bool`` is not an integer here)."""
    return type(value) is int and 0 <= value < 2**63


def storage_run(storage: StorageRef, first: object, numel: object) -> StorageRef:
    """A run inside ``storage``; raises `CorruptFileError` if it leaves the storage."""
    if not (is_count(first) and is_count(numel)) or first + numel > storage.numel:  # type: ignore[operator]
        raise CorruptFileError(
            f"storage {safe_repr(storage.key)}: a view of {safe_repr(numel)} elements from "
            f"{safe_repr(first)} "
            f"does not fit its {storage.numel} elements"
        )
    return StorageRef(storage.key, storage.dtype, numel, storage.root_numel, storage.first + first)  # type: ignore[operator, arg-type]


def tensor_view(
    storage: object,
    offset: object,
    shape: object,
    stride: object,
    limits: Limits,
    dtype: np.dtype | None = None,
) -> TensorRef:
    """Check a tensor's description against its storage.

    Args:
        storage: the `StorageRef` it views.
        offset, shape, stride: in elements of ``dtype``; integers >= 0.
        limits: caps.
        dtype: element type when it differs from the storage's (only over untyped storages).

    Raises:
        CorruptFileError: not integers, negative, or an element lies outside the storage.
        TooLargeError: the tensor is larger than ``limits.tensor_bytes``.
    """
    if not isinstance(storage, StorageRef):
        raise CorruptFileError(f"a tensor names a {type(storage).__name__} as its storage")
    where = f"tensor over storage {safe_repr(storage.key)}"
    dims, steps = _counts(shape, where, "shape"), _counts(stride, where, "stride")
    if len(dims) != len(steps):
        raise CorruptFileError(f"{where}: {len(dims)} dimensions but {len(steps)} strides")
    if not is_count(offset):
        raise CorruptFileError(f"{where}: offset {safe_repr(offset)} is not an integer >= 0")
    view = TensorRef(storage, dtype or storage.dtype, offset, dims, steps)  # type: ignore[arg-type]
    _check_bounds(view, where, limits)
    return view


def _counts(values: object, where: str, what: str) -> tuple[int, ...]:
    """``values`` as a tuple of integers >= 0, at most `MAX_DIMENSIONS` of them."""
    if not isinstance(values, (tuple, list)) or len(values) > MAX_DIMENSIONS:
        raise CorruptFileError(
            f"{where}: {what} is not a tuple of at most {MAX_DIMENSIONS} integers"
        )
    for value in values:
        if not is_count(value):
            raise CorruptFileError(
                f"{where}: {what} has the entry {safe_repr(value)}, expected integers >= 0"
            )
    return tuple(values)


def _check_bounds(view: TensorRef, where: str, limits: Limits) -> None:
    """Refuse a view that leaves its storage or exceeds the cap; Python integers do not overflow."""
    # A zero dimension must not hide huge ones beside it: numpy refuses those shapes too.
    largest = math.prod(max(n, 1) for n in view.shape) * view.dtype.itemsize
    if largest > limits.tensor_bytes:
        raise TooLargeError(
            f"{where}: shape {view.shape} takes {largest} bytes, more than "
            f"Limits.tensor_bytes = {limits.tensor_bytes}"
        )
    if math.prod(view.shape) == 0:
        return
    last = view.offset + sum((n - 1) * s for n, s in zip(view.shape, view.stride, strict=True))
    available = view.storage.numel * view.storage.dtype.itemsize
    if (last + 1) * view.dtype.itemsize > available:
        raise CorruptFileError(
            f"{where}: shape {view.shape}, stride {view.stride} and offset {view.offset} reach "
            f"element {last}, past the {available} bytes of the storage"
        )


def check_total(views: list[TensorRef], limits: Limits) -> None:
    """Refuse tensors that together take far more room than the storages they view.

    Raises:
        TooLargeError: see ``Limits.view_ratio`` and ``Limits.tensors``.
    """
    if len(views) > limits.tensors:
        raise TooLargeError(f"{len(views)} tensors, more than Limits.tensors = {limits.tensors}")
    stored = {v.storage.key: v.storage.root_numel * v.storage.dtype.itemsize for v in views}
    total = sum(view.nbytes for view in views)
    allowed = limits.view_ratio * sum(stored.values()) + limits.free_expansion_bytes
    if total > allowed:
        raise TooLargeError(
            f"the tensors take {total} bytes but view only {sum(stored.values())} stored bytes; "
            f"at most {limits.view_ratio} times that is read (Limits.view_ratio)"
        )


def materialise(view: TensorRef, storage_bytes: memoryview, big_endian: bool) -> np.ndarray:
    """The array of a checked view; shares the file's memory where its layout allows.

    Args:
        view: a description that passed `tensor_view`.
        storage_bytes: all bytes of its whole storage.
        big_endian: byte order of the file.

    Returns:
        C-contiguous, aligned array in native byte order; read-only when it shares memory.
    """
    itemsize = view.dtype.itemsize
    start = view.storage.first * view.storage.dtype.itemsize + view.offset * itemsize
    if math.prod(view.shape) == 0:
        return np.zeros(view.shape, view.dtype)
    # The stride of a dimension of one element is never used and may be any number.
    strides = tuple(
        step * itemsize if n > 1 else 0 for n, step in zip(view.shape, view.stride, strict=True)
    )
    # This constructor compares the view with the buffer once more, independently of our check.
    array = np.ndarray(view.shape, view.dtype, storage_bytes, start, strides)
    # torch swaps by the type of the storage: bytes of an untyped one stay as they are.
    if big_endian and view.storage.dtype.itemsize > 1:
        array = array.byteswap()
    if view.dtype == np.bool_:
        array = array.view(np.uint8) != 0
    return np.require(array, requirements=["C", "A"])
