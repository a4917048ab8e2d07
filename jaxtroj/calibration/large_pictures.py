"""Fits how much the parts of a pooled fit count for networks of large pictures.

Most networks for pictures above 64 px were tuned from pretrained ones. A trojan leaves less in
their weights and batch norms, which come from elsewhere, than in those of the small networks that a
fit needs hundreds of; what searches find tells no less. So the log-odds of a fit are weighed anew
by few large networks, with one factor each for the pool, for the fields that look at weights and
norms, and for those of searches, and another intercept:

    log-odds = b' + p (w f + m missing) + t (g of traces) + s (g of searches),     p, t, s >= 0

with the names of `pooled`. Minimised is the log loss and `PENALTY / 2` of the squared distances of
p, t and s from 1. Tails, weights within a part and bounds stay those of the fit.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jaxtroj.calibration.labelled import Labelled, matrix
from jaxtroj.calibration.pooled import LargePictures, PooledModel
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import logit, softplus

PENALTY = 2.0
LEAST_OF_EACH = 8
"""Clean and poisoned networks."""


def fit_large_pictures(
    model: PooledModel, labelled: Labelled, groups: Sequence[str], above: int
) -> LargePictures:
    """What a fitted model is to know of networks of large pictures.

    Args:
        model: fitted on networks of smaller pictures.
        labelled: networks of pictures whose longest side is above `above` pixels.
        groups: what each belongs to; for its log score a network is judged without its group.
        above: pixels.

    Raises:
        CalibrationError: pictures of other sizes, fewer than 8 clean or poisoned networks, or
            fewer than two groups.
    """
    counts = int(labelled.truth.sum()), int((~labelled.truth).sum())
    if min(labelled.sides, default=0) <= above or min(counts) < LEAST_OF_EACH:
        raise CalibrationError(
            f"got {counts[0]} poisoned and {counts[1]} clean networks of pictures of"
            f" {min(labelled.sides, default='unknown')} pixels and more; expected {LEAST_OF_EACH}"
            f" of each, all above {above}"
        )
    if len(set(groups)) < 2 or len(groups) != len(labelled.rows):
        raise CalibrationError(
            f"got {len(groups)} names of {len(set(groups))} groups for {len(labelled.rows)}"
            " networks; expected a name for each, of two groups or more"
        )
    said = left_out(model, labelled, groups, above)
    losses = softplus(np.where(labelled.truth, -said, said))
    return replace(_fitted(model, labelled, above), log_score=float(losses.mean()))


def left_out(
    model: PooledModel, labelled: Labelled, groups: Sequence[str], above: int
) -> np.ndarray:
    """Log-odds [n] at the training base rate, each by factors that have met none of its group."""
    names, said = np.array(groups), np.zeros(len(groups))
    for name in set(groups):
        held, kept = np.flatnonzero(names == name), np.flatnonzero(names != name)
        large = _fitted(model, labelled.take(kept.tolist()), above)
        said[held] = _log_odds(replace(model, large=large), labelled.take(held.tolist()))
    return said


def _fitted(model: PooledModel, labelled: Labelled, above: int) -> LargePictures:
    from scipy.optimize import minimize  # loads half a second that no scan needs

    sign = np.where(labelled.truth, -1.0, 1.0)

    def loss(solution: np.ndarray) -> float:
        weighed = replace(model, large=_of(solution, above, labelled))
        distance = PENALTY / 2 * ((solution[1:] - 1) ** 2).sum()
        return float(softplus(sign * _raw(weighed, labelled)).sum() + distance)

    start = np.array([model.intercept, 1.0, 1.0, 1.0])
    bounds = [(None, None), (0, None), (0, None), (0, None)]
    return _of(minimize(loss, start, bounds=bounds).x, above, labelled)


def _of(solution: np.ndarray, above: int, labelled: Labelled) -> LargePictures:
    intercept, pool, traces, searches = map(float, solution)
    return LargePictures(above, intercept, pool, traces, searches, len(labelled.rows), 0.0)


def _log_odds(model: PooledModel, labelled: Labelled) -> np.ndarray:
    return np.clip(_raw(model, labelled), float(logit(model.low)), float(logit(model.high)))


def _raw(model: PooledModel, labelled: Labelled) -> np.ndarray:
    """Unclipped log-odds [n], each for its size of pictures."""
    values, sides = matrix(labelled.rows, model.names), np.array(labelled.sides)
    found = np.zeros(len(sides))
    for side in set(sides.tolist()):
        own = sides == side
        found[own] = model.for_side(side).raw_log_odds(values[own])
    return found
