"""Pictures above 64 px: what the stages are worth that scans leave out there.

    python -m benchmarks.accuracy.large_pictures SOURCE [SOURCE ...] --work WORK [--out FILE]

Each SOURCE is a folder that `jaxtroj generate round2 --image-size 224` or `generate zoo
--pretrained` made, or the `.evidence.jsonl` of an earlier run. Gathers the evidence of every
network, the stages of small pictures `memory` and `whole` too, in run folders under WORK,
resumable, and writes it beside FILE.
Each network is judged by shipped calibrators, which have met pictures of 28 to 80 px: the general
one and that of Rounds 2 to 4, with and without these stages. Networks whose batch norms are folded
away are left out: another calibrator answers for them, and `memory` has nothing to look at. Nothing
is fitted. Log scores in nats.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.accuracy.fresh import arguments, network, probability, scores
from benchmarks.accuracy.picture_rows import NOT_JUDGED, PictureRow, read_rows
from benchmarks.provenance import provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.populations import BY_NAME

CALIBRATORS = ("general", "rounds")
STAGES = ("weights", "statistics", "memory", "probes", "sensitivity", "inversion", "whole")
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "as scans": ("memory", "whole"),
    "with memory": ("whole",),
    "with memory and whole": (),
}
"""Which stages a network is judged by -> stages whose fields do not count."""


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = arguments("What more stages say of large pictures.", "large_pictures.json")
    keep_compiled()
    rows = [row for s in args.sources for row in read_rows(s, args.work, stages=STAGES)]
    write_evidence(args.out, rows)
    result = {"provenance": provenance(), "judged": judged(rows)}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result["judged"]))
    return 0


def judged(rows: Sequence[PictureRow]) -> dict[str, dict[str, Any]]:
    """Calibrator -> stages -> scores, and what was said of each network.

    Networks without the fields of a stage count only where it is left out.
    """
    own = [row for row in rows if "norm_shift" in row.evidence]
    return {name: dict(_by_stages(own, name)) for name in CALIBRATORS}


def _by_stages(rows: Sequence[PictureRow], name: str):
    calibrator = Calibrator.load(BY_NAME[name].path)
    for stages, left_out in LEFT_OUT.items():
        own = [row for row in rows if _has(row, left_out)]
        said = np.array([probability(row, calibrator, (*NOT_JUDGED, *left_out)) for row in own])
        found = scores(said, np.array([row.poisoned for row in own]))
        networks = [network(row, float(p)) for row, p in zip(own, said, strict=True)]
        yield stages, {**found, "of": networks}


def _has(row: PictureRow, left_out: Sequence[str]) -> bool:
    wanted = {"memory", "whole"} - {*left_out}
    return all({*IMAGES.stage_fields[stage]} & row.evidence.keys() for stage in wanted)


def text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The table."""
    lines = ["| calibrator | stages | networks | found | false alarms | log score | ROC AUC |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name, by_stages in found.items():
        for stages, row in by_stages.items():
            share = f"{row['found']} of {row['poisoned']}"
            counts = f"{row['networks']} | {share} | {row['false_alarms']}"
            auc = f"{row['roc_auc']:.4f}"
            lines.append(f"| {name} | {stages} | {counts} | {row['log_score']} | {auc} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
