"""How scores of fields are joined, search by search: the numbers that `pooled` weighs."""

from collections.abc import Sequence

import numpy as np

from jaxtroj.calibration.tails import Tail
from jaxtroj.evidence.stage import SUPPORT

PARTS = ("strongest", "second", "sum")
WAYS = ("mean", "largest")
"""How the fields of one search are joined."""


def field_scores(tails: Sequence[Tail], values: np.ndarray, cap: float) -> np.ndarray:
    """Scores [n, fields] in 0 to cap; NaN where missing."""
    columns = [tail.score(values[:, i], cap) for i, tail in enumerate(tails)]
    return np.stack(columns, axis=1)


def pooled(tails: Sequence[Tail], values: np.ndarray, way: str, cap: float) -> np.ndarray:
    """`PARTS` of values [n, fields], [n, 3], on the scale of the cap; the sum per search."""
    return pool_scores(field_scores(tails, values, cap), [tail.search for tail in tails], way, cap)


def pool_scores(scores: np.ndarray, searches: Sequence[str], way: str, cap: float) -> np.ndarray:
    """The same from scores [n, fields] and each field's search."""
    by_search = search_scores(scores, searches, way)
    found = np.zeros((len(scores), max(2, len(by_search))))
    found[:, : len(by_search)] = np.stack(list(by_search.values()), axis=1)
    if SUPPORT in by_search:
        place = list(by_search).index(SUPPORT)
        others = np.delete(found, place, axis=1).max(axis=1)
        found[:, place] = np.minimum(found[:, place], others)
    ordered = -np.sort(-found, axis=1)
    return (
        np.stack([ordered[:, 0], ordered[:, 1], found.sum(axis=1) / len(by_search)], axis=1) / cap
    )


def summed(tails: Sequence[Tail], values: np.ndarray) -> np.ndarray:
    """Sum over fields of what each adds by its shape, [n] log-odds, of values [n, fields].

    That of `SUPPORT` is cut to that of all other searches, where this is above 0, else to 0.
    """
    parts = np.stack([tail.lean(values[:, i]) for i, tail in enumerate(tails)], axis=1)
    is_support = np.array([tail.search == SUPPORT for tail in tails])
    others = parts[:, ~is_support].sum(axis=1)
    return others + np.minimum(parts[:, is_support].sum(axis=1), np.maximum(others, 0.0))


def search_scores(scores: np.ndarray, searches: Sequence[str], way: str) -> dict[str, np.ndarray]:
    """Search -> its scores [n] in 0 to the cap, from those of fields [n, fields]; 0 if not made."""
    found = {}
    for name in dict.fromkeys(searches):
        own = scores[:, [search == name for search in searches]]
        present = np.isfinite(own)
        known = np.where(present, own, 0.0)
        joined = known.max(axis=1) if way == "largest" else known.sum(axis=1)
        found[name] = joined / (1 if way == "largest" else np.maximum(1, present.sum(axis=1)))
    return found


def made_searches(tails: Sequence[Tail], values: np.ndarray) -> np.ndarray:
    """Whether any field of each search is there, booleans [n, searches]."""
    names = list(dict.fromkeys(tail.search for tail in tails))
    present = np.isfinite(values)
    columns = [present[:, [tail.search == name for tail in tails]].any(axis=1) for name in names]
    return np.stack(columns, axis=1)


def missing_share(
    made: np.ndarray, searches: Sequence[str], usual: Sequence[Sequence[str]]
) -> np.ndarray:
    """Least share of a usual set that is absent, [n]; rises with every search taken away.

    >>> made = np.array([[True, False, False], [True, True, False]])
    >>> missing_share(made, ["a", "b", "c"], [("a", "b"), ("a", "c")]).tolist()
    [0.5, 0.0]
    """
    if not usual:
        return np.zeros(len(made))
    shares = [(~made[:, [name in chosen for name in searches]]).mean(axis=1) for chosen in usual]
    return np.min(shares, axis=0)
