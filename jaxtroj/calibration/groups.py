"""Folds that are groups of models: each group is judged by a fit that has met none of it."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj import scoring
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import is_above


def assign_groups(
    groups: Sequence[str], keys: Sequence[str], pairs: Sequence[str] = (), seed: str = "0"
) -> np.ndarray:
    """Fold number of each row, [n]; one fold for each group, in alphabetical order.

    Rows of no group ("") are dealt out among the groups: to that of their twin, where one is known,
    else in turn by a hash of seed and key. So clean models, which have no kind of trigger, are held
    out with the kinds.

    >>> assign_groups(["b", "a", "", ""], ["w", "x", "y", "z"], ["p", "q", "p", ""]).tolist()[:3]
    [1, 0, 1]

    Raises CalibrationError for fewer than two groups.
    """
    names = sorted({group for group in groups if group})
    if len(names) < 2:
        raise CalibrationError(
            f"to leave a group out there must be two or more, got {', '.join(names) or 'none'}"
        )
    twins = pairs or [""] * len(groups)
    own = {twin: group for twin, group in zip(twins, groups, strict=True) if twin and group}
    found = [group or own.get(twin, "") for group, twin in zip(groups, twins, strict=True)]
    drawn = [hashlib.sha256(f"{seed}:{key}".encode()).hexdigest() for key in keys]
    left = sorted((i for i, group in enumerate(found) if not group), key=drawn.__getitem__)
    for turn, place in enumerate(left):
        found[place] = names[turn % len(names)]
    return np.array([names.index(group) for group in found], dtype=int)


@dataclass(frozen=True)
class GroupScore:
    """How one group was judged by fits on the others; log scores in nats."""

    models: int
    """Of the group, those without a group that were held out with it included."""
    poisoned: int
    log_score: float
    poisoned_log_score: float | None
    """Of its poisoned models alone; None without one."""
    roc_auc: float | None
    """Its poisoned models against the clean models of all groups; None without one."""
    found: float | None
    """Share of its poisoned models with a probability above .5."""


@dataclass(frozen=True)
class LeftOut:
    """Scores where every group was left out in turn."""

    log_score: float
    """Mean over all models."""
    roc_auc: float | None
    worst: str
    """The group with the largest log score."""
    groups: Mapping[str, GroupScore]


def score_left_out(
    probabilities: np.ndarray, poisoned: np.ndarray, folds: np.ndarray, names: Sequence[str]
) -> LeftOut:
    """Scores of held-out probabilities [n], over all and by group; `folds` number `names`."""
    parts = {
        name: _score_group(probabilities, poisoned, folds == number)
        for number, name in enumerate(names)
    }
    whole = scoring.score(probabilities, poisoned)
    worst = max(parts, key=lambda name: parts[name].log_score)
    return LeftOut(whole.log_score, whole.roc_auc, worst, parts)


def _score_group(probabilities: np.ndarray, poisoned: np.ndarray, inside: np.ndarray) -> GroupScore:
    bad, against = inside & poisoned, (inside & poisoned) | ~poisoned
    any_bad, both = bool(bad.any()), bool(bad.any() and (~poisoned).any())
    return GroupScore(
        models=int(inside.sum()),
        poisoned=int(bad.sum()),
        log_score=scoring.log_score(probabilities[inside], poisoned[inside]),
        poisoned_log_score=(
            scoring.log_score(probabilities[bad], poisoned[bad]) if any_bad else None
        ),
        roc_auc=scoring.roc_auc(probabilities[against], poisoned[against]) if both else None,
        found=float(is_above(probabilities[bad]).mean()) if any_bad else None,
    )
