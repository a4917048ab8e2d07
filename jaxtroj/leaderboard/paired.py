"""Two detectors on the same models: a paired bootstrap of the difference of their scores."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import UsageError
from jaxtroj.leaderboard.cases import Case, labels, probabilities
from jaxtroj.scoring import contributions, fill_missing

RESAMPLES = 10_000
_CHUNK_BYTES = 16 * 2**20

Measure = Callable[[np.ndarray], np.ndarray]
"""A score of each resample, [r], from how often each model was drawn, int [r, n]."""


@dataclass(frozen=True)
class Difference:
    """One score of A and B, and A minus B with its 95 % percentile interval.

    `a_better` is the share of resamples in which A has the better score, ties counting half.
    """

    a: float
    b: float
    difference: float
    low: float
    high: float
    a_better: float


@dataclass(frozen=True)
class PairedComparison:
    """Differences over the same models; log and Brier score: lower is better, area: higher.

    `roc_auc` is None when the models are all poisoned or all clean.
    """

    models: int
    poisoned: int
    resamples: int
    log_score: Difference
    brier_score: Difference
    roc_auc: Difference | None

    @property
    def too_few_models(self) -> bool:
        """Whether a kind has one model only: every resample has just that, and nothing varies."""
        return 1 in (self.poisoned, self.models - self.poisoned)


def compare(
    a: Sequence[Case], b: Sequence[Case], resamples: int = RESAMPLES, seed: int = 0
) -> PairedComparison:
    """Resamples the models with replacement, within the poisoned and within the clean ones.

    The share of poisoned models is a choice of whoever made the round, so it is kept. Both
    detectors are scored on the same resample, so what is hard for both cancels out. The models are
    taken in the order of their names, and so the order of the cases changes nothing.

    Raises UsageError for a seed below 0, and ValueError when the two are not about the same models
    with the same labels.
    """
    if seed < 0:
        raise UsageError(f"the seed of resamples must be a whole number of at least 0, got {seed}")
    a, b = (sorted(cases, key=lambda case: case.model) for cases in (a, b))
    if [(c.model, c.poisoned) for c in a] != [(c.model, c.poisoned) for c in b] or not a:
        raise ValueError("a comparison needs the same labelled models on both sides")
    truth = labels(a)
    pair = [fill_missing(probabilities(cases))[0] for cases in (a, b)]
    measures = {
        "log_score": [_mean(contributions(said, truth)) for said in pair],
        "brier_score": [_mean((said - truth) ** 2) for said in pair],
    }
    if truth.any() and not truth.all():
        measures["roc_auc"] = [_area(said, truth) for said in pair]
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in measures}
    for weights in _resamples(truth, resamples, seed):
        for name, (of_a, of_b) in measures.items():
            drawn[name].append(of_a(weights) - of_b(weights))
    once = np.ones((1, truth.size), dtype=np.int64)
    found = {
        name: _difference(
            float(of_a(once)[0]),
            float(of_b(once)[0]),
            np.concatenate(drawn[name]),
            is_lower_better=name != "roc_auc",
        )
        for name, (of_a, of_b) in measures.items()
    }
    return PairedComparison(
        models=len(truth),
        poisoned=int(truth.sum()),
        resamples=resamples,
        log_score=found["log_score"],
        brier_score=found["brier_score"],
        roc_auc=found.get("roc_auc"),
    )


def _resamples(truth: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each model is drawn, int64 [some, n] at a time, so that memory is bounded."""
    random = np.random.default_rng(seed)
    step = max(1, _CHUNK_BYTES // (8 * truth.size))
    for start in range(0, resamples, step):
        weights = np.zeros((min(step, resamples - start), truth.size), dtype=np.int64)
        for kind in (truth, ~truth):
            size = int(kind.sum())
            if size:
                shares = np.full(size, 1 / size)
                weights[:, kind] = random.multinomial(size, shares, size=len(weights))
        yield weights


def _mean(values: np.ndarray) -> Measure:
    return lambda drawn: drawn @ values / values.size


def _area(said: np.ndarray, truth: np.ndarray) -> Measure:
    """Mann-Whitney: clean models drawn that rank below each poisoned one drawn, ties half."""
    order = np.argsort(said, kind="stable")
    starts = np.flatnonzero(np.diff(said[order], prepend=-1.0))
    pairs = int(truth.sum()) * int((~truth).sum())

    def area(drawn: np.ndarray) -> np.ndarray:
        hits = np.add.reduceat((drawn * truth)[:, order], starts, axis=1)
        alarms = np.add.reduceat((drawn * ~truth)[:, order], starts, axis=1)
        below = np.cumsum(alarms, axis=1) - alarms / 2
        return (hits * below).sum(axis=1) / pairs

    return area


def _difference(a: float, b: float, drawn: np.ndarray, is_lower_better: bool) -> Difference:
    low, high = np.quantile(drawn, [0.025, 0.975])
    wins = np.mean(drawn < 0 if is_lower_better else drawn > 0) + np.mean(drawn == 0) / 2
    return Difference(a, b, a - b, float(low), float(high), float(wins))
