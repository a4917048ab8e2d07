"""PICCOLO's sweep (`torch_piccolo`) as one vector a head, for populations of many shapes of head.

The same mean answers to single coordinates set to their ends, from fewer random vectors (64, not
200) and the two ends alone (not 11 values): with them one head of two layers takes a second, not a
dozen. A head answers nearly linearly between the ends, so ranges and slopes hardly change.
"""

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rivals.torch_piccolo import Swept, normal_vectors, probabilities
from converters.model import Model, apply

SAMPLES, DEVIATIONS = 64, 4.0
_KINDS = ("gru", "lstm")
_AT_ONCE = 64  # coordinates
_run = jax.jit(apply, static_argnums=0)


def features(model: Model, clean: np.ndarray, seed: int = 0) -> np.ndarray:
    """Ranges of both logits, slope of their difference, kind of head: `[3 d + 1]`, two classes.

    Args:
        model: with what acts on one step only.
        clean: vectors of clean texts `[n, d]`, of which mean and spread are taken.
        seed: of the random vectors; the same for all heads that are compared.
    """
    samples = normal_vectors(clean, SAMPLES, seed).numpy()
    reach = DEVIATIONS * clean.std(axis=0)
    ends = np.stack([clean.mean(axis=0) - reach, clean.mean(axis=0) + reach])
    width = clean.shape[1]
    parts = [
        _answers(model, samples, ends, np.arange(start, min(width, start + _AT_ONCE)))
        for start in range(0, width, _AT_ONCE)
    ]
    moved = np.concatenate(parts)
    gained = moved[:, 1] - moved[:, 0]
    kind = [*_KINDS, ""].index(getattr(model.config, "cell", ""))
    return np.concatenate([np.abs(gained).ravel(), gained[:, 1] - gained[:, 0], [kind]])


def _answers(model: Model, samples: np.ndarray, ends: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Mean logits `[coordinates, ends, classes]` with each of some coordinates at its ends."""
    count, width = samples.shape
    moved = np.broadcast_to(samples, (len(which), len(ends), count, width)).astype(np.float32)
    rows = np.arange(len(which))
    moved[rows[:, None], np.arange(len(ends)), :, which[:, None]] = ends[:, which].T[:, :, None]
    logits = _run(model.config, model.params, jnp.asarray(moved.reshape(-1, width)))
    return np.asarray(logits).reshape(len(which), len(ends), count, -1).mean(axis=2)


class Sweeps:
    """PICCOLO's classifier over `features`, as scikit-learn's are used."""

    def __init__(self, seed: int = 0):
        self._seed = seed

    def fit(self, rows: np.ndarray, truth: np.ndarray) -> "Sweeps":
        """Keep labelled heads; all is learnt when a head is asked about."""
        self._known, self._truth = _swept(rows), np.asarray(truth, bool)
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        """Probabilities `[n, 2]`, clipped as PICCOLO's are."""
        said = probabilities(self._known, self._truth, _swept(rows), self._seed)
        return np.stack([1 - said, said], axis=1)


def _swept(rows: np.ndarray) -> Swept:
    width = (rows.shape[1] - 1) // 3
    return Swept(rows[:, : 2 * width], rows[:, 2 * width : -1], rows[:, -1].astype(int))
