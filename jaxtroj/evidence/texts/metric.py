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
    if len(embeddings) < 2:
        raise EvidenceError(
            f"got {len(embeddings)} example text, expected two or more: how far they lie apart is"
            " what a shift is measured by; add clean example texts"
        )
    found = _metric(embeddings - embeddings.mean(axis=0), axes)
    return np.pad(found, ((0, axes - len(found)), (0, 0)))


def insertion_metric(shifts: np.ndarray, axes: int) -> np.ndarray:
    """Metric of what insertions of text do: `shifts` `[n, d]`, embedding after less before, n of
    at least 1.

    Not centred: that every insertion moves a sentence the same way is part of what is natural.
    """
    return _metric(shifts, axes)


def _metric(rows: np.ndarray, axes: int) -> np.ndarray:
    if not np.isfinite(rows).all():
        raise EvidenceError(
            f"the {len(rows)} embeddings are not finite, or too large for float32; use those that"
            " the encoder gives"
        )
    rows = rows.astype(np.float64)
    # Few rows in many dimensions have their axes in common with the far smaller Gram matrix.
    wide = len(rows) < rows.shape[1]
    product = (rows @ rows.T if wide else rows.T @ rows) / len(rows)
    values, vectors = np.linalg.eigh(product)
    order = np.argsort(values)[::-1][:axes]
    order = order[values[order] > 1e-9 * max(values[order[0]], 1e-30)]
    if not order.size:
        raise EvidenceError("the embeddings are all equal; expected those of different texts")
    found = vectors[:, order].T
    scaled = found @ rows / len(rows) ** 0.5 if wide else np.sqrt(values[order])[:, None] * found
    # An axis has no sign of its own; fixed ones make answers the same with every LAPACK.
    signs = np.sign(np.take_along_axis(scaled, np.abs(scaled).argmax(axis=1)[:, None], axis=1))
    return (signs * scaled).astype(np.float32)
