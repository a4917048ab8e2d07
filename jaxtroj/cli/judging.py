"""Options of `evaluate` that judge stored evidence anew, by fits that have not met the model."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import fitting, options
from jaxtroj.errors import CalibrationError

if TYPE_CHECKING:
    from jaxtroj.leaderboard.cases import Case
    from jaxtroj.leaderboard.predictions import Predictions


def add_refits(parser: argparse.ArgumentParser) -> None:
    """Declare the options; at most one of them can be given."""
    group = parser.add_argument_group("judging the stored evidence anew (run folders only)")
    kinds = group.add_mutually_exclusive_group()
    options.add_flag(kinds, "--cross-validate", "each model by a fit on the other folds")
    kinds.add_argument(
        "--leave-one-out",
        type=types.name_of,
        metavar="COLUMN",
        help="each `architecture`, `round` or value of a column by a fit on all others",
    )
    kinds.add_argument(
        "--split",
        type=types.name_of,
        metavar="HOW",
        help="fit on train, score test and holdout: percentages (60,20,20) or a METADATA column",
    )


def is_asked(args: argparse.Namespace) -> bool:
    """Whether one of the options is given."""
    return bool(args.cross_validate or args.leave_one_out or args.split)


def with_records(found: "Sequence[Predictions]") -> "list[bool]":
    """Which of several sets can be judged anew; a message names the others.

    All of them where none can be: the fit then says so.
    """
    have = [bool(one.records) for one in found]
    if not any(have):
        return [True] * len(found)
    for one, kept in zip(found, have, strict=True):
        if not kept:
            options.message(
                f"{one.path} holds answers and no evidence: its {len(one.probabilities)} models are"
                " left out of what is judged anew"
            )
    return have


def judged(
    cases: "list[Case]", args: argparse.Namespace, runs: Sequence[Path]
) -> "dict[str, list[Case]]":
    """The cases as predicted, or judged anew as the options ask; by part.

    Args:
        cases: of all sets of predictions.
        args: with the options of `add_refits`.
        runs: where the cases' records come from.

    Raises:
        UsageError: no evidence, or a file with two labels.
        CalibrationError: too little evidence, or evidence of another version.
    """
    if not is_asked(args):
        return {"as predicted": cases}
    from jaxtroj.leaderboard import refit
    from jaxtroj.schemas import kind_of, scheme_of

    known = [cases[place] for place in refit.with_evidence(cases)]
    records = [case.record for case in known if case.record is not None]
    _check_versions(kind_of(records), runs)
    if copies := refit.copies_of(known):
        options.message(
            f"{copies} models are copies of others (one sha256): a fit counts each file once, and"
            " judges none that it has met"
        )
    scheme = scheme_of(records)
    if args.cross_validate:
        fitting.say_judged_early(refit.labelled(known), scheme)
        return {"out of fold": refit.cross_validated(cases, scheme, args.seed)}
    if args.split:
        return refit.split(cases, args.split, scheme, args.seed)
    parts = refit.left_out(cases, args.leave_one_out, scheme, args.seed)
    return {f"without {args.leave_one_out} {name}": part for name, part in parts.items()}


def _check_versions(kind: str, runs: Sequence[Path]) -> None:
    """Refuse evidence in which fields mean something else, as `calibrate` does."""
    from jaxtroj.evidence.versions import check_gathered
    from jaxtroj.store import read_settings

    for run in runs:
        try:
            doubt = check_gathered(kind, read_settings(run))
        except CalibrationError as error:
            raise CalibrationError(f"{run}: {error}") from error
        if doubt:
            options.message(f"{run}: {doubt}")
