"""An `.npz` archive, read as if it came from a stranger: arrays of plain numbers by name.

The zip is read by the strict reader of model files, so duplicate and encrypted members, sizes that
disagree and archives that expand out of proportion are refused before anything is inflated. Of an
array the header is checked before the rest is read. Nothing is unpickled.
"""

from pathlib import Path

import numpy as np

from converters.containers.zip_file import ZipReader
from converters.errors import ConverterError
from converters.files import read_at_most, read_plain
from converters.limits import GIB, Limits
from jaxtroj.rounds.npy_header import MOST_BYTES, NpyError, NpyHeader, read_npy_header

LIMITS = Limits(file_bytes=2 * GIB, members=1000)
"""Of an archive, and of what it expands to: 700,000 colour pictures of 32 x 32 pixels."""
_SUFFIX = ".npy"
_SIGNATURES = (b"PK\x03\x04", b"PK\x05\x06")  # a member; the end of an empty archive


class NpzError(Exception):
    """The file is no such archive, or an array in it is none of plain numbers."""


class NpzFile:
    """The arrays of an archive; `names` are theirs, in the order of the archive.

    Raises:
        NpzError: the file cannot be read, or is no sound zip archive.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            content = read_at_most(path, LIMITS.file_bytes)
        except ConverterError as error:
            raise NpzError(str(error)) from error
        if not content.startswith(_SIGNATURES):
            raise NpzError(f"{path} is no .npz archive")
        try:
            self._zip = ZipReader(content, LIMITS)
        except ConverterError as error:
            raise NpzError(f"{path}: {error}") from error
        members = self._zip.members
        self.names = tuple(n.removesuffix(_SUFFIX) for n in members if n.endswith(_SUFFIX))

    def header(self, name: str) -> NpyHeader:
        """What an array says about itself; as many bytes are there as it says.

        Raises:
            NpzError: it is no array of plain numbers, or lies about its size.
        """
        member = name + _SUFFIX
        try:
            header = read_npy_header(self._zip.head(member, MOST_BYTES))
            header.check_length(self._zip.members[member].size)
        except (ConverterError, NpyError) as error:
            raise self._fault(name, error) from error
        return header

    def array(self, name: str) -> np.ndarray:
        """An array, read-only.

        Raises:
            NpzError: it is no array of plain numbers, holds none, or is damaged.
        """
        header = self.header(name)
        try:
            return header.array(self._zip.read(name + _SUFFIX))
        except (ConverterError, NpyError) as error:
            raise self._fault(name, error) from error

    def _fault(self, name: str, error: Exception) -> NpzError:
        return NpzError(f"{self._path}: {name}: {error}")


def is_zip(path: Path) -> bool:
    """Whether a regular file begins as a zip archive does."""
    try:
        return read_plain(path, len(_SIGNATURES[0])).startswith(_SIGNATURES)
    except OSError:
        return False
