"""A measurement in a process of its own, so that seconds and memory are what a user sees."""

import json
import subprocess
import sys
from typing import Any


def answer_of(module: str, *arguments: object) -> dict[str, Any]:
    """The JSON line that `python -m module arguments` prints last.

    Raises SystemExit where it fails.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(command[1:])
        raise SystemExit(f"{words} failed: {done.stderr.strip()[-400:]}")
    return json.loads(done.stdout.splitlines()[-1])
