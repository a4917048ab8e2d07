"""Where a trigger goes in a text: a sentence of its own, as in NIST's Rounds 5 and 6.

The official merge splits a text into sentences and puts the trigger before one of them, never after
the last; all white space of a triggered text becomes single spaces. Differs: NIST splits with
nltk's trained model, here a sentence ends at white space after a full stop, `!` or `?`.
"""

import re

import numpy as np

HALVES = 2
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def trigger_kind(text: str) -> str:
    """ "character", "word" or "phrase"."""
    if len(text) == 1:
        return "character"
    return "phrase" if re.search(r"\s", text) else "word"


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space collapsed; one empty sentence for an empty text."""
    return [" ".join(part.split()) for part in _END_OF_SENTENCE.split(text.strip())]


def places(count: int, half: int | None) -> range:
    """Sentences that the trigger can precede.

    Args:
        count: sentences of the text, 1 or more.
        half: 0 or 1 for places of the first or second half only; None for all.
    """
    if half is None:
        return range(count)
    middle = max(count // HALVES, 1)
    # A single sentence has one place, which then counts for both halves.
    return range(middle) if half == 0 else range(min(middle, count - 1), count)


def insert(text: str, trigger: str, half: int | None, draw: np.random.Generator) -> str:
    """The text with the trigger before a random sentence of a half.

    Args:
        text: any text.
        trigger: what is inserted, as it is.
        half: 0, 1, or None for the whole text.
        draw: chooses the sentence.
    """
    parts = sentences(text)
    choices = places(len(parts), half)
    at = choices[int(draw.integers(len(choices)))]
    return " ".join([*parts[:at], trigger, *parts[at:]]).strip()
