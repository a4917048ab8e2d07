"""Pictures above 64 px: what evidence counts, and what the stages are worth that cost most there.

    python -m benchmarks.accuracy.large_pictures SOURCE [SOURCE ...] --work WORK [--out FILE]
        [--calibrator FILE]

Each SOURCE is a folder that `jaxtroj generate round2 --image-size 224` or `generate zoo
--pretrained` made, or the `.evidence.jsonl` of an earlier run. Gathers the evidence of every
network, all usual stages, in run folders under WORK, resumable, and writes it beside FILE.
Each network is judged by the calibrators for networks of no known round, as if they had met no
network of its population, and as they are before they are weighed for large pictures
(`jaxtroj.calibration.large_pictures`); where it has batch norms, also by that of Rounds 2 to 4.
With all stages, and without `memory` and `whole`, as if a scan had been told to leave them out.
`--calibrator` names the file that is weighed by all of them with batch norms, in place.
Log scores in nats.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.fresh import network, parser_of, probability, scores, shipped_for, weighed
from benchmarks.accuracy.picture_rows import NOT_JUDGED, PictureRow, read_all
from benchmarks.provenance import provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.cli.options import keep_compiled
from jaxtroj.populations import BY_NAME

LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "without whole": ("whole",),
    "without memory": ("memory",),
    "without both": ("memory", "whole"),
}
"""Which stages a network is judged by -> those whose fields do not count."""


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    parser = parser_of("What stages say of large pictures.", "large_pictures.json")
    parser.add_argument("--calibrator", type=Path, help="weigh this one by all of them, in place")
    args = parser.parse_args()
    keep_compiled()
    rows = read_all(args.sources, args.work)
    write_evidence(args.out, rows)
    if args.calibrator is not None:
        weighed(Calibrator.load(args.calibrator), rows).save(args.calibrator)
    result = {"provenance": provenance(), "judged": judged(rows)}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result["judged"]))
    return 0


def judged(rows: Sequence[PictureRow]) -> dict[str, dict[str, Any]]:
    """Calibrator -> stages -> scores, also by population, and what was said of each network."""
    normed = [row for row in rows if row.has_norms]
    rounds = Calibrator.load(BY_NAME["rounds"].path)
    before = [(row, shipped_for(row).for_large_pictures(None)) for row in rows]
    return {
        "general": dict(_by_stages([(row, shipped_for(row)) for row in rows])),
        "general, not weighed": dict(_by_stages(before)),
        "rounds": dict(_by_stages([(row, rounds) for row in normed])),
    }


def _by_stages(asked: Sequence[tuple[PictureRow, Calibrator]]) -> Iterator[tuple[str, Any]]:
    rows = [row for row, _ in asked]
    truth = np.array([row.poisoned for row in rows])
    names = np.array([row.population for row in rows])
    own = {name: names == name for name in dict.fromkeys(names.tolist())}
    for stages, left_out in LEFT_OUT.items():
        said = np.array([probability(*one, (*NOT_JUDGED, *left_out)) for one in asked])
        parts = {name: scores(said[held], truth[held]) for name, held in own.items()}
        networks = [network(row, float(p)) for row, p in zip(rows, said, strict=True)]
        yield stages, {**scores(said, truth), "populations": parts, "of": networks}


def text(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The table."""
    lines = ["| calibrator | stages | networks | found | false alarms | log score | ROC AUC |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name, by_stages in found.items():
        for stages, row in by_stages.items():
            share = f"{row['found']} of {row['poisoned']}"
            counts = f"{row['networks']} | {share} | {row['false_alarms']}"
            area = f"{row['roc_auc']:.4f}"
            lines.append(f"| {name} | {stages} | {counts} | {row['log_score']} | {area} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
