"""Splits keyed by what a row says, never by where it stands: order of rows changes nothing."""

import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

_LEAST_OF_A_FOLD = 2
"""Different rows, below which copies are dealt like all others: no fold may be empty."""


def row_key(row: Mapping[str, float | None], poisoned: bool, architecture: str | None) -> str:
    """Identity of a labelled row: sha256 over its fields, label and architecture.

    >>> row_key({"a": 1.0, "b": 2.0}, True, None) == row_key({"b": 2, "a": 1}, True, None)
    True
    """
    fields = {name: None if value is None else float(value) for name, value in row.items()}
    text = json.dumps([fields, bool(poisoned), architecture], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def assign_folds(
    keys: Sequence[str],
    poisoned: np.ndarray,
    architectures: Sequence[str | None],
    folds: int,
    seed: str,
) -> np.ndarray:
    """Fold number of each row, [n] in 0 .. folds - 1.

    Stratified by label, then by architecture: rows are sorted by those and, within them, by a hash
    of seed and key, and dealt in turn; rows of one key, which are copies, go to one fold, unless
    there are too few different ones.

    >>> assign_folds(["x", "y", "z", "w"], np.array([1, 1, 0, 0]), [None] * 4, 2, "0").sum()
    np.int64(2)
    """
    drawn = [hashlib.sha256(f"{seed}:{key}".encode()).hexdigest() for key in keys]
    order = sorted(
        range(len(keys)),
        key=lambda i: (bool(poisoned[i]), architectures[i] or "", drawn[i]),
    )
    are_few = len(set(keys)) < _LEAST_OF_A_FOLD * folds
    is_new = [are_few or i == 0 or keys[order[i]] != keys[order[i - 1]] for i in range(len(order))]
    assigned = np.empty(len(keys), dtype=int)
    assigned[order] = (np.cumsum(is_new) - 1) % folds
    return assigned
