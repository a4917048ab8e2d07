"""Linear weight classification (PL-GIFT, Huster et al. 2024) by what networks of any width share.

The original picks single weights, which networks of one shape alone have in common. This is its
sorted variant taken to quantiles: every kernel divided by its deviation, sorted, at 33 quantiles;
first kernels, inner ones and the last layer apart, each the mean over its kernels. A logistic
regression learns from labelled networks.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from converters.model import Model

QUANTILES = np.linspace(0.0, 1.0, 33)
GRID = {"logisticregression__C": [1e-4, 1e-3, 1e-2, 0.1, 1.0]}


def features(model: Model) -> np.ndarray:
    """Sketch float64 `[99]` of a head."""
    firsts = model.config.first_kernels  # pyright: ignore[reportAttributeAccessIssue]
    kernels = {n: np.asarray(v) for n, v in model.params.items() if np.ndim(v) >= 2}
    last = {name for name in kernels if name.startswith("linear")}
    first = {name for name in kernels if name in firsts} - last
    groups = (first, set(kernels) - first - last, last)
    return _sketch([[kernels[name] for name in kernels if name in group] for group in groups])


def features_of_torch(network: Any) -> np.ndarray:
    """Sketch float64 `[99]` of a torch module: its kernels stand in the order of the file."""
    kernels = [value.detach().numpy() for value in network.parameters() if value.ndim >= 2]
    return _sketch([kernels[:1], kernels[1:-1], kernels[-1:]])


def _sketch(groups: Iterable[Sequence[np.ndarray]]) -> np.ndarray:
    empty = [np.zeros(len(QUANTILES))]
    return np.concatenate(
        [np.mean([_quantiles(k) for k in group] or empty, axis=0) for group in groups]
    )


def _quantiles(kernel: np.ndarray) -> np.ndarray:
    values = kernel.astype(np.float64).ravel()
    return np.quantile(values / max(values.std(), 1e-12), QUANTILES)


def classifier(seed: int = 0) -> GridSearchCV:
    """Standardised features, strength of the penalty chosen by folds."""
    one = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, random_state=seed))
    return GridSearchCV(one, GRID, scoring="neg_log_loss")
