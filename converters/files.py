"""Writing whole files or nothing."""

import os
from pathlib import Path


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
