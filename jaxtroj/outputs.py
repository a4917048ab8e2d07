"""Whether what a network gives are probabilities, where logits are expected."""

import numpy as np

_SUM_TOLERANCE = 1e-3
_NEAR = 0.05


def as_probabilities(rows: np.ndarray) -> str:
    """What outputs `[n, classes]` look like that are no logits, in words; "" for logits.

    >>> as_probabilities(np.array([[0.25, 0.75], [0.5, 0.5]]))
    'the outputs are probabilities, not logits; see --output'
    >>> as_probabilities(np.array([[-3.0, 4.0], [0.5, 0.5]]))
    ''
    """
    if _are_probabilities(rows):
        return "the outputs are probabilities, not logits; see --output"
    if rows.max(initial=-1.0) <= 0 and _are_probabilities(np.exp(rows)):
        return "the outputs are log-probabilities, not logits; see --output"
    if 0 <= rows.min(initial=1.0) < _NEAR and 1 - _NEAR < rows.max(initial=0.0) <= 1:
        return "the outputs are from 0 to 1, as of a sigmoid; see --output"
    no, *yes = rows.T
    if len(yes) == 1 and not no.any() and (yes[0] >= 0).all() and (yes[0] <= 1).all():
        return "the one output is from 0 to 1 on every example; see --output"
    return ""


def _are_probabilities(rows: np.ndarray) -> bool:
    inside = bool((rows >= 0).all() and (rows <= 1 + _SUM_TOLERANCE).all())
    return inside and bool(np.allclose(rows.sum(axis=1), 1, rtol=0, atol=_SUM_TOLERANCE))
