"""Stored evidence judged by calibrators that have not seen the model: folds, groups, splits.

Nothing is scanned again: the calibrator is fitted anew on the records' evidence, and the fit, its
penalty and its clip know nothing of the models that it then judges, nor of copies of their files. A
model whose scan failed, be it with evidence of its first stages, gets the base rate of the models
fitted on, as in use.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from converters.errors import safe_repr
from jaxtroj.calibration import Labelled, Scheme, cross_validate
from jaxtroj.calibration.folds import assign_folds
from jaxtroj.calibration.labelled import make_population, matrix
from jaxtroj.calibration.training import MIN_MODELS, MIN_OF_A_KIND, OUTER_FOLDS, fit_stages
from jaxtroj.errors import CalibrationError, UsageError
from jaxtroj.leaderboard.cases import Case, architecture_of, labels, value_of
from jaxtroj.leaderboard.copies import file_of, first_of_each_file
from jaxtroj.leaderboard.dealt_out import dealt_groups
from jaxtroj.numerics import logit, sigmoid

SPLITS = ("train", "test", "holdout")


def cross_validated(cases: Sequence[Case], fields: Scheme, seed: int = 0) -> list[Case]:
    """Each case with the probability of a fit on the other folds (at most 10).

    Raises UsageError without evidence or for a file of two labels, CalibrationError when there is
    too little of it.
    """
    have = with_evidence(cases)
    known = [cases[i] for i in have]
    _check_enough(known)
    if len(_one_of_each(known)) < len(known):
        said = _by_files(known, fields, seed)
    else:
        said = cross_validate(labelled(known), fields, seed)
    answers = np.full(len(cases), float(np.mean(labels(known))))
    answers[have] = said
    return _answered(cases, answers)


def _by_files(known: Sequence[Case], fields: Scheme, seed: int) -> list[float]:
    """Probabilities where some models are copies: those of one file are in one fold."""
    models = _one_of_each(known)
    files, truth = [_file(case) for case in models], labels(models)
    count = int(min(OUTER_FOLDS, truth.sum(), (~truth).sum()))
    names = labelled(models).architectures
    folds = assign_folds(files, truth, names, count, f"{seed}:files")
    fold_of = dict(zip(files, folds.tolist(), strict=True))
    answers = dict[str, float]()
    for fold in range(count):
        held = [case for case in known if fold_of[_file(case)] == fold]
        others = [case for case in models if fold_of[_file(case)] != fold]
        answers |= {c.model: c.probability for c in refitted(others, held, fields, seed)}
    return [answers[case.model] for case in known]


def left_out(
    cases: Sequence[Case], column: str, fields: Scheme, seed: int = 0
) -> dict[str, list[Case]]:
    """For each value of a column, its cases as judged by a fit on all the others.

    Clean models without a value are dealt out among the values, as `jaxtroj calibrate` does.

    Args:
        column: `architecture`, `round`, or a METADATA column.
    Raises UsageError when there is one value only or no evidence, DatasetError for an unknown
    column, CalibrationError when the others are too few to fit on.
    """
    by_value = dealt_groups(cases, column, _file, seed)
    if len(by_value) < 2:
        raise UsageError(
            f"to leave one {column} out there must be two or more; there is only"
            f" {safe_repr(next(iter(by_value), 'none'))}"
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

    Copies of the held models are no part of `train`, and other files count once in it.

    Raises UsageError when `train` has no evidence or a file two labels, CalibrationError when it is
    too little.
    """
    met = {_file(case) for case in held}
    known = [train[i] for i in with_evidence(train) if _file(train[i]) not in met]
    known = _one_of_each(known)
    _check_enough(known)
    fitted, asked = fit_stages(make_population(labelled(known)), fields, seed), labelled(held)
    answers = np.full(len(held), float(logit(np.mean(labels(known)))))
    for stage in fitted.values():  # the last stage whose fields a row has answers it, as in use
        values = matrix(asked.rows, stage.names)
        complete = np.flatnonzero(np.isfinite(values).all(axis=1))
        names = [asked.architectures[i] for i in complete.tolist()]
        answers[complete] = stage.log_odds(values[complete], names)
    return _answered(held, sigmoid(answers))


def with_evidence(cases: Sequence[Case]) -> list[int]:
    """Places of the cases that can be fitted on. Raises UsageError where there is none."""
    have = [i for i, case in enumerate(cases) if case.record and case.record.whole_evidence]
    if not have:
        raise UsageError(
            "no model has evidence to fit on; give a run folder that `jaxtroj scan` wrote, best"
            " with --evidence-only (result files and tables hold answers only)"
        )
    return have


def copies_of(cases: Sequence[Case]) -> int:
    """How many cases are copies of others. Raises UsageError where a file has two labels."""
    return len(cases) - len(_one_of_each(cases))


def labelled(cases: Sequence[Case]) -> Labelled:
    """Evidence, labels, and architectures as the scan names them, which a calibrator goes by."""
    return Labelled(
        [case.record.whole_evidence if case.record else {} for case in cases],
        [case.poisoned for case in cases],
        [case.record.architecture if case.record else None for case in cases],
    )


def _check_enough(known: Sequence[Case]) -> None:
    kinds = Counter(case.poisoned for case in known)
    if len(known) < MIN_MODELS or min(kinds[True], kinds[False]) < MIN_OF_A_KIND:
        raise CalibrationError(
            f"too little to fit on: {kinds[True]} poisoned and {kinds[False]} clean models with"
            f" evidence; expected at least {MIN_MODELS}, {MIN_OF_A_KIND} of each kind, each file"
            " counted once"
        )


def _one_of_each(cases: Sequence[Case]) -> list[Case]:
    """The cases without copies of earlier ones. Raises UsageError as `first_of_each_file`."""
    models = ((case.model, _digest(case), case.poisoned) for case in cases)
    return [cases[place] for place in first_of_each_file(models)]


def _file(case: Case) -> str:
    return file_of(_digest(case), case.model)


def _digest(case: Case) -> str:
    return case.record.sha256 if case.record else ""


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
    """Within each label and architecture, in the order of a hash of the names, part after part;
    copies of a file all to one part."""

    def drawn(case: Case) -> tuple[bool, str, str]:
        digest = hashlib.sha256(f"{seed}:split:{case.model}".encode()).hexdigest()
        return case.poisoned, architecture_of(case) or "", digest

    files: dict[str, list[Case]] = {}
    for case in sorted(cases, key=drawn):
        files.setdefault(_file(case), []).append(case)
    parts: dict[str, list[Case]] = {name: [] for name in SPLITS[: len(shares)]}
    owed = dict.fromkeys(parts, 0.0)
    for copies in files.values():
        for name, share in zip(parts, shares, strict=True):
            owed[name] += share * len(copies)
        name = max(owed, key=owed.__getitem__)
        owed[name] -= 100 * len(copies)
        parts[name] += copies
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
