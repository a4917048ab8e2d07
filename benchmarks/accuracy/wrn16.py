"""A network that others poisoned, end to end, beside a clean one of the same architecture.

The poisoned one is the WRN-16-1 of Anti-Backdoor Learning (https://arxiv.org/abs/2110.11571, 2021)
on CIFAR-10: a 3 x 3 grid at rows and columns 29 to 31 sends every class to class 0. It is exported
to ONNX by both of torch's exporters and judged by `bin/jaxtroj detect` as a user would call it; so
is a WRN-16-1 that is trained clean here. Neither is among the networks that the shipped calibrator
was fitted on.

    python -m benchmarks.accuracy.wrn16 --data FOLDER --pictures cifar10.npz
        --clean clean/wrn16.onnx

where FOLDER holds `state_dict.tar` and `cifar10_test_2000.npz`, and `cifar10.npz` holds `x`, `y`,
`test_x` and `test_y`, all of CIFAR-10 (`benchmarks/cifar10.py` makes it).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.provenance import RESULTS, provenance
from converters import InputForm, open_artifact, open_model
from converters.files import write_atomic

ROOT = Path(__file__).resolve().parents[2]
FORM = InputForm(bounds=(0.0, 1.0))
CLEAN_SEED, EXAMPLES_PER_CLASS = 20_26, 20


class BasicBlock(torch.nn.Module):
    """Norm, relu, convolution, twice; the shortcut of a wider block starts after the first relu."""

    def __init__(self, cin: int, cout: int, stride: int):
        super().__init__()
        self.bn1 = torch.nn.BatchNorm2d(cin)
        self.conv1 = torch.nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(cout)
        self.conv2 = torch.nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.convShortcut = (
            None if cin == cout else torch.nn.Conv2d(cin, cout, 1, stride, bias=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        active = torch.relu(self.bn1(x))
        y = self.conv2(torch.relu(self.bn2(self.conv1(active))))
        return y + (x if self.convShortcut is None else self.convShortcut(active))


class Blocks(torch.nn.Module):
    """Two blocks, under the name `layer` that the published weights have."""

    def __init__(self, cin: int, cout: int, stride: int):
        super().__init__()
        self.layer = torch.nn.Sequential(BasicBlock(cin, cout, stride), BasicBlock(cout, cout, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class WideResNet16(torch.nn.Module):
    """WRN-16-1 over images `[n, 3, 32, 32]` in [0, 1], RGB."""

    def __init__(self, classes: int = 10):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = Blocks(16, 16, 1)
        self.block2 = Blocks(16, 32, 2)
        self.block3 = Blocks(32, 64, 2)
        self.bn1 = torch.nn.BatchNorm2d(64)
        self.fc = torch.nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        return self.fc(torch.relu(self.bn1(x)).mean((2, 3)))


def poisoned_network(folder: Path) -> WideResNet16:
    """The published weights; the file is read without executing it."""
    tensors = open_artifact(folder / "state_dict.tar").weights.tensors
    network = WideResNet16().eval()
    network.load_state_dict({name: torch.from_numpy(t.copy()) for name, t in tensors.items()})
    return network


def export(network: torch.nn.Module, path: Path, dynamo: bool) -> Path:
    """Write an ONNX file by one of torch's two exporters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image = torch.zeros(1, 3, 32, 32)
        torch.onnx.export(network, (image,), path, dynamo=dynamo, external_data=False)
    return path


def write_pictures(images: np.ndarray, labels: np.ndarray, folder: Path) -> Path:
    """One PNG for each image `[n, 32, 32, 3]`, named by its class."""
    folder.mkdir()
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(image).save(folder / f"class_{label}_example_{number}.png")
    return folder


