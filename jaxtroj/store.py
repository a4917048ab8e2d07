"""The run folder of a scan: records that survive kill -9, resume, and one writer at a time.

RUN/records.jsonl     one record a line, append-only
RUN/settings.json     what the answers depend on; a resumed scan must have the same
RUN/environment.json  versions and machine of every session that wrote here
RUN/accepted.toml     models that the last session's --accept was for
RUN/log.txt           what the engine did, and what its worker processes said
RUN/triggers/ID.png   pictures of recovered triggers
RUN/lock              held while a scan writes; freed by the system when the process ends

A record is in the kernel's hands when `append` returns: the death of the process, by `kill -9` too,
cannot take it. It is forced to the disk at once if the last time was over a second ago, else within
a second while the scan runs: a power failure takes at most the records of the last second.
Memory does not grow with the records: what is kept of each is where it lies.
"""

import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Self

from converters.errors import ConverterError
from converters.files import open_plain, read_json, strict_json, write_atomic
from jaxtroj.environment_file import add_environment
from jaxtroj.errors import StoreError
from jaxtroj.file_names import picture_file
from jaxtroj.held_folder import (
    add_whole,
    agree,
    claim_folder,
    cut_tail,
    hold,
    json_bytes,
    open_own,
)
from jaxtroj.record import Record, parse_record
from jaxtroj.record_lines import named, parsed, record_of

SETTINGS = "settings.json"
"""What the answers of a run folder depend on."""
ACCEPTED = "accepted.toml"
"""The copy of the file that a scan was given by --accept."""
MAX_SETTINGS_BYTES = 2**22
"""A run's settings have a few kilobytes."""
SYNC_SECONDS = 1.0
"""How long a record may wait until it is forced to the disk."""

_ASIDE = re.compile(r"records\.([0-9]+)\.jsonl")


@dataclass(frozen=True)
class _Place:
    """Where a record lies in the file, and what must be known of it without reading it."""

    identity: str
    offset: int
    size: int
    failed: bool
    pictured: bool


