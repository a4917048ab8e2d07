"""Labelled rows in, fitted stages and honest out-of-fold scores out.

A stage's regression uses its own fields and those of all stages before it, and is fitted on the
rows that have all of them: nothing is imputed. Runs made for calibration should therefore not
stop early; rows that did are absent from the later stages, and `models` of each stage says so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from converters.errors import safe_repr
from jaxtroj import scoring
from jaxtroj.calibration.folds import assign_folds
from jaxtroj.calibration.groups import assign_groups
from jaxtroj.calibration.judge import Judge
from jaxtroj.calibration.labelled import Labelled, Population, Scheme, make_population, matrix
from jaxtroj.calibration.linear import Few, Task
from jaxtroj.calibration.pooled import PooledModel, PooledStage
from jaxtroj.calibration.pooling import fit_pooled
from jaxtroj.calibration.stage import (
    FEWEST_GROUPS,
    FEWEST_OF_A_KIND,
    StageModel,
    fit_stage,
    indispensable,
)
from jaxtroj.calibration.transfer import Temperature, Transfer, learn_temperature
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import sigmoid

MIN_MODELS = 10
MIN_OF_A_KIND = 3
OUTER_FOLDS = 10


@dataclass(frozen=True)
class OutOfFold:
    """What a stage said of each row when fitted without it; NaN where the row lacks a field."""

    log_odds: np.ndarray
    """[n], clipped, at the training base rate."""
    at_clip: np.ndarray
    """int [n]: -1 at the lower clip, +1 at the upper, 0 between."""


def stage_task(
    population: Population, scheme: Scheme, stage: str
) -> tuple[Task, tuple[str, ...], np.ndarray] | None:
    """Rows complete at a stage, their keys and positions; None when there are too few of them.

    Of few models, which some fields alone are fitted on, a stage that adds none of these is None,
    too: it would say what the stage before said, or go by fields that later ones leave out.

    Raises CalibrationError where one population holds all models of a kind.
    """
    names, few = scheme.names(stage), few_for(scheme, len(population.keys))
    if few is not None:
        if not any(name in few.fields for name in scheme.stages[stage]):
            return None
        names = tuple(name for name in names if name in few.fields)
    values = matrix(population.models.rows, names)
    complete = np.flatnonzero(np.all(np.isfinite(values), axis=1))
    labels = population.poisoned[complete]
    if not is_enough(labels):
        return None
    datasets = population.models.datasets
    task = Task(
        values[complete],
        labels,
        tuple(population.models.architectures[i] for i in complete.tolist()),
        names,
        tuple(map(scheme.label, names)),
        tuple(map(scheme.direction, names)),
        few,
        tuple(population.models.datasets[i] for i in complete.tolist()) if datasets else (),
    )
    only = indispensable(task) if few is None else None
    if only is not None:
        left = labels[np.array(task.groups) != only]
        raise CalibrationError(
            f"without the models of {safe_repr(only)} {_counted(left)} are left; expected at least "
            f"{FEWEST_OF_A_KIND} of each kind, to see how a fit holds on a population that it has "
            "not met: give both kinds in several populations, or no datasets"
        )
    return task, tuple(population.keys[i] for i in complete), complete


def few_for(scheme: Scheme, models: int) -> Few | None:
    """How so few models are fitted; None for more, and where no field for few is there."""
    few = scheme.few
    if few is None or models > few.models:
        return None
    return (
        few if any(name in few.fields for own in scheme.stages.values() for name in own) else None
    )


def fit_stages(population: Population, scheme: Scheme, seed: int) -> dict[str, StageModel]:
    """Every stage that has enough complete rows. Raises CalibrationError when none has."""
    found: dict[str, StageModel] = {}
    for stage in scheme.stages:
        prepared = stage_task(population, scheme, stage)
        if prepared is not None:
            task, keys, _ = prepared
            found[stage] = fit_stage(task, keys, f"{seed}:{stage}")
    if not found:
        raise too_few(population, scheme)
    return found


def is_enough(poisoned: np.ndarray) -> bool:
    """Whether models with these labels, booleans [n], can be fitted on."""
    rarest = min(poisoned.sum(), (~poisoned).sum())
    return len(poisoned) >= MIN_MODELS and bool(rarest >= MIN_OF_A_KIND)


def _counted(poisoned: np.ndarray) -> str:
    return f"{int(poisoned.sum())} poisoned and {int((~poisoned).sum())} clean models"


def too_few(population: Population, scheme: Scheme) -> CalibrationError:
    """The error that says how many models there are and how many are needed."""
    return CalibrationError(
        f"too little to calibrate on: {_counted(population.poisoned)} with evidence; expected at "
        f"least {MIN_MODELS} models, {MIN_OF_A_KIND} of each kind, with all fields of the first "
        f"stage ({', '.join(next(iter(scheme.stages.values())))}). 20 or more are advised."
    )


def fit_judges(population: Population, scheme: Scheme, seed: int) -> Mapping[str, Judge]:
    """Every stage that has enough models, linear or pooled as the scheme asks.

    Raises CalibrationError when no stage has.
    """
    if not scheme.is_pooled:
        return fit_stages(population, scheme, seed)
    if not is_enough(population.poisoned):
        raise too_few(population, scheme)
    return _pooled_stages(fit_pooled(population, scheme, seed))


def _pooled_stages(model: PooledModel) -> dict[str, PooledStage]:
    stages = dict.fromkeys(tail.stage for tail in model.tails)
    return {stage: PooledStage(model, stage) for stage in stages}


def out_of_fold(
    labelled: Labelled, scheme: Scheme, seed: int = 0, groups: Sequence[str] | None = None
) -> dict[str, OutOfFold]:
    """What every stage says of each row when everything in it was fitted on other rows.

    Nested: scaling, penalty, weights, clip and trust are all chosen inside each of the (at most
    10) stratified folds, so the scores of the result are honest. Keyed by row content and seed:
    the order of rows changes nothing. Stages with too few complete rows are absent.

    Args:
        groups: of each row, in place of stratified folds: a row is answered by a fit that has met
            no row of its group. Rows of no group ("") are dealt out, see `assign_groups`.
    Raises CalibrationError for fewer than two groups, or where the others are too few to fit on.
    """
    population = make_population(labelled)
    if groups is not None:
        _check_groups(population, groups, seed)
    if scheme.is_pooled:
        return _pooled_out_of_fold(population, scheme, seed, groups)
    found = {}
    for stage in scheme.stages:
        prepared = stage_task(population, scheme, stage)
        if prepared is not None:
            task, keys, complete = prepared
            folds = outer_folds(population, complete, seed, groups)
            answers = _hold_out(task, keys, folds, f"{seed}:{stage}", groups is not None)
            found[stage] = _placed(answers, population.places[complete], len(population.keys))
    return found


def _pooled_out_of_fold(
    population: Population, scheme: Scheme, seed: int, groups: Sequence[str] | None
) -> dict[str, OutOfFold]:
    if not is_enough(population.poisoned):
        return {}
    rows, everyone = len(population.keys), np.arange(len(population.keys))
    folds = outer_folds(population, everyone, seed, groups)
    found: dict[str, OutOfFold] = {}
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        others = make_population(population.models.take(kept.tolist()))
        for stage, judge in _pooled_stages(fit_pooled(others, scheme, seed)).items():
            _ask(judge, population.models, held, found.setdefault(stage, _no_answers(rows)))
    return {
        stage: _placed(answers, population.places, rows)
        for stage, answers in found.items()
        if np.isfinite(answers.log_odds).any()
    }


def _ask(judge: PooledStage, models: Labelled, held: np.ndarray, answers: OutOfFold) -> None:
    """Write down what a judge says of the models at some positions, by their pictures' size."""
    values = matrix([models.rows[i] for i in held.tolist()], judge.names)
    usable = np.array([judge.usable(row[None]) for row in values], dtype=bool)
    sides = np.array([models.sides[i] if models.sides else 0 for i in held.tolist()])
    for side in set(sides[usable].tolist()):
        own = usable & (sides == side)
        asked, names = judge.for_network(side or None, None), [None] * int(own.sum())
        answers.log_odds[held[own]] = asked.log_odds(values[own], names)
        answers.at_clip[held[own]] = asked.at_clip(values[own], names)


