"""Labelled rows in, fitted stages and honest out-of-fold scores out.

A stage's regression uses its own fields and those of all stages before it, and is fitted on the
rows that have all of them: nothing is imputed. Runs made for calibration should therefore not
stop early; rows that did are absent from the later stages, and `models` of each stage says so.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj import scoring
from jaxtroj.calibration.folds import assign_folds, row_key
from jaxtroj.calibration.linear import Few, Task
from jaxtroj.calibration.stage import StageModel, fit_stage
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import logit, sigmoid

MIN_MODELS = 10
MIN_OF_A_KIND = 3
OUTER_FOLDS = 10
LARGEST_VALUE = 1e100


@dataclass(frozen=True)
class Population:
    """Labelled rows in canonical order (by key), with where each stood in the caller's lists."""

    rows: tuple[Mapping[str, float | None], ...]
    poisoned: np.ndarray
    architectures: tuple[str | None, ...]
    keys: tuple[str, ...]
    places: np.ndarray


@dataclass(frozen=True)
class Scheme:
    """Which fields each stage adds, in order, and what is known of the fields beforehand."""

    stages: Mapping[str, tuple[str, ...]]
    directions: Mapping[str, int]
    labels: Mapping[str, str]
    few: Few | None = None

    def names(self, stage: str) -> tuple[str, ...]:
        """Fields of a stage and all before it."""
        found: list[str] = []
        for name, fields in self.stages.items():
            found += fields
            if name == stage:
                return tuple(found)
        raise CalibrationError(f"unknown stage {stage!r}, expected one of {', '.join(self.stages)}")


@dataclass(frozen=True)
class OutOfFold:
    """What a stage said of each row when fitted without it; NaN where the row lacks a field."""

    log_odds: np.ndarray
    """[n], clipped, at the training base rate."""
    at_clip: np.ndarray
    """int [n]: -1 at the lower clip, +1 at the upper, 0 between."""


def value_of(row: Mapping[str, float | None], name: str) -> float:
    """The field's value, NaN when it is absent, None, not finite or absurd (above 1e100)."""
    value = row.get(name)
    if value is None or not math.isfinite(value) or abs(value) > LARGEST_VALUE:
        return math.nan
    return float(value)


def matrix(rows: Sequence[Mapping[str, float | None]], names: Sequence[str]) -> np.ndarray:
    """Values [rows, names], NaN where missing."""
    values = [[value_of(row, name) for name in names] for row in rows]
    return np.array(values, dtype=np.float64).reshape(len(rows), len(names))


def make_scheme(
    stages: Mapping[str, Sequence[str]],
    directions: Mapping[str, int] | None,
    labels: Mapping[str, str] | None,
    few: Few | None = None,
) -> Scheme:
    """Checks stages and directions. Raises CalibrationError."""
    names = [name for fields in stages.values() for name in fields]
    if not stages or not all(stages.values()) or len(set(names)) != len(names):
        raise CalibrationError(
            "every stage needs at least one field, and each field belongs to one stage; got "
            f"{ {stage: list(fields) for stage, fields in stages.items()} }"
        )
    odd = {name: sign for name, sign in (directions or {}).items() if sign not in (-1, 0, 1)}
    if odd:
        raise CalibrationError(f"directions must be -1, 0 or 1, got {odd}")
    words = {name: (labels or {}).get(name, name.replace("_", " ")) for name in names}
    signs = {name: int((directions or {}).get(name, 0)) for name in names}
    return Scheme({stage: tuple(fields) for stage, fields in stages.items()}, signs, words, few)


