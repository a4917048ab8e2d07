"""What each stage of evidence is worth: log score lost without it, beside the seconds it takes.

    python -m benchmarks.accuracy.worth SOURCE --work WORK [--out FILE]

SOURCE is a zoo's folder or the evidence of one (`benchmarks.accuracy.zoo`). The general calibrator
is fitted and judged anew on the evidence without one stage after the other, and then on that up to
each stage in turn: the curve of log score against seconds. Every network is judged out of fold, and
once more by fits that have not met its kind of trigger. Seconds are means over networks, as their
scans were timed, so they compare stages and say little of a machine.
"""

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.picture_rows import PictureRow, labelled, read_rows
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Scheme, cross_validate, leave_out
from jaxtroj.schemas import scheme_for


def main() -> int:
    """Judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="What each stage of evidence is worth.")
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "worth.json")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    args = parser.parse_args()
    rows = read_rows(args.source, args.work)
    result: dict[str, Any] = {"provenance": provenance(), "models": len(rows), "sets": []}
    for stages in stage_sets(tuple(_scheme(rows).stages)):
        one = judged(rows, stages, args.seed)
        result["sets"].append(one)
        print(text(one), flush=True)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    return 0


def stage_sets(stages: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """All stages, all but each, and then those up to each, from the second on.

    >>> list(stage_sets(("a", "b", "c")))
    [('a', 'b', 'c'), ('b', 'c'), ('a', 'c'), ('a', 'b')]
    """
    sets = [stages]
    sets += [tuple(name for name in stages if name != without) for without in stages]
    sets += [stages[:until] for until in range(2, len(stages))]
    yield from dict.fromkeys(sets)


def judged(rows: Sequence[PictureRow], stages: Collection[str], seed: int) -> dict[str, Any]:
    """Scores by some stages alone, and mean seconds of these and of all."""
    every, models = _scheme(rows), labelled(rows)
    chosen = replace(every, stages={name: every.stages[name] for name in stages})
    said = cross_validate(models, chosen, seed)
    kinds = leave_out(models, chosen, [row.kind for row in rows], seed)
    return {
        "stages": list(stages),
        "without": [name for name in every.stages if name not in stages],
        "seconds": seconds(rows, stages),
        "seconds_of_all": seconds(rows, every.stages),
        "out_of_fold": [scoring.log_score(said, models.truth), scoring.roc_auc(said, models.truth)],
        "kinds_left_out": [kinds.log_score, kinds.roc_auc],
    }


def seconds(rows: Sequence[PictureRow], stages: Collection[str]) -> float:
    """Mean over networks of the seconds that these stages took."""
    each = [sum(row.seconds.get(name, 0.0) for name in stages) for row in rows]
    return round(float(np.mean(each)), 2)


def text(one: dict[str, Any]) -> str:
    """One set of stages for people."""
    scores = [
        f"{score:.3f} / {area:.3f}" for score, area in (one["out_of_fold"], one["kinds_left_out"])
    ]
    named = f"without {' '.join(one['without'])}" if one["without"] else "all"
    return (
        f"{named:50} out of fold {scores[0]}  kinds left out {scores[1]}"
        f"  {one['seconds']:.1f} of {one['seconds_of_all']:.1f} s"
    )


def _scheme(rows: Sequence[PictureRow]) -> Scheme:
    """All stages, those too that the general calibrator does not judge by."""
    return replace(scheme_for("image", (row.evidence for row in rows)), is_pooled=True)


if __name__ == "__main__":
    sys.exit(main())