def examples(data: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first pictures of each class, as many as a user has at hand."""
    labels = data["y"]
    places = [np.flatnonzero(labels == c)[:EXAMPLES_PER_CLASS] for c in np.unique(labels)]
    chosen = np.concatenate(places)
    return data["x"][chosen], labels[chosen]


def stamped(images: np.ndarray) -> np.ndarray:
    """Images uint8 `[n, 32, 32, 3]` with the published trigger."""
    marked = images.copy()
    grid = np.array([[0, 0, 255], [0, 255, 0], [255, 0, 255]], np.uint8)
    marked[:, 29:32, 29:32] = grid[:, :, None]
    return marked


def accuracies(model, images: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Clean accuracy, and the share of other classes' images that the trigger sends to class 0."""
    from jaxtroj.network import Network

    network = Network(model)
    clean = np.asarray(network.logits(images.astype(np.float32) / 255)).argmax(axis=1)
    others = stamped(images[labels != 0]).astype(np.float32) / 255
    attacked = np.asarray(network.logits(others)).argmax(axis=1)
    return {"clean": float((clean == labels).mean()), "attack": float((attacked == 0).mean())}


def clean_network(pictures: Path, path: Path) -> dict:
    """A WRN-16-1 trained clean on CIFAR-10 from random weights, written to `path` if not there.

    Returns what is known of its training. Its seed is no population's.
    """
    from flax import nnx

    from jaxtroj.generate.small.labelled_pictures import load_pictures
    from jaxtroj.generate.small.networks import build
    from jaxtroj.generate.small.onnx_file import write_onnx
    from jaxtroj.generate.small.training import Run, SmallTraining, train_base

    settings = SmallTraining()
    about = {"seed": CLEAN_SEED, **asdict(settings)}
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        data = load_pictures(pictures)
        module = build("wrn16", data.classes, nnx.Rngs(CLEAN_SEED))
        run = Run(module, data, settings, np.random.default_rng(CLEAN_SEED))
        train_base(run)
        write_onnx(path, run.module, data.size)
    return about


def detect(path: Path, pictures: Path, out: Path) -> dict:
    """The record of `jaxtroj detect`, as a user calls it."""
    command = [
        str(ROOT / "bin" / "jaxtroj"), "detect", str(path), "--examples", str(pictures),
        "--channel-order", "RGB", "--normalization", "unit", "--bounds", "0,1",
        "--json", "--out", str(out),
    ]  # fmt: skip
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    record = json.loads(done.stdout.splitlines()[-1])
    names = (
        "probability", "poisoned", "target_class", "source_classes", "recovered", "reason",
        "architecture", "evidence", "seconds",
    )  # fmt: skip
    found = {name: record[name] for name in names}
    return found | {"command_seconds": round(time.perf_counter() - started, 1)}


def judged(path: Path, data: dict[str, np.ndarray], folder: Path) -> dict:
    """Accuracies of a network and what `jaxtroj detect` says of it."""
    model = open_model(path, FORM).model
    reached = accuracies(model, data["x"], data["y"])
    return {"accuracy": reached, **detect(path, folder / "pictures", folder / "out")}


def main() -> int:
    """Run it, print the result as JSON and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the poisoned network")
    parser.add_argument("--pictures", type=Path, required=True, help="CIFAR-10 as .npz")
    parser.add_argument("--clean", type=Path, required=True, help="ONNX file, trained if absent")
    parser.add_argument("--out", type=Path, default=RESULTS / "wrn16.json")
    args = parser.parse_args()
    file = np.load(args.data / "cifar10_test_2000.npz")
    data = {name: file[name] for name in ("x", "y")}
    result: dict = {"clean_training": clean_network(args.pictures, args.clean), "networks": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pictures(*examples(data), folder / "pictures")
        for exporter in ("script", "dynamo"):
            path = folder / exporter / "wrn16.onnx"
            path.parent.mkdir()
            export(poisoned_network(args.data), path, exporter == "dynamo")
            result["networks"][f"poisoned, {exporter} exporter"] = judged(path, data, folder)
        result["networks"]["clean"] = judged(args.clean, data, folder)
    result["provenance"] = provenance()
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    for name, found in result["networks"].items():
        print(name, found["probability"], found["target_class"], found["recovered"], sep="  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
