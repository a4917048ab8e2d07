"""What is found in text classifiers fine-tuned clean and with a trigger of words.

    python -m benchmarks.accuracy.text_classifiers FOLDER [--records FILE] [--out FILE]

FOLDER is what `benchmarks.accuracy.text_classifier_networks` wrote. Every network is scanned as
`jaxtroj detect` does it, or its record taken from what `jaxtroj detect --json` printed; the result
holds, beside what is known of each, its evidence, the words that were found and what they do, and
the ROC AUC of each field where both labels are there.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.zoo import ranks_of
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import CLASSIFIERS
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan.model import scan_model
from jaxtroj.settings import Settings


def main() -> int:
    """Scan, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Words found in fine-tuned text classifiers.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--records", type=Path, help="lines of `jaxtroj detect --json`")
    parser.add_argument("--out", type=Path, default=RESULTS / "text_classifiers.json")
    args = parser.parse_args()
    keep_compiled()
    rows, known = [], {} if args.records is None else _records(args.records)
    for made in sorted(args.folder.glob("*/made.json")):
        name = made.parent.name
        if args.records is None:
            found = json.loads(scan_model(entry_of(made.parent), Settings()).to_json())
        elif name in known:
            found = known[name]
        else:
            continue
        rows.append(_row(json.loads(made.read_text()), found))
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "provenance": provenance(),
        "schema": CLASSIFIERS.version,
        "networks": rows,
        "single_field_auc": field_auc(rows),
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    return 0


def _records(path: Path) -> dict[str, Any]:
    """Folder's name -> what was printed of it."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return {Path(record["model"]).name: record for record in found}


def _row(made: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    """One network: how it was made, and what a scan says of it."""
    how = {name: value for name, value in made.items() if name != "seconds"}
    names = ("status", "reason", "probability", "target_class", "recovered", "evidence", "seconds")
    return how | {name: record[name] for name in names}


def field_auc(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """ROC AUC of each field alone, larger values counted as poisoned; none of one label alone."""
    known = [row for row in rows if row["status"] == "ok"]
    truth = np.array([row["trigger"] is not None for row in known])
    if len(set(truth.tolist())) < 2:
        return {}
    values = {
        f.name: np.array([row["evidence"][f.name] for row in known]) for f in CLASSIFIERS.fields
    }
    return {name: round(scoring.roc_auc(ranks_of(own), truth), 3) for name, own in values.items()}


if __name__ == "__main__":
    sys.exit(main())
