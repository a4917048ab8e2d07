"""The run folder of a scan: records that survive kill -9, resume, and one writer at a time.

RUN/records.jsonl     one record a line, append-only, each line flushed to disk
RUN/settings.json     what the answers depend on; a resumed scan must have the same
RUN/environment.json  versions and machine of every session that wrote here
RUN/triggers/ID.png   pictures of recovered triggers
RUN/lock              held while a scan writes; freed by the system when the process ends
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from converters.files import write_atomic
from jaxtroj.errors import StoreError
from jaxtroj.record import Record, parse_record

_PACKAGES = ("jaxtroj", "jax", "jaxlib", "flax", "optax", "numpy", "pillow")


class RunStore:
    """A run folder opened for writing; use as a context manager.

    Args:
        folder: made with its parents if absent; an existing one must be a run folder or empty.
        settings: JSON values that the answers depend on.
        restart: set earlier records aside (as `records.N.jsonl`) and take the new settings.

    Raises:
        StoreError: the folder is locked, holds other settings or foreign files, or a line in
            the middle of `records.jsonl` is damaged.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], restart: bool = False):
        self.folder = Path(folder)
        _make_run_folder(self.folder)
        self._lock = _lock(self.folder / "lock")
        try:
            if restart:
                _set_aside(self.folder)
            _agree_on_settings(self.folder, settings)
            _add_environment(self.folder / "environment.json")
            self.records = _recover(self.folder / "records.jsonl")
            self._file = open(self.folder / "records.jsonl", "ab", buffering=0)
        except BaseException:
            self._lock.close()
            raise
        self._finished = {(record.model, record.identity): record for record in self.records}

    def finished(self, model: str, identity: str) -> Record | None:
        """The stored answer for this model with this identity, if there is one."""
        return self._finished.get((model, identity))

    def append(self, record: Record) -> None:
        """Write one record; when this returns, it survives a crash.

        Raises:
            StoreError: the disk is full or failing; the records before it stand.
        """
        end = self._file.seek(0, os.SEEK_END)
        line = record.to_json().encode() + b"\n"
        try:
            if self._file.write(line) != len(line):
                raise OSError("only part of the record was written; is the disk full?")
            os.fsync(self._file.fileno())
        except OSError as error:
            self._file.truncate(end)
            raise StoreError(f"cannot add to {self.folder}: {error.strerror or error}") from error
        self.records.append(record)
        self._finished[record.model, record.identity] = record

    def trigger_path(self, model: str) -> Path:
        """Where the picture of this model's trigger belongs."""
        return self.folder / "triggers" / f"{file_stem(model)}.png"

    def close(self) -> None:
        """Free the lock. Closing twice does nothing."""
        self._file.close()
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_records(folder: Path) -> list[Record]:
    """The latest record of every model in a run folder, in order of first appearance.

    Needs no lock: a line that a running scan has not finished is left out.

    Raises:
        StoreError: there is no `records.jsonl`, it is empty, or a finished line is damaged.
    """
    path = Path(folder) / "records.jsonl"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{folder} is not a run folder: {error.strerror or error}; expected the folder that"
            " `jaxtroj scan --out` wrote"
        ) from error
    records = {record.model: record for record in _parse(path, data)}
    if not records:
        raise StoreError(f"{path} holds no finished record yet")
    return list(records.values())


def file_stem(name: str) -> str:
    """A file name for any model name: the same if harmless, else shortened with a digest.

    >>> file_stem("id-00000001")
    'id-00000001'
    >>> file_stem("../a b")
    'a_b-2c2c791a'
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:80]
    if safe and safe == name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return f"{safe}-{digest[:8]}"


def _make_run_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise StoreError(f"cannot use {folder} as run folder: {error.strerror or error}") from error
    if names - {"lock"} and "settings.json" not in names:
        raise StoreError(
            f"{folder} is not empty and not a run folder (it has no settings.json);"
            " name a new folder"
        )


def _lock(path: Path) -> IO[bytes]:
    try:
        file = open(path, "a+b")
    except OSError as error:
        raise StoreError(f"cannot write in {path.parent}: {error.strerror or error}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.seek(0)
        holder = file.read(32).decode("ascii", "replace").strip()
        file.close()
        raise StoreError(
            f"another scan (process {holder or 'unknown'}) is writing to {path.parent};"
            " wait for it or name another folder"
        ) from error
    file.truncate(0)
    file.write(b"%d\n" % os.getpid())
    file.flush()
    return file


def _set_aside(folder: Path) -> None:
    records = folder / "records.jsonl"
    if records.exists():
        taken = len(list(folder.glob("records.*.jsonl")))
        os.replace(records, folder / f"records.{taken + 1}.jsonl")
    (folder / "settings.json").unlink(missing_ok=True)


def _agree_on_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    path = folder / "settings.json"
    wanted = json.loads(json.dumps(dict(settings), allow_nan=False))
    if not path.exists():
        write_atomic(path, _json(wanted))
        return
    try:
        stored = json.loads(path.read_bytes())
        differ = _differences(stored, wanted)
    except (ValueError, AttributeError) as error:
        raise StoreError(f"{path} is damaged ({error}); use --restart to begin anew") from error
    if differ:
        raise StoreError(
            f"{folder} was scanned with other settings: {'; '.join(differ)}."
            " Use the same settings, another folder, or --restart"
        )


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterable[str]:
    names = sorted(set(stored) | set(wanted))
    return [
        f"{name} was {stored.get(name)!r}, now {wanted.get(name)!r}"
        for name in names
        if stored.get(name) != wanted.get(name)
    ]


def _add_environment(path: Path) -> None:
    try:
        sessions = json.loads(path.read_bytes())["sessions"] if path.exists() else []
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is damaged ({error!r}); remove it and scan again") from error
    session = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }
    write_atomic(path, _json({"sessions": [*sessions, session]}))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n"


def _recover(path: Path) -> list[Record]:
    """The records on file; a last line torn by a crash is cut off the file."""
    data = path.read_bytes() if path.exists() else b""
    whole = data.rfind(b"\n") + 1
    records = _parse(path, data)
    if whole < len(data):
        os.truncate(path, whole)
    return records


def _parse(path: Path, data: bytes) -> list[Record]:
    records = []
    for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            records.append(parse_record(line))
        except StoreError as error:
            raise StoreError(
                f"{path}, line {number}: {error}. Remove that line to scan its model again"
            ) from error
    return records
