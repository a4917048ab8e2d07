"""The matrix of flips out of a record, which may come from anywhere."""

from typing import Any

MOST_CLASSES = 2000  # rows and columns together that a page shows


def read_flips(value: Any) -> dict[str, Any] | None:
    """`sources`, `targets` and `percent` by row, if they are what a scan writes; else None.

    >>> read_flips({"sources": [0], "targets": [1, 2], "percent": [[90, 10]]})["percent"]
    [[90, 10]]
    >>> read_flips({"sources": [0], "targets": [1], "percent": [["<b>"]]})
    """
    if not isinstance(value, dict) or set(value) != {"sources", "targets", "percent"}:
        return None
    sources, targets, rows = value["sources"], value["targets"], value["percent"]
    if not all(map(_are_numbers, (sources, targets))) or not isinstance(rows, list):
        return None
    fits = len(rows) == len(sources) and 0 < len(sources) + len(targets) <= MOST_CLASSES
    if not fits or not all(_are_numbers(row) and len(row) == len(targets) for row in rows):
        return None
    return value if all(0 <= cell <= 100 for row in rows for cell in row) else None


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)
