"""Stage weights: moments of a head's parameters; needs no examples."""

import numpy as np

from jaxtroj.evidence.texts.heads import Heads
from jaxtroj.numerics import kurtosis

_EPS = 1e-12


def weight_fields(heads: Heads) -> dict[str, np.ndarray]:
    """Fields by name, `[m]` each; see `jaxtroj.evidence.texts.schema`."""
    params = {name: np.asarray(value) for name, value in heads.params.items()}
    kernels = [value for value in params.values() if value.ndim == 3]
    columns = np.linalg.norm(params["linear.kernel"], axis=1)
    sizes = [0.5 * np.log((k.astype(np.float64) ** 2).mean(axis=(1, 2)) + _EPS) for k in kernels]
    return {
        "weight_kurtosis": np.mean([[kurtosis(one) for one in k] for k in kernels], axis=0),
        "weight_norm": np.mean(sizes, axis=0),
        "output_asymmetry": np.log(columns.max(axis=1) + _EPS) - np.log(columns.min(axis=1) + _EPS),
    }
