"""Data-free evidence: the final layer's rows and the moments of the layers before it.

Reference:
  Fields et al., Trojan Signatures in DNN Weights, https://arxiv.org/abs/2109.02836, 2021: the row
  of the target class in the last layer is distinguishable from the other rows.
"""

from collections.abc import Mapping

import numpy as np

from jaxtroj.evidence.images.frequent_classes import compared_classes
from jaxtroj.numerics import kurtosis
from jaxtroj.rounds.turns import MANY_CLASSES

_EPS = 1e-12


def weight_fields(
    params: Mapping[str, np.ndarray],
    head: np.ndarray | None,
    frequent: np.ndarray | None = None,
) -> dict[str, float]:
    """Evidence read off the parameters; `images.stages.weights` says what each means.

    Args:
        params: by Flax path, or by torch name for a captured graph.
        head: rows `[classes, features]` of the last layer, see `Model.last_layer`. Without any, no
            class stands out: those fields are 0.
        frequent: bool `[classes]`, those whose rows stand out for another reason than a trojan; see
            `compared_classes`.
    """
    rows = None if head is None else np.asarray(head, np.float64)
    kernels = [value for path, value in params.items() if _is_kernel(path, value)]
    tails = [kurtosis(np.asarray(kernel, np.float64)) for kernel in kernels if kernel.size > 256]
    names = ("head_mean_outlier", "head_norm_outlier", "head_cosine_spread")
    fields: dict[str, float] = dict.fromkeys(names, 0.0)
    fields["head_lead"], fields["head_lead_class"] = 0.0, -1.0
    if rows is not None:
        classes = compared_classes(len(rows), frequent)
        fields["head_mean_outlier"] = _outlier(rows[classes].mean(axis=1))
        fields["head_norm_outlier"] = _outlier(np.linalg.norm(rows[classes], axis=1))
        fields["head_cosine_spread"] = _cosine_spread(rows)
        fields["head_lead"], leading = head_lead(rows[classes])
        fields["head_lead_class"] = float(classes[int(leading)]) if leading >= 0 else -1.0
    return {**fields, "layer_kurtosis": float(np.mean(tails)) if tails else 0.0}


def head_gaps(head: np.ndarray | None) -> np.ndarray:
    """How much further each row of the last layer leans towards all features than the others.

    A trigger must win on every picture, whatever features are active, so training on one raises
    the target's whole row. Measured as cosine with the vector of ones, which has neither the scale
    of the weights in it nor, unlike an outlier among few classes, the spread of the other rows.

    Args:
        head: rows `[classes, features]`, see `Model.last_layer`.

    Returns:
        A gap for each class; none where there is no last layer, or one class only.
    """
    if head is None or len(head) < 2:
        return np.zeros(0)
    rows = np.asarray(head, np.float64)
    lengths = np.linalg.norm(rows, axis=1) * np.sqrt(rows.shape[1])
    lean = rows.sum(axis=1) / np.maximum(lengths, _EPS)
    if len(lean) > MANY_CLASSES:  # the same, without the others of each class in turn
        return lean - (lean.sum() - lean) / (len(lean) - 1)
    return lean - np.array([np.delete(lean, place).mean() for place in range(len(lean))])


def head_gap(head: np.ndarray | None, target: int, frequent: np.ndarray | None = None) -> float:
    """The gap of one class, see `head_gaps` and `weight_fields`.

    0 without a last layer, and for a class that is not compared as it is frequent.
    """
    classes = np.zeros(0, int) if head is None else compared_classes(len(head), frequent)
    if head is None or target not in classes:
        return 0.0
    gaps = head_gaps(head[classes])
    return float(gaps[classes == target][0]) if gaps.size else 0.0


def head_lead(head: np.ndarray | None) -> tuple[float, float]:
    """The largest gap less the second largest, and the class that has it.

    Only a large lead says anything: networks that were tuned into a trojan, and heads over
    flattened maps, show none. Without a last layer the lead is 0 and the class -1.
    """
    gaps = head_gaps(head)
    if not gaps.size:
        return 0.0, -1.0
    second, first = np.sort(gaps)[-2:]
    return float(first - second), float(gaps.argmax())


def _is_kernel(path: str, value: np.ndarray) -> bool:
    """Flax says so in the path; a graph's weights have names of any kind, vectors are none."""
    return path.endswith(".kernel") or value.ndim > 1


def _outlier(values: np.ndarray) -> float:
    """How far the largest value stands above the mean of the others, in their deviations.

    The largest of many draws lies further out than that of few. Of more than `MANY_CLASSES` values
    it is told as among so many: less what the largest of the others exceeds that of so few by.
    """
    place = int(values.argmax())
    others = np.delete(values, place)
    if others.size < 2:
        return 0.0
    spread = others.std() + 1e-3 * np.abs(values).mean() + _EPS
    if len(values) <= MANY_CLASSES:
        return float((values[place] - others.mean()) / spread)
    beyond = others.max() - expected_largest(others, MANY_CLASSES - 1)
    return float((values[place] - beyond - others.mean()) / spread)


def expected_largest(values: np.ndarray, count: int) -> float:
    """Mean of the largest of `count` of the values `[n]`, over all choices; `count` <= n.

    The i-th of the ascending values is the largest of C(i - 1, count - 1) of the C(n, count)
    choices.

    >>> expected_largest(np.array([1.0, 2.0, 3.0]), 2)  # of 1 2, 1 3 and 2 3
    2.6666666666666665
    """
    n = len(values)
    places = np.arange(n, count, -1)  # from the largest on
    steps = (places - count) / (places - 1)
    shares = count / n * np.concatenate([[1.0], np.cumprod(steps)])
    return float((shares * np.sort(values)[::-1][: len(shares)]).sum())


def _cosine_spread(rows: np.ndarray) -> float:
    """Deviation of the cosines between rows `[classes, features]`.

    Of very many rows by sums over all pairs, which needs no room for the pairs.
    """
    classes = len(rows)
    if classes <= MANY_CLASSES:
        return float(_cosines(rows).std())
    unit = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + _EPS)
    own, pairs = (unit**2).sum(axis=1), classes * (classes - 1)
    mean = ((unit.sum(axis=0) ** 2).sum() - own.sum()) / pairs
    square = (((unit.T @ unit) ** 2).sum() - (own**2).sum()) / pairs
    return float(np.sqrt(max(0.0, square - mean**2)))


def _cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + _EPS)
    return (unit @ unit.T)[np.triu_indices(len(rows), 1)] if len(rows) > 1 else np.zeros(1)
