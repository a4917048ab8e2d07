"""How the cost of a verdict grows: with picture size, classes, candidates, models in a folder.

    python -m benchmarks.speed.growth [--architecture A] [--sizes PX ...] [--classes N ...]
        [--models N]

Networks have random weights: time depends on shapes, not on what a network knows, as long as no
stage stops early, and none does here. Every point is gathered twice; the second time is the warm
one, the difference is compilation. Pictures of up to 32 px have a stage of their own, so the curve
begins above. With models, the first pays for compiling and the others do not. Candidates are masks
of Neural Cleanse that are searched at once, ten steps of each.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.provenance import RESULTS, provenance
from benchmarks.speed.usual_stages import usual_stages
from converters import families
from converters.families.folding import fold
from converters.files import write_atomic
from converters.model import Model, params_of
from jaxtroj.anchors import anchor
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.inversion.driver import Arms, Rung, invert
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

_PER_CLASS, _STEPS = 10, 10


def main() -> int:
    """Measure, print, draw and write; returns the exit status."""
    args = _arguments()
    base_size, base_classes = args.sizes[0], args.classes[0]
    curves = {
        "picture size (px)": [
            point(args.architecture, size, base_classes, size) for size in args.sizes
        ],
        "classes": [point(args.architecture, base_size, n, n) for n in args.classes],
        "candidates": candidates(args.architecture, base_size, base_classes, args.candidates),
        "models in the folder": _folder(args.architecture, base_size, base_classes, args.models),
    }
    result = {
        "provenance": provenance(),
        "architecture": args.architecture,
        "base": {"image_size": base_size, "classes": base_classes},
        "curves": curves,
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    draw(curves, args.out.with_suffix(".svg"))
    print(json.dumps(curves, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How the cost of a verdict grows.")
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--sizes", type=int, nargs="+", default=[48, 64, 96, 128])
    parser.add_argument("--classes", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--candidates", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULTS / "growth.json")
    return parser.parse_args()


def point(architecture: str, size: int, classes: int, x: int) -> dict[str, Any]:
    """One place on a curve: cold and warm seconds, and the warm ones by stage."""
    cold, _ = _gathered(architecture, size, classes, 0)
    warm, stages = _gathered(architecture, size, classes, 0)
    return {"x": x, "cold_seconds": cold, "warm_seconds": warm, "stages": stages}


def candidates(
    architecture: str, size: int, classes: int, counts: Sequence[int]
) -> list[dict[str, Any]]:
    """Seconds of so many masks' search, cold and warm, on one example of each class."""
    model, examples = _made(architecture, size, classes, 0)
    network = Network(fold(model))
    few, method = anchor(network, examples, classes), NeuralCleanse()
    out = []
    for count in counts:
        keys = jax.random.split(jax.random.key(0), count)
        states = jax.vmap(lambda key: method.init(key, (size, size, 3)))(keys)
        arms = Arms(states, np.arange(count) % classes, np.zeros(count, bool))
        search = partial(invert, method, network, few, arms, (Rung(count, _STEPS),))
        cold, warm = (_seconds(search) for _ in range(2))
        rate = round(count * _STEPS / warm, 1)
        out.append({"x": count, "cold_seconds": cold, "warm_seconds": warm,
                    "candidate_steps_per_second": rate})  # fmt: skip
    return out


def _seconds(search: Callable[[], Arms]) -> float:
    started = time.perf_counter()
    jax.block_until_ready(search().states)
    return round(time.perf_counter() - started, 3)


def _folder(architecture: str, size: int, classes: int, count: int) -> list[dict[str, Any]]:
    """Mean seconds a model after so many different models of one architecture."""
    total, out = 0.0, []
    for number in range(count):
        seconds, stages = _gathered(architecture, size, classes, number)
        total += seconds
        mean = round(total / (number + 1), 3)
        out.append({"x": number + 1, "warm_seconds": mean, "stages": stages})
    return out


def _gathered(
    architecture: str, size: int, classes: int, seed: int
) -> tuple[float, dict[str, float]]:
    """Seconds of all stages, and of each, for a network of random weights."""
    model, examples = _made(architecture, size, classes, seed)
    started = time.perf_counter()
    context = image_context(model, examples)
    evidence = gather(context, usual_stages(context))
    seconds = round(time.perf_counter() - started, 3)
    return seconds, {stage: round(s, 3) for stage, s in evidence.seconds.items()}


def _made(architecture: str, size: int, classes: int, seed: int) -> tuple[Model, Examples]:
    """A network of random weights, and ten random pictures of each class."""
    config, module = families.build(architecture, classes, nnx.Rngs(seed))
    params = {path: jnp.asarray(value) for path, value in params_of(module).items()}
    model = Model(config, params, architecture)
    random = np.random.default_rng(seed)
    pictures = random.random((_PER_CLASS * classes, size, size, 3), np.float32)
    labels = np.repeat(np.arange(classes, dtype=np.int32), _PER_CLASS)
    names = tuple(f"class_{c}_example_{n}.png" for n, c in enumerate(labels))
    return model, Examples(pictures, labels, names, "RGB")


def draw(curves: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The curves side by side, as SVG."""
    from jaxtroj.leaderboard.plots import BLUE, new_figure, save_figure

    figure = new_figure(3.2 * len(curves), 3.0)
    for place, (title, points) in enumerate(curves.items()):
        axes = figure.add_subplot(1, len(curves), place + 1)
        xs = [p["x"] for p in points]
        seconds = [p["warm_seconds"] for p in points]
        axes.plot(xs, seconds, color=BLUE, marker="o")
        axes.set_xlabel(title)
        axes.set_ylabel("seconds")
        axes.set_ylim(0, 1.1 * max(seconds))
    save_figure(figure, path.with_suffix(""))


if __name__ == "__main__":
    sys.exit(main())
