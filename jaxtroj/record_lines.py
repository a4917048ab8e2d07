"""The lines of `records.jsonl`: a record each, where it lies, and of which model it is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from converters.files import open_plain
from jaxtroj.errors import StoreError
from jaxtroj.record import Record, parse_record

_MODEL = re.compile(rb'\{"model": ("(?:[ -!#-\[\]-~]|\\["\\/bfnrt]|\\u[0-9a-f]{4})*"), "sha256": ')
"""How `Record.to_json` begins."""


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and text of every finished line; the torn one at the end is left out."""
    offset = 0
    with open_plain(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            yield number, offset, line
            offset += len(line)


def parsed(path: Path) -> Iterator[tuple[int, int, Record]]:
    """Offset, length and content of every finished line."""
    for number, offset, line in _lines(path):
        yield offset, len(line), record_of(path, number, line)


def named(path: Path) -> Iterator[tuple[str, int, int, int]]:
    """Model, offset, length and number of every finished line; most are not parsed for that."""
    for number, offset, line in _lines(path):
        start = _MODEL.match(line)
        model = json.loads(start[1]) if start else record_of(path, number, line).model
        yield model, offset, len(line), number


def record_of(path: Path, number: int, line: bytes) -> Record:
    """The record of a line.

    Raises:
        StoreError: it is damaged, or of another version.
    """
    try:
        return parse_record(line)
    except StoreError as error:
        raise StoreError(
            f"{path}, line {number}: {error}. Remove that line to scan its model again,"
            " or all records of an older version with --restart"
        ) from error
