"""Fits the sum over fields of a pooled model: one regression on all of them, strongly penalised.

Every field has a weight of at least 0 on its tamed scale, and the penalty is so large that no field
carries much by itself: what counts is that many lean to the same side. The penalty of a field that
only some models have is smaller by their share, so that its weight is drawn to 0 by as large a
part as that of a field that all have: else a search that few models of a fit have met would say
hardly anything, however well it tells them apart. See `pooled`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxtroj.calibration.linear import minimise
from jaxtroj.calibration.pooled import summed
from jaxtroj.calibration.tails import Tail

PENALTIES = (1.0, 3.0, 10.0, 30.0)
"""Ridge of the weights of fields that all models have, in models."""
LEAST_SHARE = 0.05
"""Of the models that have a field, below which its penalty falls no more."""


@dataclass(frozen=True)
class FittedSum:
    """The tails with their weights, and the log-odds where all fields lie at the clean median."""

    tails: tuple[Tail, ...]
    intercept: float

    def log_odds(self, values: np.ndarray) -> np.ndarray:
        """Of values [n, fields], [n]."""
        return self.intercept + summed(self.tails, values)


def fit_sum(
    tails: Sequence[Tail], values: np.ndarray, poisoned: np.ndarray, penalty: float
) -> FittedSum:
    """The sum on the scale of the tails, from values [n, fields] and labels [n]."""
    steps = np.stack([tail.steps(values[:, i]) for i, tail in enumerate(tails)], axis=1)
    design = np.concatenate([np.ones((len(steps), 1)), steps], axis=1)
    shares = np.maximum(np.isfinite(values).mean(axis=0), LEAST_SHARE)
    ridge = np.array([0.0, *(penalty * shares)])
    signs = np.array([0] + [1] * len(tails))
    intercept, *weights = minimise(
        design, poisoned, ridge, signs, np.zeros(1 + len(tails))
    ).tolist()
    weighted = (replace(tail, weight=w) for tail, w in zip(tails, weights, strict=True))
    return FittedSum(tuple(weighted), intercept)