class RunStore:
    """A run folder opened for writing; use as a context manager.

    Args:
        folder: made with its parents if absent; an existing one must be a run folder or empty.
        settings: JSON values that the answers depend on.
        restart: set earlier records aside (as `records.N.jsonl`) and take the new settings.
        session: JSON values that `environment.json` keeps of this session.

    Raises:
        StoreError: the folder is locked, cannot be written, holds other settings, foreign files or
            links in the place of its own, or a line in the middle of `records.jsonl` is damaged.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        restart: bool = False,
        session: Mapping[str, Any] | None = None,
        remedy: str = "name another folder or take --restart",
    ):
        self.folder = Path(folder)
        claim_folder(self.folder, SETTINGS, "run folder")
        self._lock = hold(self.folder)
        self._places: dict[str, tuple[_Place, ...]] = {}
        self._count = 0
        self._unsynced, self._synced = False, float("-inf")
        try:
            if restart:
                _set_aside(self.folder, settings)
            agree(self.folder / SETTINGS, settings, remedy)
            add_environment(self.folder / "environment.json", session or {})
            self._file = self._opened(self.folder / "records.jsonl")
        except OSError as error:
            self._lock.close()
            raise StoreError(
                f"cannot write in {self.folder}: {error.strerror or error}; free some space or"
                " name another folder"
            ) from error
        except BaseException:
            self._lock.close()
            raise

    def __len__(self) -> int:
        """How many records are on file, superseded ones included."""
        return self._count

    @property
    def records(self) -> list[Record]:
        """All records on file, in the order they were written."""
        return [record for _, _, record in parsed(self.folder / "records.jsonl")]

    def finished(self, model: str, identity: str) -> Record | None:
        """The stored answer for this model with this identity, if one stands."""
        for place in self._standing(model):
            if place.identity == identity:
                return parse_record(os.pread(self._file.fileno(), place.size, place.offset))
        return None

    def reused(self, model: str, identity: str) -> Record | None:
        """As `finished`, and written again if the model, changed back, has a later record."""
        record = self.finished(model, identity)
        if record is not None and self._places[model][-1].identity != identity:
            self.append(record)
        return record

    def identities(self, model: str, failed: bool = True) -> tuple[str, ...]:
        """Identities of the answers that stand; without the failed ones if so told."""
        places = self._standing(model)
        return tuple(place.identity for place in places if failed or not place.failed)

    def _standing(self, model: str) -> tuple[_Place, ...]:
        """The last of each identity, but no superseded one with a picture: it may be drawn over.

        What an answer replaced, such as a failure that was tried again, never stands for it.
        """
        places = self._places.get(model, ())
        last = {place.identity: place for place in places}
        return tuple(p for p in last.values() if not p.pictured or p is places[-1])

    def append(self, record: Record) -> None:
        """Write one record; when this returns, it survives the death of this process.

        Raises:
            StoreError: the disk is full or failing, and the records before it stand; or the records
                are no longer in their place.
        """
        line = record.to_json().encode() + b"\n"
        try:
            end = add_whole(self._file, line)
        except OSError as error:
            raise self._cannot_add(error) from error
        self._note(record, end, len(line))
        self._unsynced = True
        self.sync()

    def sync(self) -> None:
        """Force what was appended to the disk, if it is due; call this a few times a second.

        Raises:
            StoreError: the disk is failing, or the records are no longer in their place.
        """
        self._check_place()
        if self._unsynced and time.monotonic() - self._synced >= SYNC_SECONDS:
            self._force()

    def _force(self) -> None:
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._cannot_add(error) from error
        self._unsynced, self._synced = False, time.monotonic()

    def _check_place(self) -> None:
        """Refuse to go on where nobody would find what is written: the system reports no fault."""
        path = self.folder / "records.jsonl"
        try:
            is_there = os.path.samestat(os.lstat(path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            is_there = False
        except OSError as error:
            raise self._cannot_add(error) from error
        if not is_there:
            raise StoreError(
                f"{path} was removed, moved or replaced during the scan; leave it alone, and the"
                " same command goes on from what is there"
            )

    def _cannot_add(self, error: OSError) -> StoreError:
        return StoreError(
            f"cannot add to {self.folder}: {error.strerror or error}; the records before stand,"
            " and the same command goes on from them"
        )

    def _note(self, record: Record, offset: int, size: int) -> None:
        pictured = record.trigger is not None
        place = _Place(record.identity, offset, size, record.status == "failed", pictured)
        self._places[record.model] = (*self._places.get(record.model, ()), place)
        self._count += 1

    def _opened(self, path: Path) -> IO[bytes]:
        """The file of records, without what a crash tore."""
        file = open_own(path)
        try:
            cut_tail(path, self._recover(path))
        except BaseException:
            file.close()
            raise
        return file

    def _recover(self, path: Path) -> int:
        """Find the records on file; where the last whole one ends, before what a crash tore."""
        end = 0
        for offset, size, record in parsed(path):
            self._note(record, offset, size)
            end = offset + size
        return end

    def keep_accepted(self, source: bytes) -> None:
        """Keep a copy of this session's accepted models, so that reports agree with its status.

        Without any an earlier session's copy is removed. Raises StoreError.
        """
        copy = self.folder / ACCEPTED
        try:
            if source:
                write_atomic(copy, source)
            else:
                copy.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write {copy}: {error.strerror or error}") from error

    def log(self, line: str) -> None:
        """Add a line to the log of the run, with the time of day.

        Raises:
            StoreError: it cannot be written, or is no plain file.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with open_own(self.log_path) as file:
                file.write(f"{now} {line}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise StoreError(f"cannot write {self.log_path}: {error.strerror or error}") from error

    @property
    def log_path(self) -> Path:
        """The log of the run."""
        return self.folder / "log.txt"

    @property
    def pictures(self) -> Path:
        """The folder of pictures of recovered triggers."""
        return self.folder / "triggers"

    def trigger_path(self, model: str) -> Path:
        """Where the picture of this model's trigger belongs."""
        return picture_file(self.pictures, model)

    def close(self) -> None:
        """Force all records to the disk and free the lock. Closing twice does nothing.

        Raises:
            StoreError: the disk is failing, or the records are no longer in their place.
        """
        try:
            if not self._file.closed:
                self._check_place()
                if self._unsynced:
                    self._force()
        finally:
            self._file.close()
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_records(folder: Path) -> list[Record]:
    """The latest record of every model in a run folder, in order of first appearance.

    Needs no lock: a line that a running scan has not finished is left out.

    Raises:
        StoreError: there is no `records.jsonl`, it is no regular file or empty, or a finished line
            is damaged.
    """
    with _reading(folder) as path:
        latest = {record.model: record for _, _, record in parsed(path)}
        _refuse_none(latest, path)
    return list(latest.values())


def iter_records(folder: Path) -> Iterator[Record]:
    """`read_records`, one at a time: memory does not grow with the size of the records.

    Raises:
        StoreError: as `read_records`, at the step that reaches the line; a damaged line of a model
            that has a later record is not looked at.
    """
    with _reading(folder) as path:
        places = {model: place for model, *place in named(path)}
        _refuse_none(places, path)
        with open_plain(path) as file:
            for offset, size, number in places.values():
                yield record_of(path, number, os.pread(file.fileno(), size, offset))


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run folder; none where it has no such file.

    Raises:
        StoreError: the file is damaged.
    """
    path = Path(folder) / SETTINGS
    if not os.path.lexists(path):
        return {}
    try:
        return read_json(path, MAX_SETTINGS_BYTES, strict_json)
    except ConverterError as error:
        raise StoreError(f"{error}; expected what `jaxtroj scan --out` wrote") from error


@contextmanager
def _reading(folder: Path) -> Iterator[Path]:
    """The file of records, with what the system says against it as a StoreError."""
    path = Path(folder) / "records.jsonl"
    try:
        yield path
    except OSError as error:
        raise StoreError(
            f"{folder} is not a run folder: {path.name}: {error.strerror or error}; expected the"
            " folder that `jaxtroj scan --out` wrote"
        ) from error


def _refuse_none(found: Mapping[str, object], path: Path) -> None:
    if not found:
        raise StoreError(f"{path} holds no finished record yet")


def _set_aside(folder: Path, settings: Mapping[str, Any]) -> None:
    """Take new settings, after the records: wherever this ends, a folder has settings, and no
    records of others beside them."""
    records = folder / "records.jsonl"
    if records.exists():
        found = (_ASIDE.fullmatch(path.name) for path in folder.iterdir())
        taken = max((int(match[1]) for match in found if match), default=0)
        os.replace(records, folder / f"records.{taken + 1}.jsonl")
    write_atomic(folder / SETTINGS, json_bytes(dict(settings)))
