"""What every pickle-based container yields, and the persistent ids they share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from converters.errors import CorruptFileError, UnsafePickleError, safe_repr
from converters.pickles.standins import STORAGES, Global
from converters.tensors import StorageRef, is_count, storage_run


@dataclass(frozen=True)
class Pickled:
    """An unpickled object whose tensors are still descriptions.

    Attributes:
        root: the object: stand-ins, containers, plain values, `TensorRef`.
        storage_bytes: all bytes of the storage of the given key.
        big_endian: byte order of the storages.
        findings: remarks on the container.
    """

    root: Any
    storage_bytes: Callable[[str], memoryview]
    big_endian: bool = False
    findings: tuple[str, ...] = ()


@dataclass
class StorageTable:
    """Turns persistent ids into inert values and remembers the storages they announce.

    Attributes:
        check: called once per new storage with its description, to compare with the container.
    """

    check: Callable[[StorageRef], None]
    storages: dict[str, StorageRef] = field(default_factory=dict)
    _views: dict[str, StorageRef] = field(default_factory=dict)

    def __call__(self, identity: Any) -> Any:
        """The storage or class of ``("storage", ...)`` or ``("module", class, file, source)``."""
        if not isinstance(identity, tuple) or len(identity) < 2:
            raise CorruptFileError(f"a persistent id is {safe_repr(identity)}, expected a tuple")
        kind = _text(identity[0])
        if kind == "module":
            return module_class(identity[1:])
        if kind != "storage" or len(identity) not in (5, 6):
            raise CorruptFileError(
                f"a persistent id of {len(identity)} parts and the kind {safe_repr(kind)}, "
                "expected "
                "'storage' or 'module'"
            )
        storage = self._storage(*identity[1:5])
        view = identity[5] if len(identity) == 6 else None
        return storage if view is None else self._view_of(storage, view)

    def _storage(self, kind: Any, key: Any, location: Any, numel: Any) -> StorageRef:
        """The storage, wherever its device was; every mention must describe it alike."""
        key = _text(key)
        dtype = storage_dtype(kind)
        if type(key) is not str or not is_count(numel):
            raise CorruptFileError(f"storage {safe_repr(key)} has {safe_repr(numel)} elements")
        known = self.storages.get(key)
        if known is None:
            known = self.storages[key] = StorageRef(key, dtype, numel, numel)
            self.check(known)
        if key in self._views:
            raise CorruptFileError(f"storage {safe_repr(key)} has the name of a view")
        if known.dtype != dtype or known.numel != numel:
            raise CorruptFileError(
                f"storage {safe_repr(key)} is described as {known.numel} x {known.dtype} and as "
                f"{numel} x {dtype}"
            )
        return known

    def _view_of(self, storage: StorageRef, view: Any) -> StorageRef:
        """Apply the legacy view description ``(key, offset, numel)``.

        torch takes the first view of a key for all later ones, and looks views up among the
        storages: every mention must describe it alike, under a name of its own.
        """
        if not isinstance(view, tuple) or len(view) != 3 or not isinstance(_text(view[0]), str):
            raise CorruptFileError(
                f"storage {safe_repr(storage.key)} has a view that is not (key, offset, size)"
            )
        key, run = _text(view[0]), storage_run(storage, view[1], view[2])
        known = self._views.setdefault(key, run)
        same = (known.key, known.first, known.numel) == (run.key, run.first, run.numel)
        if key in self.storages or not same:
            raise CorruptFileError(
                f"the view {safe_repr(key)} is described in two ways, or has the name of a storage"
            )
        return run


def storage_dtype(kind: Any):
    """Element type of a storage class; raises `CorruptFileError` for anything else."""
    if not isinstance(kind, Global) or kind.kind != "storage":
        raise CorruptFileError(f"{safe_repr(kind)} is given as the class of a storage")
    return STORAGES[kind.name]


def module_class(parts: tuple) -> Global:
    """The class of a module's id; its source text, which legacy files carry, is never used."""
    if not isinstance(parts[0], Global) or parts[0].kind != "module":
        raise UnsafePickleError(
            f"a module id names {safe_repr(parts[0])}, expected a class of network modules"
        )
    return parts[0]


def _text(value: Any) -> Any:
    """Bytes of files that Python 2 wrote, as text."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


def byte_order(name: Any) -> bool:
    """Whether ``name`` says big-endian; ``little`` or absent is little-endian."""
    orders: Mapping[Any, bool] = {None: False, "little": False, "big": True}
    if not isinstance(name, (str, type(None))) or name not in orders:
        raise CorruptFileError(f"byte order {safe_repr(name)}, expected 'little' or 'big'")
    return orders[name]
