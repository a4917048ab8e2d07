"""Budgets of large pictures, of which each costs more: half as many examples."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=Any)
FULL_SIDE = 64
"""Pixels of the longest side up to which budgets are spent whole."""


def halved_for_large(budget: T, images: np.ndarray, *counts: str) -> T:
    """The budget, a dataclass, for images `[n, h, w, c]`: above `FULL_SIDE` with half the counts.

    Args:
      counts: names of its attributes that are counts; one stays one.
    """
    if max(images.shape[1:3]) <= FULL_SIDE:
        return budget
    return replace(budget, **{name: max(1, getattr(budget, name) // 2) for name in counts})
