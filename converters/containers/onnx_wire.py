"""ONNX files told by their content, and the files beside them that hold their tensors.

Walks through protobuf's fields with seeks; nothing is parsed or kept, so it needs neither onnx nor
memory. Format: https://protobuf.dev/programming-guides/encoding.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from converters.containers import sniff
from converters.errors import LoadError

_BYTES = 2
_SIZES = {1: 8, 5: 4}
_MOST_FIELDS = 1_000_000
_LONGEST_NAME = 4096
# Field number -> wire type of onnx.proto's ModelProto.
_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
# From the model to where a tensor's data lies: graph, initialisers, entries of external data.
_GRAPH, _INITIALISER, _EXTERNAL, _KEY, _VALUE = 7, 5, 13, 1, 2
_FOREIGN = re.compile(rb"<|version https|\x89HDF|\x1f\x8b|BZh")

Field = tuple[int, int, int, int]
"""Number, wire type, start and size of the content."""


def is_onnx(path: Path) -> bool:
    """Whether a file's fields are those of an ONNX model.

    The suffix decides for files that are damaged; those that cannot be read are none.
    """
    try:
        with _opened(path) as file:
            if _is_model(file, _size(file)):
                return True
            file.seek(0)
            head = file.read(sniff.HEAD_BYTES)
    except (OSError, ValueError):  # whoever reads it next says what is wrong
        return False
    return bool(head) and path.suffix.lower() == ".onnx" and not _is_other(head)


def external_files(path: Path) -> tuple[Path, ...]:
    """Files inside the folder of an ONNX model that its tensors name, in order; () for others.

    Raises OSError where the file cannot be read.
    """
    if not is_onnx(path):
        return ()
    names: dict[str, None] = {}
    with _opened(path) as file:
        for number, wire, start, size in _fields(file, 0, _size(file)):
            if (number, wire) == (_GRAPH, _BYTES):
                names |= dict.fromkeys(_locations(file, start, start + size))
    return tuple(path.parent / name for name in names if _is_inside(name))


def _locations(file: BinaryIO, start: int, end: int) -> Iterator[str]:
    for number, _, tensor, size in _fields(file, start, end):
        if number != _INITIALISER:
            continue
        for part, _, entry, length in _fields(file, tensor, tensor + size):
            if part == _EXTERNAL:
                values = dict(_texts(file, entry, entry + length))
                if values.get(_KEY) == "location":
                    yield values.get(_VALUE, "")


def _texts(file: BinaryIO, start: int, end: int) -> Iterator[tuple[int, str]]:
    for number, wire, at, size in _fields(file, start, end):
        if wire == _BYTES and size <= _LONGEST_NAME:
            file.seek(at)
            yield number, file.read(size).decode("utf-8", "replace")


def _is_inside(name: str) -> bool:
    """What the reader accepts; the rest it refuses when the model is opened."""
    location = PurePosixPath(name)
    plain = name and "\0" not in name and "\\" not in name
    return bool(plain) and not location.is_absolute() and ".." not in location.parts


def _opened(path: Path) -> BinaryIO:
    """A regular file, open; raises OSError for anything else, and never waits on a pipe."""
    file = open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(f"{path} is no regular file")
    return file


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _is_other(head: bytes) -> bool:
    try:
        sniff.sniff(head)
    except LoadError:
        return _FOREIGN.match(head) is not None
    return True


def _is_model(file: BinaryIO, size: int) -> bool:
    """The outermost fields: a version and a graph, none unknown, up to the last byte."""
    seen: set[int] = set()
    end = 0
    for number, wire, start, length in _fields(file, 0, size):
        if _MODEL_FIELDS.get(number) != wire:
            return False
        seen.add(number)
        end = start + length
    return end == size and {1, _GRAPH} <= seen


def _fields(file: BinaryIO, start: int, end: int) -> Iterator[Field]:
    """Fields between two places, without what lies in them; ends early where they are no fields."""
    at = start
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return
        file.seek(at)
        key = _varint(file)
        wire, inner = (key or 0) & 7, file.tell()
        value = _varint(file) if wire in (0, _BYTES) else 0
        if not key or value is None or wire not in (0, _BYTES, *_SIZES):
            return
        if wire == _BYTES:
            inner, size = file.tell(), value
        else:
            size = file.tell() - inner if wire == 0 else _SIZES[wire]
        if inner + size > end:
            return
        yield key >> 3, wire, inner, size
        at = inner + size


def _varint(file: BinaryIO) -> int | None:
    """A number as protobuf writes it, None where there is none."""
    value = 0
    for shift in range(0, 64, 7):
        byte = file.read(1)
        if not byte:
            return None
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None
