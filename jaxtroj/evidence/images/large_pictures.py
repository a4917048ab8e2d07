"""Budgets of large pictures, of which each costs more: fewer examples, steps and candidates."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T", bound=Any)
FULL_SIDE = 64
"""Pixels of the longest side up to which budgets are spent whole."""


def less_for_large(budget: T, images: np.ndarray, **parts: float) -> T:
    """The budget, a dataclass, for images `[n, h, w, c]`: above `FULL_SIDE` parts of its counts.

    Args:
      parts: of each count, by the name of its attribute, 0 to 1; one stays one.
    """
    if max(images.shape[1:3]) <= FULL_SIDE:
        return budget
    spent = {name: max(1, int(getattr(budget, name) * part)) for name, part in parts.items()}
    return replace(budget, **spent)