def make_population(
    rows: Sequence[Mapping[str, float | None]],
    poisoned: Sequence[bool],
    architectures: Sequence[str | None],
) -> Population:
    """Checks lengths and labels, and brings rows into canonical order. Raises CalibrationError."""
    if not len(rows) == len(poisoned) == len(architectures):
        raise CalibrationError(
            f"got {len(rows)} rows of evidence, {len(poisoned)} labels and {len(architectures)} "
            "architectures; expected as many of each"
        )
    if not all(label in (0, 1) for label in poisoned):
        raise CalibrationError("labels must be booleans: True for poisoned, False for clean")
    keys = [row_key(*item) for item in zip(rows, poisoned, architectures, strict=True)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return Population(
        rows=tuple(rows[i] for i in order),
        poisoned=np.array([bool(poisoned[i]) for i in order], dtype=bool),
        architectures=tuple(architectures[i] for i in order),
        keys=tuple(keys[i] for i in order),
        places=np.array(order, dtype=int),
    )


def stage_task(
    population: Population, scheme: Scheme, stage: str
) -> tuple[Task, tuple[str, ...], np.ndarray] | None:
    """Rows complete at a stage, their keys and positions; None when there are too few of them."""
    names, few = scheme.names(stage), scheme.few
    if few is not None and len(population.rows) > few.models:
        few = None
    if few is not None:
        kept = tuple(name for name in names if name in few.fields)
        names, few = (kept, few) if kept else (names, None)
    values = matrix(population.rows, names)
    complete = np.flatnonzero(np.all(np.isfinite(values), axis=1))
    labels = population.poisoned[complete]
    if len(complete) < MIN_MODELS or min(labels.sum(), (~labels).sum()) < MIN_OF_A_KIND:
        return None
    task = Task(
        values[complete],
        labels,
        tuple(population.architectures[i] for i in complete),
        names,
        tuple(scheme.labels[name] for name in names),
        tuple(scheme.directions[name] for name in names),
        few,
    )
    return task, tuple(population.keys[i] for i in complete), complete


def fit_stages(population: Population, scheme: Scheme, seed: int) -> dict[str, StageModel]:
    """Every stage that has enough complete rows. Raises CalibrationError when none has."""
    found: dict[str, StageModel] = {}
    for stage in scheme.stages:
        prepared = stage_task(population, scheme, stage)
        if prepared is not None:
            task, keys, _ = prepared
            found[stage] = fit_stage(task, keys, f"{seed}:{stage}")
    if not found:
        raise CalibrationError(
            f"too little to calibrate on: {int(population.poisoned.sum())} poisoned and "
            f"{int((~population.poisoned).sum())} clean models with evidence; expected at least "
            f"{MIN_MODELS} models, {MIN_OF_A_KIND} of each kind, with all fields of the first "
            f"stage ({', '.join(next(iter(scheme.stages.values())))}). 20 or more are advised."
        )
    return found


def out_of_fold(
    rows: Sequence[Mapping[str, float | None]],
    poisoned: Sequence[bool],
    architectures: Sequence[str | None],
    stages: Mapping[str, Sequence[str]],
    directions: Mapping[str, int] | None = None,
    seed: int = 0,
    few: Few | None = None,
) -> dict[str, OutOfFold]:
    """What every stage says of each row when everything in it was fitted on other rows.

    Nested: scaling, penalty, weights, clip and trust are all chosen inside each of the (at most
    10) stratified folds, so the scores of the result are honest. Keyed by row content and seed:
    the order of rows changes nothing. Stages with too few complete rows are absent.
    Raises CalibrationError on misshapen input.
    """
    scheme = make_scheme(stages, directions, None, few)
    population = make_population(rows, poisoned, architectures)
    found = {}
    for stage in scheme.stages:
        prepared = stage_task(population, scheme, stage)
        if prepared is not None:
            found[stage] = _hold_out(*prepared, population.places, seed, stage)
    return found


def _hold_out(
    task: Task,
    keys: tuple[str, ...],
    complete: np.ndarray,
    places: np.ndarray,
    seed: int,
    stage: str,
) -> OutOfFold:
    folds = int(min(OUTER_FOLDS, task.poisoned.sum(), (~task.poisoned).sum()))
    assigned = assign_folds(keys, task.poisoned, task.architectures, folds, f"{seed}:outer")
    log_odds, at_clip = np.full(len(places), np.nan), np.zeros(len(places), dtype=int)
    for fold in range(folds):
        held, kept = np.flatnonzero(assigned == fold), np.flatnonzero(assigned != fold)
        model = fit_stage(task.take(kept), [keys[i] for i in kept], f"{seed}:{stage}")
        test = task.take(held)
        target = places[complete[held]]
        log_odds[target] = model.log_odds(test.values, test.architectures)
        at_clip[target] = model.at_clip(test.values, test.architectures)
    return OutOfFold(log_odds, at_clip)


def cross_validate(
    rows: Sequence[Mapping[str, float | None]],
    poisoned: Sequence[bool],
    architectures: Sequence[str | None],
    stages: Mapping[str, Sequence[str]],
    directions: Mapping[str, int] | None = None,
    seed: int = 0,
    few: Few | None = None,
) -> np.ndarray:
    """Out-of-fold P(poisoned) of each row, [n], at the population's own base rate.

    Each row is answered by its last complete stage, as in use; a row without one gets the base
    rate. See `out_of_fold` for what is nested. Raises CalibrationError.
    """
    held_out = out_of_fold(rows, poisoned, architectures, stages, directions, seed, few)
    if not held_out:
        fit_stages(
            make_population(rows, poisoned, architectures),
            make_scheme(stages, directions, None, few),
            seed,
        )
    answer = np.full(len(rows), float(logit(np.mean(np.asarray(poisoned, dtype=bool)))))
    for stage in held_out.values():
        answer = np.where(np.isnan(stage.log_odds), answer, stage.log_odds)
    return sigmoid(answer)


@dataclass(frozen=True)
class StageScore:
    """Out-of-fold quality of a stage; `roc_auc` None where all models carry one label."""

    models: int
    log_score: float
    log_score_low: float
    log_score_high: float
    roc_auc: float | None


def stage_score(held_out: OutOfFold, poisoned: np.ndarray, chosen: np.ndarray) -> StageScore:
    """Scores of the chosen rows (booleans [n]) that the stage answered."""
    rows = chosen & ~np.isnan(held_out.log_odds)
    scores = scoring.score(sigmoid(held_out.log_odds[rows]), poisoned[rows])
    return StageScore(
        scores.models,
        scores.log_score,
        scores.log_score_low,
        scores.log_score_high,
        scores.roc_auc,
    )
