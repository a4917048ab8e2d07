"""An ImageNet-9-style set from real photos, a small network trained on them, and the challenge.

    python -m benchmarks.backgrounds PHOTOS WORK [--size PX] [--steps N]

PHOTOS holds files `number_class_wnid_name.jpg`. In WORK appear the pictures by class, two generated
data sets (all photos; those held out of training), the network, its run folders, and sheets of
pictures to look at. What is there already is not made again. The photos are not part of this
project, and no picture of them is written anywhere else.

Boxes are centred: nobody annotated these photos. So masks are GrabCut's guess, and the figures say
how the system works on real pictures, not how good a network is.
"""

import argparse
import csv
import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from PIL import Image

from benchmarks import torch_backgrounds
from benchmarks.provenance import RESULTS, provenance
from converters import convert, open_artifact
from converters.files import write_atomic
from converters.reference import filled_module
from jaxtroj.backgrounds import figure
from jaxtroj.backgrounds.candidates import Request, load_candidates
from jaxtroj.backgrounds.challenge import Pairs, Plan, State, choose_backgrounds, search
from jaxtroj.backgrounds.classifier import Classifier, resident
from jaxtroj.backgrounds.evaluation import bg_gap, evaluate
from jaxtroj.backgrounds.generation import Done, Settings, generate
from jaxtroj.backgrounds.layout import (
    AS_IS,
    CLASSES,
    FOREGROUNDS,
    VARIANTS,
    load_challenge,
    load_variant,
)
from jaxtroj.backgrounds.normalization import PUBLISHED
from jaxtroj.backgrounds.results import first_fooling
from jaxtroj.backgrounds.session import Session
from jaxtroj.cli.options import keep_compiled
from jaxtroj.generate import networks, torch_file

BOX, HELD_OUT, SEED = 0.7, 0.3, 0
BATCH, RATE, WEIGHT_DECAY = 64, 2e-3, 1e-3
ARCHITECTURE = networks.SMALL
PARTS = ("all", "held_out")


