"""Tensors of exported programs: raw members of the archive, described by a JSON table."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from converters.containers.exported_names import check_path
from converters.containers.zip_file import ZipReader
from converters.errors import CorruptFileError, LoadError, TooLargeError, safe_repr
from converters.limits import Limits

_MOST_AXES = 32  # of a tensor; NumPy has no more than 64
# Numbers of the element types in torch's schema.
_TYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
          8: "float64", 12: "bool", 13: "bfloat16"}  # fmt: skip


def read_tensors(archive: ZipReader, folder: str, entries: Any, limits: Limits) -> dict[str, Any]:
    """The tensors that a folder of the archive lists, as torch tensors that lie as the file says.

    Those of one member share its memory, as torch has them: what picks elements by strides sees it.

    Args:
        archive, folder: where their members are.
        entries: name to description, as the JSON file in the folder has them.
        limits: on tensors and their bytes.

    Raises:
        CorruptFileError: a description contradicts itself or its member.
        LoadError: an object that torch pickled.
        TooLargeError: a cap is exceeded.
    """
    import torch

    if not isinstance(entries, dict) or len(entries) > limits.tensors:
        raise CorruptFileError(f"{safe_repr(folder)} lists no tensors, or too many")
    room = limits.view_ratio * max(len(archive.data), limits.free_expansion_bytes)
    tensors: dict[str, Any] = {}
    members: dict[str, Any] = {}
    types: dict[str, int] = {}
    for name, entry in entries.items():
        check_path(name)
        flat, sizes, strides, offset = _described(archive, folder, name, entry, limits)
        _refuse_two_types(types, name, entry)
        size = math.prod(sizes) * flat.itemsize
        room -= size
        if room < 0 or size > limits.tensor_bytes:
            raise TooLargeError(f"tensor {safe_repr(name)} exceeds the caps on memory of one file")
        path = entry["path_name"]
        if path not in members:
            members[path] = _torch_tensor(torch, flat, entry)
        tensor = torch.as_strided(members[path], sizes, strides, offset)
        is_param = bool(entry.get("is_param"))
        tensors[name] = torch.nn.Parameter(tensor, requires_grad=False) if is_param else tensor
    return tensors


def _refuse_two_types(types: dict[str, int], name: str, entry: Mapping[str, Any]) -> None:
    """Refuse a second element type of one member: torch reads all of it by the first entry's.

    Args:
      types: of the members so far; that of the entry's is added.
    """
    path, dtype = entry["path_name"], entry["tensor_meta"]["dtype"]
    if types.setdefault(path, dtype) != dtype:
        raise CorruptFileError(
            f"tensor {safe_repr(name)} of the exported program is {_TYPES[dtype]} and another in"
            f" {safe_repr(path)} is {_TYPES[types[path]]}, expected one element type; export the"
            " network again"
        )


def refuse_shared(weights: Mapping[str, Any], constants: Mapping[str, Any]) -> None:
    """Refuse a name in both tables: torch picks by what the graph says the tensor is."""
    shared = [name for name in weights if name in constants]
    if shared:
        raise CorruptFileError(
            f"{safe_repr(shared[0])} of the exported program is both a weight and a constant,"
            " expected one of them; export the network again"
        )


def _described(
    archive: ZipReader, folder: str, name: str, entry: Any, limits: Limits
) -> tuple[np.ndarray, list[int], list[int], int]:
    """A tensor's member, flat, with sizes, strides and offset that stay within it."""
    if not isinstance(entry, dict) or entry.get("use_pickle") or not entry.get("tensor_meta"):
        raise LoadError(
            f"{safe_repr(name)} of the exported program is a pickled object; only plain tensors "
            "are read, nothing was executed"
        )
    try:
        meta = entry["tensor_meta"]
        dtype = _numpy_type(_TYPES[meta["dtype"]])
        sizes = [part["as_int"] for part in meta["sizes"]]
        strides = [part["as_int"] for part in meta["strides"]]
        offset = meta["storage_offset"]["as_int"]
        content = archive.read(folder + entry["path_name"])
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"tensor {safe_repr(name)} is described wrongly: {error!r}"
        ) from error
    numbers = [*sizes, *strides, offset]
    if not all(isinstance(n, int) and 0 <= n < 2**40 for n in numbers):
        raise CorruptFileError(f"tensor {safe_repr(name)} has sizes that are no counts")
    if len(sizes) != len(strides) or len(content) % dtype.itemsize or len(sizes) > _MOST_AXES:
        raise CorruptFileError(f"tensor {safe_repr(name)} contradicts its bytes")
    if math.prod(n for n in sizes if n) * dtype.itemsize > limits.tensor_bytes:
        raise TooLargeError(
            f"tensor {safe_repr(name)} has more bytes than the {limits.tensor_bytes} allowed"
        )
    flat = np.frombuffer(content, dtype)
    last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if math.prod(sizes) and last >= len(flat):
        raise CorruptFileError(
            f"tensor {safe_repr(name)} reaches element {last} of {len(flat)}; the file is damaged"
        )
    return flat, sizes, strides, offset


def _numpy_type(name: str) -> np.dtype:
    return np.dtype(np.uint16) if name == "bfloat16" else np.dtype(name)


def _torch_tensor(torch, flat: np.ndarray, entry: Mapping[str, Any]):
    tensor = torch.from_numpy(flat.copy())
    return tensor.view(torch.bfloat16) if entry["tensor_meta"]["dtype"] == 13 else tensor
