"""Pictures of two to five classes out of those of `benchmarks.zoo_pictures`, for `generate zoo`.

    python -m benchmarks.few_class_pictures --pictures DIR --out DIR [--seed S]

Half of the sets pick some classes; the others put all classes into a few groups, as networks that
say yes or no about many kinds of thing do. The seed draws which.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

SETS = (
    ("cifar10", "pick", 2), ("cifar10", "group", 2), ("cifar10", "pick", 4),
    ("fashion", "group", 2), ("fashion", "pick", 3), ("gtsrb", "group", 2), ("gtsrb", "group", 5),
    ("roads", "pick", 2), ("roads", "group", 3),
)  # fmt: skip
"""Data set, how its classes are chosen, and how many there are."""


def few(classes: int, count: int, way: str, draw: np.random.Generator) -> np.ndarray:
    """The new label of each class, int `[classes]`; -1 for classes that are left out."""
    order, labels = draw.permutation(classes), np.full(classes, -1)
    if way == "pick":
        labels[order[:count]] = np.arange(count)
    else:
        labels[order] = np.arange(classes) % count
    return labels


def relabelled(arrays: dict[str, np.ndarray], labels: np.ndarray) -> dict[str, np.ndarray]:
    """Pictures of the classes that are kept, by their new labels."""
    found = {}
    for x, y in (("x", "y"), ("test_x", "test_y")):
        if x in arrays:
            kept = labels[arrays[y]] >= 0
            found |= {x: arrays[x][kept], y: labels[arrays[y][kept]]}
    return found


def main() -> int:
    """Write all sets; returns the exit status."""
    parser = argparse.ArgumentParser(description="Pictures of few classes.")
    parser.add_argument("--pictures", type=Path, required=True, help="of benchmarks.zoo_pictures")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(args.seed)
    for name, way, count in SETS:
        with np.load(args.pictures / f"{name}.npz", allow_pickle=False) as stored:
            arrays = dict(stored)
        labels = few(int(arrays["y"].max()) + 1, count, way, draw)
        path = args.out / f"{name}{way}{count}.npz"
        np.savez(path, allow_pickle=False, **relabelled(arrays, labels))
        print(path.name, labels.tolist(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
