"""Torch's zip container: ``<root>/data.pkl`` and one member per storage, torch 1.4 and later."""

from converters.containers.torchscript import as_network
from converters.containers.torchscript_members import is_script
from converters.containers.zip_file import ZipReader
from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.limits import AS_TENSORS, Limits
from converters.pickles.pickled import Pickled, StorageTable, byte_order
from converters.pickles.unpickle import unpickle
from converters.tensors import StorageRef

_KERAS = "model.weights.h5"
_VERSIONS, _LONGEST_VERSION = range(1, 11), 8
"""Of the format, that torch's reader takes (caffe2/serialize/versions.h); bytes of the number."""


def read_zip(data: bytes, limits: Limits) -> Pickled:
    """Read a torch zip; the archive root may have any name, as torch uses the first file name.

    Raises:
        LoadError: see its kinds; nothing in the file is executed.
    """
    archive = ZipReader(data, limits)
    root = _root(archive)
    script = is_script(archive, root)
    pickled = archive.find(f"{root}data.pkl")
    if pickled is None:
        raise UnknownFormatError(
            "a zip without data.pkl, so not written by torch.save; expected a model file"
        )
    if pickled.size > limits.pickle_bytes:
        raise TooLargeError(
            f"data.pkl is larger than Limits.pickle_bytes = {limits.pickle_bytes}; {AS_TENSORS}"
        )

    def check(storage: StorageRef) -> None:
        _check_storage(archive, root, storage)

    content = bytes(archive.read(pickled.name))
    value, end = unpickle(content, persistent=StorageTable(check), limits=limits)
    if end != len(content):
        raise CorruptFileError(f"{len(content) - end} bytes follow the pickle in data.pkl")
    findings: tuple[str, ...] = ()
    if script:
        value, findings = as_network(value, archive, root)

    _check_version(archive, root)

    def storage(key: str) -> memoryview:
        return archive.read(f"{root}data/{key}")

    return Pickled(value, storage, _big_endian(archive, root), findings)


def _root(archive: ZipReader) -> str:
    """The folder, with its slash, that torch reads: that of the first entry of the directory.

    torch's reader refuses files outside it, and so does this one.
    """
    first = next(iter(archive.members), "")
    root = first.partition("/")[0] + "/"
    if _KERAS in archive.members:
        raise UnknownFormatError(
            "a network of Keras 3; convert it: load it in Python, then "
            "network.export('model.onnx', format='onnx')"
        )
    outside = [name for name in archive.members if not name.startswith(root)]
    if outside:
        raise UnknownFormatError(
            f"a zip with {safe_repr(outside[0])} outside the folder {safe_repr(root)}, so not "
            "written by torch.save; expected a model file"
        )
    return root


def _check_version(archive: ZipReader, root: str) -> None:
    """torch opens no archive without the number of its format, nor one of a number it lacks."""
    names = (f"{root}.data/version", f"{root}version")
    member = next(filter(None, map(archive.find, names)), None)
    said = b"" if member is None else bytes(archive.read(member.name)[:_LONGEST_VERSION])
    digits = said.strip()
    if not digits.isdigit() or int(digits) not in _VERSIONS:
        raise CorruptFileError(
            f"the archive is of format version {safe_repr(said.decode('latin-1'))}; torch opens"
            f" {_VERSIONS.start} to {_VERSIONS.stop - 1} and no archive without; save it again"
        )


def _check_storage(archive: ZipReader, root: str, storage: StorageRef) -> None:
    """The member must hold the storage's bytes as they are, so that mapping it gives the same."""
    key = safe_repr(storage.key)
    member = archive.find(f"{root}data/{storage.key}")
    size = member.size if member else 0
    if size != storage.numel * storage.dtype.itemsize:
        raise CorruptFileError(
            f"storage {key} should have {storage.numel} x {storage.dtype}, the zip holds {size} "
            "bytes"
        )
    if member is not None and not member.stored:
        raise CorruptFileError(
            f"storage {key} is compressed, which torch.load(mmap=True) reads otherwise than "
            "torch.load; save the model again with torch.save"
        )


def _big_endian(archive: ZipReader, root: str) -> bool:
    member = archive.find(f"{root}byteorder")
    if member is None:
        return byte_order(None)
    return byte_order(bytes(archive.read(member.name)[:16]).decode("latin-1"))
