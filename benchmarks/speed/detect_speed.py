"""Seconds for a verdict, stage by stage, beside a PyTorch Neural Cleanse on the same images.

    python -m benchmarks.speed.detect_speed MODEL EXAMPLES [--image-size PX] [--out FILE]

`--image-size` enlarges the examples: time depends on the size, not on what is in the picture.
Every stage is run twice; the second time is the warm one, the difference is compilation. Stages
never stop early here: a scan that does is faster. `gradients` compares one batch of image-gradients
of the same architecture with PyTorch's, in turns: see `benchmarks.speed.gradients`.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals.torch_neural_cleanse import batched_neural_cleanse, neural_cleanse
from benchmarks.speed.floor import measure_floor
from benchmarks.speed.gradients import measure
from benchmarks.speed.usual_stages import usual_stages
from converters import convert, families, open_artifact
from converters.families.reference import filled_module
from converters.files import write_atomic
from jaxtroj.cli.options import keep_compiled
from jaxtroj.evidence.gather import Evidence, gather_steps
from jaxtroj.evidence.images.context import image_context
from jaxtroj.rounds import Examples, load_examples

_BATCH = 8


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    examples = _resized(load_examples(args.examples, limit_per_class=20), args.image_size)
    artifact = open_artifact(args.model)
    started = time.perf_counter()
    model = convert(artifact)
    converting = time.perf_counter() - started
    runs = [_gathered(model, examples) for _ in range(2)]
    result = {
        "provenance": provenance(),
        "architecture": model.architecture,
        "images": list(examples.images.shape),
        "convert_seconds": round(converting, 2),
        "jaxtroj": {"first": runs[0], "warm": runs[1]},
        "gradients": _gradients(model.architecture, examples.images.shape[1]),
        **_rivals(artifact, model, examples, args),
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds for a verdict.")
    parser.add_argument("model", type=Path)
    parser.add_argument("examples", type=Path)
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--steps", type=int, default=100, help="of the rival, per label")
    parser.add_argument("--rival-per-class", type=int, default=4, help="images it optimises over")
    parser.add_argument("--labels", type=int, default=1, help="labels the rival really inverts")
    parser.add_argument("--compile", action="store_true", help="the rival by torch.compile, too")
    parser.add_argument(
        "--trojanzoo", action="store_true", help="TrojanZoo's, too; see trojanzoo_neural_cleanse.py"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "detect_speed.json")
    return parser.parse_args()


def _resized(examples: Examples, size: int | None) -> Examples:
    if size is None:
        return examples
    pictures = (np.asarray(examples.images) * 255).astype(np.uint8)
    larger = [np.asarray(Image.fromarray(p).resize((size, size))) for p in pictures]
    return replace(examples, images=np.stack(larger).astype(np.float32) / 255)


def _gathered(model, examples: Examples) -> dict[str, Any]:
    context = image_context(model, examples)
    stages = usual_stages(context)
    started, used, processor = time.perf_counter(), time.process_time(), {"": time.process_time()}
    evidence, following = Evidence(), ""
    # The processor's time tells more than the clock where other programs run beside.
    for step in gather_steps(context, stages):
        processor[following] = round(time.process_time() - processor[following], 2)
        evidence, following = step.evidence, step.following
        processor[following] = time.process_time()
    seconds = {stage: round(s, 2) for stage, s in evidence.seconds.items()}
    best = evidence.triggers[0]
    return {
        "seconds": seconds,
        "all_seconds": round(time.perf_counter() - started, 2),
        "processor_seconds": {stage: s for stage, s in processor.items() if stage},
        "all_processor_seconds": round(time.process_time() - used, 2),
        "cheap_seconds": round(seconds["weights"] + seconds["probes"], 2),
        "target_class": best.target_class,
        "attack_success_rate": round(best.attack_success_rate, 3),
        "mask_l1": round(best.as_json()["mask_l1"], 1),
    }


def _gradients(architecture: str, side: int) -> dict[str, Any] | None:
    """One batch of image-gradients beside PyTorch's; None where torchvision has no such network."""
    if architecture not in families.standards():
        return None
    return measure(architecture, side, _BATCH, measure_floor())


def _rivals(artifact, model, examples: Examples, args: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(0)
    network = filled_module(model.config, artifact.weights.tensors).float()
    images, labels = _few(examples, model.num_classes, args.rival_per_class)
    parts = (network, images, labels, model.num_classes, args)
    found = {
        "pytorch_neural_cleanse": _one_by_one(neural_cleanse, *parts),
        "pytorch_neural_cleanse_batched": _batched(*parts),
    }
    if args.compile:
        compiled = (torch.compile(network), *parts[1:])
        found["pytorch_neural_cleanse_compiled"] = _one_by_one(neural_cleanse, *compiled)
    if args.trojanzoo:
        from benchmarks.rivals import trojanzoo_neural_cleanse

        theirs = trojanzoo_neural_cleanse.neural_cleanse
        found["trojanzoo_neural_cleanse"] = _one_by_one(theirs, *parts)
    return found


def _few(examples: Examples, classes: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    few = np.concatenate([np.flatnonzero(examples.labels == c)[:per_class] for c in range(classes)])
    return examples.images[few], examples.labels[few]


def _one_by_one(invert, network, images, labels, classes: int, args) -> dict[str, Any]:
    """One label after another; labels beyond `--labels` take as long and are not run."""
    invert(network, images, labels, 0, 2)  # warm up
    started = time.perf_counter()
    results = [invert(network, images, labels, k, args.steps) for k in range(args.labels)]
    per_label = (time.perf_counter() - started) / args.labels
    return _figures(per_label, labels, classes, args.steps, results)


def _batched(network, images, labels, classes: int, args) -> dict[str, Any]:
    batched_neural_cleanse(network, images, labels, classes, 1)  # warm up
    started = time.perf_counter()
    results = batched_neural_cleanse(network, images, labels, classes, args.steps)
    per_label = (time.perf_counter() - started) / classes
    return _figures(per_label, labels, classes, args.steps, results)


def _figures(per_label: float, labels, classes: int, steps: int, results) -> dict[str, Any]:
    gradients = int((labels != 0).sum()) * steps / per_label
    return {
        "steps": steps,
        "images_per_step": int((labels != 0).sum()),
        "seconds_per_label": round(per_label, 2),
        "seconds_all_labels": round(per_label * classes, 2),
        "image_gradients_per_second": round(gradients, 1),
        "candidate_steps_per_second": round(steps / per_label, 2),
        "found": [vars(result) for result in results],
    }


if __name__ == "__main__":
    sys.exit(main())
