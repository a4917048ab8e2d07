"""Downloads in a child process, which is ended where they take too long.

The clients of hubs and registries have limits for a server that says nothing, none for one that
sends a byte now and then; and their threads cannot be stopped from within.
"""

import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from converters import errors

LIMIT = "JAXTROJ_FETCH_SECONDS"
"""Variable of the environment: seconds that one network may take to be fetched."""
USUAL_SECONDS = 3600.0
HUB, MLFLOW = "converters.hub.fetch:fetch", "converters.mlflow_folder:fetch_model"
"""Functions of an address that return the folder it was fetched to."""

_START = (
    "import json, sys; sys.path[:] = sys.argv[2:]; from converters.fetching import serve;"
    " serve(**json.loads(sys.argv[1]))"
)


def fetch_in_time(function: str, address: str) -> Path:
    """The folder that a network is fetched to; the client's progress bars go to stderr.

    Args:
      function: `module:function`, see `HUB`.
      address: what it takes.

    Raises:
      LoadError: what the function raises; or it took longer than the limit, which is no number.
    """
    seconds = _limit()
    with tempfile.TemporaryDirectory(prefix="jaxtroj-") as home:
        answer = Path(home, "answer.json")
        call = json.dumps({"function": function, "address": address, "answer": str(answer)})
        words = [sys.executable, "-c", _START, call, *sys.path]
        # The pipe closes when this process ends, however it does, and ends the child.
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as child:
            try:
                status = child.wait(seconds)
            except subprocess.TimeoutExpired as error:
                raise errors.LoadError(
                    f"cannot fetch {address}: it was not here after {seconds:g} s; allow more with"
                    f" {LIMIT}, or download it and name the folder"
                ) from error
            finally:
                child.kill()
        if not answer.exists():
            raise errors.LoadError(f"cannot fetch {address}: its process ended with {status}")
        return _understood(json.loads(answer.read_text()))


def _limit() -> float:
    said = os.environ.get(LIMIT, "")
    try:
        seconds = float(said or USUAL_SECONDS)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise errors.LoadError(f"{LIMIT} is {errors.safe_repr(said)}, expected seconds above 0")
    return seconds


def _understood(answer: dict[str, str]) -> Path:
    if "folder" in answer:
        return Path(answer["folder"])
    raise getattr(errors, answer["kind"])(answer["said"])


def serve(function: str, address: str, answer: str) -> None:
    """In the child: fetch, and write where to or why not."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module, _, name = function.partition(":")
    try:
        told = {"folder": str(getattr(importlib.import_module(module), name)(address))}
    except errors.LoadError as error:
        told = {"kind": type(error).__name__, "said": str(error)}
    part = Path(f"{answer}.part")
    part.write_text(json.dumps(told))
    part.rename(answer)
    os._exit(0)  # a client's threads would be waited for


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
