"""The files that make up a model, and their digests: what an answer depends on."""

import os
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
