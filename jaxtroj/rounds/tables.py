"""METADATA.csv, ground_truth.csv and truth tables, read as text from strangers.

A fault of the whole table (no header, NUL bytes, a field of 128 KiB) is one DatasetError; a fault
of one row, such as a quote without end, stays with that row's model.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import islice
from pathlib import Path

from converters.files import read_plain, what_is
from jaxtroj.errors import DatasetError
from jaxtroj.rounds.table_columns import (
    ID_COLUMNS,
    LABEL_COLUMNS,
    LABELS,
    label_of,
    short,
    two_names,
)

MAX_TABLE_BYTES = 64 * 2**20
MAX_DAMAGED = 100  # lines that are no CSV; each may be looked at for 128 KiB
PATH_COLUMNS = ("path", "model_path")
_MODEL_ID = re.compile(r"id-[0-9]+")
_ANSWERS = ("t", "f", "y", "n", "yes", "no", "clean")
"""Words that are no column's name; see `_is_mistyped`."""


@dataclass(frozen=True)
class Row:
    """One model's line: cells by column name, its label, and what is wrong with it, if anything."""

    cells: Mapping[str, str]
    poisoned: bool | None
    problem: str | None = None
    differs: bool = False
    """Whether several lines name the model and are not the same."""


@dataclass(frozen=True)
class Line:
    """A line as it stands in the file: the number of its first line of text, from 1, and cells."""

    number: int
    cells: Sequence[str]
    problem: str | None = None
    """Why it is no line of a CSV table; its cells are a guess then."""


@dataclass(frozen=True)
class Table:
    """Rows by model id in the file's order; `columns` as the header names them.

    `nameless` are the lines without a model id, where they are not refused.
    """

    path: Path
    columns: tuple[str, ...]
    rows: Mapping[str, Row] = field(default_factory=dict)
    nameless: tuple[Line, ...] = ()


def read_ground_truth(path: Path) -> bool:
    """The label in a `ground_truth.csv`: one character 0 or 1, no header, newline or not.

    Raises DatasetError, naming file and content, for anything else.
    """
    text = read_text(path, limit=64).strip()
    if text not in ("0", "1"):
        raise DatasetError(f"{path} holds {short(text)}, expected the one character 0 or 1")
    return text == "1"


def read_table(path: Path, id_columns: Sequence[str] = ID_COLUMNS) -> Table:
    """Reads a CSV with a header that names a model column (the first of `id_columns` in it).

    A label column (`LABEL_COLUMNS`) may be absent: labels are then None. Rows whose number of
    cells or label is wrong, whose two label columns differ, and ids on several lines that differ,
    become rows with a `problem`.
    Raises DatasetError for a table that is not one, for a line without a model id, and where two
    columns name the models otherwise.
    """
    return _all_named(_headed(path, _parse(path), id_columns))


def is_manifest(path: Path) -> bool:
    """Whether a table has a column of paths, and so says where its models lie.

    Raises DatasetError for a table that is not one.
    """
    header = _parse(path)[0].cells
    return bool(set(PATH_COLUMNS) & set(_columns(header, (*ID_COLUMNS, *PATH_COLUMNS))))


def read_manifest(path: Path) -> Table:
    """Reads what `read_table` does, but lines without a model id are in `nameless`.

    Where the id's cell is empty, that of the path gives the id; an empty label is none.
    Raises DatasetError for a table that is not one.
    """
    return _headed(path, _parse(path), (*ID_COLUMNS, *PATH_COLUMNS), PATH_COLUMNS)


def _headed(
    path: Path, lines: list[Line], id_columns: Sequence[str], instead: Sequence[str] = ()
) -> Table:
    """The table of lines of which the first is a header; `instead` as in `read_manifest`."""
    columns = _columns(lines[0].cells, id_columns)
    if len(set(columns)) != len(columns):
        twice = sorted({name for name in columns if columns.count(name) > 1})
        raise DatasetError(f"{path} names a column twice: {short(', '.join(twice))}")
    id_column = next((name for name in id_columns if name in columns), None)
    if id_column is None:
        raise DatasetError(
            f"{path} has no model column: expected one of {', '.join(id_columns)}, got "
            f"{short(', '.join(columns))}"
        )
    read = partial(_row, columns=columns, needs_label=not instead)
    table = _table(path, lines[1:], columns, (id_column, *instead), read)
    if said := two_names({name: row.cells for name, row in table.rows.items()}, id_column):
        raise DatasetError(f"{path} {said}")
    return table


def _columns(header: Sequence[str], id_columns: Sequence[str]) -> tuple[str, ...]:
    """Columns as the header names them; that of models or labels in any case, if need be.

    >>> _columns(["Model", "GROUND_TRUTH", "Seed"], ID_COLUMNS)
    ('model', 'ground_truth', 'Seed')
    """
    names = [name.strip() for name in header]
    for known in (id_columns, LABEL_COLUMNS):
        if not set(known) & set(names):
            names = [name.lower() if name.lower() in known else name for name in names]
    return tuple(names)


