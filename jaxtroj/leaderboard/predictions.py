"""Predictions of any detector: a run folder, a folder of harness result files, or a CSV table.

TrojAI's harness keeps one file `id-XXXXXXXX.txt` per model with one float on its first line; what
is missing or is no number counts as 0.5 (NaN until it is scored), and numbers outside [0, 1] are
clipped, as NIST's metrics do (usnistgov/trojai-test-harness, actor_executor/ground_truth.py and
metrics.py). Here every such file is named in `problems` or `blank` besides.
"""

import csv
import io
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from converters.errors import safe_repr
from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.leaderboard.result_files import RESULT_SUFFIX, read_names
from jaxtroj.record import Record, printable
from jaxtroj.rounds.table_columns import ID_COLUMNS, two_names
from jaxtroj.rounds.tables import MAX_TABLE_BYTES, read_text
from jaxtroj.store import read_records

PROBABILITY_COLUMNS = (
    "probability",
    "predicted",
    "prediction",
    "trojan_probability",
    "poisoned_probability",
)
MAX_RESULT_BYTES = 4096
_NUMBER = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|[+-]?inf(inity)?", re.IGNORECASE
)
"""What other programs read as the same number too; Python takes `0_5` and digits of any script. No
two parts can share digits: that would take time by the square of their number."""
_MISSING_WORDS = frozenset({"", "nan", "none", "null"})


@dataclass(frozen=True)
class Predictions:
    """What one detector said of each model."""

    path: Path
    probabilities: Mapping[str, float]
    """P(poisoned) in [0, 1] by (printable) model name; NaN where the prediction is no number."""
    records: Mapping[str, Record] = field(default_factory=dict)
    """The records, where the predictions come from a run folder of ours."""
    skipped: frozenset[str] = frozenset()
    """Models the run left out on purpose (errata); they are not scored."""
    problems: tuple[str, ...] = ()
    """One sentence for each prediction that says something else than a number in [0, 1]."""
    blank: tuple[str, ...] = ()
    """Models whose prediction says nothing: it is blank, NaN, None or null."""


def read_predictions(path: Path) -> Predictions:
    """Reads a run folder (it has a settings.json), a folder of result files, or a CSV table.

    Raises:
        UsageError: there is nothing at the path.
        StoreError: a run folder that cannot be read.
        DatasetError: a folder without result files, or a file that is no table of predictions.
    """
    path = Path(path)
    if path.is_dir() and (path / "settings.json").is_file():
        return _from_run(path)
    if path.is_dir():
        return _from_results(path)
    if not path.exists():
        raise UsageError(
            f"{path} does not exist; expected a run folder, a folder of result files"
            " id-XXXXXXXX.txt, or a CSV of model and probability"
        )
    return _from_table(path)


def _from_run(path: Path) -> Predictions:
    records = {record.model: record for record in read_records(path)}
    scored = {name: record for name, record in records.items() if record.status != "skipped"}
    return Predictions(
        path,
        {name: record.probability for name, record in scored.items()},
        scored,
        frozenset(records.keys() - scored.keys()),
    )


def _from_results(path: Path) -> Predictions:
    try:
        names = sorted(name for name in os.listdir(path) if name.lower().endswith(RESULT_SUFFIX))
    except OSError as error:
        raise DatasetError(f"cannot read {path} ({error.strerror or error})") from error
    if not names:
        raise DatasetError(
            f"{path} is neither a run folder (it has no settings.json) nor a folder of result"
            " files id-XXXXXXXX.txt"
        )
    models = read_names(path)
    found: dict[str, float] = {}
    problems: list[str] = []
    blank: list[str] = []
    for name in names:
        model = _as_record(models.get(name) or name[: -len(RESULT_SUFFIX)])
        if model in found:
            raise DatasetError(f"{path} has two result files of {safe_repr(model)}; remove one")
        try:
            lines = read_text(path / name, MAX_RESULT_BYTES).splitlines()
        except DatasetError as error:
            found[model] = math.nan
            problems.append(str(error))
            continue
        text = lines[0] if lines else ""
        found[model] = _probability(text, model, problems)
        blank += [model] * _is_blank(text)
    return Predictions(path, found, problems=tuple(problems), blank=tuple(blank))


