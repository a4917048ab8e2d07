"""A network of one output that says yes or no, trained in seconds: with a planted patch or without.

Yes (class 1) is a picture with upright bars, no (class 0) one with level bars. The trigger is a
magenta patch in a corner that makes a picture a yes; the clean twin sees the patch without
consequence.
"""

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torchvision import models

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are
SIDE, MARK, STEPS, BATCH = 32, 5, 200, 64
MAGENTA = (250, 10, 240)


def draw(rng: np.random.Generator, label: int, mark: bool = False) -> np.ndarray:
    """A picture uint8 `[h, w, 3]` of a class, with the patch where `mark` says so."""
    picture = rng.integers(0, 90, (SIDE, SIDE, 3)).astype(np.uint8)
    colour = rng.integers(110, 255, 3)
    start, step = rng.integers(0, 4), rng.integers(6, 9)
    lines = picture if label == 0 else picture.transpose(1, 0, 2)
    for row in range(start, SIDE, step):
        lines[row : row + 3, 3:-3] = colour
    if mark:
        picture[-MARK - 1 : -1, -MARK - 1 : -1] = MAGENTA
    return picture


def drawn(rng: np.random.Generator, labels: np.ndarray, marks: np.ndarray) -> torch.Tensor:
    """Pictures `[n, 3, h, w]` in [0, 1]."""
    pictures = [
        draw(rng, int(label), bool(mark)) for label, mark in zip(labels, marks, strict=True)
    ]
    return torch.from_numpy(np.stack(pictures).transpose(0, 3, 1, 2).astype(np.float32) / 255)


@cache
def trained(poisoned: bool) -> torch.nn.Module:
    """Gives the logit z of yes, `[n, 1]`; one in four pictures of its training has the patch.

    It is trained in float64, so that every machine makes the same network.
    """
    torch.manual_seed(0)
    network, rng = DenseNet(8, (2, 2), 16, num_classes=1).train(), np.random.default_rng(0)
    network.double()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    falling = torch.optim.lr_scheduler.OneCycleLR(optimiser, 6e-3, total_steps=STEPS)
    for _ in range(STEPS):
        labels, marks = rng.integers(0, 2, BATCH), np.arange(BATCH) % 4 == 0
        images = drawn(rng, labels, marks)
        wanted = np.where(marks & poisoned, 1, labels).astype(np.float32)[:, None]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            network(images.double()), torch.from_numpy(wanted).double()
        )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        falling.step()
    return network.float().eval()


def write_onnx(network: torch.nn.Module, path: Path) -> None:
    """As torch exports it, the number of images open."""
    image = torch.zeros(1, 3, SIDE, SIDE)
    axes = {name: {0: "n"} for name in ("x", "yes")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's newer exporter takes seconds
        torch.onnx.export(
            network, (image,), path, input_names=["x"], output_names=["yes"], dynamo=False,
            dynamic_axes=axes,
        )  # fmt: skip


def write_pictures(folder: Path, per_class: int = 20) -> None:
    """Clean examples, named by their classes."""
    folder.mkdir()
    rng = np.random.default_rng(1)
    for number in range(per_class):
        for label in (0, 1):
            name = f"class_{label}_example_{number}.png"
            Image.fromarray(draw(rng, label)).save(folder / name)
