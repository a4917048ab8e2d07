"""Data-free evidence: the final layer's rows and the moments of the layers before it.

Reference:
  Fields et al., Trojan Signatures in DNN Weights, https://arxiv.org/abs/2109.02836, 2021: the row
  of the target class in the last layer is distinguishable from the other rows.
"""

from collections.abc import Mapping

import numpy as np

from jaxtroj.numerics import kurtosis

_EPS = 1e-12


def weight_fields(params: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Evidence read off the parameters alone; see `schema` for each field's meaning."""
    head = np.asarray(_head(params), np.float64).T
    means, norms = head.mean(axis=1), np.linalg.norm(head, axis=1)
    kernels = [value for path, value in params.items() if path.endswith(".kernel")]
    tails = [kurtosis(np.asarray(kernel, np.float64)) for kernel in kernels if kernel.size > 256]
    return {
        "head_mean_outlier": _outlier(means),
        "head_norm_outlier": _outlier(norms),
        "head_cosine_spread": float(_cosines(head).std()),
        "layer_kurtosis": float(np.mean(tails)) if tails else 0.0,
    }


def _head(params: Mapping[str, np.ndarray]) -> np.ndarray:
    """Kernel `[features, classes]` of the last layer: the only matrix among the parameters."""
    return next(v for k, v in params.items() if k in ("fc.kernel", "classifier.kernel"))


def _outlier(values: np.ndarray) -> float:
    """How far the largest value stands above the mean of the others, in their deviations."""
    place = int(values.argmax())
    others = np.delete(values, place)
    if others.size < 2:
        return 0.0
    return float(
        (values[place] - others.mean()) / (others.std() + 1e-3 * np.abs(values).mean() + _EPS)
    )


def _cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / (np.linalg.norm(rows, axis=1, keepdims=True) + _EPS)
    return (unit @ unit.T)[np.triu_indices(len(rows), 1)] if len(rows) > 1 else np.zeros(1)
