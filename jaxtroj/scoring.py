"""How good are probabilities: log score, Brier score, ROC, accuracy and reliability.

Every function takes `probabilities` ([n], P(poisoned) in [0, 1]) and `poisoned` ([n], booleans)
and works in float64. The log score and its interval follow NIST's TrojAI harness to the letter
(usnistgov/trojai-test-harness, actor_executor/metrics.py); a missing prediction is NaN and counts
as 0.5, as it does there. All raise ValueError on empty, misshapen or out-of-range input.
"""

from dataclasses import asdict, dataclass

import numpy as np

from jaxtroj.numerics import clip_probability, is_above

NIST_EPSILON = 1e-12
Z_95 = 1.96  # NIST's table has two decimals
SUCCESS_SHARE = 0.5  # NIST's bar for a round: this share of the log score of guessing the base rate
NIST_THRESHOLDS = np.arange(0, 1.01, 0.01)  # as NIST writes it, so bit for bit the same 101 numbers


@dataclass(frozen=True)
class Confusion:
    """Counts at one threshold of models that were called poisoned or clean."""

    threshold: float
    true_positives: int
    false_positives: int
    true_negatives: int
    false_negatives: int


@dataclass(frozen=True)
class NistRoc:
    """ROC at thresholds 0, 0.01 ... 1: rates [101] (NaN without a model of that kind), area."""

    thresholds: np.ndarray
    true_positive_rates: np.ndarray
    false_positive_rates: np.ndarray
    area: float


@dataclass(frozen=True)
class ReliabilityBin:
    """Models whose probability lies in [low, high): how many, mean probability, share poisoned."""

    low: float
    high: float
    count: int
    mean_probability: float
    poisoned_fraction: float


@dataclass(frozen=True)
class Scores:
    """All scores of one set of predictions; log scores in nats, lower is better.

    `roc_auc` is exact, `nist_auc` that of NIST's 101 thresholds. `success` is a log score below
    `success_log_score`, half of what guessing the base rate scores. All three are None when the
    models are all poisoned or all clean.
    """

    models: int
    poisoned: int
    missing: int
    log_score: float
    log_score_low: float
    log_score_high: float
    brier_score: float
    roc_auc: float | None
    nist_auc: float | None
    accuracy: float
    confusion: Confusion
    base_rate_log_score: float
    success_log_score: float
    success: bool | None

    def as_dict(self) -> dict:
        """Plain numbers, ready for JSON."""
        return asdict(self)


def fill_missing(probabilities) -> tuple[np.ndarray, int]:
    """NaN (no prediction) becomes 0.5, as NIST does; returns [n] and how many were missing.

    >>> filled, missing = fill_missing([0.9, float("nan")])
    >>> filled.tolist(), missing
    ([0.9, 0.5], 1)
    """
    probabilities = np.array(probabilities, dtype=np.float64)
    absent = np.isnan(probabilities)
    probabilities[absent] = 0.5
    return probabilities, int(absent.sum())


def _checked(probabilities, poisoned) -> tuple[np.ndarray, np.ndarray]:
    probabilities, _ = fill_missing(probabilities)
    poisoned = np.asarray(poisoned)
    if probabilities.ndim != 1 or probabilities.shape != poisoned.shape or not probabilities.size:
        raise ValueError(
            "scores need as many probabilities as labels and at least one, both one-dimensional; "
            f"got shapes {probabilities.shape} and {poisoned.shape}"
        )
    if np.any((probabilities < 0) | (probabilities > 1)):
        raise ValueError(
            "probabilities must lie in [0, 1] (NaN = missing); "
            f"got {probabilities.min()} to {probabilities.max()}"
        )
    if not np.all((poisoned == 0) | (poisoned == 1)):
        raise ValueError("labels must be booleans: True for poisoned, False for clean")
    return probabilities, poisoned.astype(bool)


def contributions(probabilities, poisoned, epsilon: float = NIST_EPSILON) -> np.ndarray:
    """Each model's part of the log score, [n], nats: -ln of the probability given to the truth.

    >>> contributions([0.9, 0.9], [True, False]).round(4).tolist()
    [0.1054, 2.3026]
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    clipped = clip_probability(probabilities, epsilon)
    return -(poisoned * np.log(clipped) + (1 - poisoned) * np.log(1 - clipped))


def log_score(probabilities, poisoned, epsilon: float = NIST_EPSILON) -> float:
    """Mean of `contributions`: NIST's cross-entropy, nats, lower is better; a coin flip is ln 2.

    >>> round(log_score([0.5, 0.5], [True, False]), 4)
    0.6931
    >>> round(log_score([1.0], [False]), 1)    # one confident error
    27.6
    """
    return float(contributions(probabilities, poisoned, epsilon).mean())


def base_rate_log_score(poisoned) -> float:
    """Log score of the detector that knows only the share of poisoned models: its entropy, nats.

    >>> round(base_rate_log_score([True, False]), 4)
    0.6931
    """
    rate = float(np.mean(np.asarray(poisoned, dtype=np.float64)))
    return log_score(np.full(len(np.asarray(poisoned)), rate), poisoned)


def log_score_interval(probabilities, poisoned, z: float = Z_95) -> tuple[float, float]:
    """NIST's interval: log score -+ z * standard deviation (ddof 0) / sqrt(n); z 1.96 is 95 %.

    >>> low, high = log_score_interval([0.9, 0.6], [True, True])
    >>> round(low, 4), round(high, 4)
    (0.0271, 0.5891)
    """
    parts = contributions(probabilities, poisoned)
    half_width = z * float(parts.std()) / float(np.sqrt(parts.size))
    return float(parts.mean()) - half_width, float(parts.mean()) + half_width


def brier_score(probabilities, poisoned) -> float:
    """Mean squared difference of probability and label, in [0, 1], lower is better.

    >>> round(brier_score([0.9, 0.2], [True, False]), 4)
    0.025
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    return float(np.mean((probabilities - poisoned) ** 2))


