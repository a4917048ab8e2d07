"""How a detector scores when poisoned models are rarer or more common than in the test set.

NIST's overview page (usnistgov/trojai-test-harness, data_science/plot_trojan_percentage_sweep.py):
for each percentage, subsets are drawn without replacement: a poisoned model while the subset's
share of poisoned ones is below the percentage, else a clean one, until the kind that is wanted has
run out. A missing prediction counts as the percentage there, not as 0.5. NIST sweeps 1 to 98 %;
here 99 % is drawn too.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj import scoring
from jaxtroj.leaderboard.cases import Case, labels, probabilities

PERCENTAGES = range(1, 100)
REPEATS = 10  # NIST's --nb-reps


@dataclass(frozen=True)
class SweepPoint:
    """One subset; log scores in nats."""

    percentage: int
    repeat: int
    models: int
    poisoned: int
    log_score: float
    """Of the detector."""
    base_rate_log_score: float
    """Of always saying the percentage."""
    success_log_score: float
    """Half of that: NIST's bar."""
    nist_auc: float
    """Area over NIST's 101 thresholds; NaN in a subset of one kind only."""
    roc_auc: float
    """Exact area; NaN likewise."""


def counts(percentage: int, poisoned: int, clean: int) -> tuple[int, int]:
    """How many poisoned and clean models NIST's greedy rule takes of those there are.

    >>> counts(50, 10, 10), counts(10, 10, 18), counts(99, 10, 10)
    ((10, 10), (2, 18), (10, 1))
    """
    taken = [0, 0]
    while True:
        share = taken[0] / sum(taken) if sum(taken) else 0.0
        kind = 0 if share < percentage / 100 else 1
        if taken[kind] == (poisoned, clean)[kind]:
            return taken[0], taken[1]
        taken[kind] += 1


def sweep(cases: Sequence[Case], repeats: int = REPEATS, seed: int = 0) -> tuple[SweepPoint, ...]:
    """All subsets of 1 to 99 %, `repeats` of each; none when the models are of one kind only.

    Which models a subset takes is keyed by seed, percentage, repeat and the models' names, so the
    order of the cases changes nothing.
    """
    said, truth = probabilities(cases), labels(cases)
    if truth.all() or not truth.any():
        return ()
    keys = np.array([_key(f"{seed}:{case.model}") for case in cases], dtype=np.uint64)
    points = []
    for percentage in PERCENTAGES:
        taken = counts(percentage, int(truth.sum()), int((~truth).sum()))
        for repeat in range(repeats):
            order = np.argsort(_mixed(keys ^ np.uint64(_key(f"{percentage}:{repeat}"))))
            chosen = [order[truth[order]][: taken[0]], order[~truth[order]][: taken[1]]]
            points.append(_point(percentage, repeat, said, truth, np.concatenate(chosen)))
    return tuple(points)


def _point(
    percentage: int, repeat: int, said: np.ndarray, truth: np.ndarray, chosen: np.ndarray
) -> SweepPoint:
    rate = percentage / 100
    here = np.where(np.isnan(said[chosen]), rate, said[chosen])
    guess = scoring.log_score(np.full(len(chosen), rate), truth[chosen])
    return SweepPoint(
        percentage,
        repeat,
        len(chosen),
        int(truth[chosen].sum()),
        scoring.log_score(here, truth[chosen]),
        guess,
        guess * scoring.SUCCESS_SHARE,
        scoring.roc_nist(here, truth[chosen]).area,
        scoring.roc_auc(here, truth[chosen]),
    )


def _key(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _mixed(keys: np.ndarray) -> np.ndarray:
    """Scrambles 64-bit keys one to one (splitmix64's finaliser), so that their order is random."""
    with np.errstate(over="ignore"):
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
