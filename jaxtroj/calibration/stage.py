"""One evidence stage: the regression, its penalty and its clip, chosen out of fold."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.calibration.folds import assign_folds
from jaxtroj.calibration.linear import Few, Linear, Task, fit_mean, fit_path
from jaxtroj.calibration.reasons import outside, pulls
from jaxtroj.numerics import logit, softplus

PENALTIES = (300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
CLIPS = (0.005, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4)
PSEUDO_ERRORS = 0.25  # on either side; 0.5 cost 0.01 to 0.03 nats on synthetic populations
INNER_FOLDS = 5
INNER_REPEATS = 2
FEWEST_GROUPS = 3
FEWEST_OF_A_KIND = 2  # to choose by
HALVINGS = 6  # of a population too small to choose by


@dataclass(frozen=True)
class StageModel:
    """Regression and clip of one stage, on the fields of that stage and all before it."""

    linear: Linear
    low: float
    """Smallest probability given at the training base rate, in (0, 0.5)."""
    high: float
    """Largest, in (0.5, 1)."""
    penalty: float
    models: int
    """Labelled models it was fitted on."""

    @property
    def names(self) -> tuple[str, ...]:
        """Evidence fields, in the order of the matrices' columns."""
        return tuple(field.name for field in self.linear.fields)

    @property
    def rate(self) -> float:
        """Share of poisoned models in training."""
        return self.linear.rate

    def usable(self, values: np.ndarray) -> bool:
        """Whether no field is missing in values [1, names]."""
        return bool(np.isfinite(values).all())

    def is_familiar(self, values: np.ndarray) -> bool:
        """Whether values [1, names] are trusted fully."""
        return bool(self.linear.trust(values)[0] >= 1)

    def reasons(
        self, values: np.ndarray, architecture: str | None, most: int = 3
    ) -> tuple[str, ...]:
        """What pulls to the answer's side, and evidence outside the training range."""
        return (*pulls(self.linear, values, architecture, most), *outside(self.linear, values))

    def log_odds(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """Clipped log-odds at the training base rate, [n], from values [n, fields]."""
        found = self.linear.log_odds(values, architectures)
        return np.clip(found, float(logit(self.low)), float(logit(self.high)))

    def at_clip(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """-1 where the answer lies at the lower clip, +1 at the upper, else 0: int [n]."""
        found = self.linear.log_odds(values, architectures)
        return np.where(found >= logit(self.high), 1, np.where(found <= logit(self.low), -1, 0))


def fit_stage(task: Task, keys: Sequence[str], seed: str) -> StageModel:
    """Fits on all rows of the task; penalty and clip are those with the best inner log score.

    The inner log-odds come from folds in which scaling, weights and trust are fitted anew: the
    populations, where the task has `FEWEST_GROUPS` or more and none is `indispensable`, else
    repeated stratified ones. So a fit
    on several populations is chosen by how it holds on one that it has not met. With fewer than two
    models of a kind there are none, and the strongest penalty and the narrowest clip are taken. A
    task that says `few` is fitted by that instead: the mean over repeated stratified halves.
    """
    rarest = int(min(task.poisoned.sum(), (~task.poisoned).sum()))
    if task.few is not None and rarest >= FEWEST_OF_A_KIND:
        return _fit_few(task, task.few, keys, seed)
    if rarest < FEWEST_OF_A_KIND:
        penalty, low, high = PENALTIES[0], CLIPS[-1], 1 - CLIPS[-1]
    else:
        inner = _inner_log_odds(task, keys, min(INNER_FOLDS, rarest), seed)
        best = int(np.argmin(_losses(inner, task.poisoned).mean(axis=(1, 2))))
        penalty = PENALTIES[best]
        low, high = choose_clip(inner[best], task.poisoned)
    return StageModel(fit_path(task, [penalty])[0], low, high, penalty, len(task.poisoned))


def _fit_few(task: Task, few: Few, keys: Sequence[str], seed: str) -> StageModel:
    halves = []
    for number in range(HALVINGS):
        dealt = assign_folds(keys, task.poisoned, task.architectures, 2, f"{seed}:half:{number}")
        halves += [np.flatnonzero(dealt == half) for half in (0, 1)]
    linear = fit_mean(task, few.penalty, halves)
    return StageModel(linear, few.clip, 1 - few.clip, few.penalty, len(task.poisoned))


def choose_clip(log_odds: np.ndarray, poisoned: np.ndarray) -> tuple[float, float]:
    """Clip [low, high] with the best log score on out-of-fold log-odds [repeats, n].

    A quarter of an error at the clip is added on either side: without one, a few dozen models
    that all come out right would choose the widest clip there is, and the first confident error
    in use would cost more than all of them earned.

    >>> right = np.array([[-9.0] * 10 + [9.0] * 10])
    >>> choose_clip(right, np.array([False] * 10 + [True] * 10))
    (0.025, 0.975)
    """
    ceiling = [
        _losses(np.minimum(log_odds, logit(1 - clip)), poisoned).mean(axis=0).sum()
        - PSEUDO_ERRORS * np.log(clip)
        for clip in CLIPS
    ]
    floor = [
        _losses(np.maximum(log_odds, logit(clip)), poisoned).mean(axis=0).sum()
        - PSEUDO_ERRORS * np.log(clip)
        for clip in CLIPS
    ]
    return CLIPS[int(np.argmin(floor))], 1 - CLIPS[int(np.argmin(ceiling))]


def _losses(log_odds: np.ndarray, poisoned: np.ndarray) -> np.ndarray:
    """Log loss of log-odds [..., n], nats."""
    return softplus(np.where(poisoned, -log_odds, log_odds))


def _inner_log_odds(task: Task, keys: Sequence[str], folds: int, seed: str) -> np.ndarray:
    """Out-of-fold log-odds by penalty, [penalties, repeats, n]."""
    dealt = _inner_folds(task, keys, folds, seed)
    found = np.empty((len(PENALTIES), len(dealt), len(keys)))
    for repeat, assigned in enumerate(dealt):
        for fold in np.unique(assigned):
            held, kept = np.flatnonzero(assigned == fold), np.flatnonzero(assigned != fold)
            test = task.take(held)
            for place, linear in enumerate(fit_path(task.take(kept), PENALTIES)):
                found[place, repeat, held] = linear.log_odds(test.values, test.architectures)
    return found


def indispensable(task: Task) -> str | None:
    """A population that cannot be left out, as too few models of a kind are left; None without.

    Only where there are enough populations to choose by.
    """
    names = sorted(set(task.groups))
    if len(names) < FEWEST_GROUPS:
        return None
    groups = np.array(task.groups)
    for name in names:
        left = task.poisoned[groups != name]
        if min(left.sum(), (~left).sum()) < FEWEST_OF_A_KIND:
            return name
    return None


def _inner_folds(task: Task, keys: Sequence[str], folds: int, seed: str) -> list[np.ndarray]:
    """Fold of each row, [n], for each repeat."""
    names = sorted(set(task.groups))
    # In a fold of an outer split a population may hold all that is left of a kind.
    if len(names) >= FEWEST_GROUPS and indispensable(task) is None:
        return [np.array([names.index(name) for name in task.groups])]
    return [
        assign_folds(keys, task.poisoned, task.architectures, folds, f"{seed}:inner:{repeat}")
        for repeat in range(INNER_REPEATS)
    ]
