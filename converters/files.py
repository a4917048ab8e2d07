"""Writing whole files or nothing; reading JSON that may come from anywhere."""

import json
import os
from pathlib import Path
from typing import Any

from converters.errors import CorruptFileError, LoadError, TooLargeError, safe_repr


def write_atomic(path: Path, data: bytes) -> None:
    """Write a whole file or nothing: parents are made, readers never see a part.

    Raises OSError if it cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_json(path: Path, most: int) -> dict[str, Any]:
    """A JSON object of at most `most` bytes.

    Raises:
      LoadError: missing, no regular file, larger, or no JSON object.
    """
    try:
        if path.exists() and not path.is_file():
            raise LoadError(f"{path} is no regular file; expected JSON")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}; check the path") from error
    if len(data) > most:
        raise TooLargeError(f"{path} is larger than {most} bytes")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path} holds {safe_repr(value)}, expected a JSON object")
    return value
