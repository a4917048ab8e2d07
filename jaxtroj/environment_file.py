"""environment.json of a run folder: versions and machine of every session that wrote there."""

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from converters.files import strict_json, write_atomic
from jaxtroj.errors import StoreError
from jaxtroj.held_folder import json_bytes, read_own

_PACKAGES = ("jaxtroj", "jax", "jaxlib", "flax", "optax", "numpy", "pillow")


def add_environment(path: Path, more: Mapping[str, Any]) -> None:
    """Add this session to the file: its time, versions and machine, and `more`.

    Raises:
        StoreError: the file is damaged.
        OSError: it cannot be written.
    """
    stored = read_own(path)
    try:
        sessions = [] if stored is None else list(strict_json(stored)["sessions"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged ({error!r}); remove it and scan again") from error
    session = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in _PACKAGES},
        **more,
    }
    write_atomic(path, json_bytes({"sessions": [*sessions, session]}))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
