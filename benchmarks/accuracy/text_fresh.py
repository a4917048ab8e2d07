"""Text heads by the calibrator that ships: nothing is fitted here.

    python -m benchmarks.accuracy.text_fresh [SOURCE ...] [--work DIR] [--out FILE]

A SOURCE is DATASET=BANK or the `.evidence.jsonl` of an earlier run, as `text_transfer` takes them;
by default stored heads: a population that no fit and no choice has met, and two that the names tell
more of. Log score, ROC AUC and mean probabilities of each population, all its heads beside clean
heads of their own dataset.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.accuracy.text_transfer import read_rows, scores
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.options import keep_compiled
from jaxtroj.record import digest_file
from jaxtroj.settings import DEFAULT_TEXT_CALIBRATOR


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fresh text heads by the shipped calibrator.")
    stored = str(RESULTS / "text_fresh.evidence.jsonl")
    parser.add_argument("sources", nargs="*", metavar="SOURCE", default=[stored])
    parser.add_argument("--work", type=Path, default=Path("text_runs"), help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "text_fresh.json")
    args = parser.parse_args()
    keep_compiled()
    rows = [row for source in args.sources for row in read_rows(source, args.work)]
    write_evidence(args.out, rows)
    calibrator = Calibrator.load(DEFAULT_TEXT_CALIBRATOR)
    names, truth = ([getattr(r, key) for r in rows] for key in ("population", "poisoned"))
    said = [calibrator.probability(r.evidence, Traits(r.architecture or None)) for r in rows]
    found = {}
    for name in dict.fromkeys(names):
        own = np.array(names) == name
        found[name] = scores(np.array(truth)[own], np.array(said)[own])
    digest = digest_file(DEFAULT_TEXT_CALIBRATOR)
    result = {"provenance": provenance(), "calibrator": digest, "populations": found}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
