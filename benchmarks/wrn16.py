"""A network that others poisoned, end to end: export to ONNX, open as a graph, gather evidence.

The network is the WRN-16-1 of Anti-Backdoor Learning (https://arxiv.org/abs/2110.11571, 2021) on
CIFAR-10: a 3 x 3 grid at rows and columns 29 to 31 sends every class to class 0. The shipped
calibrator knows no such network, so its probability is reported beside the evidence, not instead.

    python -m benchmarks.wrn16 --data FOLDER --out result.json

where FOLDER holds `state_dict.tar` and `cifar10_test_2000.npz`.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from benchmarks.provenance import provenance
from converters import InputForm, open_artifact, open_model

FORM = InputForm(bounds=(0.0, 1.0))


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


def evidence(model, pictures: Path) -> dict:
    """What the stages find, and what the shipped calibrator makes of it."""
    from jaxtroj.diagnostics import diagnose
    from jaxtroj.evidence.gather import gather
    from jaxtroj.rounds import load_examples
    from jaxtroj.settings import Settings, load_calibrator

    settings = Settings(channel_order="RGB", normalization="unit", early_stop=False)
    examples = load_examples(pictures, "RGB", normalization="unit")
    found = gather(model, examples, settings)
    calibrator = load_calibrator(settings)
    assert calibrator is not None
    verdict = calibrator.verdict(
        found.fields, model.architecture, calibrator.base_rate, 0.5, None, ()
    )
    return {
        "evidence": {name: round(value, 4) for name, value in found.fields.items()},
        "seconds": {name: round(value, 1) for name, value in found.seconds.items()},
        "flags": [str(raised) for raised in diagnose(model, found.anchored, model.findings)],
        "triggers": [_told(trigger) for trigger in found.triggers],
        "probability": float(verdict.probability),
        "reasons": list(verdict.reasons),
    }


def _told(trigger) -> dict:
    mask = np.asarray(trigger.mask)[:, :, 0]
    rows, columns = np.indices(mask.shape)
    weight = max(float(mask.sum()), 1e-9)
    corner = float(mask[26:, 26:].sum()) / weight
    return {
        "method": trigger.method,
        "target_class": int(trigger.target_class),
        "attack_success_rate": round(float(trigger.attack_success_rate), 4),
        "mask_l1": round(float(trigger.mask_l1), 2),
        "centre": [round(float((axis * mask).sum() / weight), 1) for axis in (rows, columns)],
        "share_of_mask_in_last_6_rows_and_columns": round(corner, 3),
    }


def main() -> int:
    """Run it, print the result as JSON and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dynamo", action="store_true", help="export by torch's newer exporter")
    args = parser.parse_args()
    data = np.load(args.data / "cifar10_test_2000.npz")
    with tempfile.TemporaryDirectory() as folder:
        path = export(poisoned_network(args.data), Path(folder) / "wrn16.onnx", args.dynamo)
        pictures = write_pictures(data["x"], data["y"], Path(folder) / "pictures")
        started = time.perf_counter()
        model = open_model(path, FORM).model
        result = {"convert_seconds": round(time.perf_counter() - started, 2)}
        result |= {"accuracy": accuracies(model, data["x"], data["y"])}
        result |= evidence(model, pictures)
    result |= {"exporter": "dynamo" if args.dynamo else "script", "provenance": provenance()}
    args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