def main() -> int:
    """Make what is missing, measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    for part in PARTS:
        _make_data(args.photos, args.work, part, args.size)
    trained = _make_network(args)
    (candidate,) = load_candidates([args.work / "model.pt"], Request(in9=True))
    result: dict[str, Any] = {
        "provenance": provenance(),
        "size": args.size,
        "architecture": ARCHITECTURE,
        "training": trained,
        "box": BOX,
    }
    for part in PARTS:
        result[part] = _measured(candidate, args.work, part)
    result["speed"] = {part: _speed(candidate.classifier, args, part) for part in PARTS}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The Backgrounds Challenge on real photos.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--workers-every", type=int, default=20, help="8 workers: every Nth only")
    parser.add_argument("--out", type=Path, default=RESULTS / "backgrounds.json")
    return parser.parse_args()


def _is_held_out(path: Path) -> bool:
    digest = hashlib.sha256(path.name.encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT * 2**32


def _make_data(photos: Path, work: Path, part: str, size: int) -> None:
    """Pictures by class, centred boxes, and the eight variants of them."""
    out = work / f"{part}_{size}"
    if out.exists():
        return
    images = work / f"{part}_photos"
    shutil.rmtree(images, ignore_errors=True)
    lines = [("image", "xmin", "ymin", "xmax", "ymax")]
    for path in sorted(photos.glob("*.jpg")):
        if part == "all" or _is_held_out(path):
            name = CLASSES[int(path.name.split("_")[1])]
            (images / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, images / name)
            with Image.open(path) as picture:
                lines.append((f"{name}/{path.name}", *map(str, _centred(*picture.size))))
    boxes = work / f"{part}.csv"
    with open(boxes, "w", newline="") as file:
        csv.writer(file).writerows(lines)
    started = time.perf_counter()
    *_, done = generate(images, out, Settings(SEED, boxes=boxes, size=size))
    assert isinstance(done, Done)
    print(f"{out}: {len(done.manifest['pictures'])} in {time.perf_counter() - started:.0f} s")


def _centred(width: int, height: int) -> tuple[int, int, int, int]:
    """A box of `BOX` of each side of the central square: the crop shows little else."""
    side = round(BOX * min(width, height))
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def _make_network(args: argparse.Namespace) -> dict[str, Any]:
    """Train on the original pictures that are not held out; returns how it went."""
    note = args.work / "training.json"
    if note.exists():
        return json.loads(note.read_text())
    pictures = load_variant(args.work / f"all_{args.size}", FOREGROUNDS)
    held = np.array([_is_held_out(Path(Path(name).stem + ".jpg")) for name in pictures.names])
    images, labels = pictures.images[~held], pictures.labels[~held]
    started = time.perf_counter()
    module = networks.build(ARCHITECTURE, len(CLASSES), nnx.Rngs(SEED))
    loss = _train(module, images, labels, args.steps)
    tensors = torch_file.state_dict(module, ARCHITECTURE, len(CLASSES), args.steps)
    torch_file.write_model(args.work / "model.pt", tensors, ARCHITECTURE, len(CLASSES))
    values = {
        "pictures": int((~held).sum()),
        "steps": args.steps,
        "batch": BATCH,
        "last_loss": round(loss, 3),
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_atomic(note, json.dumps(values).encode())
    return values


def _train(module: nnx.Module, images: np.ndarray, labels: np.ndarray, steps: int) -> float:
    """AdamW under a cosine, random shifts and flips; returns the mean loss of the last 20 steps."""
    table = jnp.asarray(PUBLISHED["in9"].table())
    schedule = optax.cosine_decay_schedule(RATE, steps)
    adam = optax.adamw(schedule, weight_decay=WEIGHT_DECAY)
    optimizer = nnx.Optimizer(module, adam, wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer, images, labels):
        def loss_of(module):
            logits = module(table[images, jnp.arange(3)])
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(module)
        optimizer.update(module, gradients)
        return loss

    module.train()
    random = np.random.default_rng(SEED)
    weights = 1 / np.bincount(labels)[labels]
    losses = []
    for _ in range(steps):
        chosen = random.choice(len(images), BATCH, p=weights / weights.sum())
        losses.append(step(module, optimizer, _shifted(images[chosen], random), labels[chosen]))
    module.eval()
    return float(np.mean(np.asarray(jnp.stack(losses[-20:]))))


def _shifted(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each picture cut anew from an enlarged mirror of itself, half of them flipped."""
    size, pad = images.shape[1], images.shape[1] // 8
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="reflect")
    starts = random.integers(0, 2 * pad + 1, (len(images), 2))
    flips = random.random(len(images)) < 0.5
    cut = [p[t : t + size, s : s + size] for p, (t, s) in zip(padded, starts, strict=True)]
    return np.stack([c[:, ::-1] if flip else c for c, flip in zip(cut, flips, strict=True)])


def _measured(candidate, work: Path, part: str) -> dict[str, Any]:
    """All variants, the gap, and the full matrix of one data set."""
    folder = next(path for path in work.glob(f"{part}_[0-9]*") if path.is_dir())
    scores = {
        score.variant: score
        for _, score in evaluate({candidate.name: candidate.classifier}, folder, VARIANTS)
    }
    data = load_challenge(folder)
    plan = Plan(choose_backgrounds(data, None), every_pair=True)
    session = Session(candidate.name, candidate.describe(), data, data.digest(), plan, AS_IS)
    result = session.run(candidate.classifier, None, resident(data), work / f"runs_{folder.name}")
    _sheets(work / f"sheet_{folder.name}.png", folder, data, result)
    matrix = result["matrix"]
    return {
        "pictures": len(data.masks),
        "accuracy": {name: round(score.accuracy, 4) for name, score in scores.items()},
        "per_class_original": {n: round(a, 3) for n, a in scores[FOREGROUNDS].per_class.items()},
        "bg_gap": round(bg_gap(scores) or 0.0, 4),
        "challenge_accuracy": round(result["challenge_accuracy"], 4),
        "challenge_accuracy_without_own_class": round(
            matrix["challenge_accuracy_without_own_class"], 4
        ),
        "pairs_fooled": round(matrix["pairs_fooled"], 4),
        "strongest_background": round(max(matrix["fooling_rates"].values()), 4),
    }


