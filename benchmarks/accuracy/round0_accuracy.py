"""How well poisoned models are told from clean ones: out-of-fold log score and ROC AUC.

    python -m benchmarks.accuracy.round0_accuracy DATASET [DATASET ...] --work DIR [--out FILE]

Each DATASET is a folder made by `jaxtroj generate round0` (one architecture per folder is fine), or
the `.evidence.jsonl` that an earlier run of this benchmark wrote. All evidence of every model is
gathered, in run folders under `--work`, resumable; then every model is judged by a calibrator that
has not seen it. Writes the figures as JSON and the evidence as JSON Lines; `--calibrator` also fits
the calibrator that ships with the package.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled, Origin, out_of_fold
from jaxtroj.calibration.training import MIN_MODELS
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.numerics import is_above, sigmoid
from jaxtroj.rounds import iter_models
from jaxtroj.scan import scan
from jaxtroj.schemas import scheme_for
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore


@dataclass(frozen=True)
class ImageRow:
    """One labelled model with its evidence."""

    population: str
    model: str
    architecture: str
    poisoned: bool
    target_class: int | None
    found_target: int | None
    evidence: Mapping[str, float]
    seconds: Mapping[str, float]


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    found = (row for source in args.datasets for row in _rows(source, args.work, args.limit))
    rows = [row for row in found if row.model not in args.leave_out]
    result = {"provenance": provenance(), "schema": IMAGES.version} | judge(rows, args.seed)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    write_evidence(args.out, rows)
    print(text(result))
    if args.calibrator is not None:
        fit(rows, args.seed, args.population).save(args.calibrator)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Out-of-fold accuracy on generated rounds.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "round0_accuracy.json")
    parser.add_argument("--limit", type=int, help="only the first so many models of each dataset")
    parser.add_argument(
        "--leave-out", nargs="*", default=[], metavar="ID", help="models shipped as examples, say"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--calibrator", type=Path, help="also fit on all models and write here")
    parser.add_argument("--population", default="", help="what the models are, in words")
    return parser.parse_args()


def _rows(source: Path, work: Path, limit: int | None) -> Iterator[ImageRow]:
    """Labelled rows of a dataset folder, or of the evidence an earlier run wrote."""
    if source.is_file():
        yield from (ImageRow(**json.loads(line)) for line in source.read_text().splitlines())
        return
    entries = [entry for entry in iter_models(source) if entry.poisoned is not None][:limit]
    labels = {entry.model_id: entry for entry in entries}
    settings = Settings(calibrator=None, early_stop=False)
    with RunStore(work / source.name, settings.as_json()) as store:
        for record in scan(entries, settings, store):
            print(f"{source.name} {record.model} {record.status} {record.reason}", file=sys.stderr)
            if record.status != "ok":
                continue
            entry = labels[record.model]
            target = entry.metadata.get("trigger_target_class", "")
            yield ImageRow(
                population=source.name,
                model=record.model,
                architecture=record.architecture or "",
                poisoned=bool(entry.poisoned),
                target_class=int(float(target)) if entry.poisoned and target else None,
                found_target=record.target_class,
                evidence=record.evidence,
                seconds=record.seconds,
            )


def judge(rows: Sequence[ImageRow], seed: int) -> dict[str, Any]:
    """Out-of-fold scores by stage and architecture, target classes, seconds."""
    truth = np.array([row.poisoned for row in rows])
    names = np.array([row.architecture for row in rows])
    evidence = [row.evidence for row in rows]
    if len(rows) < MIN_MODELS:
        raise SystemExit(f"{len(rows)} models with evidence; a calibrator needs {MIN_MODELS}")
    held_out = out_of_fold(labelled(rows), scheme_for("image", evidence), seed)
    stages = {}
    for stage, answers in held_out.items():
        probabilities = sigmoid(answers.log_odds)
        stages[stage] = {
            "all": scoring.score(probabilities, truth).as_dict(),
            "by_architecture": {
                str(name): scoring.score(
                    probabilities[names == name], truth[names == name]
                ).as_dict()
                for name in np.unique(names)
            },
        }
    final = sigmoid(list(held_out.values())[-1].log_odds)
    return {
        "models": len(rows),
        "poisoned": int(truth.sum()),
        "stages": stages,
        "single_field_auc": _field_auc(evidence, truth),
        "targets": _targets(rows, final),
        "seconds": _seconds(rows),
        "predictions": {
            f"{row.population}/{row.model}": [float(p), row.poisoned]
            for row, p in zip(rows, final, strict=True)
        },
    }


def _field_auc(evidence: Sequence[Mapping[str, float]], truth: np.ndarray) -> dict[str, float]:
    """ROC AUC of each field alone, larger taken as more poisoned."""
    out = {}
    for name in (
        name for fields in scheme_for("image", evidence).stages.values() for name in fields
    ):
        values = np.array([row[name] for row in evidence])
        ranks = (np.argsort(np.argsort(values)) + 0.5) / len(values)
        out[name] = round(scoring.roc_auc(ranks, truth), 3)
    return out


def _targets(rows: Sequence[ImageRow], probabilities: np.ndarray) -> dict[str, int]:
    """Among poisoned models called poisoned: how many, and with the right target class."""
    found = [r for r, p in zip(rows, probabilities, strict=True) if r.poisoned and is_above(p)]
    right = sum(row.found_target == row.target_class for row in found)
    return {"true_positives": len(found), "right_target": right}


def _seconds(rows: Sequence[ImageRow]) -> dict[str, dict[str, float]]:
    """Median wall seconds by architecture and stage; the first model of each compiles."""
    out = {}
    for name in sorted({row.architecture for row in rows}):
        own = [row.seconds for row in rows if row.architecture == name]
        stages = sorted({stage for seconds in own for stage in seconds})
        out[name] = {s: round(statistics.median(x.get(s, 0.0) for x in own), 2) for s in stages}
        out[name]["all"] = round(statistics.median(sum(x.values()) for x in own), 2)
    return out


def fit(rows: Sequence[ImageRow], seed: int, population: str) -> Calibrator:
    """The calibrator of these models; `population` says in words what they are."""
    scheme = scheme_for("image", (row.evidence for row in rows))
    return Calibrator.fit(labelled(rows), scheme, origin(seed, population))


def labelled(rows: Sequence[ImageRow]) -> Labelled:
    """The rows as a calibrator is fitted on them."""
    return Labelled(
        [row.evidence for row in rows],
        [row.poisoned for row in rows],
        [row.architecture for row in rows],
    )


def origin(seed: int, population: str, sides: tuple[int, int] | None = None) -> Origin:
    """Where a fit of this checkout comes from."""
    return Origin(seed, population, provenance()["commit"], sides)


def text(result: Mapping[str, Any]) -> str:
    """The result of `judge` for people."""
    lines = [f"{result['models']} models, {result['poisoned']} poisoned; out of fold, nats:"]
    for stage, scores in result["stages"].items():
        lines.append(_line(f"up to {stage}", scores["all"]))
        lines += [_line(f"  {name}", part) for name, part in scores["by_architecture"].items()]
    lines.append(f"targets {result['targets']}")
    lines += [f"median seconds, {name}: {parts}" for name, parts in result["seconds"].items()]
    return "\n".join(lines)


def _line(name: str, scores: Mapping[str, Any]) -> str:
    area = "none" if scores["roc_auc"] is None else f"{scores['roc_auc']:.3f}"
    low, high = scores["log_score_low"], scores["log_score_high"]
    return f"{name:22} log score {scores['log_score']:.3f} ({low:.3f} to {high:.3f})  AUC {area}"


if __name__ == "__main__":
    sys.exit(main())