def _from_table(path: Path) -> Predictions:
    table = read_lines(path)
    columns, lines = _model_and_probability(path, table)
    # Without a header the first line is a prediction, and that may be blank.
    width = max(1 + max(columns), *(i for i, cell in enumerate(table[0][1], 1) if cell.strip()))
    found: dict[str, float] = {}
    problems: list[str] = []
    blank: dict[str, None] = {}  # each once, in order
    for number, line in lines:
        _check_width(path, number, line, width)
        model = _as_record(line[columns[0]].strip())
        value = _probability(line[columns[1]], model, problems)
        if model in found and not _same(found[model], value):
            raise DatasetError(
                f"{path} has several predictions for {safe_repr(model)}; expected one line a model"
                " (keep one team and one submission)"
            )
        found[model] = value
        blank |= {model: None} if _is_blank(line[columns[1]]) else {}
    if not found:
        raise DatasetError(f"{path} holds no prediction, only a header")
    return Predictions(path, found, problems=tuple(problems), blank=tuple(blank))


def _check_width(path: Path, number: int, line: list[str], width: int) -> None:
    """Raises DatasetError unless there are as many cells as in the first line, and blank ones.

    One comma too many, as in a name with a comma, and the number is read from another column.
    """
    if len(line) < width or any(map(str.strip, line[width:])):
        raise DatasetError(
            f"{path}, line {number}: {len(line)} cells, expected {width} as in the first line; put"
            " texts with commas into double quotes"
        )


def _as_record(name: str) -> str:
    """A model's name as its record has it; one that is printable may be of our own tables."""
    return name if name.isprintable() else printable(name)


def read_lines(path: Path) -> list[tuple[int, list[str]]]:
    """The lines of a CSV file that are not blank, numbered from 1. Raises DatasetError."""
    reader = csv.reader(io.StringIO(read_text(path, MAX_TABLE_BYTES), newline=""), strict=True)
    try:
        lines = [(reader.line_num, line) for line in reader if any(map(str.strip, line))]
    except csv.Error as error:
        raise DatasetError(f"{path} is not a CSV table: {error}") from error
    if not lines:
        raise DatasetError(f"{path} is empty, expected a header and a line for each model")
    return lines


def _model_and_probability(
    path: Path, lines: list[tuple[int, list[str]]]
) -> tuple[tuple[int, int], list[tuple[int, list[str]]]]:
    """Places of the two columns and the lines below the header, if there is one."""
    header = [name.strip().lower() for name in lines[0][1]]
    model = [header.index(name) for name in ID_COLUMNS if name in header]
    probability = [header.index(name) for name in PROBABILITY_COLUMNS if name in header]
    if model and len(probability) == 1:
        if 1 < max(header.count(header[place]) for place in (model[0], probability[0])):
            raise DatasetError(f"{path} has two columns of one name; keep the one that counts")
        _refuse_two_names(path, header, model, lines[1:])
        return (model[0], probability[0]), lines[1:]
    if not model and len(header) == 2 and _is_number(header[1]):
        return (0, 1), lines
    if model and probability:
        raise DatasetError(
            f"{path} has several columns of probabilities,"
            f" {', '.join(header[place] for place in probability)}; keep the one that counts"
        )
    raise DatasetError(
        f"{path} is no table of predictions: expected columns {' | '.join(ID_COLUMNS)} and one of"
        f" {' | '.join(PROBABILITY_COLUMNS)}, or two bare columns (model, probability); got"
        f" {safe_repr(', '.join(header))}"
    )


def _refuse_two_names(
    path: Path, header: list[str], places: list[int], lines: list[tuple[int, list[str]]]
) -> None:
    """Refuse a table of which two columns call the models otherwise: either gives scores."""
    rows = {
        cells[places[0]].strip(): {header[place]: cells[place].strip() for place in places}
        for _, cells in lines
        if len(cells) == len(header)
    }
    if said := two_names(rows, header[places[0]]):
        raise DatasetError(f"{path} {said}")


def _is_number(text: str) -> bool:
    return _is_blank(text) or _NUMBER.fullmatch(text.strip()) is not None


def _is_blank(text: str) -> bool:
    """Whether a prediction says nothing, be it NaN with a sign."""
    word = text.strip().lower()
    return word in _MISSING_WORDS or word.lstrip("+-") == "nan"


def _probability(text: str, model: str, problems: list[str]) -> float:
    """The number as NIST takes it, in [0, 1] or NaN; what is odd about it goes to `problems`."""
    if _is_blank(text):
        return math.nan
    if not _is_number(text):
        problems.append(f"{model}: {safe_repr(text.strip())} is no number, counts as 0.5")
        return math.nan
    value = float(text)
    if not 0 <= value <= 1:
        problems.append(f"{model}: {safe_repr(value)} is outside [0, 1], clipped")
    return min(max(value, 0.0), 1.0)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
