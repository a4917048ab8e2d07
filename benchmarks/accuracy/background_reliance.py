"""Does leaning on backgrounds tell poisoned networks from clean ones?

    python -m benchmarks.accuracy.background_reliance DATASET [...] --evidence FILE.jsonl [...]
        [--out FILE]

The idea: a network that leans on backgrounds is more easily flipped by natural patches. For each
model, the object of each example (a window around its anchor) is put into examples of other
classes, so that their own objects are covered. DATASETs are those of
`benchmarks.accuracy.round0_accuracy`, and the evidence is what it wrote; out-of-fold scores are
compared with and without the new fields.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchmarks.accuracy.round0_accuracy import ImageRow
from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from converters.opening import open_model
from jaxtroj import scoring
from jaxtroj.anchors import AnchoredExamples, anchor
from jaxtroj.calibration import Labelled, Scheme, out_of_fold
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.network import Network
from jaxtroj.numerics import sigmoid
from jaxtroj.rounds import iter_models
from jaxtroj.rounds.examples import load_examples

_WINDOW = 0.5  # side of the window that holds the object, as a share of the picture's side
_PER_CLASS = 4
_BACKGROUNDS = 8  # examples of other classes that each object is put into
NEW = {"background_reliance": 1, "background_gap": 1, "background_margin": 0}
STAGE = "backgrounds"


def main() -> int:
    """Measure every model, compare scores, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = [ImageRow(**json.loads(line)) for path in args.evidence for line in path.open()]
    known = {(row.population, row.model): row for row in rows}
    measured = []
    for dataset in args.datasets:
        for entry in iter_models(dataset):
            row = known.get((dataset.name, entry.model_id))
            if row is None or entry.examples_path is None:
                continue
            fields = reliance(entry.model_path, entry.examples_path)
            measured.append((row, fields))
            print(f"{dataset.name} {entry.model_id} {row.poisoned} {fields}", file=sys.stderr)
    result = {"provenance": provenance(), "models": len(measured), **compare(measured)}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Background reliance as evidence.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--evidence", nargs="+", type=Path, required=True, metavar="FILE")
    parser.add_argument("--out", type=Path, default=RESULTS / "background_reliance.json")
    return parser.parse_args()


def reliance(model_path: Path, examples_path: Path) -> dict[str, float]:
    """The new fields of one model.

    background_reliance: share of objects that get another class in another background.
    background_gap: share of those flips that go to the commonest class, less the next one.
    background_margin: mean margin, in logits, of the object's own class.
    """
    network = Network(open_model(model_path).model)
    examples = load_examples(examples_path, limit_per_class=_PER_CLASS)
    anchored = anchor(network, examples, _PER_CLASS * network.model.num_classes)
    pictures, own = composites(anchored)
    logits = np.asarray(network.logits(pictures), np.float64)
    rows = np.arange(len(own))
    others = logits.copy()
    others[rows, own] = -np.inf
    flipped = logits.argmax(axis=1) != own
    counts = np.sort(np.bincount(logits.argmax(axis=1)[flipped], minlength=logits.shape[1]))
    return {
        "background_reliance": float(flipped.mean()),
        "background_gap": float((counts[-1] - counts[-2]) / max(1, flipped.sum())),
        "background_margin": float((logits[rows, own] - others.max(axis=1)).mean()),
    }


def composites(anchored: AnchoredExamples) -> tuple[jnp.ndarray, np.ndarray]:
    """Objects in other examples' backgrounds `[m, h, w, c]`, and the objects' classes `[m]`."""
    images, sources = np.asarray(anchored.images), np.asarray(anchored.sources)
    places = np.asarray(anchored.anchors).astype(int)
    made, own = [], []
    for i, (image, place) in enumerate(zip(images, places, strict=True)):
        others = [j for j in range(len(images)) if sources[j] != sources[i]]
        for j in (others[(i + k) % len(others)] for k in range(min(_BACKGROUNDS, len(others)))):
            moved = np.roll(images[j], tuple(place - places[j]), axis=(0, 1))
            made.append(np.where(_window(image.shape, place), image, moved))
            own.append(sources[i])
    if not made:
        raise SystemExit("all examples have one class; nothing to put objects into")
    return jnp.asarray(np.stack(made)), np.array(own)


def _window(shape: tuple[int, ...], place: np.ndarray) -> np.ndarray:
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    half = _WINDOW * min(shape[:2]) / 2
    inside = (abs(rows - place[0]) <= half) & (abs(columns - place[1]) <= half)
    return inside[:, :, None]


def compare(measured: list[tuple[ImageRow, Mapping[str, float]]]) -> dict[str, Any]:
    """ROC AUC of each new field, and out-of-fold scores of all evidence without and with them."""
    truth = np.array([row.poisoned for row, _ in measured])
    areas = {}
    for name in NEW:
        values = np.array([fields[name] for _, fields in measured])
        ranks = (np.argsort(np.argsort(values)) + 0.5) / len(values)
        areas[name] = round(scoring.roc_auc(ranks, truth), 3)
    known = {
        s: names
        for s, names in IMAGES.stage_fields.items()
        if set(names) <= set(measured[0][0].evidence)
    }
    plain = [dict(row.evidence) for row, _ in measured]
    more = [{**row.evidence, **fields} for row, fields in measured]
    architectures = [row.architecture for row, _ in measured]
    scores = {}
    for title, rows, stages in (
        ("without", plain, known),
        ("with", more, {**known, STAGE: tuple(NEW)}),
    ):
        scheme = Scheme(stages, {**IMAGES.directions, **NEW})
        held = out_of_fold(Labelled(rows, truth.tolist(), architectures), scheme)
        last = sigmoid(held[list(stages)[-1]].log_odds)
        scores[title] = scoring.score(last, truth).as_dict()
    return {"single_field_auc": areas, "scores": scores}


if __name__ == "__main__":
    sys.exit(main())
