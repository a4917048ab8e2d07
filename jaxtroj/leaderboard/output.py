"""The files of an evaluation: tables as CSV, predictions as the harness keeps them.

DIR/scores.json       every number, as `evaluate --json` prints it
DIR/models.csv        one line for each model, the costliest first
DIR/confusion.csv     counts and rates at NIST's 101 thresholds, with NIST's column names
DIR/roc.csv           the exact ROC curve
DIR/sweep.csv         every subset of the trojan percentage sweep
DIR/sweep.svg, .png   the sweep; roc.svg, .png the two ROC curves
DIR/results/          id-XXXXXXXX.txt, one float each, and whose they are (model_names.json)

Plots need models of both kinds, and without them the sweep is empty.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from converters.files import write_atomic
from jaxtroj.csv_text import csv_text
from jaxtroj.errors import UsageError
from jaxtroj.leaderboard.cases import Case, architecture_of, labels, probabilities, worst_first
from jaxtroj.leaderboard.curves import ExactRoc, roc_exact
from jaxtroj.leaderboard.plots import save_roc, save_sweep
from jaxtroj.leaderboard.result_files import check_results, write_results
from jaxtroj.leaderboard.sweep import SweepPoint
from jaxtroj.scoring import NistRoc, nist_confusions, roc_nist

TABLES = ("scores.json", "models.csv", "confusion.csv", "roc.csv", "sweep.csv")
PLOTS = ("roc.svg", "roc.png", "sweep.svg", "sweep.png")
RESULTS = "results"
MODEL_COLUMNS = ("model", "round", "poisoned", "probability", "log_score", "architecture", "status")
CONFUSION_COLUMNS = ("TP", "FP", "FN", "TN", "TPR", "FPR", "Thresholds")
ROC_COLUMNS = ("threshold", "true_positive_rate", "false_positive_rate")


def write_all(
    folder: Path, scores: Mapping[str, Any], cases: Sequence[Case], points: Sequence[SweepPoint]
) -> None:
    """Writes everything listed above; what an earlier evaluation wrote there is replaced.

    Raises UsageError if a file cannot be written, or result files of others are there.
    """
    results = [(case.model, case.probability) for case in cases]
    check_results(folder / RESULTS, (model for model, value in results if not math.isnan(value)))
    said, truth = probabilities(cases), labels(cases)
    nist, exact = roc_nist(said, truth), roc_exact(said, truth)
    confusions = nist_confusions(said, truth)
    try:
        text = json.dumps(scores, indent=1, allow_nan=False)
        write_atomic(folder / "scores.json", text.encode() + b"\n")
        write_csv(folder / "models.csv", MODEL_COLUMNS, map(_model_row, worst_first(cases)))
        write_csv(folder / "confusion.csv", CONFUSION_COLUMNS, _confusion_rows(confusions, nist))
        write_csv(folder / "roc.csv", ROC_COLUMNS, _roc_rows(exact))
        write_csv(
            folder / "sweep.csv",
            [f.name for f in fields(SweepPoint)],
            (asdict(point).values() for point in points),
        )
        if points:  # models of both kinds
            save_roc(folder / "roc", nist, exact)
            save_sweep(folder / "sweep", points)
        else:  # nothing to draw, and what an earlier evaluation drew is not of these models
            for name in PLOTS:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write in {folder}: {error.strerror or error}") from error
    write_results(folder / RESULTS, results)


def write_csv(path: Path, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
    """A CSV table, whole or not at all; NaN and None are empty cells. Raises OSError."""
    write_atomic(path, csv_text(columns, rows).encode("utf-8", "backslashreplace"))


def _model_row(pair: tuple[Case, float]) -> tuple[Any, ...]:
    case, part = pair
    status = case.record.status if case.record else ""
    status = "missing" if math.isnan(case.probability) else status
    architecture = architecture_of(case) or ""
    return case.model, case.round, case.poisoned, case.probability, part, architecture, status


def _confusion_rows(confusions: Sequence[Any], nist: NistRoc) -> Iterable[tuple[Any, ...]]:
    for row, hit, alarm in zip(
        confusions, nist.true_positive_rates, nist.false_positive_rates, strict=True
    ):
        counts = (row.true_positives, row.false_positives, row.false_negatives, row.true_negatives)
        yield (*counts, float(hit), float(alarm), row.threshold)


def _roc_rows(roc: ExactRoc) -> Iterable[tuple[float, float, float]]:
    columns = (roc.thresholds, roc.true_positive_rates, roc.false_positive_rates)
    return zip(*(column.tolist() for column in columns), strict=True)
