"""Networks of two to five classes: the general calibrators before and after they know of them.

    python -m benchmarks.accuracy.few_classes SOURCE --fresh SOURCE --work WORK [--out FILE]
        [--earlier SOURCE] [--calibrator FILE ...]

Each SOURCE is a folder of `jaxtroj generate zoo` on pictures of few classes
(`benchmarks.few_class_pictures`), or a file of such evidence. The networks of `--fresh` are judged
by a fit on the first alone (`jaxtroj.calibration.few_classes`), and all once more by fits without
their own twin. `--earlier` names evidence of some of the fresh ones as an earlier version gathered
it: the same fit judges both. `--calibrator` names files that get the fit on all, in place. Log
scores in nats. The evidence is written beside FILE.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.fresh import (
    before_and_after,
    calibrator_for,
    probability,
    scores,
    scores_by,
)
from benchmarks.accuracy.picture_rows import PictureRow, labelled, read_rows
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator

Rows = Sequence[PictureRow]


def main() -> int:
    """Fit, judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Networks of few classes.")
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("--fresh", type=Path, required=True, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--earlier", type=Path, metavar="SOURCE")
    parser.add_argument("--out", type=Path, default=RESULTS / "few_classes.json")
    parser.add_argument("--calibrator", type=Path, action="append", default=[])
    args = parser.parse_args()
    rows, fresh = read_rows(args.source, args.work), read_rows(args.fresh, args.work)
    earlier = [] if args.earlier is None else read_rows(args.earlier, args.work)
    kept = {"": rows, ".fresh": fresh, ".earlier": earlier}
    for name, some in ((f"{part}.evidence.jsonl", some) for part, some in kept.items() if some):
        lines = "".join(json.dumps(asdict(row)) + "\n" for row in some)
        write_atomic(args.out.with_suffix(name), lines.encode())
    result: dict[str, Any] = {"provenance": provenance(), **judged(rows, fresh, earlier)}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps({name: part for name, part in result.items() if name != "provenance"}))
    for path in args.calibrator:
        Calibrator.load(path).for_few_classes(labelled([*rows, *fresh])).save(path)
    return 0


def judged(rows: Rows, fresh: Rows, earlier: Rows = ()) -> dict[str, Any]:
    """Scores of fresh networks and of all, by fits that know of few classes or do not."""
    known = {(row.population, row.model) for row in earlier}
    again = [row for row in fresh if (row.population, row.model) in known]
    every = (*rows, *fresh)
    paths = {*map(calibrator_for, every)}
    shipped = {path: Calibrator.load(path).for_few_classes(None) for path in paths}
    after = {path: one.for_few_classes(labelled(rows)) for path, one in shipped.items()}

    def without_twin(row: PictureRow) -> float:
        others = [one for one in every if one.pair != row.pair]
        return probability(row, shipped[calibrator_for(row)].for_few_classes(labelled(others)))

    return {
        "all": {
            "before": scores_by(every, shipped),
            "twins_left_out": scores(
                np.array(list(map(without_twin, every))), np.array([row.poisoned for row in every])
            ),
        },
        "fresh": {
            "before": scores_by(fresh, shipped),
            "after": scores_by(fresh, after),
            "networks": [_network(row, shipped, after) for row in fresh],
        },
        "gathered_again": {
            "earlier": scores_by(earlier, after),
            "now": scores_by(again, after),
        } if earlier else None,
    }  # fmt: skip


def _network(row: PictureRow, *fits: dict[Path, Calibrator]) -> dict[str, Any]:
    return {
        "model": row.model, "dataset": row.dataset, "architecture": row.family,
        "classes": row.classes, "poisoned": row.poisoned, "kind": row.kind,
        "sources": row.sources, **before_and_after(row, *fits),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
