"""Moments of a head's parameters; needs no examples."""

import numpy as np

from jaxtroj.evidence.texts.heads import Head
from jaxtroj.numerics import kurtosis

_EPS = 1e-12


def weight_fields(head: Head) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.texts.stages.weights`."""
    params = {name: np.asarray(value) for name, value in head.params.items()}
    kernels = [value for value in params.values() if value.ndim == 2]
    columns = np.linalg.norm(params["linear.kernel"], axis=0)
    sizes = [0.5 * np.log((k.astype(np.float64) ** 2).mean() + _EPS) for k in kernels]
    return {
        "weight_kurtosis": float(np.mean([kurtosis(kernel) for kernel in kernels])),
        "weight_norm": float(np.mean(sizes)),
        "output_asymmetry": float(np.log(columns.max() + _EPS) - np.log(columns.min() + _EPS)),
    }
