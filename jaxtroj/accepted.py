"""Accepted findings: models called poisoned that somebody answers for, by digest, until a day.

An acceptance changes no answer: records keep probability and verdict. It changes how an answer is
counted: as accepted, neither poisoned nor clean. It holds for the bytes with its sha256 and ends
by itself, so a changed file and a forgotten entry are both flagged again.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import read_plain
from jaxtroj.errors import UsageError
from jaxtroj.record import Record

MAX_BYTES = 2**20
MAX_TEXT = 1000  # characters of a reason or an owner
_KEYS = ("sha256", "reason", "owner", "expires")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_SHOWN = 12  # digits of a digest, in messages


@dataclass(frozen=True)
class Acceptance:
    """One accepted model.

    Attributes:
        sha256: of the model, 64 hex digits, as in its record.
        reason: why it is accepted.
        owner: who answers for that.
        expires: the last day on which it holds, UTC.
    """

    sha256: str
    reason: str
    owner: str
    expires: date

    def as_json(self) -> dict[str, str]:
        """Reason, owner and last day, for records in JSON."""
        return {"reason": self.reason, "owner": self.owner, "expires": self.expires.isoformat()}

    def __str__(self) -> str:
        return f"accepted by {self.owner} until {self.expires.isoformat()}: {self.reason}"


@dataclass(frozen=True)
class Accepted:
    """The acceptances of a file on one day.

    Attributes:
        name: of the file, for messages.
        entries: those that hold, by sha256.
        lapsed: those that ended before that day.
        doubled: digests with more than one entry; none of them holds.
        source: the file's bytes.
    """

    name: str = ""
    entries: Mapping[str, Acceptance] = field(default_factory=dict)
    lapsed: tuple[Acceptance, ...] = ()
    doubled: tuple[str, ...] = ()
    source: bytes = b""

    def of(self, record: Record) -> Acceptance | None:
        """The acceptance of a record; None for one that is not called poisoned."""
        return self.entries.get(record.sha256) if record.poisoned else None

    def warnings(self, records: Iterable[Record], is_whole: bool = True) -> tuple[str, ...]:
        """What is wrong with the entries, as sentences.

        Args:
            records: of a run.
            is_whole: whether they are those of a whole folder; else an entry may well be for a
                model that was not looked at.
        """
        called: dict[str, bool] = {}
        for record in records:
            if record.sha256:
                called[record.sha256] = called.get(record.sha256, False) or record.poisoned
        return (*self._lapsed(called), *self._doubled(), *self._idle(called, is_whole))

    def _lapsed(self, called: Mapping[str, bool]) -> Iterable[str]:
        for entry in self.lapsed:
            again = "; the model is flagged again" if called.get(entry.sha256) else ""
            yield (
                f"{self.name}: the acceptance of {entry.sha256[:_SHOWN]} by {entry.owner} ended on"
                f" {entry.expires}{again}; look at the model again and renew or remove the entry"
            )

    def _doubled(self) -> Iterable[str]:
        for digest in self.doubled:
            yield (
                f"{self.name}: {digest[:_SHOWN]} has more than one entry, and none of them holds;"
                " keep one"
            )

    def _idle(self, called: Mapping[str, bool], is_whole: bool) -> Iterable[str]:
        """Entries of no model of a whole folder, and of models that need none."""
        for digest, entry in self.entries.items():
            if digest not in called:
                if is_whole:
                    yield (
                        f"{self.name}: no model of this run has the sha256 {digest[:_SHOWN]}"
                        f" accepted by {entry.owner}; was the file changed? Remove the entry, or"
                        " look at the changed file"
                    )
            elif not called[digest]:
                yield (
                    f"{self.name}: the model {digest[:_SHOWN]} accepted by {entry.owner} is not"
                    " called poisoned; remove the entry"
                )


NONE = Accepted()


def read_accepted(path: Path, today: date) -> Accepted:
    """The acceptances of a file: TOML, a table `[[accepted]]` for each.

    Raises:
        UsageError: it cannot be read, is no such file, or an entry is not complete.
    """
    return parse_accepted(_content(path), path.name, today)


def parse_accepted(data: bytes, name: str, today: date) -> Accepted:
    """What `read_accepted` gives, from the bytes of a file called `name`; raises as it does."""
    try:
        values = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is not TOML: {str(error)[:200]}") from error
    tables = values.get("accepted", [])
    if set(values) - {"accepted"} or not _are_tables(tables):
        raise UsageError(
            f"{name} holds {', '.join(map(safe_repr, values))}, expected tables [[accepted]] alone,"
            f" each with {', '.join(_KEYS)}"
        )
    entries = [_entry(f"{name}, entry {n}", table) for n, table in enumerate(tables, start=1)]
    digests = [entry.sha256 for entry in entries]
    doubled = tuple(dict.fromkeys(one for one in digests if digests.count(one) > 1))
    single = [entry for entry in entries if entry.sha256 not in doubled]
    return Accepted(
        name=name,
        entries={entry.sha256: entry for entry in single if entry.expires >= today},
        lapsed=tuple(entry for entry in single if entry.expires < today),
        doubled=doubled,
        source=data,
    )


def _content(path: Path) -> bytes:
    try:
        data = read_plain(path, MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror or error}; expected a file of accepted models"
        ) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES} bytes")
    return data


def _are_tables(tables: Any) -> bool:
    return isinstance(tables, list) and all(isinstance(table, dict) for table in tables)


def _entry(where: str, table: Mapping[str, Any]) -> Acceptance:
    odd = sorted(set(table) ^ set(_KEYS))
    if odd:
        raise UsageError(
            f"{where}: {', '.join(map(safe_repr, odd[:5]))} is missing or unknown, expected"
            f" {', '.join(_KEYS)}"
        )
    digest, expires = table["sha256"], table["expires"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise UsageError(
            f"{where}: sha256 is {safe_repr(digest)}, expected the 64 hex digits of a record"
        )
    if not isinstance(expires, date) or isinstance(expires, datetime):
        raise UsageError(
            f"{where}: expires is {safe_repr(expires)}, expected a day without quotes, such as"
            " 2027-01-31"
        )
    reason, owner = (_text(where, name, table[name]) for name in ("reason", "owner"))
    return Acceptance(digest.lower(), reason, owner, expires)


def _text(where: str, name: str, value: Any) -> str:
    text = value.strip() if isinstance(value, str) else ""
    if not text or len(text) > MAX_TEXT or not text.isprintable():
        raise UsageError(
            f"{where}: {name} is {safe_repr(value)}, expected one line of 1 to {MAX_TEXT}"
            " printable characters"
        )
    return text
