"""`jaxtroj evaluate`: how good the probabilities of a run are, given the truth.

Failed models count with their base rate, as they would in a TrojAI round; skipped ones do not.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj.cli import options
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.errors import DatasetError, UsageError

if TYPE_CHECKING:
    from jaxtroj.record import Record
    from jaxtroj.scoring import ReliabilityBin, Scores

Pair = tuple["Record", bool]
"""A record and whether its model is poisoned."""

_TARGET_COLUMNS = ("trigger_target_class", "target_class")


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "evaluate", help=COMMANDS["evaluate"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="what scan --out wrote")
    parser.add_argument(
        "--truth",
        type=Path,
        required=True,
        metavar="FILE",
        help="METADATA.csv, a CSV of model and label, or the dataset folder",
    )
    parser.add_argument(
        "--by",
        metavar="COLUMN",
        help="scores for each value of a METADATA.csv column, or of `architecture`",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(args: argparse.Namespace) -> int:
    """Print the scores; returns the exit status."""
    from jaxtroj.rounds import load_truth
    from jaxtroj.scoring import reliability, score
    from jaxtroj.store import read_records

    records = read_records(args.run_folder)
    pairs = matched(records, load_truth(args.truth))
    if not pairs:
        raise UsageError(f"no model of {args.run_folder} has a label in {args.truth}")
    cells = _cells(args.truth)
    groups = {"all": pairs} | (_groups(pairs, cells, args.by) if args.by else {})
    scores = {
        name: score([r.probability for r, _ in group], [truth for _, truth in group])
        for name, group in groups.items()
    }
    bins = reliability([r.probability for r, _ in pairs], [truth for _, truth in pairs])
    unlabelled = sum(record.status != "skipped" for record in records) - len(pairs)
    right, of = _targets(pairs, cells)
    if args.json:
        print(json.dumps(_as_json(scores, bins, unlabelled, right, of), allow_nan=False))
        return EXIT_CLEAN
    for name, group_scores in scores.items():
        print(scores_text(name, group_scores))
    if of:
        print(f"target class right in {right} of {of} true positives")
    print(_reliability_text(bins))
    if unlabelled:
        options.message(f"{unlabelled} models of the run have no label and are left out")
    return EXIT_CLEAN


def matched(records: "Sequence[Record]", truth: Mapping[str, bool]) -> "list[Pair]":
    """Records that were not skipped, with their label, where there is one."""
    from jaxtroj.record import printable

    labels = {printable(name): poisoned for name, poisoned in truth.items()}
    return [
        (record, labels[record.model])
        for record in records
        if record.status != "skipped" and record.model in labels
    ]


def scores_text(name: str, scores: "Scores") -> str:
    """One line of scores; log score in nats with NIST's 95 % interval, lower is better."""
    area = "none" if scores.roc_auc is None else f"{scores.roc_auc:.4f}"
    return (
        f"{name}: {scores.models} models, {scores.poisoned} poisoned"
        f"  log score {scores.log_score:.4f}"
        f" ({scores.log_score_low:.4f} to {scores.log_score_high:.4f})"
        f"  ROC AUC {area}  Brier {scores.brier_score:.4f}  accuracy {scores.accuracy:.4f}"
    )


def _cells(truth: Path) -> dict[str, Mapping[str, str]]:
    """The METADATA cells of each model, by its name."""
    from jaxtroj.record import printable
    from jaxtroj.rounds import iter_models
    from jaxtroj.rounds.tables import read_pairs

    if truth.is_dir():
        return {printable(entry.model_id): entry.metadata for entry in iter_models(truth)}
    return {printable(name): row.cells for name, row in read_pairs(truth).rows.items()}


def _groups(
    pairs: "list[Pair]", cells: Mapping[str, Mapping[str, str]], column: str
) -> "dict[str, list[Pair]]":
    groups: dict[str, list[Pair]] = defaultdict(list)
    for record, truth in pairs:
        value = cells.get(record.model, {}).get(column)
        if value is None and column == "architecture":
            value = record.architecture or "unknown"
        if value is None:
            known = sorted({"architecture", *cells.get(record.model, {})})
            raise DatasetError(
                f"no column {column} for {record.model}; there is {', '.join(known)}"
            )
        groups[f"{column} {value}"].append((record, truth))
    return dict(sorted(groups.items()))


def _targets(pairs: "list[Pair]", cells: Mapping[str, Mapping[str, str]]) -> tuple[int, int]:
    """Of the true positives whose target class the truth names: how many right, how many."""
    right = of = 0
    for record, truth in pairs:
        row = cells.get(record.model, {})
        named = next((row[column] for column in _TARGET_COLUMNS if row.get(column)), "")
        if truth and record.poisoned and named.isdecimal():
            right += record.target_class == int(named)
            of += 1
    return right, of


def _as_json(
    scores: "Mapping[str, Scores]",
    bins: "Sequence[ReliabilityBin]",
    unlabelled: int,
    right: int,
    of: int,
) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        **scores["all"].as_dict(),
        "unlabelled": unlabelled,
        "target_class_right": right,
        "target_class_of": of,
        "reliability": [asdict(row) for row in bins],
        "groups": {name: group.as_dict() for name, group in scores.items() if name != "all"},
    }


def _reliability_text(bins: "Sequence[ReliabilityBin]") -> str:
    rows = [
        f"  {row.low:.1f} to {row.high:.1f}  {row.count:5d} models"
        f"  stated {row.mean_probability:.3f}  observed {row.poisoned_fraction:.3f}"
        for row in bins
    ]
    return "\n".join(["reliability, by stated probability:", *rows])