def _sheets(path: Path, folder: Path, data, result: dict[str, Any]) -> None:
    """For one picture of each class: its variants, and it on the background that fooled it."""
    variants = {variant: load_variant(folder, variant) for variant in VARIANTS}
    rows = []
    for label, name in enumerate(CLASSES):
        i = int(np.flatnonzero(data.foregrounds.labels == label)[0])
        tiles = [(variants[variant].images[i], variant) for variant in VARIANTS]
        fooled_by = result["fooled_by"][data.foregrounds.names[i]]
        if fooled_by is not None:
            j = data.backgrounds.names.index(fooled_by)
            pixels = np.where(
                data.masks[i][..., None], data.foregrounds.images[i], data.backgrounds.images[j]
            )
            tiles.append((pixels, "fooled"))
        rows.append((name, tiles))
    write_atomic(path, figure.sheet(rows))


def _speed(classifier: Classifier, args: argparse.Namespace, part: str) -> dict[str, Any]:
    """The original's way against ours: same network, same data, same machine, one run."""
    folder = args.work / f"{part}_{args.size}"
    norm = classifier.normalization
    artifact = open_artifact(args.work / "model.pt")
    network = filled_module(artifact, convert(artifact)).float().eval()
    rival = torch_backgrounds.challenge(folder, network, norm.mean, norm.std)
    workers = torch_backgrounds.challenge(
        folder, network, norm.mean, norm.std, workers=8, every=args.workers_every
    )
    started = time.perf_counter()
    data = load_challenge(folder)
    on_device = resident(data)
    reading = time.perf_counter() - started
    plans = {
        name: Plan(choose_backgrounds(data, None), adaptive=name == "adaptive")
        for name in ("adaptive", "as_sorted")
    }
    first = _timed(classifier, on_device, plans["adaptive"])
    runs = {name: _timed(classifier, on_device, plan) for name, plan in plans.items()}
    last, seconds, answers = runs["adaptive"]
    fooled = first_fooling(answers, data.foregrounds.labels) >= 0
    ours = dict(zip(data.foregrounds.names, fooled.tolist(), strict=True))
    whole = reading + seconds
    return {
        "foregrounds": len(data.masks),
        "vulnerable": last.vulnerable,
        "foregrounds_judged_otherwise": sum(ours[n] != v for n, v in rival.vulnerable.items()),
        "original_way": {"seconds": round(rival.seconds, 2), "passes": rival.passes},
        "original_way_8_workers": {
            "foregrounds": len(workers.vulnerable),
            "seconds_per_foreground": round(workers.seconds / len(workers.vulnerable), 3),
        },
        "ours": {
            "reading_seconds": round(reading, 2),
            "compiling_seconds": round(first[1] - seconds, 2),
            "search_seconds": round(seconds, 2),
            "passes": last.passes,
            "passes_as_sorted": runs["as_sorted"][0].passes,
        },
        "times_faster": round(rival.seconds / whole, 2),
        "times_faster_with_compiling": round(rival.seconds / (reading + first[1]), 2),
        "times_fewer_passes": round(rival.passes / last.passes, 2),
    }


def _timed(classifier: Classifier, on_device, plan: Plan) -> tuple[State, float, Pairs]:
    started = time.perf_counter()
    states = list(search(classifier, on_device, plan))
    seconds = time.perf_counter() - started
    parts = zip(*(state.fresh for state in states), strict=True)
    return states[-1], seconds, Pairs(*map(np.concatenate, parts))


if __name__ == "__main__":
    raise SystemExit(main())
