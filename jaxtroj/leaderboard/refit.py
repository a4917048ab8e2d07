"""Stored evidence judged by calibrators that have not seen the model: folds, groups, splits.

Nothing is scanned again: the calibrator is fitted anew on the records' evidence, and the fit, its
penalty and its clip know nothing of the models that it then judges. A model whose scan failed, be
it with evidence of its first stages, gets the base rate of the models fitted on, as in use.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converters.errors import safe_repr
from jaxtroj.calibration import Labelled, Scheme, cross_validate
from jaxtroj.calibration.labelled import make_population, matrix
from jaxtroj.calibration.training import MIN_MODELS, MIN_OF_A_KIND, fit_stages
from jaxtroj.errors import CalibrationError, UsageError
from jaxtroj.leaderboard.cases import Case, architecture_of, groups, labels, value_of
from jaxtroj.numerics import logit, sigmoid

SPLITS = ("train", "test", "holdout")


def cross_validated(cases: Sequence[Case], fields: Scheme, seed: int = 0) -> list[Case]:
    """Each case with the probability of a fit on the other folds (at most 10).

    Raises UsageError without evidence, CalibrationError when there is too little of it.
    """
    have = _with_evidence(cases)
    known = [cases[i] for i in have]
    said = cross_validate(_labelled(known), fields, seed)
    answers = np.full(len(cases), float(np.mean(labels(known))))
    answers[have] = said
    return _answered(cases, answers)


def left_out(
    cases: Sequence[Case], column: str, fields: Scheme, seed: int = 0
) -> dict[str, list[Case]]:
    """For each value of a column, its cases as judged by a fit on all the others.

    Args:
        column: `architecture`, `round`, or a METADATA column.
    Raises UsageError when there is one value only or no evidence, DatasetError for an unknown
    column, CalibrationError when the others are too few to fit on.
    """
    by_value = groups(cases, column)
    if len(by_value) < 2:
        raise UsageError(
            f"to leave one {column} out there must be two or more; there is only"
            f" {safe_repr(next(iter(by_value)))}"
        )
    found = {}
    for value, held in by_value.items():
        others = [case for name, kept in by_value.items() if name != value for case in kept]
        try:
            found[value] = refitted(others, held, fields, seed)
        except CalibrationError as error:
            raise CalibrationError(f"without {column} {safe_repr(value)}: {error}") from error
    return found


def split(cases: Sequence[Case], how: str, fields: Scheme, seed: int = 0) -> dict[str, list[Case]]:
    """The cases as train, test and holdout: train judged out of fold, the others by a fit on train.

    Args:
        how: percentages for train, test and, if wanted, holdout (`60,20,20`), dealt by label,
            architecture and a hash of the model's name; or a METADATA column that says `train`,
            `test` or `holdout`.
    Raises UsageError when `how` is neither or leaves a part empty; else as `left_out`.
    """
    shares = _shares(how)
    parts = _dealt(cases, shares, seed) if shares else _named(cases, how)
    empty = [name for name, kept in parts.items() if not kept]
    if empty or "train" not in parts or len(parts) < 2:
        raise UsageError(
            f"--split {how} must give models to train and to test or holdout; it gives"
            f" {', '.join(f'{len(kept)} to {name}' for name, kept in parts.items()) or 'none'}"
        )
    judged = {"train, out of fold": cross_validated(parts["train"], fields, seed)}
    for name in SPLITS[1:]:
        if name in parts:
            judged[name] = refitted(parts["train"], parts[name], fields, seed)
    return judged


def refitted(
    train: Sequence[Case], held: Sequence[Case], fields: Scheme, seed: int = 0
) -> list[Case]:
    """The held cases with the probability of a calibrator fitted on `train`, at its base rate.

    Raises UsageError when `train` has no evidence, CalibrationError when it is too little.
    """
    known = [train[i] for i in _with_evidence(train)]
    fitted, asked = fit_stages(make_population(_labelled(known)), fields, seed), _labelled(held)
    answers = np.full(len(held), float(logit(np.mean(labels(known)))))
    for stage in fitted.values():  # the last stage whose fields a row has answers it, as in use
        values = matrix(asked.rows, stage.names)
        complete = np.flatnonzero(np.isfinite(values).all(axis=1))
        names = [asked.architectures[i] for i in complete.tolist()]
        answers[complete] = stage.log_odds(values[complete], names)
    return _answered(held, sigmoid(answers))


def _with_evidence(cases: Sequence[Case]) -> list[int]:
    have = [i for i, case in enumerate(cases) if case.record and case.record.whole_evidence]
    kinds = Counter(cases[i].poisoned for i in have)
    if not have:
        raise UsageError(
            "no model has evidence to fit on; give a run folder that `jaxtroj scan` wrote, best"
            " with --evidence-only (result files and tables hold answers only)"
        )
    if len(have) < MIN_MODELS or min(kinds[True], kinds[False]) < MIN_OF_A_KIND:
        raise CalibrationError(
            f"too little to fit on: {kinds[True]} poisoned and {kinds[False]} clean models with"
            f" evidence; expected at least {MIN_MODELS}, {MIN_OF_A_KIND} of each kind"
        )
    return have


def _labelled(cases: Sequence[Case]) -> Labelled:
    """Evidence, labels, and architectures as the scan names them, which a calibrator goes by."""
    return Labelled(
        [case.record.whole_evidence if case.record else {} for case in cases],
        [case.poisoned for case in cases],
        [case.record.architecture if case.record else None for case in cases],
    )


def _answered(cases: Sequence[Case], answers: np.ndarray) -> list[Case]:
    """New probabilities, except for models that were never scanned: those stay not predicted."""
    return [
        replace(case, probability=float(answer)) if case.record else case
        for case, answer in zip(cases, answers, strict=True)
    ]


def _shares(how: str) -> list[float] | None:
    """Percentages in `how`; None when it is a column's name."""
    try:
        shares = [float(part) for part in how.split(",")]
    except ValueError:
        return None
    if not 2 <= len(shares) <= 3 or min(shares) <= 0 or not abs(sum(shares) - 100) < 1e-6:
        raise UsageError(
            f"--split {how}: expected two or three percentages that add up to 100, such as 60,20,20"
        )
    return shares


def _dealt(cases: Sequence[Case], shares: Sequence[float], seed: int) -> dict[str, list[Case]]:
    """Within each label and architecture, in the order of a hash of the names, part after part."""

    def drawn(case: Case) -> tuple[bool, str, str]:
        digest = hashlib.sha256(f"{seed}:split:{case.model}".encode()).hexdigest()
        return case.poisoned, architecture_of(case) or "", digest

    parts: dict[str, list[Case]] = {name: [] for name in SPLITS[: len(shares)]}
    owed = dict.fromkeys(parts, 0.0)
    for case in sorted(cases, key=drawn):
        for name, share in zip(parts, shares, strict=True):
            owed[name] += share
        name = max(owed, key=owed.__getitem__)
        owed[name] -= 100
        parts[name].append(case)
    return parts


def _named(cases: Sequence[Case], column: str) -> dict[str, list[Case]]:
    parts: dict[str, list[Case]] = {}
    for case in cases:
        name = value_of(case, column).lower()
        if name not in SPLITS:
            raise UsageError(
                f"--split {column}: {case.model} has {safe_repr(name)} there, expected one of"
                f" {', '.join(SPLITS)}"
            )
        parts.setdefault(name, []).append(case)
    return parts
