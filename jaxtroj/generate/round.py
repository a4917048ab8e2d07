"""What the folders of all generated rounds share: events, records, the manifest, where they end.

A model's folder appears under its name when it is complete, so a killed run goes on where it was;
the manifest says what a folder holds, and a run with other settings is refused.
"""

import fcntl
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.files import write_atomic
from jaxtroj.errors import GenerationError

RECORD = "generation.json"
"""In a model's folder: how it was made."""
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Event:
    """What just happened to a model.

    Attributes:
        model: its number.
        kind: "kept" (was there), "started", "warm start", "checked", "rejected", "written" or
            "failed".
        text: one sentence for people.
        step: training steps so far.
    """

    model: int
    kind: str
    text: str
    step: int = 0


def size_problems(models: int, shard: tuple[int, int]) -> list[str]:
    """What is wrong with a number of models and a shard `(i, n)`, in words.

    >>> size_problems(3, (0, 1))
    ['models must be even, half of them poisoned; got 3']
    """
    wrong = []
    if models < 2 or models % 2:
        wrong.append(f"models must be even, half of them poisoned; got {models}")
    if not 0 <= shard[0] < shard[1]:
        wrong.append(f"a shard i/n needs 0 <= i < n, got {shard[0]}/{shard[1]}")
    return wrong


def read_record(folder: Path) -> dict[str, Any] | None:
    """How the model of a folder was made, or None when it is not there.

    Raises:
        GenerationError: the file is there but is no JSON.
    """
    path = folder / RECORD
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise GenerationError(f"{path} is damaged ({error}); delete that model's folder") from error


@contextmanager
def collecting(models: Path, lock: Path) -> Iterator[list[dict[str, Any]]]:
    """The records of all models that are there, by name, while no other shard collects.

    Args:
        models: folder of the folders `id-*`.
        lock: file held meanwhile: of two shards, the later one must also be the fuller one.
    """
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        folders = sorted(path.parent for path in models.glob(f"id-*/{RECORD}"))
        yield [record for folder in folders if (record := read_record(folder)) is not None]


def write_manifest(out: Path, manifest: Mapping[str, Any]) -> None:
    """Write manifest.json, whole or not at all."""
    write_atomic(out / _MANIFEST, json.dumps(manifest, indent=1).encode() + b"\n")


def claim(out: Path, wanted: Mapping[str, Any]) -> bool:
    """Make the folder, or check that it holds a round of these settings; True for a new one.

    Args:
        out: folder of the round.
        wanted: entries of the manifest that must agree.

    Raises:
        GenerationError: the folder holds something else, or a round of other settings.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / _MANIFEST
    if not path.exists():
        strangers = sorted(p.name for p in out.iterdir() if not p.name.startswith("."))
        if strangers:
            raise GenerationError(
                f"{out} holds {', '.join(strangers[:3])} and no manifest.json of a generated "
                "round; give a new or empty folder"
            )
        return True
    try:
        manifest = json.loads(path.read_bytes())
        found = {name: manifest[name] for name in wanted}
    except (ValueError, KeyError, TypeError) as error:
        raise GenerationError(f"{path} is no manifest of a generated round: {error}") from error
    different = _differences(found, wanted)
    if different:
        raise GenerationError(
            f"{out} holds a round of other settings: {'; '.join(different)}. "
            "Give the same settings or another folder."
        )
    return False


def _differences(found: Mapping, wanted: Mapping, prefix: str = "") -> list[str]:
    lines = []
    for name in sorted(found.keys() | wanted.keys()):
        old, new = found.get(name), wanted.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += _differences(old, new, f"{prefix}{name}.")
        elif old != new:
            lines.append(f"{prefix}{name} is {old} there and {new} here")
    return lines


def weights_digest(tensors: Mapping[str, np.ndarray]) -> str:
    """Digest of names and values: torch's own file differs from run to run, this does not."""
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def git_commit() -> str | None:
    """Commit of the checkout this package runs from; None for an installed package."""
    package = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(package), "rev-parse", "HEAD"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
