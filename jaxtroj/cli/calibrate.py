"""`jaxtroj calibrate`: fit evidence to probability on a run whose truth is known.

Scan for it with --evidence-only, so that every model has the evidence of every stage. Failed and
skipped models are left out. From 20 models up; half of them poisoned is best.
"""

import argparse
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.cli import argument_types as types
from jaxtroj.cli import fitting, options, outputs
from jaxtroj.cli.main import COMMANDS, EXIT_CLEAN
from jaxtroj.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtroj.calibration import Calibrator
    from jaxtroj.calibration.groups import LeftOut
    from jaxtroj.calibration.training import StageScore
    from jaxtroj.calibration.unfitted import Unfitted
    from jaxtroj.cli.fitting import Pair
    from jaxtroj.leaderboard.cases import Truth


_ADVISED = 20
"""Models, half of them poisoned: of fewer a fit is mostly chance."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Declare the command and its options."""
    parser = subparsers.add_parser(
        "calibrate", help=COMMANDS["calibrate"], description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "run_folder", type=types.path_of, metavar="RUN", help="what scan --out wrote"
    )
    options.add_path(
        parser,
        "--truth",
        "FILE",
        "METADATA.csv, a CSV of model and label, a manifest, or the dataset folder",
        required=True,
    )
    options.add_path(parser, "--out", "FILE", "calibrator.json to write", required=True)
    parser.add_argument(
        "--population",
        type=types.short_text,
        default="",
        metavar="TEXT",
        help="what the models are, in words; kept in the calibrator (default: RUN and FILE)",
    )
    parser.add_argument(
        "--sides",
        type=_sides,
        metavar="LO-HI",
        help="shortest and longest side of the pictures it is for, in pixels; kept in it",
    )
    parser.add_argument(
        "--groups",
        action="append",
        default=[],
        type=types.name_of,
        metavar="COLUMN",
        help="also score each `architecture` or value of a METADATA.csv column by a fit on all"
        " others; clean models without a value are dealt out among the groups",
    )
    parser.add_argument(
        "--seed", type=types.seed, default=0, metavar="N", help="of the folds; default: 0"
    )


def run(args: argparse.Namespace) -> int:
    """Fit, save and print the out-of-fold scores; returns the exit status.

    Raises:
        CalibrationError: too few models, evidence of another version or of several kinds, or the
            file cannot be written, or groups of which one cannot be left out (it is written then).
    """
    from jaxtroj.calibration import Calibrator, Labelled, Origin, leave_out
    from jaxtroj.calibration.unfitted import unfitted_stages
    from jaxtroj.evidence.versions import check_gathered, gathered_by
    from jaxtroj.leaderboard.cases import apart, read_truth
    from jaxtroj.schemas import kind_of, scheme_of
    from jaxtroj.store import read_records, read_settings

    outputs.keep_inputs(args.out, (args.run_folder, args.truth))
    records = read_records(args.run_folder)
    truth = read_truth(args.truth)
    pairs = [(r, t) for r, t in fitting.matched(records, truth.poisoned) if r.whole_evidence]
    if not pairs:
        raise UsageError(
            f"no model of {args.run_folder} has evidence and a label in {args.truth}"
            f"{apart((record.model for record in records), truth.poisoned)}"
        )
    whole, pairs = len(pairs), fitting.without_copies(pairs)
    kind = kind_of(record for record, _ in pairs)
    settings = read_settings(args.run_folder)
    if doubt := check_gathered(kind, settings):
        options.message(f"{args.run_folder}: {doubt}")
    labelled = Labelled(
        [record.whole_evidence for record, _ in pairs],
        [truth for _, truth in pairs],
        [record.architecture for record, _ in pairs],
    )
    population = args.population or f"{args.run_folder.resolve().name} with {args.truth.name}"
    scheme = scheme_of(record for record, _ in pairs)
    groups = {column: _groups(pairs, truth, column) for column in args.groups}
    origin = Origin(args.seed, population, _commit(), args.sides, gathered_by(kind, settings))
    calibrator = Calibrator.fit(labelled, scheme, origin)
    calibrator.save(args.out)
    fitting.say_judged_early(labelled, scheme)
    unused = sum(record.status != "skipped" for record in records) - whole
    if unused:
        options.message(f"{unused} models that failed, or have no evidence or label, are left out")
    if len(pairs) < _ADVISED:
        options.message(f"{len(pairs)} models are few; {_ADVISED} or more are advised")
    print(_text(calibrator, unfitted_stages(labelled, scheme, calibrator.unfitted), args.out))
    for column, names in groups.items():  # after the file: what is fitted stands by itself
        print(_left_out_text(column, leave_out(labelled, scheme, names, args.seed)))
    return EXIT_CLEAN


def _groups(pairs: "Sequence[Pair]", truth: "Truth", column: str) -> list[str]:
    """Each model's value of a column; "" for a clean model without one."""
    from jaxtroj.leaderboard.cases import Case
    from jaxtroj.leaderboard.dealt_out import group_names

    cases = [
        Case(record.model, label, record.probability, truth.cells.get(record.model, {}), record)
        for record, label in pairs
    ]
    return group_names(cases, column)


def _left_out_text(column: str, found: "LeftOut") -> str:
    """Scores with each group left out in turn."""
    from jaxtroj.record import shown

    area = "none" if found.roc_auc is None else f"{found.roc_auc:.4f}"
    lines = [f"each {shown(column)} left out: log score {found.log_score:.4f}  ROC AUC {area}"]
    for name, part in found.groups.items():
        area = "none" if part.roc_auc is None else f"{part.roc_auc:.4f}"
        worst = "  worst" if name == found.worst else ""
        lines.append(
            f"  {shown(name):20}  {part.models:4d} models  {part.poisoned:4d} poisoned  log score"
            f" {part.log_score:.4f}  ROC AUC {area}{worst}"
        )
    return "\n".join(lines)


def _sides(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    try:
        sides = types.count(low), types.count(high)
    except argparse.ArgumentTypeError:
        sides = (1, 0)
    if sides[0] > sides[1]:
        raise types.refusal("two sides like 28-32", text)
    return sides


def _text(calibrator: "Calibrator", unfitted: "Sequence[Unfitted]", path: Path) -> str:
    """Out-of-fold scores by stage and architecture; log scores in nats, lower is better."""
    origin = calibrator.provenance
    lines = [f"fitted on {origin.models} models, {origin.poisoned} poisoned; out of fold:"]
    for stage, report in calibrator.reports.items():
        lines.append(_row(f"up to {stage}", report.score))
        lines += [_row(f"  {name}", score) for name, score in report.by_architecture.items()]
    lines += map(str, unfitted)
    return "\n".join([*lines, f"written to {path}"])


def _row(name: str, score: "StageScore") -> str:
    from jaxtroj.record import shown

    area = "none" if score.roc_auc is None else f"{score.roc_auc:.4f}"
    return (
        f"{shown(name):20}  {score.models:4d} models  log score {score.log_score:.4f}"
        f" ({score.log_score_low:.4f} to {score.log_score_high:.4f})  ROC AUC {area}"
    )


def _commit() -> str:
    """The commit of the checkout that this code stands in, with a mark if it was changed."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "pyproject.toml").is_file():  # installed, not a checkout
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    command += ["--exclude", "*"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):  # no git, no commit to name
        return ""
    return found.stdout.strip()
