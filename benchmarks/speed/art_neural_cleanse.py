"""Candidate-steps a second beside IBM ART's NeuralCleanse: the same work on the same shape.

    python -m benchmarks.speed.art_neural_cleanse --python PYTHON [--image-size PX] [--steps N]

PYTHON is that of an environment with ART and TensorFlow (see `benchmarks/rivals/art_rival.py`). ART
takes Keras models only, so the two networks are ResNet50s of five classes with random weights of
their own; pictures, size and steps are the same: ART searches one label's trigger after another on
16 pictures, we search all five at once, each on 16. Compiling is left out of both.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals import art_rival
from benchmarks.speed.attack_success import our_inversion
from converters import families
from converters.families.folding import fold
from converters.files import write_atomic
from converters.model import Model, params_of
from jaxtroj.cli.options import keep_compiled
from jaxtroj.network import Network

_CLASSES, _PER_CLASS = 5, 4
_PICTURES = (_CLASSES - 1) * _PER_CLASS  # that one candidate is searched on


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    theirs = _theirs(args)
    rates = {
        "jaxtroj, five labels at once": _CLASSES * args.steps / _our_seconds(args),
        "ART NeuralCleanse, label after label": args.steps / theirs["seconds"],
    }
    result = {
        "provenance": provenance(),
        "rival": {name: theirs[name] for name in ("art", "tensorflow")},
        "image_size": args.image_size,
        "pictures_per_step": _PICTURES,
        "steps": args.steps,
        "candidate_steps_per_second": {name: round(rate, 3) for name, rate in rates.items()},
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Candidate-steps a second, beside ART's.")
    parser.add_argument("--python", required=True, help="of the environment with ART")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS / "art_neural_cleanse.json")
    return parser.parse_args()


def _theirs(args: argparse.Namespace) -> dict[str, Any]:
    script = str(Path(art_rival.__file__))
    command = [args.python, script, "--size", str(args.image_size), "--pictures", str(_PICTURES)]
    done = subprocess.run([*command, "--steps", str(args.steps)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{script} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def _our_seconds(args: argparse.Namespace) -> float:
    config, module = families.build("resnet50", _CLASSES, nnx.Rngs(0))
    params = {path: jnp.asarray(value) for path, value in params_of(module).items()}
    network = Network(fold(Model(config, params, "resnet50")))
    shape = (_CLASSES * _PER_CLASS, args.image_size, args.image_size, 3)
    pictures = np.random.default_rng(0).random(shape, np.float32)
    search = our_inversion(network, pictures, np.repeat(np.arange(_CLASSES), _PER_CLASS))
    next(search)  # compiles
    started = time.perf_counter()
    for _ in range(args.steps):
        next(search)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
