"""`jaxtroj compare`: two detectors on the same models, with a paired bootstrap interval.

A and B are run folders, folders of result files, or CSV tables of model and probability. Models
that only one of them answers count as 0.5 for the other, unless --predicted-only; those that
neither answers do not count.
"""

import argparse
import json
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import options
from jaxtroj.cli.evaluate import add_sources, complain
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from jaxtroj.leaderboard.cases import Case, Matched
    from jaxtroj.leaderboard.paired import Difference, PairedComparison

DEFAULT_RESAMPLES = 10_000
LEAST_RESAMPLES, MOST_RESAMPLES = 1000, 10**6
"""The ends of an interval that holds 95 of 100 stand on few resamples: 25 of 1000 beyond each."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "compare", help=COMMANDS["compare"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "a", type=types.path_of, metavar="A", help="run folder, result files, or CSV"
    )
    add_sources(parser, "b", "B", "what to compare it with", None)
    parser.add_argument(
        "--resamples",
        type=types.count_within(LEAST_RESAMPLES, MOST_RESAMPLES),
        default=DEFAULT_RESAMPLES,
        metavar="N",
        help=f"of the bootstrap, {LEAST_RESAMPLES} to {MOST_RESAMPLES}; default:"
        f" {DEFAULT_RESAMPLES}",
    )
    options.add_flag(parser, "--json", "one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the differences; returns the exit status."""
    from jaxtroj.leaderboard.cases import at_base_rate
    from jaxtroj.leaderboard.paired import compare

    a, b = _same_models(args)
    found = compare(a, b, args.resamples, args.seed)
    unjudged = {"a_at_base_rate": at_base_rate(a), "b_at_base_rate": at_base_rate(b)}
    if args.json:
        print(json.dumps(asdict(found) | unjudged, allow_nan=False))
    else:
        print(_text(found, *unjudged.values()))
    return EXIT_CLEAN


def _same_models(args: argparse.Namespace) -> "tuple[list[Case], list[Case]]":
    from jaxtroj.leaderboard.cases import match, read_truth, spelled_as
    from jaxtroj.leaderboard.predictions import read_predictions

    if len(args.truth) > 1:
        raise UsageError("compare takes one --truth: both detectors are judged by the same labels")
    truth = read_truth(args.truth[0])
    found = [spelled_as(truth, read_predictions(path)) for path in (args.a, args.b)]
    sides = [match(one, truth) for one in found]
    a, b = ({case.model: case for case in side.cases} for side in sides)
    # In the order of the truth: a set of texts has another one in every process.
    judged = [name for name in a if name in b and (_has_answer(a[name]) or _has_answer(b[name]))]
    for one, side in zip(found, sides, strict=True):
        said = _of(side, judged, one.probabilities.keys(), args.predicted_only)
        complain(one.problems, said, args.predicted_only, str(one.path))
    if args.predicted_only:
        judged = [name for name in judged if _has_answer(a[name]) and _has_answer(b[name])]
    if not judged:
        raise UsageError(f"{args.a} and {args.b} have no labelled model in common")
    return [a[name] for name in judged], [b[name] for name in judged]


def _of(
    side: "Matched", judged: "Sequence[str]", said: "Container[str]", predicted_only: bool
) -> "Matched":
    """What is said of one side: nothing of models that neither answers, which do not count."""
    if predicted_only:  # then what says nothing is left out as well
        answers = {case.model for case in side.cases if _has_answer(case)}
        return replace(side, blank=(), not_predicted=len(set(judged) - answers))
    blank = tuple(name for name in side.blank if name in judged)
    return replace(side, blank=blank, not_predicted=sum(name not in said for name in judged))


def _has_answer(case: "Case") -> bool:
    return not math.isnan(case.probability)


def _text(found: "PairedComparison", a_at_base_rate: int, b_at_base_rate: int) -> str:
    few = found.too_few_models
    unjudged = ""
    if a_at_base_rate or b_at_base_rate:
        unjudged = f", without an answer (base rate) {a_at_base_rate} of A, {b_at_base_rate} of B"
    lines = [
        f"{found.models} models, {found.poisoned} poisoned{unjudged}; A minus B with its 95 %"
        f" interval over {found.resamples} paired resamples:",
        _row("log score", found.log_score, "lower is better", lower=True, few=few),
        _row("Brier score", found.brier_score, "lower is better", lower=True, few=few),
    ]
    if found.roc_auc is not None:
        lines.append(_row("ROC AUC", found.roc_auc, "higher is better", lower=False, few=few))
    return "\n".join(lines)


def _row(name: str, found: "Difference", direction: str, lower: bool, few: bool) -> str:
    if few:
        verdict = "too few models to tell, one of a kind"
    elif found.low <= 0 <= found.high:
        verdict = "no clear difference"
    else:
        verdict = "A is better" if (found.high < 0) == lower else "B is better"
    return (
        f"  {name:11}  A {found.a:.4f}  B {found.b:.4f}  difference {found.difference:+.4f}"
        f" ({found.low:+.4f} to {found.high:+.4f}), {direction}: {verdict}"
        f" (A in {found.a_better:.1%} of resamples)"
    )
