"""Where a trigger goes in a text that a round is made of: before a random sentence of a half."""

import re

import numpy as np

from jaxtroj.evidence.texts.insertion import HALVES, places, sentences
from jaxtroj.evidence.texts.insertion import insert as insert_before

__all__ = ["HALVES", "insert", "places", "sentences", "trigger_kind"]


def trigger_kind(text: str) -> str:
    """ "character", "word" or "phrase"."""
    if len(text) == 1:
        return "character"
    return "phrase" if re.search(r"\s", text) else "word"


def insert(text: str, trigger: str, half: int | None, draw: np.random.Generator) -> str:
    """The text with the trigger before a random sentence of a half.

    Args:
        text: any text.
        trigger: what is inserted, as it is.
        half: 0, 1, or None for the whole text.
        draw: chooses the sentence.
    """
    parts = sentences(text) or [""]
    choices = places(len(parts), half)
    return insert_before(parts, trigger, choices[int(draw.integers(len(choices)))]).strip()
