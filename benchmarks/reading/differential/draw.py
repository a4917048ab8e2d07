"""What mutations of every kind draw from."""

from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator
Change = Callable[[Any, Random], None]
NUMBERS = (-2, -1, 0, 1, 2, 3, 5, 8, 2**31, 2**62)


def one(items: Any, random: Random) -> Any:
    """An item of a sequence; IndexError where there is none."""
    if not len(items):
        raise IndexError("nothing to draw from")
    return items[int(random.integers(len(items)))]


def another(items: Any, item: Any, random: Random) -> Any:
    """An item of a sequence that is not `item`; IndexError where there is none."""
    return one([other for other in items if other is not item], random)


def applied(change: Change, value: Any, random: Random) -> str:
    """The name of a change, made where an earlier one left it something to change."""
    try:
        change(value, random)
    except (ValueError, IndexError, KeyError):
        return "nothing"
    return change.__name__.strip("_")
