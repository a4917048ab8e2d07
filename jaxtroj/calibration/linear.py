"""Penalised logistic regression on tamed evidence, one intercept for each architecture.

For evidence x_j of a model of architecture k the log-odds of being poisoned are

    eta = b + a_k + sum_j w_j z_j,      z_j = asinh((x_j - centre_j) / scale_j) / spread_j

centre and scale are the median and `safe_mad` of x_j, spread the standard deviation of the asinh:
z_j rises with x_j, is linear near the median and logarithmic far from it, so one wild value cannot
steer a fit on a few dozen models. Minimised is

    sum_i ln(1 + exp(-s_i eta_i)) + penalty / 2 |w|^2 + ARCHITECTURE_PENALTY / 2 |a|^2

with s = +-1 and, for a field with a declared direction, w_j >= 0 or w_j <= 0. The second penalty
makes a_k a random effect with standard deviation sqrt(2); since b is free, the a_k add up to 0 at
the optimum, so an architecture that was not in training gets the mean intercept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.calibration.solver import minimise
from jaxtroj.numerics import LARGEST_STEP, logit, safe_mad

ARCHITECTURE_PENALTY = 0.5
NEGLIGIBLE = 0.05  # of the largest weight
FREE_DISTANCE = 1.0  # spreads beyond the training range that cost no trust
TRUST_LENGTH = 2.0  # spreads over which trust falls by e


@dataclass(frozen=True)
class FittedField:
    """One evidence field as the calibrator sees it."""

    name: str
    label: str
    """The field in words, for reasons."""
    direction: int
    """+1: larger is more poisoned, -1: smaller is, 0: either."""
    centre: float
    """Median in training, in the field's own unit, as `scale`, `clean` and `poisoned`."""
    scale: float
    """Spread round the centre; 0 for a field that never varied (its weight is then 0)."""
    spread: float
    """Standard deviation of asinh((x - centre) / scale) in training."""
    low: float
    """Smallest z in training."""
    high: float
    """Largest z in training."""
    weight: float
    """Log-odds for one unit of z."""
    clean: float
    """Median of the clean models."""
    poisoned: float
    """Median of the poisoned models."""

    def position(self, values) -> np.ndarray:
        """z of values in the field's own unit, any shape; 0 for a field that never varied."""
        values = np.asarray(values, dtype=np.float64)
        if self.scale == 0:
            return np.zeros_like(values)
        steps = np.clip((values - self.centre) / self.scale, -LARGEST_STEP, LARGEST_STEP)
        return np.arcsinh(steps) / self.spread

    def beyond(self, values) -> np.ndarray:
        """Spreads of z outside the training range, >= 0; towards more poisoned never counts."""
        z = self.position(values)
        below = np.maximum(0.0, self.low - z) if self.direction >= 0 else 0.0
        above = np.maximum(0.0, z - self.high) if self.direction <= 0 else 0.0
        return np.maximum(below, above) + np.zeros_like(z)


