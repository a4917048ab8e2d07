"""What a worker holds after many networks of different architectures, one after another.

    python -m benchmarks.speed.worker_memory [--architectures N] [--same N] [--out FILE]

Each architecture is a small DenseNet of its own widths and depths with random weights, as a state
dict with example pictures of 48 px; programs of none serve another. One worker scans them with the
first four stages. After each its resident memory is read, as the guard reads it. Afterwards copies
of the first are scanned by a new worker, to see what a folder of one architecture pays.
"""

import argparse
import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj.engine.devices import Slot
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import ScanJob, Setup, Watch
from jaxtroj.engine.local import LocalEngine
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.runtime import resident
from jaxtroj.settings import Settings

SETTINGS = Settings(
    calibrator=None, text_calibrator=None, early_stop=False, base_rate=0.5,
    stages=("weights", "statistics", "probes", "sensitivity"),
)  # fmt: skip
_CLASSES, _PER_CLASS, _SIZE = 5, 4, 48
_MIB = 2**20


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="What a worker holds after many architectures.")
    parser.add_argument("--architectures", type=int, default=50)
    parser.add_argument("--same", type=int, default=4, help="scans of one architecture; 0 for none")
    parser.add_argument("--out", type=Path, default=RESULTS / "worker_memory.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        different = make_models(home / "different", range(args.architectures))
        same = make_models(home / "same", [0] * args.same)
        result: dict[str, Any] = {"provenance": provenance(), "image_size": _SIZE}
        result["different"] = summed(list(scanned(different)))
        result["same"] = summed(list(scanned(same))) if same else {}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def make_models(folder: Path, numbers: Sequence[int]) -> list[ModelEntry]:
    """A folder for each number, with the network of that number and its pictures."""
    from PIL import Image

    for place, number in enumerate(numbers):
        home = folder / f"id-{place:08d}"
        (home / "example_data").mkdir(parents=True)
        _write_network(home / "model.pt", number, seed=place)
        noise = np.random.default_rng(0)
        for label, copy in itertools.product(range(_CLASSES), range(_PER_CLASS)):
            pixels = noise.integers(0, 256, (_SIZE, _SIZE, 3), np.uint8)
            Image.fromarray(pixels).save(home / f"example_data/class_{label}_example_{copy}.png")
    return list(iter_models(folder)) if numbers else []


def _write_network(path: Path, number: int, seed: int) -> None:
    """The state dict of a small DenseNet; no two numbers below 64 have the same architecture."""
    import torch
    import torchvision

    torch.manual_seed(seed)
    a, b, c, d = (1 + (number >> bit) % 2 for bit in range(4))
    network = torchvision.models.DenseNet(
        growth_rate=4 + 2 * (number >> 4), block_config=(a, b, c, d), num_init_features=8,
        bn_size=2, num_classes=_CLASSES,
    )  # fmt: skip
    torch.save(network.state_dict(), path)


def scanned(entries: Sequence[ModelEntry]) -> Iterator[dict[str, Any]]:
    """Seconds, status and the worker's resident bytes after each model, in one worker."""
    pids: list[int] = []

    def log(line: str) -> None:
        pids.extend(int(pid) for pid in re.findall(r"worker (\d+) started", line))

    engine = LocalEngine(Setup(SETTINGS), [Slot("here")], Guard(3600.0))
    try:
        for entry in entries:
            started = time.perf_counter()
            (answer,) = engine.run([ScanJob(entry)], Watch(log=log))
            assert answer.record is not None and len(pids) == 1, "one worker answers all"
            row = {
                "status": answer.record.status,
                "architecture": answer.record.architecture,
                "seconds": round(time.perf_counter() - started, 2),
                "resident_mib": round(resident(pids[0]) / _MIB),
            }
            print(row, file=sys.stderr)
            yield row
    finally:
        engine.close()


def summed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What matters of the rows of one worker, and the rows."""
    held = [row["resident_mib"] for row in rows]
    seconds = [row["seconds"] for row in rows]
    return {
        "models": len(rows),
        "failed": sum(row["status"] != "ok" for row in rows),
        "resident_after_first_mib": held[0],
        "resident_after_last_mib": held[-1],
        "most_grown_mib": max(held) - held[0],
        "median_seconds": float(np.median(seconds)),
        "resident_mib": held,
        "seconds": seconds,
    }


if __name__ == "__main__":
    sys.exit(main())
