"""Out-of-fold probabilities of labelled models, and scores where whole groups are left out."""

from collections.abc import Mapping, Sequence

import numpy as np

from jaxtroj import scoring
from jaxtroj.calibration.groups import LeftOut, score_left_out
from jaxtroj.calibration.labelled import Labelled, Population, Scheme, make_population
from jaxtroj.calibration.training import (
    OutOfFold,
    group_folds,
    last_answers,
    out_of_fold,
    outer_folds,
    too_few,
)
from jaxtroj.numerics import logit, sigmoid


def cross_validate(
    labelled: Labelled, scheme: Scheme, seed: int = 0, groups: Sequence[str] | None = None
) -> np.ndarray:
    """Out-of-fold P(poisoned) of each row, [n], at the population's own base rate.

    Each row is answered by its last complete stage, as in use; a row without one gets the base
    rate of the rows outside its fold, so that its own label has no say. See `out_of_fold` for what
    is nested, and for `groups`. Raises CalibrationError.
    """
    held_out, population = out_of_fold(labelled, scheme, seed, groups), make_population(labelled)
    if not held_out:
        raise too_few(population, scheme)
    return _probabilities(held_out, _base_outside(population, seed, groups))


def scores_of_cuts(labelled: Labelled, scheme: Scheme, seed: int = 0) -> dict[str, float]:
    """Out-of-fold log score, in nats, of all rows where evidence ends with each fitted stage.

    A stage's own report covers the rows that have its fields; those of two stages are of different
    models, which may be harder. Here each row is answered by its last complete stage up to the cut,
    as in `cross_validate`. Raises CalibrationError where no stage has enough rows.
    """
    held_out, population = out_of_fold(labelled, scheme, seed), make_population(labelled)
    if not held_out:
        raise too_few(population, scheme)
    base, stages = _base_outside(population, seed, None), list(held_out)
    cuts = {stage: stages[: place + 1] for place, stage in enumerate(stages)}
    said = {s: _probabilities({k: held_out[k] for k in cut}, base) for s, cut in cuts.items()}
    return {stage: scoring.log_score(p, labelled.truth) for stage, p in said.items()}


def _probabilities(held_out: Mapping[str, OutOfFold], base: np.ndarray) -> np.ndarray:
    """P(poisoned) by each row's last answer, [n]; by `base` (log-odds [n]) where it has none."""
    answers = last_answers(held_out).log_odds
    return sigmoid(np.where(np.isnan(answers), base, answers))


def _base_outside(population: Population, seed: int, groups: Sequence[str] | None) -> np.ndarray:
    """Log-odds of the base rate outside each row's fold, [n], in the caller's order."""
    folds = outer_folds(population, np.arange(len(population.keys)), seed, groups)
    base = np.empty(len(folds))
    for fold in np.unique(folds):
        base[population.places[folds == fold]] = logit(population.poisoned[folds != fold].mean())
    return base


def leave_out(labelled: Labelled, scheme: Scheme, groups: Sequence[str], seed: int = 0) -> LeftOut:
    """Scores where every group in turn is judged by a fit on the others; see `cross_validate`."""
    return scores_left_out(labelled, cross_validate(labelled, scheme, seed, groups), groups, seed)


def scores_left_out(
    labelled: Labelled, probabilities: np.ndarray, groups: Sequence[str], seed: int = 0
) -> LeftOut:
    """Scores of what `cross_validate` said with the same groups and seed, [n]."""
    population = make_population(labelled)
    folds = np.empty(len(population.keys), dtype=int)
    folds[population.places] = group_folds(population, groups, seed)
    names = sorted({group for group in groups if group})
    return score_left_out(probabilities, labelled.truth, folds, names)
