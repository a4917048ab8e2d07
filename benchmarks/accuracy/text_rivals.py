"""Rivals of text heads on populations that their fit has not met, and within each.

    python -m benchmarks.accuracy.text_rivals DATASET [DATASET ...] [--out FILE]

TrojanSleuth's Jacobian statistics, PICCOLO's sweep and a sketch of the weights, each with its own
classifier: every population judged by a fit on all others, then out of fold (five folds) within
itself. All need labelled heads, and vectors of one width. Their probabilities are clipped to
[.01, .99], which costs a log score less than their own do.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals import piccolo_sweep, trojan_sleuth, weight_sketch
from converters import open_artifact
from converters.conversion import convert
from converters.families.folding import single_step
from converters.files import write_atomic
from converters.model import Model
from jaxtroj import scoring
from jaxtroj.cli.options import keep_compiled
from jaxtroj.rounds import ModelEntry, iter_models, load_text_examples

CLIP, FOLDS = 0.01, 5
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    "trojan sleuth": trojan_sleuth.classifier,
    "piccolo's sweep": piccolo_sweep.Sweeps,
    "weight sketch": weight_sketch.classifier,
}
_CLEAN_FROM = 30  # heads whose examples tell mean and spread of clean vectors


def main() -> int:
    """Judge, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="Rivals of text heads, populations left out.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--out", type=Path, default=RESULTS / "text_rivals.json")
    args = parser.parse_args()
    keep_compiled()
    heads = {folder.name: read(folder) for folder in args.datasets}
    result = {
        "provenance": provenance(),
        "rivals": {name: judge(name, heads) for name in CLASSIFIERS},
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    for rival, parts in result["rivals"].items():
        for population, scores in parts.items():
            print(f"{rival:14} {population:12} {json.dumps(scores)}")
    return 0


def read(folder: Path) -> dict[str, np.ndarray]:
    """Features of every rival by name, and `truth`."""
    found: dict[str, list[Any]] = {"truth": [], **{name: [] for name in CLASSIFIERS}}
    entries = [entry for entry in iter_models(folder) if entry.poisoned is not None]
    clean = np.concatenate([_vectors(entry)[0] for entry in entries[:_CLEAN_FROM]])
    for entry in entries:
        model, (vectors, labels) = _single_step(entry), _vectors(entry)
        found["truth"].append(entry.poisoned)
        found["weight sketch"].append(weight_sketch.features(model))
        found["piccolo's sweep"].append(piccolo_sweep.features(model, clean))
        found["trojan sleuth"].append(trojan_sleuth.features(model, vectors, labels))
    print(f"{folder.name}: {len(found['truth'])} heads", file=sys.stderr)
    return {name: np.array(values) for name, values in found.items()}


def _single_step(entry: ModelEntry) -> Model:
    return single_step(convert(open_artifact(entry.model_path)))


def _vectors(entry: ModelEntry) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of a head's clean examples `[n, d]`, and their labels."""
    texts = load_text_examples(entry)
    assert texts.embeddings is not None, f"{entry.model_id} brings no vectors"
    return texts.embeddings, np.asarray(texts.labels)


def judge(rival: str, heads: dict[str, dict[str, np.ndarray]]) -> dict[str, Any]:
    """Scores of one rival for each population, and their means."""
    found = {}
    for name, own in heads.items():
        others = [one for other, one in heads.items() if other != name]
        train = np.concatenate([one[rival] for one in others])
        truth = np.concatenate([one["truth"] for one in others])
        left = _answers(CLASSIFIERS[rival](0).fit(train, truth), own[rival])
        found[name] = {"left_out": _score(left, own["truth"]), "within": _within(rival, own)}
    found["mean"] = {
        way: [float(np.mean([one[way][k] for one in found.values()])) for k in range(2)]
        for way in ("left_out", "within")
    }
    return found


def _within(rival: str, own: dict[str, np.ndarray]) -> list[float]:
    said = np.zeros(len(own["truth"]))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    for train, test in folds.split(own[rival], own["truth"]):
        fitted = CLASSIFIERS[rival](0).fit(own[rival][train], own["truth"][train])
        said[test] = _answers(fitted, own[rival][test])
    return _score(said, own["truth"])


def _answers(fitted: Any, features: np.ndarray) -> np.ndarray:
    return np.clip(fitted.predict_proba(features)[:, 1], CLIP, 1 - CLIP)


def _score(said: np.ndarray, truth: np.ndarray) -> list[float]:
    """Log score and ROC AUC."""
    return [round(scoring.log_score(said, truth), 4), round(scoring.roc_auc(said, truth), 4)]


if __name__ == "__main__":
    sys.exit(main())
