"""Reading a file once, safely, and telling its format by content; suffixes are ignored."""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from converters.containers.claims import refuse_second_container
from converters.containers.torch_legacy import MAGIC
from converters.errors import CorruptFileError, LoadError, TooLargeError, UnknownFormatError
from converters.files import kind_of
from converters.limits import Limits

TORCH_ZIP = "torch zip"
TORCH_LEGACY = "torch legacy stream"
TORCH_TAR = "torch legacy tar"
SAFETENSORS = "safetensors"
PICKLE = "pickle"

HEAD_BYTES = 1024
_TAR_MAGIC_AT = 257
_MAGIC_BYTES = MAGIC.to_bytes(10, "little")
_TEXT_MAGIC = f"L{MAGIC}L\n".encode()
# Pickles of protocol 0 and 1 have no magic; these start with a global, or an empty dict or list.
_TEXT_PICKLE = re.compile(
    rb"\(*[ci][A-Za-z_][\w.]*\r?\n[A-Za-z_][\w.]*\r?\n|\([dlt]p?\d*\r?\n|[}\]]q."
)
_FOREIGN = {
    b"\x89HDF": (
        "an HDF5 file, as Keras writes; convert it: "
        "python -m tf2onnx.convert --keras model.h5 --output model.onnx"
    ),
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"BZh": "a bzip2 archive; unpack it first",
    b"\xfd7zXZ": "an xz archive; unpack it first",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"Rar!": "a rar archive; unpack it first",
    b"\x93NUMPY": "a NumPy array",
    b"\x7fELF": "a program",
    b"<!DOCTYPE": "a web page, perhaps an error page of the download",
    b"<html": "a web page, perhaps an error page of the download",
    b"version https://git-lfs": "a Git LFS pointer; fetch the real file",
}
_TFLITE = (
    "a network of TensorFlow Lite; convert it: "
    "python -m tf2onnx.convert --tflite model.tflite --output model.onnx"
)
# Version 1, then a graph that begins with its own description; ONNX has the producer's name there.
_SAVED_MODEL_HEAD = re.compile(rb"\x08\x01\x12[\x80-\xff]{0,4}[\x00-\x7f]\n")
_SAVED_MODEL = (
    "a SavedModel of TensorFlow; convert its folder: "
    "python -m tf2onnx.convert --saved-model FOLDER --output model.onnx"
)
_CORE_ML = (
    "a package of Core ML, which coremltools makes and no tool turns back; convert the network "
    "that it was made from: torch.onnx.export for torch, tf2onnx for TensorFlow"
)
_SUPPORTED = (
    "torch zip, torch legacy stream or tar, safetensors, ONNX, or an exported program (.pt2)"
)


@dataclass(frozen=True)
class FileContent:
    """All bytes of one file, read once, so that the digest is that of what is parsed."""

    path: Path
    format: str
    data: bytes
    sha256: str


def read_file(path: Path, limits: Limits) -> FileContent:
    """Read a regular file whose first bytes are those of a supported format.

    Raises:
        LoadError: missing, unreadable or not a regular file.
        CorruptFileError: empty, its size changes while it is read, or it is also of another format.
        TooLargeError: larger than ``limits.file_bytes``.
        UnknownFormatError: none of the supported formats.
    """
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise UnknownFormatError(f"{path} is {_no_file(path, mode)}; expected a model file")
        # Not blocking, should a pipe take the file's place meanwhile.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise UnknownFormatError(
                    f"{path} is {kind_of(info.st_mode)}, expected a model file"
                )
            return _read_open(path, file, info.st_size, limits)
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}; check the path") from error
    except ValueError as error:  # A path with a null byte.
        raise LoadError(f"cannot read {ascii(str(path))}: {error}; check the path") from error


def _no_file(path: Path, mode: int) -> str:
    """What stands in the place of a model file, in words."""
    if (path / "saved_model.pb").is_file():
        return _SAVED_MODEL
    if (path / "Data" / "com.apple.CoreML").is_dir():
        return _CORE_ML
    return kind_of(mode)


def _read_open(path: Path, file, size: int, limits: Limits) -> FileContent:
    """Check size and format before reading all of the file."""
    if size == 0:
        raise CorruptFileError(f"{path} is empty, expected a model file")
    if size > limits.file_bytes:
        raise TooLargeError(
            f"{path} has {size} bytes, more than Limits.file_bytes = "
            f"{limits.file_bytes}; pass larger limits if you trust it"
        )
    try:
        kind = sniff(file.read(HEAD_BYTES), str(path))
    except UnknownFormatError as error:
        file.seek(0)
        error.digest = hashlib.file_digest(file, "sha256").hexdigest()
        raise
    file.seek(0)
    data = _read_all(file, size)
    if len(data) != size:
        raise CorruptFileError(f"{path} changed while it was read: {size} bytes, then {len(data)}")
    try:
        refuse_second_container(data, kind)
    except CorruptFileError as error:
        error.args, error.digest = (f"{path}: {error}",), hashlib.sha256(data).hexdigest()
        raise
    return FileContent(path, kind, data, hashlib.sha256(data).hexdigest())


def _read_all(file, size: int) -> bytes:
    """``size`` bytes at once; one system call reads at most 2 GiB."""
    data = file.read(size)
    if len(data) == size:
        return data
    parts = [data]
    while parts[-1]:
        parts.append(file.read(size - sum(map(len, parts))))
    return b"".join(parts)


def sniff(head: bytes, name: str = "the file") -> str:
    """The format of a file from its first `HEAD_BYTES` bytes.

    Raises:
        UnknownFormatError: no supported format starts like this.
    """
    if head.startswith(b"PK\x03\x04"):
        return TORCH_ZIP
    if head[:1] == b"\x80" and _MAGIC_BYTES in head[:32] or head.startswith(_TEXT_MAGIC):
        return TORCH_LEGACY
    if head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return TORCH_TAR
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 2**40:
        return SAFETENSORS
    if head[:1] == b"\x80" and head[1:2] <= b"\x05" or _TEXT_PICKLE.match(head):
        return PICKLE
    if head[4:8] == b"TFL3":
        raise UnknownFormatError(f"{name} is {_TFLITE}; expected {_SUPPORTED}")
    if _SAVED_MODEL_HEAD.match(head):
        raise UnknownFormatError(f"{name} is {_SAVED_MODEL}; expected {_SUPPORTED}")
    for magic, description in _FOREIGN.items():
        if head.startswith(magic):
            raise UnknownFormatError(f"{name} is {description}; expected {_SUPPORTED}")
    raise UnknownFormatError(
        f"{name} starts with {ascii(head[:8])}, as no supported format does (it may be encrypted "
        f"or damaged); expected {_SUPPORTED}"
    )
