"""What is said of a pooled answer: the fields that carried it, in words."""

from collections.abc import Sequence

import numpy as np

from jaxtroj.calibration.searches import field_scores
from jaxtroj.calibration.tails import Tail
from jaxtroj.evidence.stage import SUPPORT

LEAST_SCORE = 0.05
"""Decades below which a field is no reason."""
LEAST_PART = 0.05
"""Log-odds of the sum below which a field is no reason."""


def pooled_reasons(
    tails: Sequence[Tail], values: np.ndarray, cap: float, poisoned: bool
) -> tuple[str, ...]:
    """The fields that speak for poisoned, or that no search found anything, of values [1, fields].

    First those with a score, the strongest of each search, then those that lean.
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
    return (_quiet(tails[made[0]], float(values[0, made[0]]), len(made)),) if made else ()


def _leaning_most(tails: Sequence[Tail], values: np.ndarray) -> list[int]:
    """Places of the fields that raise the sum, the strongest of each search, of one row."""
    parts = [float(tail.lean(values[:1, i])[0]) for i, tail in enumerate(tails)]
    best: dict[str, int] = {}
    for place in np.argsort(-np.array(parts), kind="stable").tolist():
        if parts[place] >= LEAST_PART and tails[place].search != SUPPORT:
            best.setdefault(tails[place].search, place)
    return list(best.values())


def _carried(tail: Tail, value: float) -> str:
    decades = min(tail.rarity(value), 6.0)
    return (
        f"{tail.label} speaks for poisoned: {value:.3g}, as in one of {round(10**decades):,} clean"
        f" models (median of clean models {tail.centre:.3g}, of poisoned models"
        f" {tail.poisoned:.3g})"
    )


def _leaning(tail: Tail, value: float) -> str:
    return (
        f"{tail.label} leans to poisoned: {value:.3g} (median of clean models {tail.centre:.3g}, of"
        f" poisoned models {tail.poisoned:.3g})"
    )


def _quiet(tail: Tail, value: float, searches: int) -> str:
    return (
        f"none of {searches} searches found what clean models do not show; the most is"
        f" {tail.label}: {value:.3g} (median of clean models {tail.centre:.3g}, of poisoned models"
        f" {tail.poisoned:.3g})"
    )
