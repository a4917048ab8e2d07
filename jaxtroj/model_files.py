"""The files that make up a model, and their digests: what an answer depends on."""

from pathlib import Path

from converters.containers.onnx_wire import external_files
from converters.errors import ConverterError
from converters.hub.folder import files_of, is_hub_folder
from jaxtroj.record import digest_file


def model_files(path: Path) -> list[Path]:
    """The model file and those beside an ONNX file that hold its tensors; all of a hub folder."""
    try:
        if is_hub_folder(path):
            return files_of(path)
        return [path, *external_files(path)]
    except (OSError, ConverterError):  # the digest says so
        return [path]


def digest_or_reason(path: Path) -> str:
    """sha256 of a file, or why there is none: an unreadable file counts as what it is."""
    try:
        return digest_file(path)
    except OSError as error:  # whoever needs the content meets the same error and reports it
        return f"unreadable: {error.strerror}"
