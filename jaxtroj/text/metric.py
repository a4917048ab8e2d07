"""Metrics of embedding space: in which directions shifts are cheap.

A metric is a matrix `[k, d]` whose row i is the shift of one unit along axis i, the axes being the
eigenvectors of a second moment scaled by the root of its eigenvalue. A shift drawn at random from
the data behind it has coordinates of variance 1.
"""

import numpy as np

from jaxtroj.errors import EvidenceError


def spread_metric(embeddings: np.ndarray, axes: int) -> np.ndarray:
    """Metric of clean embeddings' own spread: shifts that turn one sentence into another.

    Args:
      embeddings: `[n, d]` of clean sentences.
      axes: rows of the metric; those beyond the data's rank are zero.
    """
    found = _metric(embeddings - embeddings.mean(axis=0), axes)
    return np.pad(found, ((0, axes - len(found)), (0, 0)))


def insertion_metric(shifts: np.ndarray, axes: int) -> np.ndarray:
    """Metric of what insertions of text do: `shifts` `[n, d]`, embedding after less before.

    Not centred: that every insertion moves a sentence the same way is part of what is natural.
    """
    return _metric(shifts, axes)


def _metric(rows: np.ndarray, axes: int) -> np.ndarray:
    if len(rows) < 2 or not np.isfinite(rows).all():
        raise EvidenceError(
            f"a metric needs at least two finite embeddings, got {len(rows)}; add examples"
        )
    values, vectors = np.linalg.eigh(rows.T.astype(np.float64) @ rows / len(rows))
    order = np.argsort(values)[::-1][: min(axes, len(rows), rows.shape[1])]
    order = order[values[order] > 1e-9 * max(values[order[0]], 1e-30)]
    if not order.size:
        raise EvidenceError("the embeddings are all equal; expected those of different texts")
    return (np.sqrt(values[order])[:, None] * vectors[:, order].T).astype(np.float32)
