"""Torch's stream container before 1.6: five pickles, then raw storages; and bare pickles."""

import struct
from typing import Any

from converters.errors import CorruptFileError, safe_repr
from converters.limits import Limits
from converters.pickles.pickled import Pickled, StorageTable
from converters.pickles.unpickle import unpickle
from converters.tensors import StorageRef

MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_COUNT = struct.Struct("<q")


def read_legacy(data: bytes, limits: Limits) -> Pickled:
    """Read magic number, protocol, system description, object, storage keys and storages.

    The storages are little-endian whatever the system description says: torch writes them so on
    every machine, and does not look at the description when it reads.

    Raises:
        LoadError: see its kinds; nothing in the file is executed.
    """
    magic, position = unpickle(data, limits=limits)
    if type(magic) is not int or magic != MAGIC:
        raise CorruptFileError(
            f"the stream starts with {safe_repr(magic)}, not torch's magic number"
        )
    protocol, position = unpickle(data, position, limits=limits)
    if type(protocol) is not int or protocol != _PROTOCOL:
        raise CorruptFileError(f"stream protocol {safe_repr(protocol)}, expected {_PROTOCOL}")
    _, position = unpickle(data, position, limits=limits)  # the system's description

    def check(storage: StorageRef) -> None:
        if storage.numel * storage.dtype.itemsize > len(data):
            raise CorruptFileError(
                f"storage {safe_repr(storage.key)} of {storage.numel} x {storage.dtype} is larger "
                "than the file"
            )

    table = StorageTable(check)
    root, position = unpickle(data, position, table, limits)
    keys, position = unpickle(data, position, limits=limits)
    order = _storage_order(keys, table)
    places, position = _places(data, position, order)
    left = len(data) - position
    findings = (f"{left} unused bytes follow the last storage",) if left else ()
    return Pickled(root, lambda key: places[key], False, findings)


def read_bare(data: bytes, limits: Limits) -> Pickled:
    """Read a pickle that torch did not write; NumPy arrays are the only weights it can hold."""
    root, end = unpickle(data, limits=limits)
    left = len(data) - end
    findings = (f"{left} unused bytes follow the pickle",) if left else ()
    return Pickled(root, _no_storage, False, findings)


def _no_storage(key: str) -> memoryview:
    raise CorruptFileError(f"storage {safe_repr(key)} in a pickle without storages")


def _storage_order(keys: Any, table: StorageTable) -> list[StorageRef]:
    """The storages in the order of the stream; each announced one exactly once."""
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise CorruptFileError("the list of storage keys is not a list of text")
    if len(set(keys)) != len(keys) or set(keys) != set(table.storages):
        raise CorruptFileError(
            f"the stream lists {len(keys)} storages, its object uses {len(table.storages)}, and "
            "they are not the same"
        )
    return [table.storages[key] for key in keys]


def _places(
    data: bytes, position: int, order: list[StorageRef]
) -> tuple[dict[str, memoryview], int]:
    """Bytes of each storage, and the position after the last."""
    places = {}
    for storage in order:
        content, position = raw_storage(data, position, storage)
        places[storage.key] = content
    return places, position


def raw_storage(data: bytes, position: int, storage: StorageRef) -> tuple[memoryview, int]:
    """The bytes of one raw storage, an element count and the elements, and what follows it."""
    start = position + _COUNT.size
    if start > len(data):
        raise CorruptFileError(f"the file ends before storage {safe_repr(storage.key)}")
    numel = _COUNT.unpack_from(data, position)[0]
    if numel != storage.numel:
        raise CorruptFileError(
            f"storage {safe_repr(storage.key)} has {numel} elements, its description "
            f"{storage.numel}"
        )
    stop = start + numel * storage.dtype.itemsize
    if stop > len(data):
        raise CorruptFileError(
            f"storage {safe_repr(storage.key)} ends {stop - len(data)} bytes past the end of the "
            "file"
        )
    return memoryview(data)[start:stop], stop
