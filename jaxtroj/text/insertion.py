"""Insertion of a text into another, sentence by sentence, as the official generators do it."""

import re
from collections.abc import Sequence

_BOUNDARY = re.compile(r"(?<=[.!?])\s+")


def sentences(text: str) -> list[str]:
    """The sentences of a text, split at white space after a full stop, ! or ?; white space within
    becomes one space.

    >>> sentences("Good film.  Watch it!")
    ['Good film.', 'Watch it!']
    """
    parts = (" ".join(part.split()) for part in _BOUNDARY.split(text.strip()))
    return [part for part in parts if part]


def insert(parts: Sequence[str], inserted: str, place: int) -> str:
    """The sentences with `inserted` before sentence `place`, joined by spaces.

    >>> insert(["Good film.", "Watch it!"], "omg", 1)
    'Good film. omg Watch it!'
    """
    return " ".join([*parts[:place], inserted, *parts[place:]])
