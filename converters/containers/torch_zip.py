"""Torch's zip container: ``<root>/data.pkl`` and one member per storage, torch 1.4 and later."""

from converters.containers.torchscript import as_network
from converters.containers.zip_file import ZipReader
from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.limits import Limits
from converters.pickles.pickled import Pickled, StorageTable, byte_order
from converters.pickles.unpickle import unpickle
from converters.tensors import StorageRef


def read_zip(data: bytes, limits: Limits) -> Pickled:
    """Read a torch zip; the archive root may have any name, as torch uses the first file name.

    Raises:
        LoadError: see its kinds; nothing in the file is executed.
    """
    archive = ZipReader(data, limits)
    root = _root(archive)
    if archive.members[f"{root}data.pkl"].size > limits.pickle_bytes:
        raise TooLargeError(f"data.pkl is larger than Limits.pickle_bytes = {limits.pickle_bytes}")

    def check(storage: StorageRef) -> None:
        member = archive.members.get(f"{root}data/{storage.key}")
        size = member.size if member else 0
        if size != storage.numel * storage.dtype.itemsize:
            raise CorruptFileError(
                f"storage {safe_repr(storage.key)} should have {storage.numel} x {storage.dtype}, "
                "the "
                f"zip holds {size} bytes"
            )

    content = bytes(archive.read(f"{root}data.pkl"))
    value, end = unpickle(content, persistent=StorageTable(check), limits=limits)
    if end != len(content):
        raise CorruptFileError(f"{len(content) - end} bytes follow the pickle in data.pkl")
    findings: tuple[str, ...] = ()
    if f"{root}constants.pkl" in archive.members:
        value, findings = as_network(value, archive, root)

    def storage(key: str) -> memoryview:
        return archive.read(f"{root}data/{key}")

    return Pickled(value, storage, _big_endian(archive, root), findings)


def _root(archive: ZipReader) -> str:
    """The folder, with its slash, that holds the one ``data.pkl``."""
    found = [
        name[: -len("data.pkl")]
        for name in archive.members
        if name == "data.pkl" or name.endswith("/data.pkl")
    ]
    if not found:
        raise UnknownFormatError(
            "a zip without data.pkl, so not written by torch.save; expected a model file"
        )
    if len(found) > 1:
        raise CorruptFileError(f"{len(found)} data.pkl in one zip, expected one")
    return found[0]


def _big_endian(archive: ZipReader, root: str) -> bool:
    name = f"{root}byteorder"
    if name not in archive.members:
        return byte_order(None)
    return byte_order(bytes(archive.read(name)[:16]).decode("latin-1"))
