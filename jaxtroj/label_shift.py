"""Labels that are all off by one: files counted from class 1, or a class 0 that has no files."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# Beyond this share of the examples the answers are the shifted labels; as they are, less than the
# rest can be right. By luck fewer examples would do, and so would one class.
_MOST_OF_THEM = 0.8
_FEWEST_EXAMPLES, _FEWEST_CLASSES = 6, 2


@dataclass(frozen=True)
class LabelShift:
    """That a network's answers are the labels and a constant.

    Attributes:
        by: what the answers are more than the labels, 1 or -1.
        share: of the labelled examples that are answered so, 0 to 1.
    """

    by: int
    share: float

    def __str__(self) -> str:
        moved, way = ("plus", "higher") if self.by > 0 else ("less", "lower")
        return (
            f"the answers are the labels {moved} 1 for {self.share:.2f} of the examples: number"
            f" their classes one {way}"
        )


def label_shift(answers: np.ndarray, labels: np.ndarray) -> LabelShift | None:
    """The shift of the labels that makes most answers right; None where there is none.

    Args:
        answers: int `[n]`, the class that the network gives each example.
        labels: int `[n]`, -1 where the class is not known.

    >>> counted_from_one = np.array([1, 2, 3, 1, 2, 3])
    >>> print(label_shift(counted_from_one - 1, counted_from_one))
    the answers are the labels less 1 for 1.00 of the examples: number their classes one lower
    >>> label_shift(counted_from_one, counted_from_one) is None
    True
    """
    known = labels >= 0
    answers, labels = answers[known], labels[known]
    if len(labels) < _FEWEST_EXAMPLES:
        return None
    for by in (-1, 1):
        agree = answers == labels + by
        share, classes = float(agree.mean()), len(np.unique(labels[agree]))
        if share > _MOST_OF_THEM and classes >= _FEWEST_CLASSES:
            return LabelShift(by, share)
    return None


def clearest(shifts: Iterable[LabelShift | None]) -> LabelShift | None:
    """The shift that most examples show; None where there is none."""
    found = (shift for shift in shifts if shift is not None)
    return max(found, key=lambda shift: shift.share, default=None)
