"""Text heads beside clean heads of another dataset, judged by fits that have met neither.

    python -m benchmarks.accuracy.text_apart [EVIDENCE APART] [--out FILE] [--calibrator FILE]

EVIDENCE (default: the stored one) is the `.evidence.jsonl` of `text_transfer`, where every bank
holds clean heads of the population that is judged. APART holds the evidence of heads that were
scanned with a bank of another population, named "A beside B" (the same benchmark gathers it for
DATASET=BANK), less those whose example texts are of another kind (flag `texts-differ`), which are
not judged. Heads of one dataset share training texts and agree more than heads of two, so each way
has a calibrator; here what insertions do helps (.485 for .530 without stage `against`).

Each population of APART is judged by a fit on all rows of both files that have neither A nor B in
them ("both"), and by a fit on EVIDENCE alone, as if its clean heads were its own ("own"). From the
former a temperature is learnt, by which the calibrator divides its log-odds.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.round5_accuracy import HeadRow
from benchmarks.accuracy.text_transfer import (
    fit_arguments,
    labelled,
    left_out,
    origin_of_heads,
    read_rows,
    scheme,
    scores,
)
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.transfer import learn_temperature
from jaxtroj.evidence.stages import TEXTS
from jaxtroj.evidence.texts.stages.against import AGAINST
from jaxtroj.numerics import logit, sigmoid


def main() -> int:
    """Judge, print and write; returns the exit status."""
    args = _arguments()
    own, apart = (read_rows(str(path), args.work) for path in (args.evidence, args.apart))
    fits = {"both": [*own, *apart], "own": own}
    said = {name: left_out(rows, args.seed, apart, AGAINST) for name, rows in fits.items()}
    truth = np.array([row.poisoned for row in apart])
    names = [row.population for row in apart]
    learnt = learn_temperature(logit(said["both"]), truth, names)
    said["both, with temperature"] = sigmoid(logit(said["both"]) / learnt.value)
    found = {name: by_population(apart, answers) for name, answers in said.items()}
    result = {"provenance": provenance(), "schema": TEXTS.version, "temperature": asdict(learnt)}
    result |= {"fitted_on": found}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    for name, parts in found.items():
        for population, part in parts.items():
            print(f"{name:23} {population:55} {json.dumps(part)}")
    if args.calibrator is not None:
        where = origin_of_heads(args.seed, args.population)
        fitted = Calibrator.fit(labelled(fits["both"]), scheme(own, AGAINST), where)
        changed = replace(fitted.transfer, dataset=learnt)
        replace(fitted, transfer=changed).save(args.calibrator)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Text heads beside clean heads of other datasets.")
    own, apart = (RESULTS / f"text_{name}.evidence.jsonl" for name in ("transfer", "apart"))
    parser.add_argument("evidence", type=Path, nargs="?", default=own, help="of text_transfer")
    parser.add_argument("apart", type=Path, nargs="?", default=apart, help="of A beside B")
    return fit_arguments(parser, "text_apart")


def by_population(apart: Sequence[HeadRow], said: np.ndarray) -> dict[str, Any]:
    """Scores of each population, and of all."""
    names = np.array([row.population for row in apart])
    truth = np.array([row.poisoned for row in apart])
    parts = {name: scores(truth[names == name], said[names == name]) for name in np.unique(names)}
    return {**parts, "all": scores(truth, said)}


if __name__ == "__main__":
    sys.exit(main())
