"""Tables as CSV that spreadsheets open: no cell, and no heading, becomes a formula."""

import csv
import io
import math
from collections.abc import Iterable
from typing import Any

_FORMULA_SIGNS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", "\t", "\r")
"""The full-width forms too, which Excel takes for formulas in some locales."""


def csv_text(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A heading and a line for each row; NaN and None are empty cells.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.

    >>> csv_text(["model", "=1+1"], [["@x", -0.5], ["-3", None]]).splitlines()
    ["model,'=1+1", "'@x,-0.5", '-3,']
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows(map(_cell, row) for row in rows)
    return buffer.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA_SIGNS):
        return value if _is_negative_number(value) else f"'{value}"
    return value


def _is_negative_number(text: str) -> bool:
    try:
        return text.startswith("-") and math.isfinite(float(text))
    except ValueError:
        return False
