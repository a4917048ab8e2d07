"""The folder of a generated round: whose it is, the records of its models, its tables.

A model's folder appears under its name when it is complete, so a killed run goes on where it was;
the manifest says what a folder holds, and a run with other settings is refused.
"""

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

import jaxtroj
from jaxtroj.csv_text import csv_text
from jaxtroj.errors import GenerationError, HeldError, StoreError
from jaxtroj.held_folder import claim_folder, differences, hold

RECORD = "generation.json"
"""In a model's folder: how it was made."""
MANIFEST = "manifest.json"
LOCK = ".lock"
"""Held while tables are written: of two shards, the later one must also be the fuller one."""
_PART = re.compile(rf"{re.escape(LOCK)}-([0-9]{{1,18}})-of-([1-9][0-9]{{0,17}})")


def claim(out: Path, wanted: Mapping[str, Any], ordered: Iterable[str] = ()) -> bool:
    """Make the folder, or check that it holds a round of these settings; True for a new one.

    Args:
        out: folder of the round.
        wanted: entries of the manifest that must agree.
        ordered: names of objects in its `settings` whose entries must have the same order, too.

    Raises:
        GenerationError: the folder holds something else or a round of other settings, or cannot be
            used.
    """
    try:
        claim_folder(out, MANIFEST, "generated round")
    except StoreError as error:
        raise GenerationError(str(error)) from error
    path = out / MANIFEST
    if not path.exists():
        return True
    try:
        manifest = json.loads(path.read_bytes())
        differ = differences({name: manifest[name] for name in wanted}, wanted)
        differ += [
            line for name in ordered for line in _reordered(name, manifest["settings"], wanted)
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise GenerationError(f"{path} is no manifest of a generated round: {error}") from error
    if differ:
        raise GenerationError(
            f"{out} was made with other settings: {'; '.join(differ)}. Give the same settings or "
            "another folder."
        )
    return False


def _reordered(name: str, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[str]:
    """In words, that an object of the settings has its entries in another order.

    The manifest keeps the order in which they were given.
    """
    old, new = (list(settings.get(name, ())) for settings in (stored, wanted["settings"]))
    if old != new and sorted(old) == sorted(new):
        yield f"the order of {name} was {', '.join(old)}, now {', '.join(new)}"


def read_record(folder: Path) -> dict[str, Any] | None:
    """How the model of a folder was made, or None when it is not there.

    Raises:
        GenerationError: the file is there but is no JSON object.
    """
    try:
        return _object(folder / RECORD, "delete that model's folder")
    except FileNotFoundError:
        return None


def objects_in(folder: Path) -> dict[str, dict[str, Any]]:
    """What the JSON files of a folder say, by name without ending; empty where it is not there.

    Raises:
        GenerationError: one of them is no JSON object.
    """
    return {path.stem: _object(path, "delete it") for path in sorted(folder.glob("*.json"))}


def _object(path: Path, remedy: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
        if not isinstance(value, dict):
            raise ValueError("expected a JSON object")
    except (ValueError, RecursionError) as error:
        raise GenerationError(f"{path} is damaged ({error}); {remedy}") from error
    return value


def records_of(models: Path) -> list[dict[str, Any]]:
    """The records of all models that are there, by name; `models` holds the folders `id-*`."""
    folders = sorted(path.parent for path in models.glob(f"id-*/{RECORD}"))
    return [record for folder in folders if (record := read_record(folder)) is not None]


def hold_tables(out: Path) -> IO[bytes]:
    """The lock under which tables are written, waited for; close it to let go.

    Raises GenerationError where it cannot be written.
    """
    try:
        return hold(out, wait=True, name=LOCK)
    except StoreError as error:
        raise GenerationError(str(error)) from error


def hold_shard(out: Path, shard: tuple[int, int]) -> IO[bytes]:
    """The lock of a part of the round; close it to let go. It ends with the process, however ended.

    Raises:
        GenerationError: another process makes that part, or one of another number of parts that
            shares models with it; or the lock cannot be written.
    """
    try:
        with hold(out, wait=True, name=LOCK):  # so that nobody comes between look and lock
            for other in _parts_begun(out):
                if other != shard and _share_models(other, shard):
                    hold(out, name=_lock_of(other)).close()
            return hold(out, name=_lock_of(shard))
    except HeldError as error:
        raise GenerationError(
            f"{error}, or give each process its own --shard I/N, of the same N"
        ) from error
    except StoreError as error:
        raise GenerationError(str(error)) from error


def _lock_of(shard: tuple[int, int]) -> str:
    return f"{LOCK}-{shard[0]}-of-{shard[1]}"


def _parts_begun(out: Path) -> list[tuple[int, int]]:
    """The parts that some process holds, or once held."""
    found = (_PART.fullmatch(name) for name in os.listdir(out))
    return [(int(match[1]), int(match[2])) for match in found if match]


def _share_models(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether parts of different numbers of parts have pairs in common, however many there are.

    >>> _share_models((0, 1), (1, 2)), _share_models((0, 2), (1, 4)), _share_models((0, 2), (2, 4))
    (True, False, True)
    """
    return (one[0] - other[0]) % math.gcd(one[1], other[1]) == 0


@contextmanager
def complete_or_absent(folder: Path) -> Iterator[Path]:
    """A hidden folder to fill, renamed to `folder` at the end: what has the name is complete."""
    part = folder.with_name(f".part-{folder.name}")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    yield part
    os.rename(part, folder)


def record_bytes(value: Any) -> bytes:
    """As the manifest and the records are written: in their own order."""
    return json.dumps(value, indent=1).encode() + b"\n"


def csv_bytes(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A table with a header."""
    return csv_text(columns, ([row[name] for name in columns] for row in rows)).encode()


def provenance(device: str) -> dict[str, Any]:
    """When and with what a model was made; `device` is the platform that trained it."""
    import jax

    return {
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "jaxtroj": jaxtroj.__version__,
        "git_commit": _git_commit(),
        "jax": jax.__version__,
        "device": device,
    }


def weights_digest(tensors: Mapping[str, np.ndarray]) -> str:
    """Digest of names and values: torch's own file differs from run to run, this does not."""
    digest = hashlib.sha256()
    for name, value in tensors.items():
        digest.update(f"{name} {value.dtype} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


def _git_commit() -> str | None:
    """Commit of the checkout this package runs from; None for an installed package."""
    package = Path(__file__).parent
    try:
        answer = subprocess.run(
            ["git", "-C", str(package), "rev-parse", "HEAD"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
