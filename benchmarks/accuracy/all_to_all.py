"""Triggers that send each class to the next: how often the search sees them, and what that adds.

    python -m benchmarks.accuracy.all_to_all SOURCE ... --fresh SOURCE --work WORK [--out FILE]
        [--calibrator FILE ...]

Each SOURCE is a folder of networks, or a file of such evidence. The sign is counted on the first
ones (`jaxtroj.calibration.signs`): clean networks, and those of `generate zoo --sources next`;
networks with other triggers are shown apart. Those of `--fresh` are judged by the general
calibrators without it and with it. `--calibrator` names files that get it, in place. Log scores in
nats. The evidence is written beside FILE.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.accuracy.fresh import before_and_after, calibrator_for, scores_by
from benchmarks.accuracy.picture_rows import PictureRow, read_all, read_rows
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.signs import Sign
from jaxtroj.evidence.images.all_to_all import AllToAllBudget
from jaxtroj.evidence.images.stages.all_to_all import ALL_TO_ALL

Rows = Sequence[PictureRow]

SHARE = 0.1
"""Part of all trojans that is taken to be all to all. Nobody knows it; papers have both."""
_MEANING = (
    "one mask sends each class to the next (share of the held-out examples times that of the"
    " picture which it leaves: {value})"
)
_FIELD, _EACH = "all_to_all_worth", "each"


def main() -> int:
    """Count, judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Triggers that send each class to the next.")
    parser.add_argument("source", type=Path, nargs="+", metavar="SOURCE")
    parser.add_argument("--fresh", type=Path, required=True, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "all_to_all.json")
    parser.add_argument("--calibrator", type=Path, action="append", default=[])
    args = parser.parse_args()
    rows = read_all(args.source, args.work / "counted", stages=(ALL_TO_ALL.name,))
    fresh = read_rows(args.fresh, args.work)
    write_evidence(args.out, rows)
    write_evidence(args.out.with_suffix(".fresh.json"), fresh)
    sign = counted(rows)
    result: dict[str, Any] = {"provenance": provenance(), **judged(rows, fresh, sign)}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps({name: part for name, part in result.items() if name != "provenance"}))
    for path in args.calibrator:
        replace(Calibrator.load(path), signs=(sign,)).save(path)
    return 0


def counted(rows: Rows) -> Sign:
    """The sign, as often as it is seen in these networks that learnt what they should."""
    budget, learnt = AllToAllBudget(), [row for row in rows if row.converged]
    clean = [row for row in learnt if not row.poisoned and row.classes >= budget.classes]
    planted = [row for row in learnt if row.sources == _EACH]
    return Sign(
        stage=ALL_TO_ALL.name,
        name=_FIELD,
        least=budget.works,
        meaning=_MEANING,
        share=SHARE,
        clean=len(clean),
        clean_seen=_seen(clean),
        poisoned=len(planted),
        poisoned_seen=_seen(planted),
    )


def judged(rows: Rows, fresh: Rows, sign: Sign) -> dict[str, Any]:
    """The counts, and scores of fresh networks without and with the sign."""
    others = [row for row in rows if row.poisoned and row.sources != _EACH]
    paths = set(map(calibrator_for, fresh))
    # Some of the large ones are those that it was weighed by for large pictures.
    shipped = {path: Calibrator.load(path).for_large_pictures(None) for path in paths}
    without = {path: replace(one, signs=()) for path, one in shipped.items()}
    knowing = {path: replace(one, signs=(sign,)) for path, one in shipped.items()}
    return {
        "sign": asdict(sign) | {"log_odds": round(sign.log_odds, 3)},
        "other_triggers": {"models": len(others), "seen": _seen(others)},
        "largest_of_clean": max(_rate(row) for row in rows if not row.poisoned),
        "fresh": {
            "before": scores_by(fresh, without),
            "after": scores_by(fresh, knowing),
            "networks": [_network(row, without, knowing) for row in fresh],
        },
    }


def _seen(rows: Rows) -> int:
    return sum(_rate(row) >= AllToAllBudget().works for row in rows)


def _rate(row: PictureRow) -> float:
    return row.evidence[_FIELD]


def _network(row: PictureRow, *fits: dict[Path, Calibrator]) -> dict[str, Any]:
    return {
        "model": row.model, "dataset": row.dataset, "architecture": row.family, "kind": row.kind,
        "sources": row.sources, "success": row.success, "rate": round(_rate(row), 3),
        **before_and_after(row, *fits),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
