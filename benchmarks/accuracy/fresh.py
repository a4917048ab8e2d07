"""Networks that the shipped calibrators have not met, judged by them.

    python -m benchmarks.accuracy.fresh SOURCE [SOURCE ...] --work WORK [--out FILE]

Each SOURCE is a folder that `jaxtroj generate` made with seeds and sizes that no fit has met, or
the `.evidence.jsonl` of an earlier run. Gathers the evidence of every network, all usual stages, in
run folders under WORK, resumable, and writes it beside FILE. Log scores in nats, over all networks
and without those that have not converged (their trigger or their task was not learnt). Of pictures
above 64 px some populations were used to weigh what evidence counts for them
(`benchmarks.accuracy.large_pictures`): each is judged by what the others say.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.picture_rows import (
    NOT_JUDGED,
    PictureRow,
    labelled,
    read_all,
    read_rows,
)
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.numerics import is_above
from jaxtroj.populations import LARGE_ABOVE, Asked
from jaxtroj.record import digest_file
from jaxtroj.settings import Settings, choice_of

LARGE_ROWS = RESULTS / "large_pictures.evidence.jsonl"


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = parser_of("Fresh networks by the shipped calibrator.", "fresh.json").parse_args()
    keep_compiled()
    rows = read_all(args.sources, args.work)
    write_evidence(args.out, rows)
    result = {
        "provenance": provenance(),
        "calibrators": {
            path.name: digest_file(path) for path in sorted(set(map(calibrator_for, rows)))
        },
        "populations": judged(rows),
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result["populations"], indent=1))
    return 0


def parser_of(about: str, result: str) -> argparse.ArgumentParser:
    """What a benchmark of sources is given: `sources`, `work`, and `out`, by default `result`."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / result)
    return parser


def calibrator_for(row: PictureRow) -> Path:
    """The shipped calibrator that answers for a network of no known round."""
    asked = Asked(size=(row.side, row.side), has_batch_norm=row.has_norms)
    choice = choice_of(Settings(), asked)
    assert choice is not None  # the settings' default is one
    return choice.path


def shipped_for(row: PictureRow) -> Calibrator:
    """That calibrator as it would be without the network's population."""
    return _without(calibrator_for(row), row.population if row.side > LARGE_ABOVE else "")


@cache
def _without(path: Path, population: str) -> Calibrator:
    shipped = Calibrator.load(path)
    model = pooled_of(shipped.stages)
    if not population or model is None or model.large is None:
        return shipped
    rows = read_rows(LARGE_ROWS, Path())
    others = [row for row in rows if row.population != population]
    return shipped if others == rows else weighed(shipped, others)


def weighed(calibrator: Calibrator, rows: Sequence[PictureRow]) -> Calibrator:
    """What evidence counts for large pictures, by those of the networks that have batch norms."""
    normed = [row for row in rows if row.has_norms]
    groups = [row.population for row in normed]
    return calibrator.for_large_pictures(labelled(normed), groups)


def judged(rows: Sequence[PictureRow]) -> dict[str, Any]:
    """Population -> scores, and what was said of each network by the calibrator for it."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(row.population for row in rows):
        own = [row for row in rows if row.population == name]
        said = np.array([probability(row, shipped_for(row)) for row in own])
        sure = np.array([row.converged for row in own])
        truth = np.array([row.poisoned for row in own])
        found[name] = {
            "all": scores(said, truth),
            "converged": scores(said[sure], truth[sure]),
            "networks": [network(row, float(p)) for row, p in zip(own, said, strict=True)],
        }
    return found


def probability(
    row: PictureRow, calibrator: Calibrator, left_out: Sequence[str] = NOT_JUDGED
) -> float:
    """P(poisoned) at even odds, without the fields of stages; by default as scans judge."""
    gone = {field for stage in left_out for field in IMAGES.stage_fields[stage]}
    fields = {name: value for name, value in row.evidence.items() if name not in gone}
    traits = Traits(row.architecture, side=row.side, classes=row.classes)
    return calibrator.probability(fields, traits)


def scores(said: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Counts and scores; a ROC AUC only where there are networks of both kinds."""
    above = is_above(said)
    return {
        "networks": len(said),
        "poisoned": int(truth.sum()),
        "found": int((above & truth).sum()),
        "false_alarms": int((above & ~truth).sum()),
        "log_score": round(float(scoring.log_score(said, truth)), 4) if len(said) else None,
        "roc_auc": scoring.roc_auc(said, truth) if 0 < truth.sum() < len(truth) else None,
    }


def scores_by(rows: Sequence[PictureRow], fits: Mapping[Path, Calibrator]) -> dict[str, Any]:
    """`scores` of networks by the fits that stand for the shipped calibrators."""
    said = [probability(row, fits[calibrator_for(row)]) for row in rows]
    return scores(np.array(said), np.array([row.poisoned for row in rows]))


def before_and_after(row: PictureRow, *fits: Mapping[Path, Calibrator]) -> dict[str, float]:
    """What two such sets of fits say of a network."""
    before, after = (round(probability(row, fit[calibrator_for(row)]), 4) for fit in fits)
    return {"before": before, "after": after}


def network(row: PictureRow, said: float) -> dict[str, Any]:
    """One network and its probability."""
    return {
        "model": row.model,
        "architecture": row.family,
        "side": row.side,
        "classes": row.classes,
        "poisoned": row.poisoned,
        "kind": row.kind,
        "sources": row.sources,
        "adversary": row.adversary,
        "converged": row.converged,
        "probability": round(said, 4),
        "seconds": round(sum(row.seconds.values()), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
