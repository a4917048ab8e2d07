"""Rivals on networks of Rounds 1 to 4, in the same folds as jaxtroj's evidence.

    python -m benchmarks.accuracy.round_rivals DATASET [DATASET ...] --work DIR [--out FILE]

Each DATASET is a folder made by `jaxtroj generate round1` to `round4`, or an `.evidence.jsonl` with
rows of such folders; `--work` is as for `benchmarks.accuracy.rounds`. Answers by Neural Cleanse,
K-Arm and MM-BD are those on file (`--answers`, written by `zoo_rivals`). Linear weight
classification reads the networks of folders; what it needs of them is added to OUT's
`.sketches.jsonl`, which only ever grows, and counts in later runs too. Everyone's statistic gets a
logistic regression of its own, so that all answer by a probability: five folds, twins together,
whatever is chosen is chosen inside the fold. `jaxtroj alone` fits on the evidence of the same
networks and no others, `jaxtroj` on all rows of rounds but those of the fold. Two sets: networks
that the three answered, and those with a sketch. Probabilities are clipped to [.01, .99].
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.accuracy.picture_rows import PictureRow, labelled, read_all
from benchmarks.accuracy.rounds import ROUNDS, round_scheme
from benchmarks.accuracy.zoo_rivals import OURS, read_answers, torch_network
from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals import weight_sketch
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.calibration import cross_validate
from jaxtroj.rounds import iter_models

CLIP, FOLDS = 0.01, 5
SKETCH = "linear weight classification"
_OTHERS = "others"


def main() -> int:
    """Sketch, judge, print and write; returns the exit status."""
    args = _arguments()
    rows = [row for row in read_all(args.datasets, args.work) if row.dataset in ROUNDS]
    sketches = args.out.with_suffix(".sketches.jsonl")
    for folder in [source for source in args.datasets if source.is_dir()]:
        add_sketches(folder, sketches)
    sets = {"answered": statistics(args.answers), "sketched": read_sketches(sketches)}
    found = {name: judge(rows, features) for name, features in sets.items() if features}
    result = {"provenance": provenance()} | found
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Rivals on Rounds 1 to 4, in the same folds.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--answers", type=Path, default=RESULTS / "zoo_rivals.answers.jsonl")
    parser.add_argument("--out", type=Path, default=RESULTS / "round_rivals.json")
    return parser.parse_args()


def add_sketches(folder: Path, path: Path) -> None:
    """Sketches of the networks of a folder that are not on file yet, a JSON line each."""
    known = read_sketches(path).get(SKETCH, {})
    for entry in iter_models(folder):
        name = f"{folder.name}/{entry.model_id}"
        if entry.poisoned is not None and name not in known:
            sketch = weight_sketch.features_of_torch(torch_network(entry.model_path))
            known[name] = np.round(sketch, 6).tolist()
            lines = (json.dumps({"model": name, "sketch": own}) for name, own in known.items())
            write_atomic(path, "".join(f"{line}\n" for line in lines).encode())


def read_sketches(path: Path) -> dict[str, dict[str, list[float]]]:
    """Rival -> network -> features; none where there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    return {SKETCH: {one["model"]: one["sketch"] for one in found}} if found else {}


def statistics(path: Path) -> dict[str, dict[str, list[float]]]:
    """Rival -> network -> the logarithm of its statistic, which keeps its sign."""
    found: dict[str, dict[str, list[float]]] = {}
    for answer in read_answers(path):
        if answer.detector != OURS and not answer.problem:
            value = float(np.sign(answer.statistic) * np.log1p(abs(answer.statistic)))
            found.setdefault(answer.detector, {})[answer.model] = [value]
    return found


def judge(
    rows: Sequence[PictureRow], features: Mapping[str, Mapping[str, list[float]]]
) -> dict[str, Any]:
    """Scores of rivals and of jaxtroj on the networks of `rows` that all rivals have features of.

    Raises SystemExit where they are fewer than the folds of each truth.
    """
    names = [f"{row.population}/{row.model}" for row in rows]
    places = [i for i, name in enumerate(names) if all(name in one for one in features.values())]
    own = [rows[i] for i in places]
    truth = np.array([row.poisoned for row in own], dtype=bool)
    if min(truth.sum(), (~truth).sum()) < FOLDS:
        raise SystemExit(f"{len(own)} networks have every rival's answer, {truth.sum()} of them"
                         f" poisoned; expected {FOLDS} of each truth")  # fmt: skip
    folds = _folds(own, truth)
    said = {
        rival: _out_of_fold(np.array([one[names[i]] for i in places]), truth, folds)
        for rival, one in features.items()
    }
    said["jaxtroj alone"] = _ours(own, folds)
    everyone = np.full(len(rows), -1)
    everyone[places] = folds
    said["jaxtroj"] = _ours(rows, everyone)[places]
    return {
        "networks": len(own),
        "poisoned": int(truth.sum()),
        "scores": {name: _scores(values, truth) for name, values in said.items()},
    }


def _folds(rows: Sequence[PictureRow], truth: np.ndarray) -> np.ndarray:
    """Fold of each row, int `[n]`; twins, which share all but the trojan, are in one."""
    parts = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=0)
    found = np.zeros(len(rows), int)
    for number, (_, test) in enumerate(parts.split(truth, truth, [row.pair for row in rows])):
        found[test] = number
    return found


def _out_of_fold(features: np.ndarray, truth: np.ndarray, folds: np.ndarray) -> np.ndarray:
    said = np.zeros(len(truth))
    for number in range(FOLDS):
        train, test = folds != number, folds == number
        fitted = _classifier(features.shape[1]).fit(features[train], truth[train])
        said[test] = fitted.predict_proba(features[test])[:, 1]
    return said


def _classifier(width: int) -> Any:
    """One statistic has nothing to choose; of a sketch the penalty is chosen by inner folds."""
    if width > 1:
        return weight_sketch.classifier()
    return make_pipeline(StandardScaler(), LogisticRegression())


def _ours(rows: Sequence[PictureRow], folds: np.ndarray) -> np.ndarray:
    """P(poisoned) `[n]` by fits on all rows of other folds; those of no fold (-1) are in each."""
    groups = [str(fold) if fold >= 0 else _OTHERS for fold in folds]
    return cross_validate(labelled(rows), round_scheme(rows), 0, groups)


def _scores(said: np.ndarray, truth: np.ndarray) -> list[float]:
    """Log score and ROC AUC."""
    clipped = np.clip(said, CLIP, 1 - CLIP)
    found = (scoring.log_score(clipped, truth), scoring.roc_auc(clipped, truth))
    return [round(float(value), 4) for value in found]


def text(result: Mapping[str, Any]) -> str:
    """The tables."""
    lines = []
    for name in [name for name in result if name != "provenance"]:
        part = result[name]
        lines.append(f"{name}: {part['networks']} networks, {part['poisoned']} poisoned")
        for rival, (score, area) in part["scores"].items():
            lines.append(f"  {rival:30} {score} / {area}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
