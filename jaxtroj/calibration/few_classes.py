"""Fits how fields of networks of few classes are scored: against clean networks of few classes.

Where there are only one to four other classes to send pictures to, every search finds more, and
every lead over the next class is larger: what one clean network of ten classes in a hundred shows,
a clean one of two shows as a rule. So the tails are fitted anew on clean networks of 2 to `MOST`
classes. What fields count, their weights and the bounds stay those of the fit, which needs many
networks, poisoned ones too.
"""

from dataclasses import replace

import numpy as np

from jaxtroj.calibration.labelled import Labelled, matrix
from jaxtroj.calibration.pooled import FewClasses, PooledModel, PooledStage
from jaxtroj.calibration.tails import Searched, Tail, fit_tail
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import softplus

MOST = 5
"""Classes of a network that counts as one of few."""
LEAST_CLEAN = 8
LEAST_VALUES = 5
"""Of clean networks of few classes, below which a field keeps its tail."""


def fit_few_classes(model: PooledModel, labelled: Labelled) -> PooledModel:
    """The model with tails for networks of few classes.

    Args:
        model: fitted on networks of more classes.
        labelled: networks of 2 to `MOST` classes, twins named by `pairs`.

    Raises:
        CalibrationError: a network of other numbers of classes, or fewer than 8 clean ones.
    """
    classes, clean = set(labelled.classes), int((~labelled.truth).sum())
    if not classes or not classes <= set(range(2, MOST + 1)) or clean < LEAST_CLEAN:
        raise CalibrationError(
            f"got {clean} clean networks of {', '.join(map(str, sorted(classes))) or 'unknown'}"
            f" classes; expected {LEAST_CLEAN} or more, all of 2 to {MOST} classes"
        )
    few = FewClasses(
        _tails(model, labelled, np.arange(len(labelled.rows))),
        most=MOST,
        clean=clean,
        models=len(labelled.rows),
        log_score=_log_score(model, labelled),
    )
    return replace(model, few=few)


def _tails(model: PooledModel, labelled: Labelled, rows: np.ndarray) -> tuple[Tail, ...]:
    """The model's tails by the networks at some positions."""
    values = matrix(labelled.rows, [tail.name for tail in model.tails])[rows]
    poisoned = labelled.truth[rows]
    return tuple(_tail(tail, values[:, place], poisoned) for place, tail in enumerate(model.tails))


def _tail(tail: Tail, values: np.ndarray, poisoned: np.ndarray) -> Tail:
    if np.isfinite(values[~poisoned]).sum() < LEAST_VALUES:
        return tail
    known = Searched(tail.name, tail.label, tail.stage, tail.search, tail.direction)
    found = fit_tail(known, values, poisoned)
    return replace(found, worth=tail.worth, rises=tail.rises)


def _log_score(model: PooledModel, labelled: Labelled) -> float:
    """Of all of them, nats, each by tails that have met neither it nor its twin."""
    pairs = np.array([pair or f"alone {i}" for i, pair in enumerate(_pairs(labelled))])
    losses = np.zeros(len(pairs))
    for pair in set(pairs.tolist()):
        held, kept = np.flatnonzero(pairs == pair), np.flatnonzero(pairs != pair)
        fitted = replace(model, tails=_tails(model, labelled, kept))
        for place in held.tolist():
            log_odds = _log_odds(fitted, labelled, place)
            losses[place] = softplus(np.array(-log_odds if labelled.truth[place] else log_odds))
    return float(losses.mean())


def _log_odds(model: PooledModel, labelled: Labelled, place: int) -> float:
    judge = PooledStage(model, model.tails[-1].stage)
    side = labelled.sides[place] if labelled.sides else None
    values = matrix([labelled.rows[place]], judge.names)
    return float(judge.for_network(side or None, None).log_odds(values, [None])[0])


def _pairs(labelled: Labelled) -> list[str]:
    return list(labelled.pairs) or [""] * len(labelled.rows)
