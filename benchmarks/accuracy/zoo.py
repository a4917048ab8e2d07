"""How well networks of every kind are told apart by a calibrator that has not met their kind.

    python -m benchmarks.accuracy.zoo DATASET [DATASET ...] --work DIR [--out FILE]

Each DATASET is a folder made by `jaxtroj generate zoo` or `round2`, or the `.evidence.jsonl` that
an earlier run wrote. Gathers the evidence of every model, all usual stages, in run folders under
`--work`, resumable. Then each kind of trigger, each architecture, each data set and each folder as
a whole is left out in turn of the fit of a pooled calibrator, and judged by it; clean models are
held out with their twins. Last, all models out of fold, by kind, training, sources,
augmentation.
`--calibrator` writes a calibrator of all the models: the general one, or that of a round; `--large`
the one for large pictures, which do not get stage `recall`.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.picture_rows import (
    NOT_JUDGED,
    PictureRow,
    labelled,
    read_all,
    scheme,
)
from benchmarks.accuracy.round0_accuracy import origin
from benchmarks.provenance import RESULTS, provenance, write_evidence
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Scheme, cross_validate, scores_left_out
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.numerics import is_above

LEFT_OUT = ("kind", "family", "dataset", "population")
"""Columns of a row whose values are left out in turn."""


def main() -> int:
    """Scan, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = read_all(args.datasets, args.work, args.limit)
    rows = [row for row in rows if args.only is None or row.population in args.only.split(",")]
    write_evidence(args.out, rows)
    result = {"provenance": provenance(), "schema": IMAGES.version} | judge(rows, args.seed)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result))
    if args.calibrator is not None:
        fit(rows, args.seed, args.population).save(args.calibrator)
    if args.large is not None:
        left_out = (*NOT_JUDGED, "recall")
        fit(rows, args.seed, args.population, left_out).save(args.large)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Accuracy on kinds that the fit has not met.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--out", type=Path, default=RESULTS / "zoo.json")
    parser.add_argument("--limit", type=int, help="only the first so many models of each dataset")
    parser.add_argument("--only", metavar="A,B", help="rows of these populations alone")
    parser.add_argument("--seed", type=int, default=0, help="of the folds")
    parser.add_argument("--calibrator", type=Path, help="also fit on all models and write here")
    parser.add_argument("--large", type=Path, help="the same for large pictures")
    parser.add_argument("--population", default="", help="what the models are, in words")
    return parser.parse_args()


def judge(rows: Sequence[PictureRow], seed: int) -> dict[str, Any]:
    """Scores with groups left out, out of fold, by kind, training and sources."""
    models, fields = labelled(rows), scheme(rows)
    columns = {column: [getattr(row, column) for row in rows] for column in LEFT_OUT}
    columns = {column: names for column, names in columns.items() if len(set(names) - {""}) > 1}
    others = {name: cross_validate(models, fields, seed, own) for name, own in columns.items()}
    said, truth = cross_validate(models, fields, seed), models.truth
    return {
        "models": len(rows),
        "poisoned": int(truth.sum()),
        "left_out": {
            name: asdict(scores_left_out(models, others[name], own, seed))
            for name, own in columns.items()
        },
        "out_of_fold": scoring.score(said, truth).as_dict(),
        "single_field_auc": field_auc(rows, fields),
        "clean_above_0.9": int((said[~truth] > 0.9).sum()),
        "by_kind": by(rows, said, lambda row: row.kind),
        "by_training": by(rows, said, lambda row: row.training),
        "by_sources": by(rows, said, lambda row: row.sources),
        "by_augmentation": by(rows, said, lambda row: row.augmentation or "unsaid"),
        "by_labels": by(rows, said, lambda row: row.labels or "unsaid"),
        "predictions": _predictions(rows, said),
        "predictions_left_out": {name: _predictions(rows, own) for name, own in others.items()},
    }


def _predictions(rows: Sequence[PictureRow], said: np.ndarray) -> dict[str, tuple[float, bool]]:
    """Network -> what was said of it, and whether it is poisoned."""
    return {
        f"{row.population}/{row.model}": (round(float(p), 6), row.poisoned)
        for row, p in zip(rows, said, strict=True)
    }


