"""Poisoned sentiment heads told from clean ones, beside PICCOLO's Round 5 sweep.

    python -m benchmarks.accuracy.piccolo DATASET --vectors DIR --work DIR [--evidence FILE]

Both judge the labelled heads of one DATASET (`jaxtroj generate round5 --vectors DIR`) out of fold,
in at most ten folds: the rival by its classifier, ours by the calibrator. Ours is given twice: with
the stages that need nothing but the head and its examples, as the rival needs nothing else, and
with the bank's where FILE, the `.evidence.jsonl` of `benchmarks.accuracy.round5_accuracy`, holds
the same heads. The rival is judged on triggers that it has not seen, too, split as in that
benchmark. Its coordinates go to +-2 as described for BERT, or to some of their deviations, since
encoders differ in scale. Sweeps are kept in `--work` by a head's name, so a stopped run goes on;
another dataset wants another folder. Seconds are means, of sweeps over `--timed` heads.
"""

import argparse
import io
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

from benchmarks.accuracy.round5_accuracy import HeadRow, by_stage, labelled_rows, trigger_halves
from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals import torch_piccolo
from benchmarks.rivals.torch_piccolo import (
    Swept,
    describe,
    normal_vectors,
    probabilities,
    quick_sweep,
    sweep,
)
from converters import convert, open_artifact
from converters.families.reference import filled_module
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.cli.options import keep_compiled
from jaxtroj.rounds import ModelEntry, iter_models

_FOLDS = 10
_UNCHANGED = ("weight_kurtosis", "weight_norm", "output_asymmetry")


def main() -> int:
    """Sweep, judge, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    rows = list(labelled_rows(args.dataset, args.work, None))
    with np.load(args.vectors / "train.npz") as stored:
        clean = stored["cls"].astype(np.float32)
    samples = normal_vectors(clean, torch_piccolo.SAMPLES, args.seed)
    reaches = {name: _reach(name, clean) for name in args.reaches}
    entries = {entry.model_id: entry for entry in iter_models(args.dataset)}
    heads = [_Head(entries[row.model], row) for row in rows]
    result = {
        "provenance": provenance(),
        "models": len(rows),
        "poisoned": sum(row.poisoned for row in rows),
        "jaxtroj": _ours(rows, args),
        "piccolo": {
            name: _rival(heads, samples, _values(reach), args.work / f"sweep of {name}", args.seed)
            for name, reach in reaches.items()
        },
        "seconds_per_head": {"jaxtroj": round(statistics.fmean(map(_spent, rows)), 4)}
        | _sweep_seconds(heads[: args.timed], samples, _values(next(iter(reaches.values())))),
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Sentiment heads, beside PICCOLO's sweep.")
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument("--vectors", type=Path, required=True, help="what the heads learnt from")
    parser.add_argument("--work", type=Path, required=True, help="sweeps and run folder go here")
    parser.add_argument("--evidence", type=Path, metavar="FILE", help="of the same heads")
    parser.add_argument(
        "--reaches",
        nargs="+",
        default=["2"],
        help="how far coordinates go; 4sd: so many deviations",
    )
    parser.add_argument("--timed", type=int, default=4, help="heads whose sweeps are timed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "piccolo.json")
    return parser.parse_args()


@dataclass(frozen=True)
class _Head:
    entry: ModelEntry
    row: HeadRow

    def module(self) -> torch.nn.Module:
        artifact = open_artifact(self.entry.model_path)
        return filled_module(convert(artifact).config, artifact.weights.tensors).float()


def _reach(name: str, clean: np.ndarray) -> np.ndarray:
    """How far each coordinate goes `[d]`: "2" for all alike, "4sd" for four of its deviations."""
    number = float(name.removesuffix("sd"))
    return number * (clean.std(axis=0) if name.endswith("sd") else np.ones(clean.shape[1]))


def _values(reach: np.ndarray) -> torch.Tensor:
    """What each coordinate is set to, `[11, d]`, from -reach to reach."""
    steps = np.linspace(-1.0, 1.0, torch_piccolo.VALUES)
    return torch.from_numpy((steps[:, None] * reach).astype(np.float32))


def _ours(rows: Sequence[HeadRow], args: argparse.Namespace) -> dict[str, Any]:
    found = {"head and examples only": _last(by_stage(rows, args.seed))}
    if args.evidence is not None:
        found["with the bank"] = _last(by_stage(_same_heads(rows, args.evidence), args.seed))
    return found


def _last(stages: Mapping[str, Any]) -> dict[str, Any]:
    return list(stages.values())[-1]


def _same_heads(rows: Sequence[HeadRow], evidence: Path) -> list[HeadRow]:
    """Rows of an earlier run for the same heads. Raises SystemExit for other heads."""
    stored = [HeadRow(**json.loads(line)) for line in evidence.read_text().splitlines()]
    known = {(row.population, row.model): row for row in stored}
    found = []
    for row in rows:
        other = known.get((row.population, row.model))
        if other is None or not all(
            math.isclose(other.evidence[name], row.evidence[name], rel_tol=1e-3, abs_tol=1e-4)
            for name in _UNCHANGED
        ):
            raise SystemExit(f"{evidence} holds another {row.population}/{row.model}, or none")
        found.append(other)
    return found


def _rival(
    heads: Sequence[_Head], samples: torch.Tensor, values: torch.Tensor, work: Path, seed: int
) -> dict[str, Any]:
    work.mkdir(parents=True, exist_ok=True)
    means = [_kept(head, samples, values, work) for head in heads]
    swept = describe(means, [head.row.architecture for head in heads])
    truth = np.array([head.row.poisoned for head in heads])
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=seed)
    half = trigger_halves([head.row for head in heads])
    halves = [(np.flatnonzero(half != part), np.flatnonzero(half == part)) for part in (0, 1)]
    unseen = _judged(swept, truth, halves, seed)
    return _judged(swept, truth, folds.split(truth, truth), seed) | {"unseen_triggers": unseen}


def _judged(swept: Swept, truth: np.ndarray, parts, seed: int) -> dict[str, Any]:
    """Scores of heads judged by those of the other part, for pairs of places (known, asked)."""
    found = np.zeros(len(truth))
    for known, asked in parts:
        found[asked] = probabilities(swept.take(known), truth[known], swept.take(asked), seed)
    return scoring.score(found, truth).as_dict()


def _kept(head: _Head, samples: torch.Tensor, values: torch.Tensor, work: Path) -> np.ndarray:
    path = work / f"{head.row.model}.npy"
    if not path.exists():
        stored = io.BytesIO()
        np.save(stored, quick_sweep(head.module(), samples, values))
        write_atomic(path, stored.getvalue())
    return np.load(path)


def _spent(row: HeadRow) -> float:
    """Seconds of all steps of a head, its share of compiling included."""
    return sum(row.seconds.values())


def _sweep_seconds(
    heads: Sequence[_Head], samples: torch.Tensor, values: torch.Tensor
) -> dict[str, float]:
    """Mean seconds of a head's sweep, as described and quicker."""
    ways = {"piccolo, as described": sweep, "piccolo, first layer once": quick_sweep}
    found = {}
    for name, method in ways.items():
        spent = []
        for head in heads:
            module = head.module()
            started = time.perf_counter()
            method(module, samples, values)
            spent.append(time.perf_counter() - started)
        found[name] = round(statistics.fmean(spent), 4)
    return found


if __name__ == "__main__":
    sys.exit(main())