@dataclass(frozen=True)
class Linear:
    """The fitted regression. Matrices are [n, fields], float64, complete (no NaN)."""

    fields: tuple[FittedField, ...]
    intercept: float
    offsets: Mapping[str, float]
    """a_k by architecture; any other architecture has 0."""
    rate: float
    """Share of poisoned models in training, in (0, 1)."""

    def raw_log_odds(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """eta, [n]."""
        offsets = np.array([self.offsets.get(name or "", 0.0) for name in architectures])
        return self.intercept + offsets + self.contributions(values).sum(axis=1)

    def contributions(self, values: np.ndarray) -> np.ndarray:
        """w_j z_j, [n, fields], nats of log-odds."""
        columns = [field.weight * field.position(x) for field, x in self._columns(values)]
        return np.stack(columns, axis=1)

    def distances(self, values: np.ndarray) -> np.ndarray:
        """`FittedField.beyond`, [n, fields], 0 for fields that hardly weigh in."""
        least = NEGLIGIBLE * max(abs(field.weight) for field in self.fields)
        columns = [
            field.beyond(x) * float(abs(field.weight) > least) for field, x in self._columns(values)
        ]
        return np.stack(columns, axis=1)

    def trust(self, values: np.ndarray) -> np.ndarray:
        """Factor in (0, 1] on the weight of evidence, [n].

        1 within the training range and one spread beyond it, then exp(-(d - 1) / 2) with d the
        largest distance of any field: it falls to 0 and never rises again.
        """
        excess = np.maximum(0.0, self.distances(values).max(axis=1) - FREE_DISTANCE)
        return np.exp(-excess / TRUST_LENGTH)

    def log_odds(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """eta shrunk towards the log-odds of `rate` by `trust`, [n]."""
        prior = float(logit(self.rate))
        evidence = self.raw_log_odds(values, architectures) - prior
        return prior + self.trust(values) * evidence

    def _columns(self, values: np.ndarray):
        return zip(self.fields, np.asarray(values, dtype=np.float64).T, strict=True)


@dataclass(frozen=True)
class Few:
    """How a population that is too small to choose by is fitted: by what is known beforehand.

    Penalty and clip chosen on a few dozen models follow their noise; so does one fit of all fields.
    """

    models: int
    """Populations of at most so many models are fitted this way."""
    fields: tuple[str, ...]
    """The fields that count; a stage that has none of them, nor those before it, keeps its own."""
    penalty: float
    clip: float
    """Probabilities lie in [clip, 1 - clip]."""


@dataclass(frozen=True)
class Task:
    """Labelled evidence to fit: values [n, fields] without gaps, labels [n], architectures [n]."""

    values: np.ndarray
    poisoned: np.ndarray
    architectures: tuple[str | None, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    directions: tuple[int, ...]
    few: Few | None = None
    """What takes the place of choices, where there are too few models to choose by."""
    groups: tuple[str, ...] = ()
    """Population of each model, where there are several: choices are made by leaving each out."""

    def take(self, chosen: np.ndarray) -> "Task":
        """The rows at the given positions."""
        return Task(
            self.values[chosen],
            self.poisoned[chosen],
            tuple(self.architectures[index] for index in chosen),
            self.names,
            self.labels,
            self.directions,
            self.few,
            tuple(self.groups[index] for index in chosen) if self.groups else (),
        )


def fit_path(task: Task, penalties: Sequence[float]) -> list[Linear]:
    """One regression for each penalty (largest first is quickest: each starts at the last)."""
    fields, groups, design = _design(task)
    start = np.zeros(design.shape[1])
    found = []
    for penalty in penalties:
        ridge, signs = _penalties(task, groups, penalty)
        start = minimise(design, task.poisoned, ridge, signs, start)
        found.append(_linear(task, fields, groups, start))
    return found


def fit_mean(task: Task, penalty: float, parts: Sequence[np.ndarray]) -> Linear:
    """The mean of regressions on parts of the rows (positions), all scaled by all rows.

    Log-odds are linear in the weights, so the mean of the weights gives the mean of the log-odds.
    """
    fields, groups, design = _design(task)
    ridge, signs = _penalties(task, groups, penalty)
    start = np.zeros(design.shape[1])
    found = [minimise(design[rows], task.poisoned[rows], ridge, signs, start) for rows in parts]
    return _linear(task, fields, groups, np.mean(found, axis=0))


def _design(task: Task) -> tuple[list[FittedField], list[str], np.ndarray]:
    """Scaled fields, architectures, and the matrix [n, 1 + architectures + fields] of both."""
    fields = [_scaled(task, column) for column in range(len(task.names))]
    positions = np.stack([f.position(x) for f, x in zip(fields, task.values.T, strict=True)], 1)
    groups = sorted({name for name in task.architectures if name is not None})
    member = [[float(name == group) for group in groups] for name in task.architectures]
    member = np.reshape(member, (len(positions), len(groups)))
    return fields, groups, np.concatenate([np.ones((len(positions), 1)), member, positions], axis=1)


def _penalties(task: Task, groups: Sequence[str], penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Penalty and sign constraint of every column of the design."""
    ridge = [0.0] + [ARCHITECTURE_PENALTY] * len(groups) + [penalty] * len(task.names)
    return np.array(ridge), np.array([0] * (1 + len(groups)) + list(task.directions))


def _scaled(task: Task, column: int) -> FittedField:
    """Centre, scale and range of one field; the weight is still 0."""
    values = task.values[:, column]
    centre, scale = float(np.median(values)), safe_mad(values)
    spread = float(np.std(np.arcsinh((values - centre) / scale))) if scale > 0 else 1.0
    field = FittedField(
        name=task.names[column],
        label=task.labels[column],
        direction=task.directions[column],
        centre=centre,
        scale=scale,
        spread=spread,
        low=0.0,
        high=0.0,
        weight=0.0,
        clean=float(np.median(values[~task.poisoned])),
        poisoned=float(np.median(values[task.poisoned])),
    )
    z = field.position(values)
    return _replace(field, low=float(z.min()), high=float(z.max()))


def _linear(
    task: Task, fields: list[FittedField], groups: list[str], solution: np.ndarray
) -> Linear:
    weights = solution[1 + len(groups) :].tolist()
    weighted = [
        _replace(field, weight=weight if field.scale > 0 else 0.0)
        for field, weight in zip(fields, weights, strict=True)
    ]
    offsets = dict(zip(groups, solution[1 : 1 + len(groups)].tolist(), strict=True))
    return Linear(tuple(weighted), float(solution[0]), offsets, float(task.poisoned.mean()))


def _replace(field: FittedField, **changes: float) -> FittedField:
    return FittedField(**{**field.__dict__, **changes})
