"""Fits a pooled model: tails on clean models, then two regressions and a mean, out of fold."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import TypeVar

import numpy as np

from jaxtroj.calibration import summing
from jaxtroj.calibration.folds import assign_folds
from jaxtroj.calibration.groups import assign_groups
from jaxtroj.calibration.labelled import Population, Scheme, matrix
from jaxtroj.calibration.pooled import PooledModel
from jaxtroj.calibration.searches import WAYS, field_scores, made_searches, pool_scores
from jaxtroj.calibration.solver import minimise
from jaxtroj.calibration.stage import choose_clip
from jaxtroj.calibration.summing import fit_sum
from jaxtroj.calibration.tails import Searched, Tail, fit_tail, power_of
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import softplus

CAPS = (2.0, 4.0)
FLOORS = (1.0, 0.5, 0.25, 0.1, 0.02)
"""Of what a field counts that tells no kind of trigger of the fit."""
POOLS = ((0,), (0, 1), (0, 2))
"""Which of `searches.PARTS` have a weight."""
PENALTIES = (0.3, 0.1, 0.03)
POOL_SHARES = (0.5, 0.25)
"""Of the log-odds that come from the pool, to choose from; the others come from the sum."""
INNER_FOLDS = 5
USUAL_SHARE = 0.05
"""Of the models of a fit, above which a set of searches is usual."""
MISSING = tuple(np.linspace(0.0, 4.0, 33).tolist())
"""Log-odds for missing searches to choose from."""


@dataclass(frozen=True)
class Choice:
    """One way to pool and to fit."""

    way: str
    cap: float
    floor: float
    parts: tuple[int, ...]
    penalty: float

    @property
    def pool(self) -> tuple[str, float, float]:
        """What decides the pooled numbers."""
        return self.way, self.cap, self.floor


LogOdds = TypeVar("LogOdds", float, np.ndarray)
CHOICES = tuple(Choice(*values) for values in product(WAYS, CAPS, FLOORS, POOLS, PENALTIES))


@dataclass(frozen=True)
class PooledTask:
    """What is fitted: values [n, fields] with NaN; labels, kinds and folds to choose by, [n].

    `sides` [n], pixels, 0 where nobody knows.
    """

    known: tuple[Searched, ...]
    values: np.ndarray
    poisoned: np.ndarray
    kinds: np.ndarray
    folds: np.ndarray
    sides: np.ndarray

    def tails(self, rows: np.ndarray) -> tuple[Tail, ...]:
        """The fields' tails by the rows at some positions."""
        columns = self.values[rows].T
        return tuple(
            fit_tail(one, column, self.poisoned[rows])
            for one, column in zip(self.known, columns, strict=True)
        )

    def powers(self, rows: np.ndarray) -> np.ndarray:
        """How well each field tells a kind of trigger, by the rows at some positions, [fields]."""
        columns, poisoned, kinds = self.values[rows].T, self.poisoned[rows], self.kinds[rows]
        return np.array(
            [
                power_of(one.direction, column, poisoned, kinds)
                for one, column in zip(self.known, columns, strict=True)
            ]
        )


def fit_pooled(population: Population, scheme: Scheme, seed: int) -> PooledModel:
    """The pooled model of a population.

    Way, cap, floor, parts and penalty are those with the best log score where each kind of trigger
    is left out in turn, where kinds are known, else on stratified folds; so are the penalty of the
    sum over fields, the share of each, and the clip. The log-odds for missing searches are then
    chosen on copies of the models that stop after each stage.

    Raises CalibrationError where no field has a direction.
    """
    task = _task(population, scheme, seed)
    pools, sums = _inner_log_odds(task)
    best, best_sum = _best(pools, task.poisoned), _best(sums, task.poisoned)
    mixed = np.stack([_mixed(share, pools[best], sums[best_sum]) for share in POOL_SHARES])
    chosen = _best(mixed, task.poisoned)
    low, high = choose_clip(mixed[[chosen]], task.poisoned)
    choice = CHOICES[best]
    penalty, share = summing.PENALTIES[best_sum], POOL_SHARES[chosen]
    tails, intercept, weights = _mean_of_both(task, choice, penalty, share)
    model = PooledModel(
        tails=tails,
        usual=_usual(tails, task.values),
        way=choice.way,
        cap=choice.cap,
        weights=weights,
        missing=0.0,
        intercept=intercept,
        rate=float(task.poisoned.mean()),
        low=low,
        high=high,
        penalty=choice.penalty,
        models=len(task.poisoned),
        sides=_sides(tails, scheme),
    )
    return _with_missing(model, task)


