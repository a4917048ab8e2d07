"""An ImageNet-9-style set from real photos, a small network trained on them, and the challenge.

    python -m benchmarks.accuracy.backgrounds PHOTOS WORK [--size PX] [--steps N]

PHOTOS holds files `number_class_wnid_name.jpg`. In WORK appear the pictures by class, two generated
data sets (all photos; those held out of training), two networks, their run folders, and sheets of
pictures to look at. What is there already is not made again. The photos are not part of this
project, and no picture of them is written anywhere else.

Boxes are centred: nobody annotated these photos. So masks are GrabCut's guess, and the figures say
how the system works on real pictures, not how good a network is.
"""

import argparse
import csv
import json
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.accuracy.backgrounds_networks import (
    ARCHITECTURE,
    KINDS,
    SEED,
    is_held_out,
    make_network,
)
from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals import torch_backgrounds
from converters import convert, open_artifact
from converters.families.reference import filled_module
from converters.files import write_atomic
from jaxtroj.backgrounds import figure
from jaxtroj.backgrounds.candidates import Request, load_candidates
from jaxtroj.backgrounds.challenge import Pairs, Plan, State, choose_backgrounds, search
from jaxtroj.backgrounds.classifier import Classifier, Resident, resident
from jaxtroj.backgrounds.evaluation import bg_gap, evaluate
from jaxtroj.backgrounds.generation import Done, GenerationSettings, generate
from jaxtroj.backgrounds.layout import (
    AS_IS,
    CLASSES,
    FOREGROUNDS,
    VARIANTS,
    load_challenge,
    load_variant,
)
from jaxtroj.backgrounds.results import first_fooling
from jaxtroj.backgrounds.session import Session
from jaxtroj.cli.options import keep_compiled

BOX = 0.7
_FEW = 40  # every so many foregrounds, where few will do
PARTS = ("all", "held_out")


def main() -> int:
    """Make what is missing, measure, print and write; returns the exit status."""
    args = _arguments()
    keep_compiled()
    for part in PARTS:
        _make_data(args.photos, args.work, part, args.size)
    result: dict[str, Any] = {"provenance": provenance(), "size": args.size, "box": BOX}
    result["architecture"] = ARCHITECTURE
    for kind in KINDS:
        result[kind] = _one_network(args, kind)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The Backgrounds Challenge on real photos.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--steps", type=int, nargs=len(KINDS), default=(400, 600))
    parser.add_argument("--rival-every", type=int, default=3, help="its foregrounds: every Nth")
    parser.add_argument("--out", type=Path, default=RESULTS / "backgrounds.json")
    return parser.parse_args()


def _one_network(args: argparse.Namespace, kind: str) -> dict[str, Any]:
    """Training, figures of both data sets, and speed, of a network trained on `kind`."""
    path = args.work / f"{kind}.pt"
    trained = make_network(
        args.work / f"all_{args.size}", path, kind, args.steps[KINDS.index(kind)]
    )
    (candidate,) = load_candidates([path], Request(in9=True))
    figures = {part: _measured(candidate, args.work, part) for part in PARTS}
    speed = _speed(candidate.classifier, args, path)
    return {"training": trained, **figures, "speed": speed}


def _make_data(photos: Path, work: Path, part: str, size: int) -> None:
    """Pictures by class, centred boxes, and the eight variants of them."""
    out = work / f"{part}_{size}"
    if out.exists():
        return
    images = work / f"{part}_photos"
    shutil.rmtree(images, ignore_errors=True)
    lines: list[tuple[str, ...]] = [("image", "xmin", "ymin", "xmax", "ymax")]
    for path in sorted(photos.glob("*.jpg")):
        if part == "all" or is_held_out(path.name):
            name = CLASSES[int(path.name.split("_")[1])]
            (images / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, images / name)
            with Image.open(path) as picture:
                lines.append((f"{name}/{path.name}", *map(str, _centred(*picture.size))))
    boxes = work / f"{part}.csv"
    with open(boxes, "w", newline="") as file:
        csv.writer(file).writerows(lines)
    started = time.perf_counter()
    *_, done = generate(images, out, GenerationSettings(SEED, boxes=boxes, size=size))
    assert isinstance(done, Done)
    print(f"{out}: {len(done.manifest['pictures'])} in {time.perf_counter() - started:.0f} s")


def _centred(width: int, height: int) -> tuple[int, int, int, int]:
    """A box of `BOX` of each side of the central square: the crop shows little else."""
    side = round(BOX * min(width, height))
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


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
    _sheets(work / f"sheet_{folder.name}_{candidate.name}.png", folder, data, result)
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


@dataclass(frozen=True)
class _Search:
    """One search: last state, all answers, wall and processor seconds."""

    last: State
    answers: Pairs
    seconds: float
    processor_seconds: float