def roc_auc(probabilities, poisoned) -> float:
    """Chance that a poisoned model ranks above a clean one, ties counting half (Mann-Whitney).

    NaN when all models carry the same label.

    >>> roc_auc([0.9, 0.8, 0.8, 0.1], [True, True, False, False])
    0.875
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    positives, negatives = int(poisoned.sum()), int((~poisoned).sum())
    if not positives or not negatives:
        return float("nan")
    _, position, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2.0
    rank_sum = mean_rank[position][poisoned].sum()
    return float((rank_sum - positives * (positives + 1) / 2) / (positives * negatives))


def confusion(probabilities, poisoned, threshold: float = 0.5) -> Confusion:
    """Counts at a threshold, by the rule of every scan; see `numerics.is_above`.

    >>> counts = confusion([0.9, 0.5, 0.1], [True, False, True])
    >>> counts.true_positives, counts.false_positives, counts.false_negatives
    (1, 0, 1)
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    return _counts(is_above(probabilities, threshold), poisoned, threshold)


def nist_confusions(probabilities, poisoned) -> tuple[Confusion, ...]:
    """Counts at each of NIST's 101 thresholds, as in the harness's confusion matrix file.

    There a probability at the threshold counts as poisoned.

    >>> rows = nist_confusions([0.9, 0.1], [True, False])
    >>> len(rows), rows[0].false_positives, rows[100].true_positives
    (101, 1, 0)
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    return tuple(_counts(probabilities >= t, poisoned, float(t)) for t in NIST_THRESHOLDS)


def _counts(called: np.ndarray, poisoned: np.ndarray, threshold: float) -> Confusion:
    return Confusion(
        threshold=threshold,
        true_positives=int((called & poisoned).sum()),
        false_positives=int((called & ~poisoned).sum()),
        true_negatives=int((~called & ~poisoned).sum()),
        false_negatives=int((~called & poisoned).sum()),
    )


def accuracy(probabilities, poisoned, threshold: float = 0.5) -> float:
    """Share of models on the right side of the threshold, in [0, 1].

    >>> accuracy([0.9, 0.2, 0.7], [True, False, False]) == 2 / 3
    True
    """
    counts = confusion(probabilities, poisoned, threshold)
    return (counts.true_positives + counts.true_negatives) / len(np.asarray(poisoned))


def roc_nist(probabilities, poisoned) -> NistRoc:
    """NIST's ROC: 101 thresholds, area by the trapezoid rule over them.

    The area is quantised: probabilities less than 0.01 apart tie, and the curve starts at (1, 1)
    but does not reach (0, 0) when a model has probability 1. Report `roc_auc`; use this one only
    beside NIST's own leaderboards.

    >>> roc_nist([0.999, 0.998, 0.1], [True, False, False]).area
    0.75
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    called = probabilities[None, :] >= NIST_THRESHOLDS[:, None]
    with np.errstate(invalid="ignore"):
        true_rates = (called & poisoned).sum(axis=1) / np.float64(poisoned.sum())
        false_rates = (called & ~poisoned).sum(axis=1) / np.float64((~poisoned).sum())
    area = abs(float(np.trapezoid(true_rates, false_rates)))
    return NistRoc(NIST_THRESHOLDS, true_rates, false_rates, area)


def reliability(probabilities, poisoned, bins: int = 10) -> tuple[ReliabilityBin, ...]:
    """Stated against observed: one row per non-empty bin of equal width, the last one closed.

    >>> [(b.count, b.poisoned_fraction) for b in reliability([0.1, 0.15, 0.9], [0, 0, 1], bins=2)]
    [(2, 0.0), (1, 1.0)]
    """
    probabilities, poisoned = _checked(probabilities, poisoned)
    if bins < 1:
        raise ValueError(f"reliability needs at least one bin, got {bins}")
    position = np.minimum((probabilities * bins).astype(int), bins - 1)
    return tuple(
        ReliabilityBin(
            low=index / bins,
            high=(index + 1) / bins,
            count=int((position == index).sum()),
            mean_probability=float(probabilities[position == index].mean()),
            poisoned_fraction=float(poisoned[position == index].mean()),
        )
        for index in np.unique(position).tolist()
    )


def score(probabilities, poisoned) -> Scores:
    """Every score at once; NaN probabilities count as 0.5 and are counted in `missing`.

    >>> result = score([0.9, 0.1, float("nan")], [True, False, True])
    >>> result.missing, result.accuracy, result.roc_auc
    (1, 0.6666666666666666, 1.0)
    """
    _, missing = fill_missing(probabilities)
    low, high = log_score_interval(probabilities, poisoned)
    area, nist_area = roc_auc(probabilities, poisoned), roc_nist(probabilities, poisoned).area
    value, guess = log_score(probabilities, poisoned), base_rate_log_score(poisoned)
    return Scores(
        models=len(np.asarray(poisoned)),
        poisoned=int(np.asarray(poisoned).astype(bool).sum()),
        missing=missing,
        log_score=value,
        log_score_low=low,
        log_score_high=high,
        brier_score=brier_score(probabilities, poisoned),
        roc_auc=None if np.isnan(area) else area,
        nist_auc=None if np.isnan(nist_area) else nist_area,
        accuracy=accuracy(probabilities, poisoned),
        confusion=confusion(probabilities, poisoned),
        base_rate_log_score=guess,
        success_log_score=guess * SUCCESS_SHARE,
        success=None if np.isnan(area) else value < guess * SUCCESS_SHARE,
    )
