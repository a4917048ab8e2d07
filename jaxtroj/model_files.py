"""The files that make up a model, and their digests: what an answer depends on."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

from converters.containers.onnx_wire import external_files
from converters.errors import ConverterError
from converters.hub.folder import files_of, is_hub_folder
from converters.limits import EXTERNAL_BYTES, Limits
from jaxtroj.record import digest_file

FILE_BYTES = Limits().file_bytes
"""Size of the largest file that is read."""


def model_files(path: Path) -> list[Path]:
    """The model file and those beside an ONNX file that hold its tensors; all of a hub folder."""
    try:
        if is_hub_folder(path):
            return files_of(path)
        return [path, *external_files(path)]
    except (OSError, ConverterError):  # the digest says so
        return [path]


def model_digests(path: Path) -> list[str]:
    """What `digest_or_reason` says of each of a model's files."""
    own, *beside = model_files(path)
    return [digest_or_reason(own), *(digest_or_reason(one, EXTERNAL_BYTES) for one in beside)]


def digest_or_reason(path: Path, most: int = FILE_BYTES) -> str:
    """sha256 of a file, or why there is none: an unreadable file counts as what it is.

    One of more than `most` bytes counts by its size: no reader takes it, whatever it holds, and
    to digest it could take hours.
    """
    try:
        size = os.stat(path).st_size
        return digest_file(path) if size <= most else f"too large: {size} bytes"
    except OSError as error:  # whoever needs the content meets the same error and reports it
        return f"unreadable: {error.strerror}"
    except ValueError:  # it holds NUL, or half of a character
        return "unreadable: no path"


def contents_digest(path: Path) -> str:
    """Of a file, or of a folder by its files: names and digests.

    For what many models share: a file that has not changed is read once in a process.
    """
    try:
        if not path.is_dir():
            return digest_once(path)
        files = sorted(one for one in path.iterdir() if one.is_file())
    except OSError as error:  # as above
        return f"unreadable: {error.strerror}"
    except ValueError:  # it holds NUL, or half of a character
        return "unreadable: no path"
    digest = hashlib.sha256()
    for one in files:
        digest.update(os.fsencode(one.name) + f"\0{digest_once(one)}\0".encode())
    return digest.hexdigest()


def digest_once(path: Path) -> str:
    """What `digest_or_reason` says of a file; of one that has not changed since it was asked in
    this process, without reading it again."""
    try:
        found = os.stat(path)
    except OSError:  # it may be there the next time
        return digest_or_reason(path)
    return _digest_of_state(path, found.st_ino, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=4096)  # a folder of banks has some 75 files for each
def _digest_of_state(path: Path, *_state: int) -> str:
    return digest_or_reason(path)
