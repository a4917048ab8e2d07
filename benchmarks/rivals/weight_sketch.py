"""Linear weight classification (PL-GIFT, Huster et al. 2024) by what heads of any width share.

The original picks single weights, which heads of one shape alone have in common. This is its sorted
variant taken to quantiles: every kernel divided by its deviation, sorted, at 33 quantiles; first
kernels, inner ones and the last layer apart, each the mean over its kernels. A logistic regression
learns from labelled heads.
"""

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
    groups: dict[str, list[np.ndarray]] = {"first": [], "inner": [], "last": []}
    kernels = {n: np.asarray(v) for n, v in model.params.items() if np.ndim(v) >= 2}
    for name, kernel in kernels.items():
        is_first = name in model.config.first_kernels  # pyright: ignore[reportAttributeAccessIssue]
        group = "last" if name.startswith("linear") else "first" if is_first else "inner"
        values = kernel.astype(np.float64).ravel()
        groups[group].append(np.quantile(values / max(values.std(), 1e-12), QUANTILES))
    empty = np.zeros(len(QUANTILES))
    return np.concatenate([np.mean(g, axis=0) if g else empty for g in groups.values()])


def classifier(seed: int = 0) -> GridSearchCV:
    """Standardised features, strength of the penalty chosen by folds."""
    one = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000, random_state=seed))
    return GridSearchCV(one, GRID, scoring="neg_log_loss")
