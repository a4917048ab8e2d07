"""Image-gradients a second, the unit of work of trigger inversion, beside PyTorch's.

    python -m benchmarks.speed.gradients [--architectures A ...] [--image-size PX] [--batches N ...]

Forward pass and gradient with respect to the pictures: ours (batch norms folded, NHWC, one compiled
program) and PyTorch's (parameters frozen, channels_last), on the same random weights and pictures,
in turns; both with the memory settings of every `jaxtroj` command (`jaxtroj.runtime`). Quality: the
largest difference of logits and gradients, over the largest size. The floor is the operations that
XLA counts in our program over what a matrix product reaches here.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals.torch_neural_cleanse import frozen
from benchmarks.speed.floor import floor_seconds, measure_floor
from benchmarks.timing import interleaved_seconds
from converters import families
from converters.families.folding import fold
from converters.families.reference import filled_module
from converters.files import write_atomic
from converters.model import Model, apply, params_of
from jaxtroj import runtime
from jaxtroj.generate.torch_device import torch_device
from jaxtroj.generate.torch_file import state_dict

ARCHITECTURES = ("resnet50", "densenet121", "inception_v3")
_CLASSES = 5


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = point_arguments("Image-gradients a second.", ARCHITECTURES, "gradients")
    floor = measure_floor()
    rows = []
    for name in args.architectures:
        for batch in args.batches:
            rows.append(measure(name, args.image_size, batch, floor))
            runtime.give_back()
    result = {"provenance": provenance(), "floor": floor, "rows": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(rows, indent=1))
    return 0


def point_arguments(about: str, architectures: Sequence[str], name: str) -> argparse.Namespace:
    """Networks, picture size and batches to measure at, and the result's file of that name."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--architectures", nargs="+", default=list(architectures))
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    return parser.parse_args()


def measure(name: str, size: int, batch: int, floor: dict[str, Any]) -> dict[str, Any]:
    """One architecture and batch: seconds of both, ratio, agreement, share of the floor."""
    config, module = families.build(name, _CLASSES, nnx.Rngs(0))
    params = {path: jnp.asarray(value) for path, value in params_of(module).items()}
    model = fold(Model(config, params, name))
    pictures = np.random.default_rng(0).random((batch, size, size, 3), np.float32)
    ours, compiling, operations = _ours(model, pictures)
    theirs = _theirs(config, state_dict(module, name, _CLASSES, 1), pictures)
    seconds = interleaved_seconds({"jaxtroj": ours, "pytorch": theirs})
    logits, gradient = ours()
    their_logits, their_gradient = (found.cpu() for found in theirs())
    least = floor_seconds(floor, operations, 0.0)
    return {
        "architecture": name,
        "image_size": size,
        "batch": batch,
        "compile_seconds": round(compiling, 2),
        "jaxtroj_seconds": round(seconds["jaxtroj"], 4),
        "pytorch_seconds": round(seconds["pytorch"], 4),
        "image_gradients_per_second": round(batch / seconds["jaxtroj"], 2),
        "pytorch_image_gradients_per_second": round(batch / seconds["pytorch"], 2),
        "ratio": round(seconds["jaxtroj"] / seconds["pytorch"], 3),
        "floor_seconds": round(least, 4),
        "share_of_floor": round(least / seconds["jaxtroj"], 3),
        "logits_difference": _difference(logits, their_logits),
        "gradient_difference": _difference(gradient, their_gradient),
    }


def _ours(model: Model, pictures: np.ndarray):
    """A call that returns logits and gradient, seconds of compiling, operations of the program."""

    def step(params, x):
        logits, pull = jax.vjp(partial(apply, model.config, params), x)
        return logits, pull(jnp.ones_like(logits))[0]

    x = jnp.asarray(pictures)
    started = time.perf_counter()
    compiled = jax.jit(step).lower(model.params, x).compile()
    compiling = time.perf_counter() - started
    operations = float((compiled.cost_analysis() or {}).get("flops", 0.0))
    return lambda: jax.block_until_ready(compiled(model.params, x)), compiling, operations


def _theirs(config, tensors, pictures: np.ndarray):
    """A call that returns PyTorch's logits and gradient, channels last."""
    network = frozen(filled_module(config, tensors).float())
    x = torch.from_numpy(pictures.transpose(0, 3, 1, 2))
    x = x.to(torch_device(), memory_format=torch.channels_last).requires_grad_(True)

    def call():
        logits = network(x)
        (gradient,) = torch.autograd.grad(logits.sum(), x)
        return finished(logits.detach()), finished(gradient.permute(0, 2, 3, 1))

    return call


def finished(found: torch.Tensor) -> torch.Tensor:
    """The tensor once it is computed; it stays where it is, as jax's do."""
    if found.is_cuda:
        torch.cuda.synchronize()
    return found


def _difference(ours, theirs) -> float:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    return float(f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.2g}")


if __name__ == "__main__":
    sys.exit(main())
