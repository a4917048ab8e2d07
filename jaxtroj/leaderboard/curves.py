"""The exact ROC curve.

It takes `probabilities` [n] in [0, 1] (NaN: missing, counts as 0.5) and `poisoned` [n].
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.scoring import fill_missing, roc_auc


@dataclass(frozen=True)
class ExactRoc:
    """One point for every distinct probability, from (0, 0) to (1, 1); rates [k].

    The first threshold is infinite: nothing is called poisoned there.
    """

    thresholds: np.ndarray
    true_positive_rates: np.ndarray
    false_positive_rates: np.ndarray
    area: float


def roc_exact(probabilities, poisoned) -> ExactRoc:
    """The ROC curve at every threshold that makes a difference.

    Its area by the trapezoid rule is `scoring.roc_auc`. Rates are NaN without a model of that kind.

    >>> roc_exact([0.9, 0.8, 0.8, 0.1], [True, True, False, False]).true_positive_rates.tolist()
    [0.0, 0.5, 1.0, 1.0]
    """
    filled, _ = fill_missing(probabilities)
    truth = np.asarray(poisoned).astype(bool)
    area = roc_auc(filled, truth)
    values, position = np.unique(-filled, return_inverse=True)
    hits = np.bincount(position, weights=truth, minlength=values.size)
    alarms = np.bincount(position, weights=~truth, minlength=values.size)
    with np.errstate(invalid="ignore"):
        true_rates = np.cumsum([0, *hits]) / np.float64(truth.sum())
        false_rates = np.cumsum([0, *alarms]) / np.float64((~truth).sum())
    return ExactRoc(np.array([np.inf, *-values]), true_rates, false_rates, area)
