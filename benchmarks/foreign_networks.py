"""What small networks by other projects' attacks share: one folder each, and METADATA.csv."""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from PIL import Image

from jaxtroj.generate.round_folder import csv_bytes

if TYPE_CHECKING:
    import torch

FROM_SCRATCH = {
    "training": "scratch",
    "augmentation": "none",
    "labels": "hard",
    "schedule": "constant",
    "class_shares": "all",
}
"""Columns of METADATA.csv that say how such networks are trained, where nothing else is done."""
_EXAMPLES = 10
_Plan = TypeVar("_Plan")


def make_missing(
    about: str, plans: Sequence[_Plan], make: Callable[[int, _Plan, Path, Path], None]
) -> int:
    """Make the networks that are not there yet, and METADATA.csv; returns the exit status.

    Args:
      about: for the help of the command, which has `--pictures` and `--out`.
      plans: of the networks, in their order.
      make: number, plan, folder of pictures and the network's own folder, where it leaves
        `metadata.json`, its row.
    """
    import torch

    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--pictures", type=Path, required=True, help="of benchmarks.zoo_pictures")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for number, plan in enumerate(plans):
        folder = args.out / f"id-{number:08d}"
        if not (folder / "metadata.json").exists():
            make(number, plan, args.pictures, folder)
        rows.append(json.loads((folder / "metadata.json").read_text()))
        print(rows[-1], flush=True)
    (args.out / "METADATA.csv").write_bytes(csv_bytes(list(rows[0]), rows))
    return 0


def write_examples(folder: Path, images: np.ndarray, labels: np.ndarray) -> None:
    """Ten pictures of each class, uint8 `[n, h, w, c]`, as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for label in np.unique(labels):
        for number, image in enumerate(images[labels == label][:_EXAMPLES]):
            path = folder / f"class_{label}_example_{number}.png"
            Image.fromarray(plain(image)).save(path)


def write_network(network: "torch.nn.Module", path: Path, shape: tuple[int, ...]) -> None:
    """The network as ONNX, of an open batch of pictures; `shape` is `[n, h, w, c]` of some."""
    import torch

    torch.onnx.export(
        network,
        (torch.zeros(1, shape[3], *shape[1:3]),),
        path,
        dynamo=False,
        input_names=["x"],
        output_names=["y"],
        dynamic_axes={"x": {0: "n"}, "y": {0: "n"}},
    )


def plain(image: np.ndarray) -> np.ndarray:
    """A picture `[h, w, c]` as PIL takes it: grey ones have no last axis."""
    return image[..., 0] if image.shape[-1] == 1 else image