def by(
    rows: Sequence[PictureRow], probabilities: np.ndarray, value: Callable[[PictureRow], str]
) -> dict[str, Any]:
    """For each value: models, and of the poisoned ones how many were found, targets and success.

    Clean models without a value stand under "clean"; `above_half` counts them too.
    """
    found: dict[str, Any] = {}
    for name in sorted({value(row) or "clean" for row in rows}):
        inside = np.array([(value(row) or "clean") == name for row in rows])
        own = [row for row, chosen in zip(rows, inside, strict=True) if chosen]
        bad = np.array([row.poisoned for row in own])
        reached = [row.success for row in own if row.success is not None]
        found[name] = {
            "models": len(own),
            "poisoned": int(bad.sum()),
            "above_half": int(is_above(probabilities[inside]).sum()),
            "found": int(is_above(probabilities[inside][bad]).sum()),
            "right_target": sum(row.poisoned and row.has_right_target for row in own),
            "log_score": scoring.log_score(probabilities[inside], bad),
            "median_success": float(np.median(reached)) if reached else None,
        }
    return found


def field_auc(rows: Sequence[PictureRow], fields: Scheme) -> dict[str, dict[str, float]]:
    """ROC AUC of each field alone for each kind against all clean models, by its direction."""
    found: dict[str, dict[str, float]] = {}
    for name in (name for names in fields.stages.values() for name in names):
        have = [row for row in rows if name in row.evidence]
        values = np.array([row.evidence[name] for row in have]) * (fields.direction(name) or 1)
        ranks = ranks_of(values)
        kinds = np.array([row.kind for row in have])
        for kind in sorted({row.kind for row in have if row.poisoned}):
            chosen = (kinds == kind) | (kinds == "")
            if (kinds == "").any():
                area = scoring.roc_auc(ranks[chosen], kinds[chosen] == kind)
                found.setdefault(name, {})[kind] = round(area, 3)
    return found


def ranks_of(values: np.ndarray) -> np.ndarray:
    """Values [n] in the same order, ties kept, between 0 and 1."""
    _, places = np.unique(values, return_inverse=True)
    return (places + 0.5) / (places.max(initial=0) + 1)


def fit(
    rows: Sequence[PictureRow],
    seed: int,
    population: str,
    left_out: Collection[str] = NOT_JUDGED,
) -> Calibrator:
    """The general calibrator of these models; `population` says in words what they are."""
    return Calibrator.fit(labelled(rows), scheme(rows, left_out), origin(seed, population))


def text(result: Mapping[str, Any]) -> str:
    """The result of `judge` for people."""
    lines = [f"{result['models']} models, {result['poisoned']} poisoned; nats, lower is better"]
    for column, scores in result["left_out"].items():
        lines.append(
            f"each {column} left out: log score {scores['log_score']:.3f}"
            f"  AUC {_area(scores['roc_auc'])}  worst {scores['worst']}"
        )
        lines += [_group_line(name, part) for name, part in scores["groups"].items()]
    whole = result["out_of_fold"]
    lines.append(
        f"out of fold: log score {whole['log_score']:.3f} ({whole['log_score_low']:.3f} to"
        f" {whole['log_score_high']:.3f})  AUC {_area(whole['roc_auc'])}; clean models above .9:"
        f" {result['clean_above_0.9']}"
    )
    for title in ("by_kind", "by_training", "by_sources", "by_augmentation", "by_labels"):
        lines.append(f"out of fold, {title.replace('_', ' ')}:")
        lines += [part_line(name, part) for name, part in result[title].items()]
    return "\n".join(lines)


def _area(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _group_line(name: str, part: Mapping[str, Any]) -> str:
    found = "" if part["found"] is None else f"  found {part['found']:.2f}"
    return (
        f"  {name:16} {part['models']:4d} models {part['poisoned']:4d} poisoned"
        f"  log score {part['log_score']:.3f}  AUC {_area(part['roc_auc'])}{found}"
    )


def part_line(name: str, part: Mapping[str, Any]) -> str:
    """One group of `by`, for people."""
    return (
        f"  {name:16} {part['models']:4d} models {part['poisoned']:4d} poisoned"
        f"  found {part['found']:3d}  right target {part['right_target']:3d}"
        f"  above .5 {part['above_half']:3d}  log score {part['log_score']:.3f}"
    )


if __name__ == "__main__":
    sys.exit(main())
