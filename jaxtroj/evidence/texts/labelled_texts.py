"""Texts with or without labels, from a folder of examples or from a file.

```
DIR/class_C_example_N.txt               example texts of a model, or the model's folder
FILE.jsonl[.gz], FILE.ndjson[.gz]       {"text" or "data": ..., "label": ...} on every line
FILE.json[.gz]                          a list of those, or {key: {"data", "label"}} as NIST's
FILE.csv[.gz], FILE.tsv[.gz]            columns "text" or "data", and "label"
any other FILE[.gz]                     a text on every line, without labels
```

Suffixes count in capitals too.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import once_each
from jaxtroj.errors import DatasetError
from jaxtroj.rounds.example_names import UNKNOWN_LABEL
from jaxtroj.rounds.text_examples import load_text_examples

MAX_FILE_BYTES = 2**29
MAX_CHARACTERS = 2**20
_MOST_NAMED = 4
_OF_DOUBT = "left out of {1} for several labels: {0}"
_WHOLE = re.compile(r"-?[0-9]{1,10}")
_BETWEEN = {".csv": ",", ".tsv": "\t"}
_MORE = "\0more"  # cells of a row beyond the header; no file has this name
_LINES_OF_JSON = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class LabelledText:
    """A text and its class; -1 where nothing says which."""

    text: str
    label: int


def read_labelled_texts(path: Path) -> list[LabelledText]:
    """Every text of a folder or file, in its order; blank ones are left out.

    Raises:
      DatasetError: the file cannot be read, holds something else, or no text.
      ExamplesError: the folder holds no usable text.
    """
    return read_texts_with_notes(path)[0]


def read_texts_with_notes(path: Path) -> tuple[list[LabelledText], tuple[str, ...]]:
    """The same, and a sentence for each kind of text that was left out."""
    if path.is_dir():
        examples = load_text_examples(path)
        pairs = zip(examples.texts, examples.labels.tolist(), strict=True)
        found, notes = [LabelledText(text, label) for text, label in pairs], examples.problems
    else:
        records = read_records(path)
        found = [_labelled(path, number, one) for number, one in enumerate(records, start=1)]
        notes = _of_blanks(path, sum(not one.text.strip() for one in found))
        notes += _of_labels(path, records)
    found, doubtful = _without_contradictions(found)
    notes += (_OF_DOUBT.format(doubtful, path.name),) if doubtful else ()
    kept = [one for one in found if one.text.strip()]
    if not kept:
        raise DatasetError(f"{path} holds no text; expected labelled texts or a text on every line")
    return kept, notes


def _of_blanks(path: Path, count: int) -> tuple[str, ...]:
    """Says so of blank texts that were left out; blank lines between lines are no texts."""
    if not count or _suffix(path) not in (*_BETWEEN, *_LINES_OF_JSON, ".json"):
        return ()
    return (f"{count} blank text{'s' if count > 1 else ''} of {path.name} left out",)


def _of_labels(path: Path, records: list[Any]) -> tuple[str, ...]:
    """Says so where records have names, and none is that of labels."""
    named = [one for one in records if isinstance(one, dict)]
    if not named or any("label" in one for one in named):
        return ()
    names = ", ".join(safe_repr(name) for name in list(named[0])[:_MOST_NAMED])
    return (f"{path.name} says no classes: expected the name label beside {names}",)


def _without_contradictions(found: list[LabelledText]) -> tuple[list[LabelledText], int]:
    """The texts without those that have several labels, and how many different ones these are."""
    said: dict[str, set[int]] = {}
    for one in found:
        said.setdefault(one.text, set()).add(one.label)
    doubtful = {text for text, labels in said.items() if len(labels) > 1}
    return [one for one in found if one.text not in doubtful], len(doubtful)


def draw_by_content(
    texts: Sequence[LabelledText], per_class: int, most: int | None = None
) -> list[LabelledText]:
    """Up to `per_class` texts of each class, chosen by a hash of the text, classes in order.

    Neither the order of the file nor further texts of another class change the choice, unless
    there are more than `most` in all: then one of each class in turn, until there are so many.
    """
    unique = {one.text: one for one in texts}
    order = sorted(unique.values(), key=lambda one: content_key(one.text))
    ranked: list[tuple[int, int, LabelledText]] = []
    seen: Counter[int] = Counter()
    for one in order:
        ranked.append((seen[one.label], one.label, one))
        seen[one.label] += 1
    taken = [row for row in sorted(ranked, key=lambda row: row[:2]) if row[0] < per_class][:most]
    return [one for _, _, one in sorted(taken, key=lambda row: (row[1], row[0]))]


def content_key(text: str) -> bytes:
    """A text's place in an order that owes nothing to where the text stands."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def read_lines_or_json(path: Path) -> Any:
    """What a JSON file holds, or the lines of any other file.

    Raises:
      DatasetError: it cannot be read, is too large, not UTF-8, or no JSON.
    """
    content = read_text_file(path)
    try:
        if holds_lines_of_json(path):
            # JSON strings may hold characters that end a line for `splitlines`.
            return [_json(line) for line in content.split("\n") if line.strip()]
        if _suffix(path) == ".json":
            return _json(content)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON: {str(error)[:200]}") from error
    if "\0" in content:
        raise DatasetError(f"{path} holds NUL characters, expected a text on every line")
    return content.splitlines()


