"""TrojanSleuth's Jacobian statistics (Perspecta, TrojAI Round 5), from its description.

For ten examples of each class and five noisy copies z of each vector, z = e + N(0, sd(e)), every
copy standardised to mean 0 and deviation 1: the gradients of both logits and of the cross-entropy
by z. Features are mean and deviation of these 3 d numbers over the 100 rows. A bag of six support
vector machines, each chosen by a grid, learns from labelled heads on the same encoder.

Left out: dropout, which the original left on while it took gradients.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from converters.model import Model, apply

PER_CLASS, COPIES = 10, 5
GRID = {"estimator__gamma": [0.001, 0.01, 0.1], "estimator__C": [1, 10]}


def features(model: Model, examples: np.ndarray, labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Statistics float64 `[6 d]` of a head with two classes.

    Args:
        model: with what acts on one step only.
        examples: vectors of clean texts `[n, d]`.
        labels: their classes, 0 or 1, `[n]`; other labels are left aside.
        seed: of the noise.
    """
    draw = np.random.default_rng(seed)
    rows = np.concatenate([np.flatnonzero(labels == label)[:PER_CLASS] for label in (0, 1)])
    vectors = np.repeat(examples[rows].astype(np.float64), COPIES, axis=0)
    noisy = vectors + draw.normal(size=vectors.shape) * vectors.std(axis=1, keepdims=True)
    noisy = (noisy - noisy.mean(axis=1, keepdims=True)) / noisy.std(axis=1, keepdims=True)
    truth = np.repeat(labels[rows], COPIES)
    slopes = np.asarray(_slopes(model.config, model.params, noisy.astype(np.float32), truth))
    return np.concatenate([slopes.mean(axis=0), slopes.std(axis=0)]).astype(np.float64)


@partial(jax.jit, static_argnums=0)
def _slopes(config, params, x, labels):
    """Gradients `[n, 3 d]` of both logits and of the loss."""

    def answers(point, label):
        logits = apply(config, params, point[None])[0]
        return jnp.stack([logits[0], logits[1], -jax.nn.log_softmax(logits)[label]])

    return jax.vmap(jax.jacrev(answers))(x, labels).reshape(len(x), -1)


def classifier(seed: int = 0) -> BaggingClassifier:
    """Six machines, each on five sixths of the heads."""
    # What SVC(probability=True), which the original used, did inside.
    machine = SVC(kernel="rbf")
    sure = CalibratedClassifierCV(machine, ensemble=False, cv=3)  # pyright: ignore[reportArgumentType]
    one = GridSearchCV(sure, GRID, cv=3)
    return BaggingClassifier(
        one, n_estimators=6, max_samples=0.8333, bootstrap=False, random_state=seed
    )