def _sides(tails: Sequence[Tail], scheme: Scheme) -> tuple[tuple[str, int, int], ...]:
    """Searches whose stages are all made for pictures of some sizes only."""
    found = []
    for search in dict.fromkeys(tail.search for tail in tails):
        stages = {tail.stage for tail in tails if tail.search == search}
        if stages <= set(scheme.sides):
            bounds = [scheme.sides[stage] for stage in stages]
            found.append((search, min(b[0] for b in bounds), max(b[1] for b in bounds)))
    return tuple(found)


def _best(log_odds: np.ndarray, poisoned: np.ndarray) -> int:
    """Of log-odds [ways, n], the way with the best log score."""
    return int(np.argmin(softplus(np.where(poisoned, -log_odds, log_odds)).mean(axis=1)))


def _mean_of_both(
    task: PooledTask, choice: Choice, penalty: float, share: float
) -> tuple[tuple[Tail, ...], float, tuple[float, float, float]]:
    """Pool and sum fitted on all rows: tails, intercept and weights of the mean of the two.

    `share` is that of the pool.
    """
    everyone = np.arange(len(task.poisoned))
    plain = task.tails(everyone)
    added = fit_sum(plain, task.values, task.poisoned, penalty)
    worths = worth(task.powers(everyone), choice.floor).tolist()
    tails = tuple(
        replace(tail, worth=value, rises=tuple((1 - share) * rise for rise in tail.rises))
        for tail, value in zip(added.tails, worths, strict=True)
    )
    intercept, weights = _fit(task, tails, everyone, choice)
    first, second, third = (share * weight for weight in weights)
    return tails, _mixed(share, intercept, added.intercept), (first, second, third)


def _mixed(share: float, pool: LogOdds, added: LogOdds) -> LogOdds:
    """The mean of two log-odds with the pool's share."""
    return share * pool + (1 - share) * added


def worth(powers: np.ndarray, floor: float) -> np.ndarray:
    """What fields count, [fields] in floor to 1."""
    return floor + (1 - floor) * powers


def known_fields(scheme: Scheme) -> tuple[Searched, ...]:
    """The fields that are pooled: those with a direction, in the order of gathering."""
    return tuple(
        Searched(name, scheme.label(name), stage, scheme.search(name), scheme.direction(name))
        for stage, fields in scheme.stages.items()
        for name in fields
        if scheme.direction(name)
    )


def _task(population: Population, scheme: Scheme, seed: int) -> PooledTask:
    known = known_fields(scheme)
    if not known:
        raise CalibrationError("no field has a direction; a pooled calibrator needs some that have")
    models, poisoned = population.models, population.poisoned
    kinds = {kind for kind in models.kinds if kind}
    if len(kinds) > 1:
        folds = assign_groups(models.kinds, population.keys, models.pairs, f"{seed}:pooled")
    else:
        count = int(min(INNER_FOLDS, poisoned.sum(), (~poisoned).sum()))
        folds = assign_folds(
            population.keys, poisoned, models.architectures, count, f"{seed}:pooled"
        )
    values = matrix(models.rows, [one.name for one in known])
    named = np.array(models.kinds or [""] * len(poisoned))
    sides = np.array(models.sides or [0] * len(poisoned))
    return PooledTask(known, values, poisoned, named, folds, sides)


def _inner_log_odds(task: PooledTask) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold log-odds of the pool by choice, [choices, n], and of the sum, [penalties, n]."""
    pools = np.zeros((len(CHOICES), len(task.poisoned)))
    sums = np.zeros((len(summing.PENALTIES), len(task.poisoned)))
    for fold in np.unique(task.folds):
        held, kept = np.flatnonzero(task.folds == fold), np.flatnonzero(task.folds != fold)
        tails, values = task.tails(kept), task.values
        for place, parts, test, fitted in _fits(task, tails, kept, held):
            pools[place, held] = fitted[0] + test[:, parts] @ fitted[1:]
        for place, penalty in enumerate(summing.PENALTIES):
            added = fit_sum(tails, values[kept], task.poisoned[kept], penalty)
            sums[place, held] = added.log_odds(values[held])
    return pools, sums


def _fits(
    task: PooledTask, tails: Sequence[Tail], kept: np.ndarray, held: np.ndarray
) -> Iterator[tuple[int, list[int], np.ndarray, np.ndarray]]:
    """Every choice fitted on the kept rows: its place, parts, the held rows' pool, the solution."""
    searches, powers = [tail.search for tail in tails], task.powers(kept)
    for pool, group in groupby(enumerate(CHOICES), key=lambda item: item[1].pool):
        way, cap, floor = pool
        scores = field_scores(tails, task.values, cap) * worth(powers, floor)
        both, starts = pool_scores(scores, searches, way, cap), {}
        for place, choice in group:
            parts = list(choice.parts)
            start = starts.get(choice.parts, np.zeros(1 + len(parts)))
            solution = _solve(both[kept][:, parts], task.poisoned[kept], choice.penalty, start)
            starts[choice.parts] = solution
            yield place, parts, both[held], solution


