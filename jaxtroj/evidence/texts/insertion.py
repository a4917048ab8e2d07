"""Insertion of a text into another as a sentence of its own, as in NIST's Rounds 5 and 6.

The official merge splits a text into sentences and puts the trigger before one of them, never after
the last; all white space becomes single spaces. Differs: NIST splits with nltk's trained model,
here a sentence ends at white space after a full stop, `!` or `?`.
"""

import re
from collections.abc import Sequence

HALVES = 2
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space collapsed; none of an empty text.

    >>> sentences("Good film.  Watch it!")
    ['Good film.', 'Watch it!']
    """
    parts = (" ".join(part.split()) for part in _END_OF_SENTENCE.split(text.strip()))
    return [part for part in parts if part]


def places(count: int, half: int | None) -> range:
    """Sentences that an inserted text can precede.

    Args:
      count: sentences of the text, 1 or more.
      half: 0 or 1 for places of the first or second half only; None for all.

    >>> places(5, None), places(5, 0), places(5, 1)
    (range(0, 5), range(0, 2), range(2, 5))
    """
    if half is None:
        return range(count)
    middle = max(count // HALVES, 1)
    # A single sentence has one place, which then counts for both halves.
    return range(middle) if half == 0 else range(min(middle, count - 1), count)


def insert(parts: Sequence[str], inserted: str, place: int) -> str:
    """The sentences with `inserted` before sentence `place`, joined by spaces.

    >>> insert(["Good film.", "Watch it!"], "omg", 1)
    'Good film. omg Watch it!'
    """
    return " ".join([*parts[:place], inserted, *parts[place:]])
