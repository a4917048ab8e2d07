"""The header of an `.npy` array, read as if it came from a stranger: plain numbers, nothing else.

NumPy's own reader evaluates the header as Python and, where it is told to, unpickles what follows.
Here the three entries are matched as text, and the number of bytes that follow must be the one that
they say. Layout: the document of `numpy.lib.format`, versions 1.0 to 3.0.
"""

import math
import re
from dataclasses import dataclass

import numpy as np

MOST_BYTES = 1024 + 12
"""A header of plain numbers is shorter, with all that comes before the numbers."""
_MAGIC = b"\x93NUMPY"
_WIDTHS = {1: 2, 2: 4, 3: 4}  # major version -> bytes that hold the length of the text
_MOST_AXES = 8
# Python 2 wrote whole numbers of Windows as 28L.
# Every repetition ends in a comma: otherwise a text can be matched in exponentially many ways.
_EXTENTS = r"\((?:\s*\d+L?\s*,)*(?:\s*\d+L?)?\s*\)"
_ENTRY = rf"'(descr|fortran_order|shape)'\s*:\s*('[^']*'|True|False|{_EXTENTS})"
_TEXT = re.compile(rf"\{{(?:\s*{_ENTRY}\s*,)*(?:\s*{_ENTRY})?\s*\}}\s*", re.ASCII)
_PLAIN = re.compile(r"[<>|=]?(?:b1|[ui][1248]|f[248])")


class NpyError(ValueError):
    """These bytes are no array of plain numbers; the message says why, without a file's name."""


@dataclass(frozen=True)
class NpyHeader:
    """What an array says about itself.

    Attributes:
        shape: extents, 0 or more, up to 8.
        column_major: whether the first index varies fastest.
        dtype: booleans, whole numbers or floats of at most 8 bytes.
        start: byte at which the numbers begin.
    """

    shape: tuple[int, ...]
    column_major: bool
    dtype: np.dtype
    start: int

    @property
    def total_bytes(self) -> int:
        """Of header and numbers. Python's integers: a product of hostile extents does not wrap."""
        return self.start + math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"

    def check_length(self, length: int) -> None:
        """Raise NpyError unless header and numbers are so many bytes."""
        if length != self.total_bytes:
            raise NpyError(f"{self} takes {self.total_bytes} bytes, got {length}")

    def array(self, content: bytes | memoryview) -> np.ndarray:
        """The numbers of a whole `.npy` content, read-only and without a copy. Raises NpyError."""
        self.check_length(len(content))
        if 0 in self.shape:
            raise NpyError(f"{self} holds no number")
        values = np.frombuffer(content, self.dtype, offset=self.start)
        return values.reshape(self.shape, order="F" if self.column_major else "C")


def read_npy_header(content: bytes | memoryview) -> NpyHeader:
    """The header of an `.npy` content, of which the first `MOST_BYTES` are enough.

    Raises:
        NpyError: it is no array, or one of other things than plain numbers.
    """
    text, start = _text(bytes(content[:MOST_BYTES]))
    if _TEXT.fullmatch(text) is None:
        raise NpyError("the header of the array is not that of plain numbers")
    entries = re.findall(_ENTRY, text, re.ASCII)
    values = dict(entries)
    if len(entries) != 3 or len(values) != 3:
        raise NpyError("the header of the array does not name type, order and shape once each")
    order = values["fortran_order"]
    if order not in ("True", "False"):
        raise NpyError(f"the order of the array is {order[:40]}, expected True or False")
    return NpyHeader(_shape(values["shape"]), order == "True", _dtype(values["descr"]), start)


def _text(content: bytes) -> tuple[str, int]:
    """The header's text and the byte after it."""
    if content[: len(_MAGIC)] != _MAGIC or len(content) < 12:
        raise NpyError("it is no .npy array")
    if (width := _WIDTHS.get(content[6])) is None:
        raise NpyError(f"an array of version {content[6]}, expected 1 to 3")
    begin = 8 + width
    end = begin + int.from_bytes(content[8:begin], "little")
    if end > len(content):
        raise NpyError(f"the header of the array is truncated, or over {MOST_BYTES} bytes")
    try:
        return content[begin:end].decode("ascii"), end
    except UnicodeDecodeError as error:
        raise NpyError("the header of the array is not ASCII") from error


def _shape(text: str) -> tuple[int, ...]:
    if text[0] != "(":
        raise NpyError(f"the shape of the array is {text[:40]}, expected extents")
    extents = tuple(map(int, re.findall(r"[0-9]+", text)))
    if len(extents) > _MOST_AXES:
        raise NpyError(f"an array of {len(extents)} axes, expected at most {_MOST_AXES}")
    return extents


def _dtype(text: str) -> np.dtype:
    name = text[1:-1]
    if text[0] != "'" or _PLAIN.fullmatch(name) is None:
        raise NpyError(f"elements of type {ascii(name[:40])}, expected plain numbers")
    return np.dtype(name)
