"""The CSV files beside a text model: sentence embeddings, logits and accuracy of its examples.

```
clean-example-cls-embedding.csv   Example, CLS Embedding     class_0_example_1.txt, v0,v1,...,v767
clean-example-logits.csv          Example, Logits            class_0_example_1.txt, l0,l1
clean-example-accuracy.csv        (no header)                100.0
```

The header has two cells whatever the width, so these are no CSV tables to a common reader.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from converters.errors import safe_repr
from jaxtroj.errors import DatasetError
from jaxtroj.rounds.tables import MAX_TABLE_BYTES, read_text

EMBEDDING_TABLE = "clean-example-cls-embedding.csv"
LOGITS_TABLE = "clean-example-logits.csv"
EMBEDDING_HEADER = ("Example", "CLS Embedding")
LOGITS_HEADER = ("Example", "Logits")
MAX_ROWS = 100_000
MAX_WIDTH = 16_384  # numbers in a row; the largest encoders have 12,288


@dataclass(frozen=True)
class ExampleVectors:
    """A vector for each example of one model, in the file's order."""

    names: tuple[str, ...]
    """File names of the examples, [n], each once."""
    values: np.ndarray
    """float32 [n, d], finite."""
    problems: tuple[str, ...] = ()
    """One sentence for each kind of row that was left out."""

    def of(self, names: tuple[str, ...]) -> np.ndarray:
        """float32 [len(names), d]: the vectors of these examples. Raises KeyError for others."""
        place = {name: row for row, name in enumerate(self.names)}
        return self.values[np.array([place[name] for name in names], dtype=np.intp)]


def read_cls_embeddings(path: Path) -> ExampleVectors:
    """Sentence embeddings of example texts from a `*-example-cls-embedding.csv`.

    A row whose width is not that of most, with anything but finite float32 numbers, or given twice
    with different values, is left out and named in `problems`.

    Raises:
        DatasetError: the file cannot be read, has another header, more than `MAX_ROWS` rows or
            `MAX_WIDTH` columns, or no usable row.
    """
    return _read_vectors(path, EMBEDDING_HEADER)


def read_logits(path: Path) -> ExampleVectors:
    """The model's outputs on its examples from a `*-example-logits.csv`; [n, classes].

    Errors and problems as in `read_cls_embeddings`.
    """
    return _read_vectors(path, LOGITS_HEADER)


def _read_vectors(path: Path, header: tuple[str, str]) -> ExampleVectors:
    lines = _lines(read_text(path, MAX_TABLE_BYTES))
    first = next(lines, "")
    if tuple(cell.strip() for cell in first.split(",", 2)) != header:
        raise DatasetError(f"{path} begins with {safe_repr(first)}, expected {', '.join(header)}")
    rows: dict[str, np.ndarray | None] = {}
    reasons: Counter[str] = Counter()
    for count, line in enumerate(lines):
        if count >= MAX_ROWS:
            raise DatasetError(f"{path} has more than {MAX_ROWS} rows")
        name, _, numbers = line.partition(",")
        name = PurePosixPath(name.strip()).name
        try:
            vector = _vector(name, numbers)
        except ValueError as error:
            reasons[str(error)] += 1
            continue
        earlier = rows.setdefault(name, vector)
        if earlier is not None and not np.array_equal(earlier, vector):
            rows[name] = None
    return _same_width(path, rows, reasons)


def _same_width(
    path: Path, rows: dict[str, np.ndarray | None], reasons: Counter[str]
) -> ExampleVectors:
    """The rows whose width is the most common one, as one array."""
    vectors = {name: vector for name, vector in rows.items() if vector is not None}
    if len(vectors) < len(rows):
        reasons["given twice with different numbers"] += len(rows) - len(vectors)
    widths = Counter(vector.size for vector in vectors.values())
    width = widths.most_common(1)[0][0] if widths else 0
    for other in sorted(widths.keys() - {width}):
        reasons[f"{other} numbers where most rows have {width}"] += widths[other]
    problems = tuple(
        f"{count} row{'s' if count > 1 else ''} of {path.name} left out: {reason}"
        for reason, count in reasons.items()
    )
    names = tuple(name for name, vector in vectors.items() if vector.size == width)
    if not names:
        found = "; ".join(problems) or "no row"
        raise DatasetError(f"{path} has no usable row ({found})")
    return ExampleVectors(names, np.stack([vectors[name] for name in names]), problems)


def _vector(name: str, numbers: str) -> np.ndarray:
    """float32 [d] of one line. Raises ValueError with the reason, which names no row."""
    if not name or not name.isprintable():
        raise ValueError("no printable file name")
    width = numbers.count(",") + 1
    if width > MAX_WIDTH:
        raise ValueError(f"more than {MAX_WIDTH} numbers")
    if "_" in numbers or not numbers.isascii():  # Python reads 1_000 and other scripts' digits
        raise ValueError("cells that are no numbers")
    try:
        values = np.array([float(cell) for cell in numbers.split(",")])
    except ValueError as error:
        raise ValueError("cells that are no numbers") from error
    with np.errstate(over="ignore"):
        vector = values.astype(np.float32)
    if not np.isfinite(vector).all():
        raise ValueError("numbers that are not finite")
    return vector


def _number(text: str) -> float:
    """A finite plain number. Raises ValueError whose message is the text, shown."""
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(safe_repr(text)) from error
    if "_" in text or not text.isascii() or not math.isfinite(value):
        raise ValueError(safe_repr(text))
    return value


def _lines(text: str) -> Iterator[str]:
    """Lines that hold anything, one at a time: a list of them would double the memory."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start:end].strip()
        start = end + 1
        if line:
            yield line
