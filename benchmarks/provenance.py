"""Where a figure comes from: machine, versions, commit and command, kept beside every result."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from converters.files import write_atomic

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("jax", "flax", "optax", "numpy", "torch")


def provenance() -> dict[str, Any]:
    """Hardware, versions, commit, command and date, as JSON values."""
    import jax

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": str(jax.devices()[0]),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in _PACKAGES},
        "commit": _commit(),
        "command": " ".join([Path(sys.executable).name, *_shown(sys.orig_argv[1:])]),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load_average": round(os.getloadavg()[0], 1),
    }


def write_evidence(out: Path, rows: Iterable[Any]) -> None:
    """The rows that a result at `out` was computed from, a JSON line each, as `.evidence.jsonl`.

    Args:
        out: of the result.
        rows: dataclasses of plain values.
    """
    lines = "".join(json.dumps(vars(row)) + "\n" for row in rows)
    write_atomic(out.with_suffix(".evidence.jsonl"), lines.encode())


def _shown(arguments: list[str]) -> list[str]:
    """Arguments without the folders of this machine."""
    return [Path(a).name if a.startswith(os.sep) else a for a in arguments]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return found.stdout.strip() or "unknown"
