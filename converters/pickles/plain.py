"""Plain values out of unpickled objects: scalars, text and small tuples, by dotted name."""

from typing import Any

from converters.pickles.standins import Global
from converters.weights import Plain

MAX_TEXT = 1000
_MAX_ITEMS = 64
_MAX_DEPTH = 4
_MAX_ENTRIES = 1000


class NotPlainError(Exception):
    """The value is not plain, or too large to be kept."""


def plain(value: Any, depth: int = 2) -> Plain:
    """``value`` as scalar, text or tuple of them; classes and dtypes as their name.

    Raises:
        NotPlainError: anything else, more than 64 items or ``depth`` levels, long text.
    """
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, str) and len(value) <= MAX_TEXT:
        return value
    if isinstance(value, Global):
        return value.name
    if isinstance(value, (tuple, list)) and len(value) <= _MAX_ITEMS and depth > 0:
        return tuple(plain(item, depth - 1) for item in value)
    raise NotPlainError


def plain_items(values: dict, path: str) -> dict[str, Plain]:
    """The plain values of nested dicts with text keys, by dotted name; the others are left out.

    At most 1,000 values and 4 levels, since optimizer states nest and repeat.
    """
    found: dict[str, Plain] = {}
    pending = [(path, values, _MAX_DEPTH)]
    budget = _MAX_ENTRIES
    while pending:
        prefix, current, depth = pending.pop()
        for key, value in current.items():
            budget -= 1
            if budget < 0:
                return found
            if not isinstance(key, str) or len(key) > MAX_TEXT:
                continue
            if isinstance(value, dict) and depth > 1:
                pending.append((f"{prefix}{key}.", value, depth - 1))
                continue
            try:
                found[f"{prefix}{key}"] = plain(value)
            except NotPlainError:
                continue
    return found
