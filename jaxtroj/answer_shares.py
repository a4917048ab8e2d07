"""How often a network gives each class, where it is shown as many examples of each.

Training on unequal classes makes a network answer the frequent ones more often than their pictures
are, and the others less. On examples of which each class counts the same the share of a class among
the answers says so. Answers are counted in probabilities, at the temperature that suits the labels
best: a network that is wrong where it is sure says much about its classes, one that is always right
nothing.

References:
  Saerens et al., Adjusting the Outputs of a Classifier to New a Priori Probabilities, Neural
  Computation 14, 2002: shares of classes by the answers of a network.
  Guo et al., On Calibration of Modern Neural Networks, https://arxiv.org/abs/1706.04599, 2017.
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.numerics import log_softmax

# Times the share that a class is shown, and standard errors above it, from where it is frequent.
_FREQUENT, _ERRORS = 1.5, 3.0
_WORKS = 2.0  # times the fraction that is right by giving one class always
_MOST = 3.0  # times that an example counts at most, where its class has few
_TEMPERATURES = 2.0 ** np.arange(-12, 13)


@dataclass(frozen=True)
class AnswerShares:
    """Shares of the classes among a network's answers, each class of examples counting the same.

    Attributes:
      shares: `[classes]`, together 1.
      errors: `[classes]`, the standard error of each by the examples; infinite where no class has
        two of them.
      equal: the share of a class that is given as often as it is shown: 1 over the number of
        classes that there are examples of.
      right: mean over these of the fraction of their examples that are classified as labelled.
    """

    shares: np.ndarray
    errors: np.ndarray
    equal: float
    right: float

    @property
    def frequent(self) -> np.ndarray:
        """Bool `[classes]`, whether a class is given far more often than it is shown.

        None of a network that hardly does better than one that gives one class always: it is shown
        in a wrong form, or gives something else than logits.
        """
        if self.right < _WORKS * self.equal:
            return np.zeros(len(self.shares), bool)
        least = np.maximum(_FREQUENT * self.equal, self.equal + _ERRORS * self.errors)
        return self.shares >= least


def answer_shares(logits: np.ndarray, labels: np.ndarray) -> AnswerShares:
    """Shares by logits `[n, classes]`, finite, and labels int `[n]` in [0, classes); n > 0.

    >>> always_first = answer_shares(np.array([[9.0, 0.0], [9.0, 0.0]]), np.array([0, 1]))
    >>> always_first.shares.round(2).tolist()
    [0.5, 0.5]
    """
    said = np.exp(log_probabilities(logits, labels))
    present, own, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.stack([said[own == place].mean(axis=0) for place in range(len(present))])
    freedom, equal = len(labels) - len(present), 1 / len(present)
    right = float(((said.argmax(axis=1) == labels) / counts[own]).sum()) * equal
    if not freedom:
        return AnswerShares(means.mean(axis=0), np.full(logits.shape[1], np.inf), equal, right)
    variances = np.square(said - means[own]).sum(axis=0) / freedom
    errors = equal * np.sqrt(variances * (1 / counts).sum())
    return AnswerShares(means.mean(axis=0), errors, equal, right)


def logit_shifts(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What makes labels likeliest when added to logits, each class counting the same.

    Temperature and shifts are fitted together, in nats each drawn to 0 as by one deviation, so that
    examples that are right whatever is added move nothing. The shifts of the classes that there are
    examples of have mean 0; of the others nobody knows how often they would be right, so they stay.

    Args:
        logits, labels: see `answer_shares`.
    """
    from scipy.optimize import minimize

    logits = np.asarray(logits, np.float64)
    centred = logits - logits.mean(axis=1, keepdims=True)
    size = max(float(np.sqrt(np.square(centred).mean())), np.finfo(np.float64).tiny)
    present, own, counts = np.unique(labels, return_inverse=True, return_counts=True)
    weights = np.minimum(len(labels) / len(counts) / counts[own], _MOST)[:, None]
    is_own = labels[:, None] == np.arange(logits.shape[1])
    shifts = np.zeros(logits.shape[1])

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        scaled = centred / size * np.exp(values[0])
        shifts[present] = values[1:]
        moved = scaled + shifts
        said = log_softmax(moved)
        off = weights * (np.exp(said) - is_own)
        total = -(weights * said * is_own).sum() + np.square(values).sum() / 2
        return total, np.append((off * scaled).sum(), off.sum(axis=0)[present]) + values

    found = minimize(loss, np.zeros(1 + len(present)), jac=True, method="L-BFGS-B").x
    shifts[present] = (found[1:] - found[1:].mean()) * size / np.exp(found[0])
    return shifts


def log_probabilities(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Log-probabilities `[n, classes]` of finite logits over the temperature that suits them best.

    Args:
        logits: `[n, classes]`.
        labels: int `[n]`; their mean log-probability decides.
    """
    logits = np.asarray(logits, np.float64)
    rows = np.arange(len(labels))
    spread = max(float(logits.std()), np.finfo(np.float64).tiny)
    scaled = (logits - logits.max(axis=1, keepdims=True)) / spread
    tried = [log_softmax(scaled / t) for t in _TEMPERATURES]
    return max(tried, key=lambda found: found[rows, labels].mean())
