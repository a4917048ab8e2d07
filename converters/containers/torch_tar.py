"""Torch's tar container, before 0.1.10: members ``storages``, ``tensors`` and ``pickle``.

The layout is that of ``legacy_load`` in torch's serialization.py; the tar itself is read here,
because only plain members with these names are wanted.
"""

import struct
from typing import Any

from converters.containers.torch_legacy import raw_storage
from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.limits import Limits
from converters.pickles.pickled import Pickled, module_class, storage_dtype
from converters.pickles.unpickle import unpickle
from converters.tensors import StorageRef, TensorRef, is_count, storage_run, tensor_view

_BLOCK = 512
_PREFIX = slice(345, 500)
_WANTED = ("sys_info", "pickle", "storages", "tensors")


def read_tar(data: bytes, limits: Limits) -> Pickled:
    """Read a torch tar.

    Raises:
        LoadError: see its kinds; nothing in the file is executed.
    """
    members = _members(data, limits)
    missing = [name for name in _WANTED[1:] if name not in members]
    if missing:
        raise UnknownFormatError(
            f"a tar without {', '.join(missing)}, so not written by torch.save; expected a model"
        )
    objects: dict[int, Any] = {}
    places = _read_storages(members["storages"], objects, limits)
    _read_tensors(members["tensors"], objects, limits)
    root, _ = unpickle(members["pickle"], persistent=_Lookup(objects), limits=limits)
    return Pickled(root, lambda key: places[key])


class _Lookup:
    """Persistent ids of this container: a class with its source, or the key of a tensor."""

    def __init__(self, objects: dict[int, Any]):
        self.objects = objects

    def __call__(self, identity: Any) -> Any:
        if isinstance(identity, tuple) and identity:
            return module_class(identity)
        return _object(self.objects, identity)


def _object(objects: dict[int, Any], key: Any) -> Any:
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 20:
        key = int(key)
    if type(key) is not int or key not in objects:
        raise CorruptFileError(f"the object {safe_repr(key)} is used but not in the file")
    return objects[key]


def _members(data: bytes, limits: Limits) -> dict[str, bytes]:
    """Content of the wanted members."""
    found: dict[str, bytes] = {}
    position = 0
    for _ in range(limits.members):
        header = data[position : position + _BLOCK]
        if not header.strip(b"\0"):
            return found
        name, kind, size = _header(header)
        start, stop = position + _BLOCK, position + _BLOCK + size
        if stop > len(data):
            raise CorruptFileError(f"tar member {safe_repr(name)} is truncated")
        if kind == b"x":
            _check_extended(data[start:stop])
        elif kind not in (b"0", b"\0") or name in found or name.endswith("/"):
            raise CorruptFileError(f"tar member {safe_repr(name)} is no file, or appears twice")
        else:
            found[name] = data[start:stop] if name in _WANTED else b""
        position = start + -(-size // _BLOCK) * _BLOCK
    raise TooLargeError(f"more tar members than Limits.members = {limits.members}")


def _header(header: bytes) -> tuple[str, bytes, int]:
    """Name, type and size in bytes of a member, from its 512-byte header."""
    if len(header) < _BLOCK:
        raise CorruptFileError("the tar ends inside a header")
    digits = header[124:136].strip(b" \0")
    checksum = header[148:156].strip(b" \0")
    if not (digits and set(digits + checksum) <= set(b"01234567")):
        raise CorruptFileError("a tar header has no octal size")
    total = sum(header[:148]) + 8 * 0x20 + sum(header[156:])
    if not checksum or int(checksum, 8) != total:
        raise CorruptFileError("a tar header does not match its checksum")
    if header[_PREFIX].strip(b"\0"):
        raise CorruptFileError("a tar header has a folder in its prefix field")
    name = header[:100].split(b"\0")[0].decode("latin-1")
    return name, header[156:157], int(digits, 8)


def _check_extended(records: bytes) -> None:
    """Extended headers may give times and owners; a new name or size would change the reading."""
    for key in (b" size=", b" path=", b" linkpath=", b"GNU.sparse"):
        if key in records:
            raise CorruptFileError(f"a tar member has the extended header {key.decode().strip()}")


def _read_storages(data: bytes, objects: dict[int, Any], limits: Limits) -> dict[str, memoryview]:
    """Fill ``objects`` with storages by key; their bytes by text key."""
    places: dict[str, memoryview] = {}
    count, position = _count(data, limits)
    for _ in range(count):
        described, position = unpickle(data, position, limits=limits)
        key, _, kind = _triple(described, "storage")
        dtype = storage_dtype(kind)
        numel = int.from_bytes(data[position : position + 8], "little")
        storage = StorageRef(str(key), dtype, numel, numel)
        places[storage.key], position = raw_storage(data, position, storage)
        _store(objects, key, storage)
    views, _ = unpickle(data, position, limits=limits)
    if not isinstance(views, list):
        raise CorruptFileError("the list of storage views is not a list")
    for view in views:
        if not isinstance(view, tuple) or len(view) != 4 or not is_count(view[0]):
            raise CorruptFileError("a storage view is not (key, root, offset, size)")
        _store(objects, view[0], storage_run(_storage(objects, view[1]), view[2], view[3]))
    return places


def _read_tensors(data: bytes, objects: dict[int, Any], limits: Limits) -> None:
    """Fill ``objects`` with tensors by key."""
    count, position = _count(data, limits)
    for _ in range(count):
        described, position = unpickle(data, position, limits=limits)
        key, storage_key, _ = _triple(described, "tensor")
        dims, position = _numbers(data, position, "<i4x")
        if not 0 <= dims[0] <= 32:
            raise CorruptFileError(f"a tensor of {dims[0]} dimensions")
        numbers, position = _numbers(data, position, f"<{2 * dims[0] + 1}q")
        shape, stride = numbers[: dims[0]], numbers[dims[0] : -1]
        tensor = tensor_view(_storage(objects, storage_key), numbers[-1], shape, stride, limits)
        _store(objects, key, tensor)


def _store(objects: dict[int, Any], key: int, value: StorageRef | TensorRef) -> None:
    if key in objects:
        raise CorruptFileError(f"the object {key} is in the file twice")
    objects[key] = value


def _storage(objects: dict[int, Any], key: Any) -> StorageRef:
    storage = _object(objects, key)
    if not isinstance(storage, StorageRef):
        raise CorruptFileError(f"the object {safe_repr(key)} is not a storage")
    return storage


def _count(data: bytes, limits: Limits) -> tuple[int, int]:
    count, position = unpickle(data, limits=limits)
    if not is_count(count):
        raise CorruptFileError(f"a table starts with {safe_repr(count)}, expected its length")
    if count > limits.tensors:
        raise TooLargeError(f"{count} tensors, more than Limits.tensors = {limits.tensors}")
    return count, position


def _triple(value: Any, what: str) -> tuple[int, Any, Any]:
    if not isinstance(value, tuple) or len(value) != 3 or not is_count(value[0]):
        raise CorruptFileError(f"the description of a {what} is not (key, ..., ...)")
    return value


def _numbers(data: bytes, position: int, layout: str) -> tuple[tuple[int, ...], int]:
    stop = position + struct.calcsize(layout)
    if stop > len(data):
        raise CorruptFileError("the table of tensors is truncated")
    return struct.unpack_from(layout, data, position), stop
