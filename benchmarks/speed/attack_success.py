"""Seconds until a trigger for the planted class works on .99 of pictures, beside Neural Cleanse.

    python -m benchmarks.speed.attack_success DATASET [DATASET ...] [--models N] [--out FILE]

On the first N poisoned models of each DATASET (`jaxtroj generate round0`), with the same weights
and pictures: our Neural Cleanse and the PyTorch one, both with a candidate for each class in one
batch, and the PyTorch one with the planted class alone, which nobody knows beforehand. The success
is that on the pictures which the trigger is fitted to, as each method sees it; the mask's L1 norm
at that moment stands beside it. Candidate-steps per second count every class. The first step
of each compiles; neither the clock nor the number of steps counts it.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals.torch_neural_cleanse import Inverted, batched_inversion, inversion
from converters import convert, open_artifact
from converters.families.folding import fold
from converters.families.reference import filled_module
from converters.files import write_atomic
from jaxtroj.anchors import AnchoredExamples
from jaxtroj.cli.options import keep_compiled
from jaxtroj.inversion.driver import Arms, Rung, invert
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.network import Network
from jaxtroj.rounds import ModelEntry, iter_models, load_examples

_GOAL = 0.99
_OURS = "jaxtroj's Neural Cleanse, batched"
_ONE, _BATCHED = "PyTorch Neural Cleanse, planted class alone", "PyTorch Neural Cleanse, batched"


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    poisoned = [
        entry
        for source in args.datasets
        for entry in [e for e in iter_models(source) if e.poisoned][: args.models]
    ]
    rows = []
    for entry in poisoned:
        rows.append(_row(entry, args))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    result = {"provenance": provenance(), "goal": _GOAL, "most_steps": args.steps,
              "methods": summary(rows), "rows": rows}  # fmt: skip
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result["methods"], indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds to an attack success of .99.")
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--models", type=int, default=8, help="of each dataset; default: 8")
    parser.add_argument("--steps", type=int, default=200, help="the most")
    parser.add_argument("--per-class", type=int, default=4, help="pictures of each class")
    parser.add_argument("--out", type=Path, default=RESULTS / "attack_success.json")
    return parser.parse_args()


def _row(entry: ModelEntry, args: argparse.Namespace) -> dict[str, Any]:
    if entry.examples_path is None:
        raise SystemExit(f"{entry.model_id} has no example pictures")
    artifact = open_artifact(entry.model_path)
    model = convert(artifact)
    target = int(float(entry.metadata["trigger_target_class"]))
    examples = load_examples(entry.examples_path, limit_per_class=args.per_class)
    pictures, labels, classes = examples.images, examples.labels, model.num_classes
    module = filled_module(model.config, artifact.weights.tensors).float()
    torch.manual_seed(0)
    searches = {
        _OURS: (our_inversion(Network(fold(model)), pictures, labels), classes),
        _BATCHED: (batched_inversion(module, pictures, labels, classes), classes),
        _ONE: (([one] for one in inversion(module, pictures, labels, target)), 1),
    }
    found = {
        name: _until(search, target, args.steps) | {"candidates": candidates}
        for name, (search, candidates) in searches.items()
    }
    return {"model": entry.model_id, "target_class": target, "methods": found}


def our_inversion(network: Network, pictures, labels) -> Iterator[list[Inverted]]:
    """What each class's arm has reached after each step, without end; no trigger moves."""
    method, classes = NeuralCleanse(), network.model.num_classes
    nowhere = jnp.zeros((len(labels), 2))
    images, sources = jnp.asarray(pictures), jnp.asarray(labels)
    few = AnchoredExamples(images, nowhere, sources, network.logits(images), accuracy=1.0)
    _, height, width, channels = pictures.shape
    keys = jax.random.split(jax.random.key(0), classes)
    states = jax.vmap(lambda key: method.init(key, (height, width, channels)))(keys)
    arms = Arms(states, np.arange(classes), np.zeros(classes, bool))
    while True:
        arms = invert(method, network, few, arms, (Rung(classes, 1),))
        sizes = jax.nn.sigmoid(arms.states.mask).sum(axis=(1, 2, 3))
        reached = zip(arms.targets, np.asarray(sizes), np.asarray(arms.states.success), strict=True)
        yield [Inverted(int(k), float(size), float(success)) for k, size, success in reached]


def _until(search: Iterator[Sequence[Inverted]], target: int, most: int) -> dict[str, Any]:
    """Steps and seconds until the target's success reaches the goal, or `most` steps are done."""
    next(search)  # compiles
    started, steps, reached, size = time.perf_counter(), 0, False, 0.0
    while steps < most and not reached:
        own = next(one for one in next(search) if one.target == target)
        steps, reached, size = steps + 1, own.success >= _GOAL, own.mask_l1
    seconds = time.perf_counter() - started
    return {
        "reached": reached,
        "steps": steps,
        "seconds": round(seconds, 3),
        "seconds_per_step": seconds / steps,
        "mask_l1": round(size, 1),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By method: how often the goal was reached, and medians; of seconds over all models."""
    out = {}
    for name in rows[0]["methods"]:
        found = [row["methods"][name] for row in rows]
        per_step = statistics.median(one["seconds_per_step"] for one in found)
        out[name] = {
            "reached": f"{sum(one['reached'] for one in found)} of {len(found)}",
            "median_seconds": round(statistics.median(one["seconds"] for one in found), 3),
            "median_steps": statistics.median(one["steps"] for one in found),
            "median_mask_l1": statistics.median(one["mask_l1"] for one in found),
            "candidate_steps_per_second": round(found[0]["candidates"] / per_step, 1),
        }
    return out


if __name__ == "__main__":
    sys.exit(main())
