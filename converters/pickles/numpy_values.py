"""NumPy scalars and arrays inside pickles, rebuilt from their bytes; never from objects."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.errors import CorruptFileError, UnsafePickleError, safe_repr
from converters.limits import Limits
from converters.tensors import is_count

# Booleans, integers, floats, complex numbers and fixed-length text; no objects, no records.
_SAFE_DTYPE = re.compile(r"b1|[iu][1248]|f[248]|c(8|16)|[SU]\d{1,5}", re.ASCII)


@dataclass(eq=False)
class DtypeRef:
    """A ``numpy.dtype`` under construction: pickle gives its byte order in a second step."""

    code: str
    order: str = "|"
    used: bool = False

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.code).newbyteorder(self.order if self.order in "<>" else "=")  # type: ignore[arg-type]

    def build(self, state: Any) -> None:
        """Apply ``(version, order, subarray, names, fields, size, alignment, flags[, ...])``."""
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in ("<", ">", "=", "|"):
            raise CorruptFileError("a numpy dtype has a state that is not understood")
        if self.used:
            raise CorruptFileError(
                "a numpy dtype is changed after an array was made with it; numpy changes the array "
                "too. Save the arrays again"
            )
        if any(part is not None for part in state[2:5]):
            raise UnsafePickleError(
                "a numpy record or subarray dtype; expected a plain one", global_name="numpy.dtype"
            )
        self.order = state[1]


@dataclass(eq=False)
class ArrayRef:
    """A ``numpy.ndarray`` under construction; ``array`` is set once its state arrives."""

    array: np.ndarray | None = None

    def build(self, state: Any) -> None:
        """Apply ``(version, shape, dtype, fortran_order, bytes)``."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise CorruptFileError("a numpy array has a state that is not understood")
        _, shape, dtype, fortran, data = state
        self.array = _shaped(dtype, data, shape, fortran is True)


def _shaped(dtype: Any, data: Any, shape: Any, fortran: bool) -> np.ndarray:
    """The elements in a shape; raises CorruptFileError where that is none."""
    if not isinstance(shape, tuple) or len(shape) > 32 or not all(map(is_count, shape)):
        raise CorruptFileError(f"a numpy array has the shape {safe_repr(shape)}")
    flat = _from_bytes(dtype, data, math.prod(shape))
    if math.prod(max(n, 1) for n in shape) >= 2**48:
        raise CorruptFileError(f"a numpy array has the shape {shape}")
    return flat.reshape(shape, order="F" if fortran else "C")


def _from_bytes(dtype: Any, data: Any, count: int) -> np.ndarray:
    """``count`` elements that take exactly all of ``data``."""
    if not isinstance(dtype, DtypeRef):
        raise CorruptFileError("a numpy value names no known dtype")
    if not isinstance(data, bytes):
        raise UnsafePickleError(
            f"a numpy value holds a {type(data).__name__}, expected bytes",
            global_name="numpy.ndarray",
        )
    dtype.used = True
    if count * dtype.dtype.itemsize != len(data):
        raise CorruptFileError(
            f"a numpy value of {count} x {dtype.dtype} comes with {len(data)} bytes"
        )
    if not data:
        return np.zeros(count, dtype.dtype)
    array = np.frombuffer(data, dtype.dtype)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _scalar(limits: Limits, dtype: Any, data: Any = b"") -> Any:
    try:
        return _from_bytes(dtype, data, 1)[0].item()
    except ValueError as error:  # A "U" dtype over bytes that are no code points.
        raise CorruptFileError("a numpy text scalar is not valid text") from error


def _dtype(limits: Limits, code: Any, align: Any = False, copy: Any = True) -> DtypeRef:
    if not isinstance(code, str) or not _SAFE_DTYPE.fullmatch(code.lstrip("<>=|")):
        raise UnsafePickleError(
            f"numpy.dtype {safe_repr(code)}; expected a number or text type, objects are refused",
            global_name="numpy.dtype",
        )
    return DtypeRef(code.lstrip("<>=|"))


def _empty_array(limits: Limits, kind: Any, shape: Any, code: Any) -> ArrayRef:
    if getattr(kind, "name", None) != "numpy.ndarray":
        raise CorruptFileError("numpy's _reconstruct of a class other than numpy.ndarray")
    return ArrayRef()


def _in_band(
    limits: Limits, data: Any, dtype: Any, shape: Any, order: Any, axes: Any = None
) -> ArrayRef:
    """An array of protocol 5: its bytes as they lie in memory, by order C, F, or K with axes."""
    if order in ("C", "F") and axes is None:
        return ArrayRef(_shaped(dtype, data, shape, order == "F"))
    array = _shaped(dtype, data, shape, fortran=False)
    whole = isinstance(axes, tuple) and all(map(is_count, axes))
    if order != "K" or not whole or sorted(axes) != list(range(array.ndim)):
        raise CorruptFileError(
            f"a numpy array of order {safe_repr(order)} with axes {safe_repr(axes)}; expected C or "
            "F without axes, or K with all of them"
        )
    return ArrayRef(array.transpose(axes))


_BY_MODULE = {
    "scalar": (_scalar, 1, 2),
    "_reconstruct": (_empty_array, 3, 3),
}
CONSTRUCTORS = {
    "numpy.dtype": (_dtype, 1, 3),
    **{
        f"{module}.{name}": entry
        for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        for name, entry in _BY_MODULE.items()
    },
    "numpy.core.numeric._frombuffer": (_in_band, 4, 5),
    "numpy._core.numeric._frombuffer": (_in_band, 4, 5),
}
