"""Reading ONNX files: bounded, parsed once, external tensors only from beside the file."""

import hashlib
import io
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto, helper

from converters.errors import CorruptFileError, LoadError, TooLargeError, safe_repr
from converters.graph.onnx.check import check_tensor
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.order import sort_nodes
from converters.graph.onnx.types import array_of
from converters.graph.onnx.wire import check_cost

_ENTRIES = frozenset(("location", "offset", "length", "checksum"))


@dataclass(frozen=True)
class OnnxFile:
    """A parsed file.

    Attributes:
        model: its graph, the data of the initialisers taken out, the nodes in order.
        weights: the initialisers, also those from external files: name -> array.
        was_sorted: whether the nodes were out of order.
    """

    model: ModelProto
    weights: dict[str, np.ndarray]
    was_sorted: bool = False


def read_onnx(path: str | os.PathLike, limits: OnnxLimits | None = None) -> OnnxFile:
    """Read a model file and its external tensors.

    Raises:
        LoadError: missing, unreadable or not a regular file.
        CorruptFileError: not an ONNX model, truncated, or tensors that contradict their data or
            lie outside the file's folder.
        TooLargeError: a cap is exceeded; nothing of that size was allocated.
    """
    limits, path = limits or OnnxLimits(), Path(path)
    data = _file_bytes(path, limits)
    check_cost(data, limits)
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise CorruptFileError(f"{path.name} is no ONNX model: {safe_repr(str(error))}") from error
    del data
    _refuse_nested_external(model.graph)
    weights = _weights(model, path.parent, limits)
    was_sorted = sort_nodes(model.graph)
    return OnnxFile(_without_room(model), weights, was_sorted)


def _file_bytes(path: Path, limits: OnnxLimits) -> bytes:
    descriptor, size = _open_regular(path)
    with open(descriptor, "rb", buffering=0) as file:
        if size > limits.file_bytes:
            raise TooLargeError(
                f"{path.name} has {size} bytes, more than OnnxLimits.file_bytes = "
                f"{limits.file_bytes}; keep the weights in external data"
            )
        data = file.read(size)  # one system call reads all that `limits` allows
    if len(data) != size:
        raise CorruptFileError(f"{path.name} changed while it was read")
    return data


def _open_regular(path: Path, follow: bool = True) -> tuple[int, int]:
    """A descriptor and the size of a regular file; never blocks on a pipe."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise LoadError(f"cannot read {path.name}: {reason}; check the path") from error
    except ValueError as error:  # A path with a null byte.
        raise LoadError(f"cannot read {safe_repr(str(path))}: {error}; check the path") from error
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode):
        os.close(descriptor)
        raise LoadError(f"{path.name} is not a regular file, expected a model file")
    return descriptor, info.st_size


def _read_into(file, view: memoryview) -> int:
    """Bytes read; one system call reads at most 2 GiB."""
    done = 0
    while done < len(view):
        count = file.readinto(view[done:])
        if not count:
            break
        done += count
    return done


class _Beside:
    """The model's folder, what may still be read of it, and the digests of files read whole."""

    def __init__(self, folder: Path, limits: OnnxLimits):
        self.folder = folder
        self.room = limits.external_bytes
        self._unhashed = limits.external_bytes
        self._digests: dict[Path, str] = {}

    def digest(self, path: Path, file: io.FileIO, size: int) -> str:
        """SHA-1 of a file, which all tensors that lie in it share."""
        if path not in self._digests:
            if size > self._unhashed:
                raise TooLargeError(
                    f"{safe_repr(path.name)} has {size} bytes to check, more than are left of "
                    "OnnxLimits.external_bytes"
                )
            self._unhashed -= size
            found = hashlib.file_digest(file, "sha1")  # pyright: ignore[reportArgumentType]
            self._digests[path] = found.hexdigest()
        return self._digests[path]


def _weights(model: ModelProto, folder: Path, limits: OnnxLimits) -> dict[str, np.ndarray]:
    weights: dict[str, np.ndarray] = {}
    beside = _Beside(folder, limits)
    for tensor in model.graph.initializer:
        if tensor.name in weights:
            raise CorruptFileError(f"two weights have the name {safe_repr(tensor.name)}")
        check_tensor(tensor, limits)
        if tensor.data_location == TensorProto.EXTERNAL:
            weights[tensor.name] = _external(tensor, beside)
            beside.room -= weights[tensor.name].nbytes
        else:
            # A copy of its own: torch then shares it, and the parsed file can go.
            weights[tensor.name] = array_of(tensor).copy()
            tensor.ClearField("raw_data")
    return weights


