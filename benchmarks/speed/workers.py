"""How a scan gains by more workers: measured at 1 and 2, simulated beyond from what was measured.

    python -m benchmarks.speed.workers DATASET --work DIR [--engine local|ray] [--models N]

`jaxtroj scan` runs over the first N models with one worker on one core, then with two on two, into
fresh run folders, programs compiled by an earlier scan; efficiency is the gain over the workers.
The simulation hands models to workers as they become free. A worker starts, its first model costs
what the first measured one did, since it loads the architecture's programs, and every other what
one of the others did. It knows no network and no shared disk, so it is a bound.
"""

import argparse
import heapq
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj.store import iter_records

_SIMULATED = (1, 2, 4, 8, 16, 32, 64)
_FOLDERS = (1_000, 10_000, 100_000)


def main() -> int:
    """Measure, simulate, print and write; returns the exit status."""
    args = _arguments()
    _scan(args, 1)  # compiles
    one, two = (_scan(args, workers) for workers in (1, 2))
    seconds = one.pop("model_seconds")
    two.pop("model_seconds")
    result = {
        "provenance": provenance(),
        "engine": args.engine,
        "models": len(seconds),
        "measured": {"1": one, "2": two},
        "efficiency_at_2": round(one["seconds"] / two["seconds"] / 2, 3),
        "simulated_models": args.folder,
        "simulated_efficiency": {
            str(workers): round(efficiency(seconds, one["start_seconds"], args.folder, workers), 3)
            for workers in _SIMULATED
        },
        "simulated_at_64_by_models": {
            str(models): round(efficiency(seconds, one["start_seconds"], models, 64), 3)
            for models in _FOLDERS
        },
        "first_model_seconds": round(seconds[0], 2),
        "median_of_the_others_seconds": round(statistics.median(seconds[1:]), 2),
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How a scan gains by more workers.")
    parser.add_argument("dataset", type=Path, metavar="DATASET")
    parser.add_argument("--work", type=Path, required=True, help="run folders go here")
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--folder", type=int, default=1000, help="models in the simulated folder")
    parser.add_argument("--out", type=Path, default=RESULTS / "workers.json")
    return parser.parse_args()


def _scan(args: argparse.Namespace, workers: int) -> dict[str, Any]:
    """One scan in a process of its own, on as many cores as it has workers."""
    run = args.work / f"{args.engine}-{workers}"
    shutil.rmtree(run, ignore_errors=True)
    command = [sys.executable, "-m", "jaxtroj", "scan", str(args.dataset), "--out", str(run)]
    command += ["--engine", args.engine, "--workers", str(workers), "--limit", str(args.models)]
    cores = sorted(os.sched_getaffinity(0))[:workers]
    started = time.perf_counter()
    pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
    with subprocess.Popen(pinned, stdout=subprocess.PIPE, text=True) as process:
        first = process.stdout.readline() and time.perf_counter() - started  # pyright: ignore
        process.communicate()
    seconds = time.perf_counter() - started
    spent = [sum(record.seconds.values()) for record in iter_records(run)]
    if len(spent) != args.models or process.returncode not in (0, 1):
        raise SystemExit(f"the scan with {workers} workers ended with {process.returncode}")
    return {
        "seconds": round(seconds, 2),
        "start_seconds": round(max(0.0, float(first) - spent[0]), 2),
        "model_seconds": spent,
    }


def efficiency(seconds: Sequence[float], start: float, models: int, workers: int) -> float:
    """Gain over one worker divided by `workers`, in (0, 1].

    Args:
        seconds: what the measured models cost, the first with its programs; the folder repeats the
            others.
        start: seconds before a worker begins its first model.
        models: in the folder, no fewer than workers.
        workers: that share it.

    >>> efficiency([1.0, 1.0], 0.0, 8, 4)
    1.0
    >>> efficiency([1.0, 1.0], 0.0, 9, 4)
    0.75
    >>> efficiency([2.0, 1.0], 1.0, 8, 4)  # 1 + 2 + 7 seconds, and 1 + 2 + 1
    0.625
    """
    first, *others = seconds
    free = [start + first] * workers
    alone = start + first
    for model in range(1, models):
        cost = others[model % len(others)]
        alone += cost
        if model >= workers:
            heapq.heappush(free, heapq.heappop(free) + cost)
    return alone / max(free) / workers


if __name__ == "__main__":
    sys.exit(main())
