"""What is said of a pooled answer: the fields that carried it, in words."""

from collections.abc import Sequence

import numpy as np

from jaxtroj.calibration.searches import field_scores
from jaxtroj.calibration.tails import Tail
from jaxtroj.evidence.stage import SUPPORT

LEAST_SCORE = 0.05
"""Decades below which a field is no reason."""
LEAST_RARITY = float(np.log10(20))
"""Decades of rarity among clean models from which a clean answer says what was found."""
LEAST_PART = 0.05
"""Log-odds of the sum below which a field is no reason."""


def pooled_reasons(
    tails: Sequence[Tail], values: np.ndarray, cap: float, poisoned: bool
) -> tuple[str, ...]:
    """The fields that speak for poisoned, or what all searches found, of values [1, fields].

    First those with a score, the strongest of each search, then those that lean. Of a clean answer
    the strongest alone, and how many searches found what few clean models show.
    """
    scores = field_scores(tails, values, cap)[0]
    best: dict[str, int] = {}
    for place in np.argsort(-np.nan_to_num(scores, nan=-1.0), kind="stable"):
        best.setdefault(tails[place].search, int(place))
    loud = [place for place in best.values() if scores[place] >= LEAST_SCORE]
    if poisoned:
        more = [i for i in _leaning_most(tails, values) if i not in loud]
        said = [_carried(tails[i], float(values[0, i])) for i in loud]
        return (*said, *(_leaning(tails[i], float(values[0, i])) for i in more))
    made = [place for place in best.values() if np.isfinite(scores[place])]
    if not made:
        return ()
    found = [tails[place].rarity(float(values[0, place])) for place in made]
    rare = sum(decades >= LEAST_RARITY for decades in found)
    place = made[int(np.argmax(found))] if rare else made[0]
    return (_of_clean(tails[place], float(values[0, place]), rare, len(made)),)


def _leaning_most(tails: Sequence[Tail], values: np.ndarray) -> list[int]:
    """Places of the fields that raise the sum, the strongest of each search, of one row."""
    parts = [float(tail.lean(values[:1, i])[0]) for i, tail in enumerate(tails)]
    best: dict[str, int] = {}
    for place in np.argsort(-np.array(parts), kind="stable").tolist():
        if parts[place] >= LEAST_PART and tails[place].search != SUPPORT:
            best.setdefault(tails[place].search, place)
    return list(best.values())


def _carried(tail: Tail, value: float) -> str:
    return (
        f"{tail.label} speaks for poisoned: {value:.3g}, {_how_rare(tail, value)} {_medians(tail)}"
    )


def _leaning(tail: Tail, value: float) -> str:
    return f"{tail.label} leans to poisoned: {value:.3g} {_medians(tail)}"


def _of_clean(tail: Tail, value: float, rare: int, searches: int) -> str:
    """What is said of a clean answer, of which `rare` searches found what few clean models show."""
    if not rare:
        return (
            f"none of {searches} searches found what clean models do not show; the most is"
            f" {tail.label}: {value:.3g} {_medians(tail)}"
        )
    return (
        f"{rare} of {searches} searches found what few clean models show, too little in sum; the"
        f" rarest is {tail.label}: {value:.3g}, {_how_rare(tail, value)} {_medians(tail)}"
    )


def _how_rare(tail: Tail, value: float) -> str:
    return f"as in one of {round(10 ** min(tail.rarity(value), 6.0)):,} clean models"


def _medians(tail: Tail) -> str:
    return f"(median of clean models {tail.centre:.3g}, of poisoned models {tail.poisoned:.3g})"