def _without_room(model: ModelProto) -> ModelProto:
    """The same message in memory of its own: one keeps the room of fields that were cleared."""
    lean = ModelProto()
    lean.ParseFromString(model.SerializeToString())
    return lean


def _external(tensor: TensorProto, beside: _Beside) -> np.ndarray:
    """A tensor from a file beside the model."""
    name = safe_repr(tensor.name)
    said = _entries(tensor)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = math.prod(tensor.dims)
    size = count * dtype.itemsize
    offset = _number(said.get("offset", "0"), name)
    if _number(said.get("length", str(size)), name) != size:
        raise CorruptFileError(
            f"tensor {name} needs {size} bytes, its external data says otherwise"
        )
    if size > beside.room:
        raise TooLargeError(f"external tensors exceed OnnxLimits.external_bytes at tensor {name}")
    path = _inside(beside.folder, said.get("location", ""), name)
    descriptor, available = _open_regular(path, follow=False)
    with open(descriptor, "rb", buffering=0) as file:
        if offset + size > available:
            raise CorruptFileError(
                f"tensor {name} ends at byte {offset + size} of a file of {available} bytes"
            )
        if "checksum" in said:
            _check_digest(beside.digest(path, file, available), said["checksum"], name)
        array = np.empty(count, dtype)
        file.seek(offset)
        if _read_into(file, array.view(np.uint8).data) != size:
            raise CorruptFileError(f"the external data of {name} changed while it was read")
    return array.reshape(tuple(tensor.dims))


def _entries(tensor: TensorProto) -> dict[str, str]:
    """What a tensor says of its data, each once and nothing besides."""
    said = {entry.key: entry.value for entry in tensor.external_data}
    inside = any(field.name.endswith("_data") for field, _ in tensor.ListFields()
                 if field.name != "external_data")  # fmt: skip
    if len(said) < len(tensor.external_data) or not set(said) <= _ENTRIES or inside:
        raise CorruptFileError(
            f"tensor {safe_repr(tensor.name)} says in two ways where its data lies, or what"
        )
    return said


def _check_digest(found: str, expected: str, name: str) -> None:
    """Refuse data that is not what the model was saved with; ONNX says that by SHA-1."""
    if found != expected.lower():
        raise CorruptFileError(
            f"the external data of {name} was changed after the model was saved: its SHA-1 is "
            f"{found}, the model says {safe_repr(expected)}"
        )


def _number(text: str, name: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise CorruptFileError(f"tensor {name} has an offset or length of {safe_repr(text)}")
    return int(text)


def _inside(folder: Path, location: str, name: str) -> Path:
    """The path of an external file, which must lie in the model's folder or below it."""
    parts = PurePosixPath(location).parts
    # onnxruntime takes "*/_ORT_MEM_ADDR_/*" for an address in memory.
    unsafe = any(character in location for character in "\\\0:*")
    if not parts or unsafe or PurePosixPath(location).is_absolute() or ".." in parts:
        raise CorruptFileError(
            f"tensor {name} names external data at {safe_repr(location)}; only paths inside the "
            "model's folder are read"
        )
    path = folder.joinpath(*parts)
    # Links on the way are followed to the end, to see where they lead.
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if not real.is_relative_to(root):
        raise CorruptFileError(f"the external data of {name} leads outside the model's folder")
    if path.is_symlink():
        raise CorruptFileError(f"the external data of {name} is a symbolic link; copy the file")
    return path


def _refuse_nested_external(graph: GraphProto) -> None:
    """Tensors inside nodes must lie in the file; nothing would read them otherwise."""
    pending = [graph]
    while pending:
        current = pending.pop()
        attributes = [attribute for node in current.node for attribute in node.attribute]
        tensors = [a.t for a in attributes if a.HasField("t")]
        tensors += [tensor for a in attributes for tensor in a.tensors]
        if any(tensor.data_location == TensorProto.EXTERNAL for tensor in tensors):
            raise CorruptFileError("a tensor inside a node names external data; that is not read")
        pending += [a.g for a in attributes if a.HasField("g")]
        pending += [inner for a in attributes for inner in a.graphs]