def _no_answers(rows: int) -> OutOfFold:
    return OutOfFold(np.full(rows, np.nan), np.zeros(rows, dtype=int))


def last_answers(held_out: Mapping[str, OutOfFold]) -> OutOfFold:
    """Each row's answer by its last stage, as in use; NaN where no stage answered."""
    *_, last = held_out.values()
    log_odds, at_clip = last.log_odds, last.at_clip
    for stage in reversed(list(held_out.values())):
        absent = np.isnan(log_odds)
        log_odds = np.where(absent, stage.log_odds, log_odds)
        at_clip = np.where(absent, stage.at_clip, at_clip)
    return OutOfFold(log_odds, at_clip)


def learn_transfer(labelled: Labelled, scheme: Scheme, seed: int) -> Transfer:
    """Temperatures of a pooled model, with every architecture and every data set left out in turn.

    A regression that is fitted for one population learns none.
    """
    if not scheme.is_pooled and len(set(labelled.datasets)) < FEWEST_GROUPS:
        return Transfer()
    architectures = [name or "" for name in labelled.families or labelled.architectures]
    learnt = [_temperature(labelled, scheme, g, seed) for g in (architectures, labelled.datasets)]
    return Transfer(*learnt)


def _temperature(
    labelled: Labelled, scheme: Scheme, groups: Sequence[str], seed: int
) -> Temperature | None:
    """None where there are too few groups, or too few models to fit on or answered."""
    if len({group for group in groups if group}) < 2:
        return None
    truth, names = labelled.truth, np.array(groups)
    try:
        held_out = out_of_fold(labelled, scheme, seed, groups)
    except CalibrationError:
        return None
    answers = last_answers(held_out).log_odds
    answered = np.isfinite(answers)
    if not is_enough(truth[answered]):
        return None
    return learn_temperature(answers[answered], truth[answered], names[answered].tolist())


