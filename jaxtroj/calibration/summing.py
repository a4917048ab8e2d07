"""Fits the sum over fields of a pooled model: an additive model whose every part is monotone.

Every field adds log-odds by a shape of its own, which rises by straight pieces over its tamed scale
(`tails.KNOTS`) and never falls: a value that is a little odd may say nothing and one that is far
out much, or the other way round. One logistic regression fits the rises of all fields at once, each
at least 0, and the penalty is so large that no field carries much by itself: what counts is that
many lean to the same side. The penalty of a field that only some models have is smaller by their
share, so that its rises are drawn to 0 by as large a part as those of a field that all have: else a
search that few models of a fit have met would say hardly anything, however well it tells them
apart. See `pooled`.

Reference: Tutz and Leitenstorfer, Generalized smooth monotonic regression in additive modeling,
Journal of Computational and Graphical Statistics 16, 2007.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxtroj.calibration.searches import summed
from jaxtroj.calibration.solver import minimise
from jaxtroj.calibration.tails import PIECES, Tail

PENALTIES = (1.0, 3.0, 10.0, 30.0)
"""Ridge of the rises of fields that all models have, in models."""
LEAST_SHARE = 0.05
"""Of the models that have a field, below which its penalty falls no more."""


@dataclass(frozen=True)
class FittedSum:
    """The tails with their shapes, and the log-odds where all fields lie at the clean median."""

    tails: tuple[Tail, ...]
    intercept: float

    def log_odds(self, values: np.ndarray) -> np.ndarray:
        """Of values [n, fields], [n]."""
        return self.intercept + summed(self.tails, values)


def fit_sum(
    tails: Sequence[Tail], values: np.ndarray, poisoned: np.ndarray, penalty: float
) -> FittedSum:
    """The sum on the scale of the tails, from values [n, fields] and labels [n]."""
    passed = [tail.passed(values[:, i]) for i, tail in enumerate(tails)]
    design = np.concatenate([np.ones((len(values), 1)), *passed], axis=1)
    shares = np.maximum(np.isfinite(values).mean(axis=0), LEAST_SHARE)
    ridge = np.concatenate([[0.0], np.repeat(penalty * shares, PIECES)])
    signs = np.array([0] + [1] * (len(ridge) - 1))
    intercept, *rises = minimise(design, poisoned, ridge, signs, np.zeros(len(ridge))).tolist()
    of_fields = np.reshape(rises, (len(tails), PIECES)).tolist()
    shaped = (replace(tail, rises=tuple(own)) for tail, own in zip(tails, of_fields, strict=True))
    return FittedSum(tuple(shaped), intercept)
