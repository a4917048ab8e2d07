"""NIST's published leaderboards: where would these scores stand among the submissions of a round?

A summary file has the columns Team, ExecutionTimeStamp, CrossEntropyLoss,
CrossEntropy95ConfidenceInterval, ROC-AUC. Scores compare only on the same models.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from converters.errors import safe_repr
from jaxtroj.errors import DatasetError
from jaxtroj.leaderboard.predictions import read_lines

COLUMNS = ("Team", "CrossEntropyLoss", "ROC-AUC")


@dataclass(frozen=True)
class Submission:
    """One official submission; log score in nats, area over NIST's 101 thresholds."""

    team: str
    log_score: float
    nist_auc: float


@dataclass(frozen=True)
class Standing:
    """1 is the best log score, or area, among the submissions with these scores added."""

    submissions: int
    by_log_score: int
    by_nist_auc: int | None
    best: Submission
    """The official submission with the best log score."""


def read_summary(path: Path) -> tuple[Submission, ...]:
    """Reads a leaderboard summary. Raises DatasetError for anything else."""
    (_, header), *lines = read_lines(path)
    names = [name.strip() for name in header]
    if not set(COLUMNS) <= set(names):
        raise DatasetError(
            f"{path} is no leaderboard summary: expected the columns {', '.join(COLUMNS)}, got"
            f" {safe_repr(', '.join(names))}"
        )
    team, loss, area = (names.index(name) for name in COLUMNS)
    found = []
    for number, line in lines:
        if len(line) != len(names):
            raise DatasetError(f"{path}, line {number}: {len(line)} cells, expected {len(names)}")
        found.append(
            Submission(
                line[team].strip(),
                _number(path, number, line[loss]),
                _number(path, number, line[area]),
            )
        )
    if not found:
        raise DatasetError(f"{path} holds no submission, only a header")
    return tuple(found)


def standing(
    submissions: Sequence[Submission], log_score: float, nist_auc: float | None
) -> Standing:
    """The place of these scores; equal scores share the better place."""
    better = None if nist_auc is None else sum(s.nist_auc > nist_auc for s in submissions)
    return Standing(
        submissions=len(submissions),
        by_log_score=1 + sum(s.log_score < log_score for s in submissions),
        by_nist_auc=None if better is None else 1 + better,
        best=min(submissions, key=lambda s: s.log_score),
    )


def _number(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DatasetError(f"{path}, line {line}: {safe_repr(text.strip())}, expected a number")
    return value
