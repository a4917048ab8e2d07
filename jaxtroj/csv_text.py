"""Tables as CSV that spreadsheets open: no cell, and no heading, becomes a formula."""

import csv
import io
import math
import re
from collections.abc import Iterable
from typing import Any

_SIGNS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
"""The full-width forms too, which Excel takes for formulas in some locales."""
_FORMULA = re.compile(rf'(\A|[;\t\r\n])(?=[\s"]*[{_SIGNS}]|\A[\t\r])')
"""The place before one: at the start of a cell, or of what becomes a cell of its own where a
spreadsheet splits lines at semicolons or tabs; it does not see that the whole cell is quoted."""


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A heading and a line for each row; NaN and None are empty cells.

    A text that a spreadsheet would take for a formula gets an apostrophe in front, and so does the
    part of one behind a semicolon or tab.

    >>> csv_text(["model", "=1+1"], [["@x", -0.5], ["-3", None], ["y;=1", 2]]).splitlines()
    ["model,'=1+1", "'@x,-0.5", '-3,', "y;'=1,2"]
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str) and not _is_negative_number(value):
        return _FORMULA.sub(r"\1'", value)
    return value


def _is_negative_number(text: str) -> bool:
    try:
        return text.startswith("-") and math.isfinite(float(text))
    except ValueError:
        return False