def outer_folds(
    population: Population, complete: np.ndarray, seed: int, groups: Sequence[str] | None
) -> np.ndarray:
    """Fold of each complete row (positions in canonical order): its group, or a stratified one."""
    keys = [population.keys[i] for i in complete]
    if groups is not None:
        return group_folds(population, groups, seed)[complete]
    poisoned = population.poisoned[complete]
    folds = int(min(OUTER_FOLDS, poisoned.sum(), (~poisoned).sum()))
    architectures = [population.models.architectures[i] for i in complete]
    return assign_folds(keys, poisoned, architectures, folds, f"{seed}:outer")


def group_folds(population: Population, groups: Sequence[str], seed: int) -> np.ndarray:
    """Fold of each row in canonical order; `groups` stand in the caller's."""
    mine, models = population.in_order(groups), population.models
    return assign_groups(mine, population.keys, models.pairs, f"{seed}:groups")


def _check_groups(population: Population, groups: Sequence[str], seed: int) -> None:
    """Refuses groups of which one cannot be left out, as the others are too few to fit on."""
    folds = group_folds(population, groups, seed)
    for number, name in enumerate(sorted({group for group in groups if group})):
        left = population.poisoned[folds != number]
        if not is_enough(left):
            raise CalibrationError(
                f"without the group {safe_repr(name)} {_counted(left)} are left to fit on; expected"
                f" at least {MIN_MODELS}, {MIN_OF_A_KIND} of each kind: choose groups that hold"
                " both kinds, or give clean models no group, so that they are dealt out"
            )


def _hold_out(
    task: Task, keys: tuple[str, ...], folds: np.ndarray, seed: str, grouped: bool
) -> OutOfFold:
    """Groups may leave too few rows that are complete at a stage; it then says nothing of them."""
    log_odds, at_clip = np.full(len(keys), np.nan), np.zeros(len(keys), dtype=int)
    for fold in np.unique(folds):
        held, kept = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        if grouped and not is_enough(task.poisoned[kept]):
            continue
        model = fit_stage(task.take(kept), [keys[i] for i in kept], seed)
        test = task.take(held)
        log_odds[held] = model.log_odds(test.values, test.architectures)
        at_clip[held] = model.at_clip(test.values, test.architectures)
    return OutOfFold(log_odds, at_clip)


def _placed(answers: OutOfFold, places: np.ndarray, rows: int) -> OutOfFold:
    """Answers of some rows among all, at their places in the caller's lists."""
    log_odds, at_clip = np.full(rows, np.nan), np.zeros(rows, dtype=int)
    log_odds[places], at_clip[places] = answers.log_odds, answers.at_clip
    return OutOfFold(log_odds, at_clip)


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