def _json(text: str) -> Any:
    """Other programs' JSON, each name once: of two labels the last would win without a word."""
    return json.loads(text, object_pairs_hook=once_each)


def read_records(path: Path) -> list[Any]:
    """What a file holds one by one: rows of a table, values of JSON, or lines.

    Raises:
      DatasetError: it cannot be read, or holds something else.
    """
    found = _table(path) if _suffix(path) in _BETWEEN else read_lines_or_json(path)
    records = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(records, list):
        raise DatasetError(f"{path} holds {safe_repr(records)}, expected labelled texts")
    return records


def _table(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV with a header; labels as whole numbers where they are."""
    columns, rows = _cells(path)
    if not {"text", "data"} & set(columns):
        raise DatasetError(
            f"{path} has the columns {safe_repr(', '.join(columns))}, expected text and label"
        )
    if sum(name in ("text", "data") for name in columns) > 1 or columns.count("label") > 1:
        raise DatasetError(
            f"{path} has the columns {safe_repr(', '.join(columns))}, expected one of text or data,"
            " and label once"
        )
    for number, row in enumerate(rows, start=1):
        if any(cell.strip() for cell in row.pop(_MORE, ())):
            raise DatasetError(
                f"{path}: text {number} is in a row of more cells than the {len(columns)} that the"
                " header names; expected as many: quote texts that hold what stands between cells"
            )
        label = row.get("label")
        if isinstance(label, str) and _WHOLE.fullmatch(label.strip()):
            row["label"] = int(label)
    return rows


def _cells(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """The names of a CSV's columns, and its rows; a quote that nothing ends is refused.

    Else it would make one text of all that follows.
    """
    content = io.StringIO(read_text_file(path))
    reader = csv.DictReader(content, restkey=_MORE, delimiter=_BETWEEN[_suffix(path)], strict=True)
    rows: list[dict[str, Any]] = []
    before, line = csv.field_size_limit(MAX_CHARACTERS + 1), 0
    try:
        reader.fieldnames = columns = [name.strip() for name in reader.fieldnames or []]
        line = reader.line_num
        for row in reader:
            rows.append(row)
            line = reader.line_num
    except csv.Error as error:
        raise DatasetError(
            f"{path} is no CSV: the row that starts in line {line + 1}: {str(error)[:200]};"
            ' expected quotes around a whole cell alone, a quote within them twice (""), and texts'
            f" of at most {MAX_CHARACTERS} characters"
        ) from error
    finally:
        csv.field_size_limit(before)  # of the whole process
    return columns, rows


def _suffix(path: Path) -> str:
    """What a file's name ends with, in small letters and without that of gzip.

    >>> _suffix(Path("a.b.JSONL.gz"))
    '.jsonl'
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix


def holds_lines_of_json(path: Path) -> bool:
    """Whether a file of this name has a JSON value on every line."""
    return _suffix(path) in _LINES_OF_JSON


def read_text_file(path: Path, most: int = MAX_FILE_BYTES) -> str:
    """A UTF-8 text of at most `most` bytes, without a byte order mark; `.gz` files are unpacked.

    Raises:
      DatasetError: it cannot be read, is too large or not UTF-8.
    """
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise DatasetError(f"{path} holds more than {most} bytes; give fewer texts")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read as UTF-8 text: {error}") from error


def _labelled(path: Path, number: int, record: Any) -> LabelledText:
    text, label = record, UNKNOWN_LABEL
    if isinstance(record, dict):
        text = record.get("text", record.get("data"))
        if "text" in record and record.get("data", text) != text:
            raise DatasetError(
                f"{path}: text {number} has text and data, which differ; expected one of both"
            )
        label = record.get("label", UNKNOWN_LABEL)
    if problem := _problem(text):
        raise DatasetError(f"{path}: text {number} {problem}")
    assert isinstance(text, str)  # else `_problem` names it
    if type(label) is not int or not UNKNOWN_LABEL <= label < 2**31:
        raise DatasetError(
            f"{path}: text {number} has label {safe_repr(label)}, expected 0, 1, ..."
        )
    return LabelledText(text, label)


def _problem(text: object) -> str:
    """What is wrong with what stands in a text's place, if anything."""
    if not isinstance(text, str):
        return f"is {safe_repr(text)}, expected a text as text or data"
    if len(text) > MAX_CHARACTERS:
        return f"has {len(text)} characters, expected at most {MAX_CHARACTERS}"
    if not is_unicode(text):
        return f"is {safe_repr(text)}, which holds half a surrogate pair; expected characters"
    return ""


def is_unicode(text: str) -> bool:
    """Whether a text holds characters only, no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
