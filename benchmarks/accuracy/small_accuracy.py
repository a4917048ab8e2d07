"""How well small poisoned networks are told from clean ones, by out-of-fold log score and ROC AUC.

    python -m benchmarks.accuracy.small_accuracy DATASET [DATASET ...] --work DIR [--out FILE]

Each DATASET is a folder made by `jaxtroj generate small`, or the `.evidence.jsonl` that an earlier
run wrote. As `benchmarks.accuracy.round0_accuracy`, for pictures in RGB and divided by 255; and it
judges every model once more by a calibrator that has seen no model of the same base network, since
models of one base resemble each other. `--calibrator` also fits the calibrator that ships with the
package, `--sides` says for which pictures.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.round0_accuracy import ImageRow, judge, labelled, origin, text
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Scheme
from jaxtroj.calibration.transfer import Traits
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.images.stages.fixed import FIXED
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.numerics import is_above
from jaxtroj.rounds import iter_models
from jaxtroj.scan import scan
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore

# Of the stages only this one: what the weights look like depends on how long a network was trained,
# and the networks of strangers are trained for longer than a round's.
STAGES = {FIXED.name: IMAGES.stage_fields[FIXED.name]}


@dataclass(frozen=True)
class SmallRow(ImageRow):
    """One labelled small network: also its base and what kind of trigger it has."""

    base: str
    trigger: str


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = [row for source in args.datasets for row in read_rows(source, args.work)]
    judged = [replace(row, evidence=_of_stages(row.evidence)) for row in rows]
    result = {"provenance": provenance(), "schema": IMAGES.version} | judge(judged, args.seed)
    result["by_trigger"] = by_trigger(rows, result["predictions"])
    result["left_out_bases"] = by_left_out_base(rows, args.seed)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    write_evidence(args.out, rows)
    print(text(result))
    print("with the model's base left out:", result["left_out_bases"]["all"])
    for kind, found in result["by_trigger"].items():
        print(f"{kind}: {found}")
    if args.calibrator is not None:
        fit(rows, args.seed, args.population, tuple(args.sides)).save(args.calibrator)
    return 0


def _of_stages(evidence: Mapping[str, float]) -> dict[str, float]:
    return {name: evidence[name] for fields in STAGES.values() for name in fields}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Out-of-fold accuracy on small networks.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "small_accuracy.json")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--calibrator", type=Path, help="also fit on all models and write here")
    parser.add_argument("--population", default="", help="what the models are, in words")
    parser.add_argument("--sides", type=int, nargs=2, default=(28, 32), help="of the pictures, px")
    return parser.parse_args()


def read_rows(source: Path, work: Path) -> list[SmallRow]:
    """Labelled rows of a dataset folder, or of the evidence an earlier run wrote."""
    if source.is_file():
        return [SmallRow(**json.loads(line)) for line in source.read_text().splitlines()]
    entries = {e.model_id: e for e in iter_models(source) if e.poisoned is not None}
    settings = Settings(
        calibrator=None, early_stop=False, channel_order="RGB", normalization="unit"
    )
    rows = []
    with RunStore(work / source.name, settings.as_json()) as store:
        for record in scan(entries.values(), settings, store):
            print(f"{source.name} {record.model} {record.status} {record.reason}", file=sys.stderr)
            if record.status == "ok":
                rows.append(_row(source.name, entries[record.model], record))
    return rows


def _row(population: str, entry, record) -> SmallRow:
    cells = entry.metadata
    target = cells["trigger_target_class"]
    return SmallRow(
        population=population,
        model=record.model,
        architecture=record.architecture or "",
        poisoned=bool(entry.poisoned),
        target_class=int(target) if target else None,
        found_target=record.target_class,
        evidence=record.evidence,
        seconds=record.seconds,
        base=f"{population} {cells['model_architecture']} {cells['base']}",
        trigger=f"{cells['trigger_kind']} {cells['trigger_style']}".strip(),
    )


def by_trigger(rows: Sequence[SmallRow], predictions: dict[str, Any]) -> dict[str, Any]:
    """For each kind of trigger, and for clean models: probabilities out of fold, targets found."""
    found: dict[str, Any] = {}
    for row in rows:
        kind = row.trigger.partition(" ")[0] or "clean"
        part = found.setdefault(kind, {"models": 0, "above_half": 0, "right_target": 0})
        probability = predictions[f"{row.population}/{row.model}"][0]
        part["models"] += 1
        part["above_half"] += int(is_above(probability))
        part["right_target"] += int(row.poisoned and row.found_target == row.target_class)
    return found


def by_left_out_base(rows: Sequence[SmallRow], seed: int) -> dict[str, Any]:
    """Scores where each model is judged by a calibrator fitted without any model of its base."""
    bases = np.array([row.base for row in rows])
    answers = np.full(len(rows), np.nan)
    for base in np.unique(bases):
        kept = [row for row, other in zip(rows, bases, strict=True) if other != base]
        calibrator = fit(kept, seed, "", None)
        for place in np.flatnonzero(bases == base):
            row = rows[int(place)]
            answers[place] = calibrator.probability(row.evidence, Traits(row.architecture))
    truth = np.array([row.poisoned for row in rows])
    return {
        "all": scoring.score(answers, truth).as_dict(),
        "by_base": {
            str(base): scoring.score(answers[bases == base], truth[bases == base]).as_dict()
            for base in np.unique(bases)
        },
    }


def fit(
    rows: Sequence[ImageRow], seed: int, population: str, sides: tuple[int, int] | None
) -> Calibrator:
    """A calibrator on all rows."""
    scheme = Scheme(STAGES, IMAGES.directions, IMAGES.labels)
    return Calibrator.fit(labelled(rows), scheme, origin(seed, population, sides))


if __name__ == "__main__":
    sys.exit(main())
