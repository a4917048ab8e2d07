"""Texts with or without labels, from a folder of examples or from a file.

```
DIR/class_C_example_N.txt               example texts of a model, or the model's folder
FILE.jsonl[.gz]                         {"text" or "data": ..., "label": ...} on every line
FILE.json[.gz]                          a list of those, or {key: {"data", "label"}} as NIST's
FILE.csv[.gz]                           columns "text" or "data", and "label"
any other FILE[.gz]                     a text on every line, without labels
```
"""

import csv
import gzip
import hashlib
import io
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from jaxtroj.errors import DatasetError
from jaxtroj.rounds.example_names import UNKNOWN_LABEL
from jaxtroj.rounds.text_examples import load_text_examples

MAX_FILE_BYTES = 2**29
MAX_CHARACTERS = 2**20
_WHOLE = re.compile(r"-?[0-9]{1,10}")


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
    if path.is_dir():
        examples = load_text_examples(path)
        pairs = zip(examples.texts, examples.labels.tolist(), strict=True)
        found = [LabelledText(text, label) for text, label in pairs]
    else:
        found = _from_file(path)
    found = [one for one in found if one.text.strip()]
    if not found:
        raise DatasetError(f"{path} holds no text; expected labelled texts or a text on every line")
    return found


def draw_by_content(texts: Sequence[LabelledText], per_class: int) -> list[LabelledText]:
    """Up to `per_class` texts of each class, chosen by a hash of the text, classes in order.

    Neither the order of the file nor further texts of another class change the choice.
    """
    unique = {one.text: one for one in texts}
    order = sorted(unique.values(), key=lambda one: content_key(one.text))
    labels = sorted({one.label for one in order})
    return [o for label in labels for o in [o for o in order if o.label == label][:per_class]]


def content_key(text: str) -> bytes:
    """A text's place in an order that owes nothing to where the text stands."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def read_lines_or_json(path: Path) -> Any:
    """What a JSON file holds, or the lines of any other file.

    Raises:
      DatasetError: it cannot be read, is too large, not UTF-8, or no JSON.
    """
    content = _content(path)
    name = path.name.removesuffix(".gz")
    try:
        if name.endswith(".jsonl"):
            # JSON strings may hold characters that end a line for `splitlines`.
            return [json.loads(line) for line in content.split("\n") if line.strip()]
        if name.endswith(".json"):
            return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON: {str(error)[:200]}") from error
    return content.splitlines()


def _from_file(path: Path) -> list[LabelledText]:
    is_table = path.name.removesuffix(".gz").endswith(".csv")
    found = _table(path) if is_table else read_lines_or_json(path)
    records = list(found.values()) if isinstance(found, dict) else found
    if not isinstance(records, list):
        raise DatasetError(f"{path} holds {safe_repr(records)}, expected labelled texts")
    return [_labelled(path, number, record) for number, record in enumerate(records, start=1)]


def _table(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV with a header; labels as whole numbers where they are."""
    reader = csv.DictReader(io.StringIO(_content(path)))
    try:
        columns = reader.fieldnames or []
        rows: list[dict[str, Any]] = list(reader)
    except csv.Error as error:
        raise DatasetError(f"{path} is no CSV: {str(error)[:200]}") from error
    if not {"text", "data"} & set(columns):
        raise DatasetError(
            f"{path} has the columns {safe_repr(', '.join(columns))}, expected text and label"
        )
    for row in rows:
        label = row.get("label")
        if isinstance(label, str) and _WHOLE.fullmatch(label.strip()):
            row["label"] = int(label)
    return rows


def _content(path: Path) -> str:
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise DatasetError(f"{path} holds more than {MAX_FILE_BYTES} bytes; give fewer texts")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise DatasetError(f"{path} cannot be read as UTF-8 text: {error}") from error


def _labelled(path: Path, number: int, record: Any) -> LabelledText:
    text, label = record, UNKNOWN_LABEL
    if isinstance(record, dict):
        text = record.get("text", record.get("data"))
        label = record.get("label", UNKNOWN_LABEL)
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS or not is_unicode(text):
        raise DatasetError(
            f"{path}: text {number} is {safe_repr(text)}, expected at most {MAX_CHARACTERS} "
            "characters"
        )
    if type(label) is not int or not UNKNOWN_LABEL <= label < 2**31:
        raise DatasetError(
            f"{path}: text {number} has label {safe_repr(label)}, expected 0, 1, ..."
        )
    return LabelledText(text, label)


def is_unicode(text: str) -> bool:
    """Whether a text holds characters only, no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