def read_pairs(path: Path) -> Table:
    """Reads a truth file: a table as `read_table` takes it, or two bare columns id, label.

    Raises DatasetError as `read_table`, and for a first line that may be a model whose label is
    mistyped: as a header it would be lost.
    """
    lines = _parse(path)
    header = set(_columns(lines[0].cells, ID_COLUMNS))
    if header & set(ID_COLUMNS) and header & set(LABEL_COLUMNS):
        return read_table(path)
    if any(len(line.cells) != 2 for line in lines):
        raise DatasetError(
            f"{path} is no truth file: expected columns {' | '.join(ID_COLUMNS)} and "
            f"{' | '.join(LABEL_COLUMNS)}, or two columns (model, label) in every line"
        )
    if _is_header(*lines[0].cells):
        if _is_mistyped(lines[0].cells[1]):
            raise DatasetError(
                f"{path}, line {lines[0].number}: {short(','.join(lines[0].cells))} is neither a"
                " header nor a model with a label; expected TRUE, FALSE, 1 or 0, or model,poisoned"
            )
        lines = lines[1:]
    columns = ("model_name", "poisoned")
    read = partial(_row, columns=columns, place="the second column")
    return _all_named(_table(path, lines, columns, ["model_name"], read))


def _is_header(name: str, label: str) -> bool:
    """Whether a first line of two cells is a header in other words, and no model with a bad label.

    >>> _is_header("net", "is bad"), _is_header("id-00000000", "ture"), _is_header("net", "1.0")
    (True, False, False)
    """
    label = label.strip().lower()
    is_word = label[:1].isalpha() and label not in LABELS
    return is_word and not _MODEL_ID.fullmatch(name.strip())


def _is_mistyped(label: str) -> bool:
    """Whether a word looks like an answer rather than like the name of a column of answers.

    >>> [_is_mistyped(word) for word in ("ture", "Fals", "yes", "label", "truth", "is bad")]
    [True, True, True, False, False, False]
    """
    word = label.strip().lower()
    words = [known for known in LABELS if known.isalpha()]
    return word in _ANSWERS or (word != "truth" and bool(get_close_matches(word, words, 1, 0.65)))


def _all_named(table: Table) -> Table:
    if not table.nameless:
        return table
    line = short(",".join(table.nameless[0].cells))
    raise DatasetError(f"{table.path} has a line without a model id: {line}")


def _table(
    path: Path,
    lines: list[Line],
    columns: tuple[str, ...],
    id_columns: Sequence[str],
    read: Callable[[Line], Row],
) -> Table:
    rows: dict[str, Row] = {}
    first: dict[str, int] = {}
    nameless = []
    positions = [columns.index(name) for name in id_columns if name in columns]
    for line in lines:
        cells = (line.cells[p].strip() for p in positions if p < len(line.cells))
        model_id = next(filter(None, cells), "")
        if not model_id:
            nameless.append(line)
            continue
        row = read(line)
        earlier = rows.setdefault(model_id, row)
        number = first.setdefault(model_id, line.number)
        if (earlier.cells, earlier.problem) != (row.cells, row.problem) and not earlier.differs:
            problem = f"several lines that differ ({number} and {line.number}), expected one"
            rows[model_id] = Row(earlier.cells, None, problem, differs=True)
    return Table(path, columns, rows, tuple(nameless))


def _row(
    line: Line, columns: tuple[str, ...], place: str | None = None, needs_label: bool = True
) -> Row:
    """A line as a row; `place` says where its label stands if no column is named so."""
    cells = {name: cell.strip() for name, cell in zip(columns, line.cells, strict=False)}
    if line.problem is not None:
        return Row(cells, None, line.problem)
    count = len(line.cells)
    if count != len(columns):
        return Row(cells, None, f"{count} cells in the line, expected {len(columns)}")
    try:
        return Row(cells, label_of(cells, needs_label, place))
    except ValueError as error:
        return Row(cells, None, str(error))


def _parse(path: Path) -> list[Line]:
    text = read_text(path, MAX_TABLE_BYTES)
    try:
        lines = list(_lines(list(io.StringIO(text, newline=""))))
    except csv.Error as error:
        raise DatasetError(f"{path} is not a CSV table: {error}") from error
    if not lines:
        raise DatasetError(f"{path} is empty, expected a header and a line for each model")
    return lines


def _lines(text: Sequence[str]) -> Iterator[Line]:
    """The lines of a table; after one that is no CSV it goes on with the next line of text.

    Raises csv.Error, which names the line, for a first one, for a cell that is too long, and for
    more than `MAX_DAMAGED`.
    """
    first, damaged = True, 0
    place = start = 0
    while start < len(text):
        reader = csv.reader(islice(text, start, None), strict=True)
        try:
            for cells in reader:
                if cells:
                    yield Line(place + 1, cells)
                    first = False
                place = start + reader.line_num
            return
        except csv.Error as error:
            damaged += 1
            if first or damaged > MAX_DAMAGED:
                raise csv.Error(f"line {place + 1}: {error}") from error
            yield _damaged(text[place], place + 1, str(error))
        place = start = place + 1


def _damaged(text: str, number: int, error: str) -> Line:
    """A line that is no CSV, with the cells that a lenient reader sees in it."""
    try:
        (cells,) = csv.reader([text])
    except csv.Error as again:
        raise csv.Error(f"line {number}: {again}") from again
    problem = f"line {number} of the table is no line of a CSV table ({error}); correct its quotes"
    return Line(number, cells, problem)


def read_text(path: Path, limit: int) -> str:
    """A plain file of at most ``limit`` bytes of UTF-8 text; a byte order mark is dropped.

    Raises DatasetError for any other, and where the file holds NUL bytes.
    """
    if (kind := what_is(path)) != "a file":
        raise DatasetError(f"{path} is not a file ({kind})")
    try:
        content = read_plain(path, limit + 1)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read ({error.strerror or error})") from error
    if len(content) > limit:
        raise DatasetError(f"{path} is larger than {limit} bytes")
    if b"\0" in content:
        raise DatasetError(f"{path} holds NUL bytes, expected text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is not UTF-8 text ({error.reason})") from error
