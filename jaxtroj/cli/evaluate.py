"""`jaxtroj evaluate`: how good probabilities are, as TrojAI's leaderboard measures it.

Takes run folders, folders of the harness's result files (id-XXXXXXXX.txt, one float each), and CSV
tables of model and probability. Failed models count with the base rate they were given, skipped
ones do not count, and labelled models without a prediction count as 0.5, as NIST does; where
several sets share one truth, those that none of them predicts.
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import judging, options, outputs
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from jaxtroj.leaderboard.cases import Case, Matched
    from jaxtroj.leaderboard.official import Standing
    from jaxtroj.scoring import ReliabilityBin, Scores

SHOWN_WORST = 5
_TARGET_COLUMNS = (
    "trigger_target_class",
    "target_class",
    "triggers_0_target_class",
    "triggers_1_target_class",
)
_CLASS = re.compile(r"[0-9]{1,18}")  # int() refuses numbers of thousands of digits


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "evaluate", help=COMMANDS["evaluate"], description=__doc__, allow_abbrev=False
    )
    add_sources(parser, "predictions", "PREDICTIONS", "run folder, result files, or CSV", "+")
    parser.add_argument(
        "--by",
        action="append",
        default=[],
        type=types.name_of,
        metavar="COLUMN",
        help="scores for each value of a METADATA.csv column, or of `architecture` or `round`",
    )
    parser.add_argument(
        "--worst",
        type=types.count,
        default=SHOWN_WORST,
        metavar="N",
        help=f"show the N models that cost most (default: {SHOWN_WORST}); --json has them all",
    )
    options.add_path(
        parser,
        "--leaderboard",
        "FILE",
        "summary CSV of an official round: tells the place among its submissions",
    )
    options.add_path(
        parser,
        "--out",
        "DIR",
        "write scores, models, ROC, trojan percentage sweep and result files there",
    )
    options.add_flag(parser, "--json", "one JSON object on stdout")
    judging.add_refits(parser)


def add_sources(
    parser: argparse.ArgumentParser, name: str, shown: str, help_text: str, many: str | None
) -> None:
    """The options that say what is scored against what; `compare` shares them."""
    parser.add_argument(name, type=types.path_of, nargs=many, metavar=shown, help=help_text)
    parser.add_argument(
        "--truth",
        type=types.path_of,
        required=True,
        action="append",
        metavar="FILE",
        help="METADATA.csv, a CSV of model and label, a manifest, or the dataset folder; once, or"
        " once for each of several PREDICTIONS",
    )
    options.add_flag(
        parser,
        "--predicted-only",
        "leave labelled models without a prediction out, instead of scoring them as 0.5",
    )
    parser.add_argument("--seed", type=types.seed, default=0, metavar="N", help="default: 0")


def run(args: argparse.Namespace) -> int:
    """Print the scores; returns the exit status."""
    from jaxtroj.leaderboard.cases import groups, reliability_of, score_cases, worst_first

    if args.out is not None:
        _keep_inputs(args)
    matches = _read(args)
    cases = [case for match in matches for case in match.cases]
    runs = [match.path for match in matches if any(case.record for case in match.cases)]
    parts = judging.judged(cases, args, runs)
    main = [case for name, part in parts.items() if not name.startswith("train") for case in part]
    shown = {"all": main} | (parts if len(parts) > 1 else {})
    for column in args.by:
        shown |= {f"{column} {value}": part for value, part in groups(main, column).items()}
    scores = {name: score_cases(part) for name, part in shown.items()}
    bins = reliability_of(main)
    place = _standing(args.leaderboard, scores["all"])
    values = _as_json(scores, bins, matches, main, place)
    if args.out is not None:
        _write(args, values, main)
    if args.json:
        print(json.dumps(values, allow_nan=False))
        return EXIT_CLEAN
    print(_text(scores, shown, bins, worst_first(main)[: args.worst], place))
    return EXIT_CLEAN


def _read(args: argparse.Namespace) -> "list[Matched]":
    """The cases of every source; says on stderr what is odd about them."""
    from jaxtroj.leaderboard.cases import match, match_together, named_apart, read_truth
    from jaxtroj.leaderboard.predictions import read_predictions

    if len(args.truth) not in (1, len(args.predictions)):
        raise UsageError(
            f"got {len(args.predictions)} sets of predictions and {len(args.truth)} of labels;"
            " give --truth once, or once for each in the same order"
        )
    truths = [read_truth(path) for path in args.truth]
    found = [read_predictions(path) for path in args.predictions]
    kept = judging.with_records(found) if judging.is_asked(args) else [True] * len(found)
    used = [one for one, wanted in zip(found, kept, strict=True) if wanted]
    if len(truths) == 1 and len(used) > 1:
        matches = match_together(used, truths[0], args.predicted_only)
    else:
        truths *= len(found) // len(truths)
        labels = [one for one, wanted in zip(truths, kept, strict=True) if wanted]
        pairs = zip(used, labels, strict=True)
        matches = [match(one, truth, args.predicted_only) for one, truth in pairs]
    problems = {one.path: one.problems for one in used}
    for one in matches:
        complain(problems.get(one.path, ()), one, args.predicted_only, str(one.path))
    return named_apart(matches)


def complain(problems: Sequence[str], match: "Matched", predicted_only: bool, source: str) -> None:
    """On stderr: predictions that are no numbers, models without label or with an erratum, models
    not predicted."""
    if problems:
        options.message(f"{source}: {len(problems)} odd predictions; the first: {problems[0]}")
    if match.blank:
        options.message(
            f"{source}: {len(match.blank)} predictions are blank or NaN and count as 0.5; the"
            f" first: {match.blank[0]}"
        )
    if match.unlabelled:
        options.message(
            f"{source}: {match.unlabelled} models of the run have no label and are left out"
        )
    for reason, count in Counter(match.errata).items():
        options.message(f"{source}: {count} models of the run are left out ({reason})")
    if match.not_predicted and predicted_only:
        options.message(
            f"{source}: {match.not_predicted} labelled models have no prediction; left out"
        )
    elif match.not_predicted:
        options.message(
            f"{source}: {match.not_predicted} labelled models have no prediction and count as 0.5"
            " (--predicted-only leaves them out)"
        )


def _standing(path: Path | None, scores: "Scores") -> "Standing | None":
    from jaxtroj.leaderboard.official import read_summary, standing

    if path is None:
        return None
    return standing(read_summary(path), scores.log_score, scores.nist_auc)


def _keep_inputs(args: argparse.Namespace) -> None:
    """No file to be written is an input, and neither is the folder of result files."""
    from jaxtroj.leaderboard.output import RESULTS, TABLES

    inputs = (*args.predictions, *args.truth, args.leaderboard)
    outputs.keep_inputs((args.out / name for name in (*TABLES, RESULTS)), inputs)


def _write(args: argparse.Namespace, values: Mapping[str, Any], cases: "list[Case]") -> None:
    from jaxtroj.leaderboard.output import write_all
    from jaxtroj.leaderboard.sweep import sweep

    write_all(args.out, values, cases, sweep(cases, seed=args.seed))
    options.message(f"scores, tables, plots and result files are in {args.out}")


def scores_text(name: str, scores: "Scores", at_base_rate: int = 0) -> str:
    """One line of scores; log score in nats with NIST's 95 % interval, lower is better.

    Args:
        name: of the models.
        scores: theirs.
        at_base_rate: how many of them have no answer and count with a base rate.
    """
    from jaxtroj.record import shown

    area = "none" if scores.roc_auc is None else f"{scores.roc_auc:.4f}"
    missing = f", {scores.missing} not predicted" if scores.missing else ""
    missing += f", {at_base_rate} without an answer (base rate)" if at_base_rate else ""
    return (
        f"{shown(name)}: {scores.models} models, {scores.poisoned} poisoned{missing}"
        f"  log score {scores.log_score:.4f}"
        f" ({scores.log_score_low:.4f} to {scores.log_score_high:.4f})"
        f"  ROC AUC {area}  Brier {scores.brier_score:.4f}  accuracy {scores.accuracy:.4f}"
    )


def _targets(cases: "Sequence[Case]") -> tuple[int, int]:
    """Of the true positives whose target classes the truth names: how many right, how many.

    A model with two triggers may have two; either is right.
    """
    right = of = 0
    for case in cases:
        cells = (case.cells.get(column, "") for column in _TARGET_COLUMNS)
        named = {int(cell) for cell in cells if _CLASS.fullmatch(cell)}
        if case.poisoned and case.record and case.record.poisoned and named:
            right += case.record.target_class in named
            of += 1
    return right, of


def _as_json(
    scores: "Mapping[str, Scores]",
    bins: "Sequence[ReliabilityBin]",
    matches: "Sequence[Matched]",
    cases: "Sequence[Case]",
    place: "Standing | None",
) -> dict[str, Any]:
    from dataclasses import asdict

    from jaxtroj.leaderboard.cases import at_base_rate, worst_first

    right, of = _targets(cases)
    return {
        **scores["all"].as_dict(),
        "unlabelled": sum(match.unlabelled for match in matches),
        "errata": sum(len(match.errata) for match in matches),
        "not_predicted": sum(match.not_predicted for match in matches),
        "at_base_rate": at_base_rate(cases),
        "target_class_right": right,
        "target_class_of": of,
        "reliability": [asdict(row) for row in bins],
        "groups": {name: group.as_dict() for name, group in scores.items() if name != "all"},
        "leaderboard": None if place is None else asdict(place),
        "contributions": [
            {
                "model": case.model,
                "poisoned": case.poisoned,
                "probability": None if math.isnan(case.probability) else case.probability,
                "log_score": part,
            }
            for case, part in worst_first(cases)
        ],
    }


def _text(
    scores: "Mapping[str, Scores]",
    cases: "Mapping[str, Sequence[Case]]",
    bins: "Sequence[ReliabilityBin]",
    worst: "Sequence[tuple[Case, float]]",
    place: "Standing | None",
) -> str:
    from jaxtroj.leaderboard.cases import at_base_rate
    from jaxtroj.record import shown

    said = {name: scores_text(name, one, at_base_rate(cases[name])) for name, one in scores.items()}
    lines = [said.pop("all"), *_details(scores["all"]), *said.values()]
    right, of = _targets(cases["all"])
    if of:
        lines.append(f"target class right in {right} of {of} true positives")
    if place is not None:
        area = "none" if place.by_nist_auc is None else str(place.by_nist_auc)
        lines.append(
            f"among {place.submissions} official submissions: place {place.by_log_score} by log"
            f" score, {area} by ROC AUC; the best is {shown(place.best.team)} with"
            f" {place.best.log_score:.4f}"
        )
    lines.append(_reliability_text(bins, len(cases["all"])))
    lines.append("models that cost most:")
    lines += [_worst_text(case, part) for case, part in worst]
    return "\n".join(lines)


def _worst_text(case: "Case", part: float) -> str:
    from jaxtroj.record import shown

    label = "poisoned" if case.poisoned else "clean"
    said = "none" if math.isnan(case.probability) else f"{case.probability:.4f}"
    return f"  {shown(case.model)}  {label:8}  probability {said}  {part:.4f} nats"


def _details(scores: "Scores") -> list[str]:
    nist = "none" if scores.nist_auc is None else f"{scores.nist_auc:.4f}"
    counts = scores.confusion
    verdict = {None: "no bar, one kind of model only", True: "yes", False: "no"}[scores.success]
    return [
        f"  ROC AUC at NIST's 101 thresholds {nist}",
        f"  at {counts.threshold}: {counts.true_positives} true positives,"
        f" {counts.false_positives} false positives, {counts.true_negatives} true negatives,"
        f" {counts.false_negatives} false negatives",
        f"  success: {verdict} (a log score below {scores.success_log_score:.4f}, half of what"
        f" guessing the base rate scores, {scores.base_rate_log_score:.4f})",
    ]


def _reliability_text(bins: "Sequence[ReliabilityBin]", models: int) -> str:
    rows = [
        f"  {row.low:.1f} to {row.high:.1f}  {row.count:5d} models"
        f"  stated {row.mean_probability:.3f}  observed {row.poisoned_fraction:.3f}"
        for row in bins
    ]
    left_out = models - sum(row.count for row in bins)
    said = f" ({left_out} models without an answer left out)" if left_out else ""
    return "\n".join([f"reliability, by stated probability{said}:", *rows])
