"""Logits as large as those of trained networks, whatever the last layer was multiplied by.

To multiply all logits by a number above 0 changes no answer, and whoever uploads a network can do
it. What is told in sigmoids and spans of margins would change. So margins on clean examples that
lie far from those of trained networks are brought near them, by a power of two, which rounds no
logit; all other networks stay as they are, to the bit.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

_FURTHEST = 100  # powers of two; a factor beyond would leave the range of float32


def factor_for(size: float, least: float, most: float, aim: float | None = None) -> float:
    """What logits are to be multiplied by; 1 where they are as usual, or nothing tells.

    >>> factor_for(2.0, 1.0, 16.0), factor_for(0.01, 1.0, 16.0), factor_for(100.0, 1.0, 16.0)
    (1.0, 128.0, 0.125)

    Args:
        size: of margins on clean examples.
        least, most: what those of trained networks are.
        aim: what others are brought to, where it is not the nearer of these.
    """
    if not 0 < size < np.inf or least <= size <= most:
        return 1.0
    power = np.round(np.log2((float(np.clip(size, least, most)) if aim is None else aim) / size))
    return 2.0 ** float(np.clip(power, -_FURTHEST, _FURTHEST))


def with_larger_layer(params: Mapping[str, Any], path: str, factor: float) -> dict[str, Any]:
    """Parameters with all of the layer at a path multiplied."""
    first = f"{path}."
    return {
        name: value * np.float32(factor) if name.startswith(first) else value
        for name, value in params.items()
    }


def in_words(factor: float) -> str:
    """What was done, for people.

    >>> in_words(64.0), in_words(0.01)
    ('logits are 64 times smaller than those of trained networks: searches see them as large', \
'logits are 100 times larger than those of trained networks: searches see them as small')
    """
    smaller = factor > 1
    times = factor if smaller else 1 / factor
    how, seen = ("smaller", "large") if smaller else ("larger", "small")
    usual = "than those of trained networks"
    return f"logits are {times:.3g} times {how} {usual}: searches see them as {seen}"