def _searched(classifier: Classifier, on_device: Resident, plan: Plan) -> _Search:
    started, processor = time.perf_counter(), time.process_time()
    states = list(search(classifier, on_device, plan))
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    parts = zip(*(state.fresh for state in states), strict=True)
    return _Search(states[-1], Pairs(*map(np.concatenate, parts)), seconds, processor)


def _speed(classifier: Classifier, args: argparse.Namespace, path: Path) -> dict[str, Any]:
    """The original's way against ours: same network, data and machine, one after the other.

    Others may be busy on the machine, which wall time shows twice over where threads wait for each
    other; processor seconds hardly change with it.
    """
    folder = args.work / f"all_{args.size}"
    started, processor = time.perf_counter(), time.process_time()
    data = load_challenge(folder)
    on_device = resident(data)
    reading = time.perf_counter() - started, time.process_time() - processor
    plan = Plan(choose_backgrounds(data, None))
    compiling = _compiling(classifier, on_device)
    ours = _searched(classifier, on_device, plan)
    as_sorted = _searched(classifier, on_device, replace(plan, adaptive=False)).last.passes
    fooled = first_fooling(ours.answers, data.foregrounds.labels) >= 0
    answers = dict(zip(data.foregrounds.names, fooled.tolist(), strict=True))
    rival = _rival(classifier, folder, path, args.rival_every)
    count, passes = len(data.masks), ours.last.passes
    wall = (reading[0] + ours.seconds) / count
    processor = (reading[1] + ours.processor_seconds) / count
    return {
        "foregrounds": count,
        "vulnerable": ours.last.vulnerable,
        "judged_otherwise": sum(answers[n] != v for n, v in rival.pop("vulnerable").items()),
        "original_way": rival,
        "ours": {
            "compiling_seconds": round(compiling, 2),
            "reading_seconds": round(reading[0], 2),
            "search_seconds": round(ours.seconds, 2),
            "seconds_per_foreground": round(wall, 4),
            "processor_seconds_per_foreground": round(processor, 4),
            "passes_per_foreground": round(passes / count, 2),
            "passes_per_foreground_as_sorted": round(as_sorted / count, 2),
            "processor_milliseconds_per_pass": round(1000 * ours.processor_seconds / passes, 3),
        },
        "fewer_passes": round(rival["passes_per_foreground"] * count / passes, 1),
        "times_faster": round(rival["seconds_per_foreground"] / wall, 1),
        "times_less_processor": round(rival["processor_seconds_per_foreground"] / processor, 1),
        "times_faster_than_with_8_workers": round(
            rival["seconds_per_foreground_with_8_workers"] / wall, 1
        ),
    }


def _compiling(classifier: Classifier, on_device: Resident) -> float:
    """Seconds that the first batch takes longer than the second."""
    times = []
    for _ in range(2):
        started = time.perf_counter()
        classifier.judge(on_device, np.zeros(1, int), np.zeros(1, int))()
        times.append(time.perf_counter() - started)
    return times[0] - times[1]


def _rival(classifier: Classifier, folder: Path, path: Path, every: int) -> dict[str, Any]:
    """The original's way on every `every`-th foreground, with the number of threads it likes best.

    The main figures are without workers: on two cores the 8 processes that the original starts for
    each foreground cost more than they save. A few foregrounds are run with them too.
    """
    artifact = open_artifact(path)
    network = filled_module(convert(artifact).config, artifact.weights.tensors).float().eval()
    norm = classifier.normalization

    def run(threads: int, every: int, workers: int = 0) -> torch_backgrounds.RivalResult:
        torch.set_num_threads(threads)
        arguments = (folder, network, norm.mean, norm.std)
        return torch_backgrounds.challenge(*arguments, workers=workers, every=every)

    run(1, _FEW)
    trials = {threads: run(threads, _FEW).seconds for threads in (1, 2)}
    best = min(trials, key=trials.__getitem__)
    found, with_workers = run(best, every), run(best, _FEW, workers=8)
    count = len(found.vulnerable)
    return {
        "vulnerable": found.vulnerable,
        "foregrounds": count,
        "threads": best,
        "seconds_per_foreground": round(found.seconds / count, 4),
        "processor_seconds_per_foreground": round(found.processor_seconds / count, 4),
        "passes_per_foreground": round(found.passes / count, 2),
        "processor_milliseconds_per_pass": round(1000 * found.processor_seconds / found.passes, 3),
        "seconds_per_foreground_with_8_workers": round(
            with_workers.seconds / len(with_workers.vulnerable), 3
        ),
    }


if __name__ == "__main__":
    raise SystemExit(main())
