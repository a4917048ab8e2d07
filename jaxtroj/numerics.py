"""Guarded scalar maths in float64: one definition each, finite on every input in range."""

import numpy as np

# Normal distribution: standard deviation over median absolute deviation, 1 / Phi^-1(3/4).
MAD_TO_STANDARD_DEVIATION = 1.4826022185056018
LARGEST_STEP = 1e12
"""Scales from a centre that `arcsinh` is asked for at most: finite for any float."""


def sigmoid(log_odds) -> np.ndarray:
    """Probability of the given log-odds, without overflow for any finite or infinite input.

    >>> sigmoid([-np.inf, 0.0, 1000.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    log_odds = np.asarray(log_odds, dtype=np.float64)
    decay = np.exp(-np.abs(log_odds))
    return np.where(log_odds >= 0, 1.0, decay) / (1.0 + decay)


def logit(probability, epsilon: float = 1e-12) -> np.ndarray:
    """Log-odds of a probability in [0, 1], clipped to [epsilon, 1 - epsilon] so 0 and 1 are finite.

    >>> logit([0.5, 0.75]).round(4).tolist()
    [0.0, 1.0986]
    >>> float(logit(1.0)) < 28
    True
    """
    clipped = clip_probability(probability, epsilon)
    return np.log(clipped) - np.log1p(-clipped)


def clip_probability(probability, epsilon: float = 1e-12) -> np.ndarray:
    """The probability in [0, 1] moved into [epsilon, 1 - epsilon]; NaN stays NaN."""
    return np.clip(np.asarray(probability, dtype=np.float64), epsilon, 1.0 - epsilon)


def is_above(probability, threshold: float = 0.5):
    """Whether a model is called poisoned: its probability is above the threshold, not at it.

    A model that nothing is known of has even odds, which accuses nobody.

    >>> is_above(0.5), is_above(np.array([0.5, 0.6])).tolist()
    (False, [False, True])
    """
    return probability > threshold


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-probabilities `[n, classes]` of finite logits, float64.

    >>> log_softmax(np.array([[0.0, 1000.0]])).tolist()
    [[-1000.0, 0.0]]
    """
    values = np.asarray(logits, np.float64)
    below = values - values.max(axis=1, keepdims=True)
    return below - np.log(np.exp(below).sum(axis=1, keepdims=True))


def softplus(value) -> np.ndarray:
    """ln(1 + e^value) without overflow; the log loss of log-odds -value.

    >>> softplus([0.0, 1000.0]).round(4).tolist()
    [0.6931, 1000.0]
    """
    return np.logaddexp(0.0, np.asarray(value, dtype=np.float64))


def safe_mad(values) -> float:
    """Median absolute deviation times 1.4826: the standard deviation of normal values.

    A MAD of 0 (more than half the values equal) says nothing about the spread of the others, so
    the mean absolute deviation from the median, scaled likewise (1.2533), stands in; only values
    that are all equal give 0, and callers must treat 0 as "no spread".

    >>> round(safe_mad([1.0, 2.0, 3.0, 4.0, 100.0]), 4)
    1.4826
    >>> round(safe_mad([1.0, 1.0, 1.0, 5.0]), 4)
    1.2533
    >>> safe_mad([3.0, 3.0])
    0.0
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        raise ValueError("safe_mad needs at least one value, got none")
    deviations = np.abs(values - np.median(values))
    mad = float(np.median(deviations)) * MAD_TO_STANDARD_DEVIATION
    return mad if mad > 0 else float(np.mean(deviations)) * float(np.sqrt(np.pi / 2))


def kurtosis(values) -> float:
    """Fourth central moment over the squared variance: 3 for normal values, 0 without spread.

    >>> round(kurtosis([1.0, -1.0, 1.0, -1.0]), 6)
    1.0
    """
    values = np.asarray(values, dtype=np.float64)
    squared = np.square(values - values.mean())  # twice: a fourth power by pow is ten times slower
    return float(np.square(squared).mean() / (squared.mean() ** 2 + 1e-12))
