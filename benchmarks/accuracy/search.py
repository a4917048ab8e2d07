"""Seconds to a verdict, and how well verdicts separate, beside Neural Cleanse label after label.

    python -m benchmarks.accuracy.search DATASET [DATASET ...] --evidence FILE --work DIR
        [--models N]

The first N models of each DATASET (`jaxtroj generate round0`; pairs of a poisoned and a clean one)
are judged twice from the same weights and pictures: by jaxtroj as a scan does it, stopping when the
verdict stands, with a calibrator fitted on those rows of FILE (the `.evidence.jsonl` of
`benchmarks.accuracy.round0_accuracy`) that are none of these models; and by a PyTorch Neural
Cleanse that inverts one label after another and compares the sizes of the masks, as its paper does.
The rival is read off after several numbers of steps. The first model of each DATASET, one
architecture each, is scanned once before the clock counts, so that compiling is apart; the rival
compiles nothing.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.round0_accuracy import ImageRow, fit
from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals.torch_neural_cleanse import Inverted, inversion
from converters import convert, open_artifact
from converters.families.reference import filled_module
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.cli.options import keep_compiled
from jaxtroj.numerics import is_above
from jaxtroj.rounds import ModelEntry, iter_models, load_examples
from jaxtroj.scan import scan_model
from jaxtroj.settings import Settings

_MAD_TO_SIGMA = 1.4826


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    entries = [
        (source, entry)
        for source in args.datasets
        for entry in [e for e in iter_models(source) if e.poisoned is not None][: args.models]
    ]
    args.work.mkdir(parents=True, exist_ok=True)
    settings = Settings(
        calibrator=_calibrator(args, entries), special_calibrators=(), round_calibrators=()
    )
    seen, rows = set(), []
    for source, entry in entries:
        if source not in seen:  # compiles; one architecture to a folder
            seen.add(source)
            scan_model(entry, settings)
        rows.append(_row(source, entry, settings, args))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    result = {"provenance": provenance(), "images_per_class": args.per_class} | summary(rows)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds to a verdict, beside Neural Cleanse.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--evidence", type=Path, required=True, metavar="FILE")
    parser.add_argument("--work", type=Path, required=True, help="the calibrator goes here")
    parser.add_argument("--models", type=int, default=4, help="of each dataset; default: 4")
    parser.add_argument("--steps", type=int, nargs="+", default=[25, 50, 100], help="of the rival")
    parser.add_argument("--per-class", type=int, default=4, help="pictures the rival takes")
    parser.add_argument("--out", type=Path, default=RESULTS / "search.json")
    return parser.parse_args()


def _calibrator(args: argparse.Namespace, entries: Sequence[tuple[Path, ModelEntry]]) -> Path:
    measured = {(source.name, entry.model_id) for source, entry in entries}
    lines = args.evidence.read_text().splitlines()
    rows = [ImageRow(**json.loads(line)) for line in lines]
    others = [row for row in rows if (row.population, row.model) not in measured]
    path = args.work / "calibrator.json"
    fit(others, 0, f"{len(others)} models of {args.evidence.name}").save(path)
    return path


def _row(
    source: Path, entry: ModelEntry, settings: Settings, args: argparse.Namespace
) -> dict[str, Any]:
    started = time.perf_counter()
    record = scan_model(entry, settings)
    seconds = time.perf_counter() - started
    return {
        "model": f"{source.name}/{entry.model_id}",
        "poisoned": entry.poisoned,
        "target_class": entry.metadata.get("trigger_target_class"),
        "jaxtroj": {
            "seconds": round(seconds, 2),
            "status": record.status,
            "probability": record.probability,
            "target_class": record.target_class,
            "stages": list(record.seconds),
        },
        "neural_cleanse": _rival(entry, args),
    }


def _rival(entry: ModelEntry, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """By number of steps: seconds for all labels, anomaly index, and the label it blames."""
    if entry.examples_path is None:
        raise SystemExit(f"{entry.model_id} has no example pictures")
    artifact = open_artifact(entry.model_path)
    model = convert(artifact)
    network = filled_module(model.config, artifact.weights.tensors).float()
    examples = load_examples(entry.examples_path, limit_per_class=args.per_class)
    sizes: dict[int, list[float]] = {steps: [] for steps in args.steps}
    seconds = dict.fromkeys(args.steps, 0.0)
    for label in range(model.num_classes):
        started = time.perf_counter()
        found = inversion(network, examples.images, examples.labels, label)
        for step in range(1, max(args.steps) + 1):
            state: Inverted = next(found)
            if step in sizes:
                sizes[step].append(state.mask_l1)
                seconds[step] += time.perf_counter() - started
    return {str(steps): _blamed(sizes[steps]) | {"seconds": round(seconds[steps], 2)}
            for steps in args.steps}  # fmt: skip


def _blamed(sizes: Sequence[float]) -> dict[str, Any]:
    """The smallest mask and how many robust deviations it lies below the median.

    Source: Wang et al., Neural Cleanse, IEEE S&P 2019, section IV-A; above 2 is an outlier.
    """
    values = np.asarray(sizes)
    median = float(np.median(values))
    deviation = _MAD_TO_SIGMA * float(np.median(np.abs(values - median))) or 1e-9
    return {
        "anomaly": round((median - float(values.min())) / deviation, 3),
        "target_class": int(values.argmin()),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Scores and seconds of both, the rival by its steps, and how many times faster we are."""
    truth = np.array([row["poisoned"] for row in rows])
    ours = [row["jaxtroj"] for row in rows]
    parts = {"jaxtroj": _scores(rows, ours, [one["probability"] for one in ours], 0.5, truth)}
    for steps in rows[0]["neural_cleanse"]:
        theirs = [row["neural_cleanse"][steps] for row in rows]
        name = f"Neural Cleanse, {steps} steps a label"
        parts[name] = _scores(rows, theirs, [one["anomaly"] for one in theirs], 2.0, truth)
    mean = parts["jaxtroj"]["mean_seconds"]
    for part in parts.values():
        part["times_our_seconds"] = round(part["mean_seconds"] / mean, 2)
    return {"models": len(rows), "poisoned": int(truth.sum()), "detectors": parts,
            "rows": list(rows)}  # fmt: skip


def _scores(rows, answers, scores, threshold: float, truth: np.ndarray) -> dict[str, Any]:
    values, seconds = np.array(scores), [one["seconds"] for one in answers]
    blamed = [
        str(one["target_class"]) == str(row["target_class"]).removesuffix(".0")
        for one, row in zip(answers, rows, strict=True)
        if row["poisoned"]
    ]
    ranks = (np.argsort(np.argsort(values)) + 0.5) / len(values)
    return {
        "roc_auc": round(scoring.roc_auc(ranks, truth), 3),
        "accuracy": round(float((is_above(values, threshold) == truth).mean()), 3),
        "right_target": f"{sum(blamed)} of {len(blamed)}",
        "mean_seconds": round(statistics.fmean(seconds), 2),
        "median_seconds": round(statistics.median(seconds), 2),
    }


if __name__ == "__main__":
    sys.exit(main())