def _solve(
    parts: np.ndarray, poisoned: np.ndarray, penalty: float, start: np.ndarray
) -> np.ndarray:
    """Intercept and weights >= 0 of a penalised logistic regression on parts [n, width]."""
    width = parts.shape[1]
    design = np.concatenate([np.ones((len(parts), 1)), parts], axis=1)
    ridge, signs = np.array([0.0] + [penalty] * width), np.array([0] + [1] * width)
    return minimise(design, poisoned, ridge, signs, start)


def _fit(
    task: PooledTask, tails: Sequence[Tail], rows: np.ndarray, choice: Choice
) -> tuple[float, tuple[float, float, float]]:
    """Intercept, and the weight of each of `searches.PARTS`."""
    scores = field_scores(tails, task.values[rows], choice.cap)
    found = pool_scores(scores, [tail.search for tail in tails], choice.way, choice.cap)
    start = np.zeros(1 + len(choice.parts))
    solution = _solve(found[:, choice.parts], task.poisoned[rows], choice.penalty, start)
    weights = np.zeros(3)
    weights[list(choice.parts)] = solution[1:]
    first, second, third = weights.tolist()
    return float(solution[0]), (first, second, third)


def _usual(tails: Sequence[Tail], values: np.ndarray) -> tuple[tuple[str, ...], ...]:
    """Sets of searches made of many models; the most frequent one where none is made of many."""
    searches = list(dict.fromkeys(tail.search for tail in tails))
    made = made_searches(tails, values)
    sets = Counter(
        tuple(name for name, is_made in zip(searches, row, strict=True) if is_made) for row in made
    )
    del sets[()]
    least = USUAL_SHARE * len(made)
    often = sorted(chosen for chosen, count in sets.items() if count >= least)
    return tuple(often) or tuple(chosen for chosen, _ in sets.most_common(1))


def _with_missing(model: PooledModel, task: PooledTask) -> PooledModel:
    """The model with the log-odds for missing searches that suit its models.

    They are chosen on the models and on copies of them that stop after a stage. Each model of the
    fit counts once, its copies share its weight.
    """
    values, rows, weights = _stopped(model.tails, task.values)
    base, share = model.raw_log_odds(values), missing_by_side(model, values, task.sides[rows])
    sign = np.where(task.poisoned[rows], -1.0, 1.0)
    losses = [(weights * softplus(sign * (base + m * share))).sum() for m in MISSING]
    return replace(model, missing=MISSING[int(np.argmin(losses))])


def missing_by_side(model: PooledModel, values: np.ndarray, sides: np.ndarray) -> np.ndarray:
    """Share of the usual searches that is missing, [n], of values [n, fields] and sides [n]."""
    found = np.zeros(len(values))
    for side in set(sides.tolist()):
        own = sides == side
        found[own] = model.for_side(side or None).missing_share(values[own])
    return found


def _stopped(tails: Sequence[Tail], values: np.ndarray) -> tuple[np.ndarray, ...]:
    """The models and copies of them that end after each of their stages but the last.

    Returns values [m, fields], the models' positions [m], weights [m].
    """
    stages = list(dict.fromkeys(tail.stage for tail in tails))
    copies, rows = [values], [np.arange(len(values))]
    for until in range(1, len(stages)):
        later = [tail.stage in stages[until:] for tail in tails]
        cut = values.copy()
        cut[:, later] = np.nan
        own = [tail.stage == stages[until - 1] for tail in tails]
        ends_here = np.isfinite(values[:, own]).any(1) & np.isfinite(values[:, later]).any(1)
        copies.append(cut[ends_here])
        rows.append(np.flatnonzero(ends_here))
    chosen = np.concatenate(rows)
    share = 1.0 / np.bincount(chosen, minlength=len(values))[chosen]
    return np.concatenate(copies), chosen, share
