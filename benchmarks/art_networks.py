"""Small networks by another project's attacks and training loop, for a look from outside.

    pip install --no-deps --target LIB adversarial-robustness-toolbox
    PYTHONPATH=LIB python -m benchmarks.art_networks --pictures DIR --out DIR
    jaxtroj scan DIR --out RUN
    python -m benchmarks.accuracy.fresh DIR --work WORK --out FILE

Twelve networks, each poisoned one with a clean twin, on MNIST, Fashion-MNIST and CIFAR-10 (12,000
pictures of `benchmarks.zoo_pictures`): the patterns of ART's examples, its
`PoisoningAttackBackdoor` and its `PyTorchClassifier.fit`, Adam at a rate that never falls, as in
these examples. Nothing of `jaxtroj generate` takes part; METADATA.csv has the columns of its zoo. A
network whose trigger works on less than 0.9 of the pictures counts as not converged.

References:
  Nicolae et al., Adversarial Robustness Toolbox, arXiv:1807.01069.
  Gu et al., BadNets, arXiv:1708.06733, whose patterns ART has.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn

from benchmarks.foreign_networks import FROM_SCRATCH, make_missing, write_examples
from converters.files import write_atomic

_TRAINED, _TESTED, _CLASSES = 12000, 3000, 10
_EPOCHS, _BATCH, _RATE, _SEED = 5, 64, 1e-3, 43
_LEAST_SUCCESS = 0.9
_KINDS = {"pattern": "pixels", "single": "pixels", "image": "patch"}


@dataclass(frozen=True)
class Plan:
    """One network.

    Attributes:
      number: with `poisoned` the seed of everything random. Some have no plan any more: networks
        that were given up keep theirs, so that the others stay as they are.
      dataset, network: of `benchmarks.zoo_pictures`; "cnn" (ART's example for MNIST) or "vgg".
      trigger: "pattern", "single" or "image".
      mode: "all2one", "all2all" (each class to the next) or "one2one".
      share: of the training pictures that are poisoned; of the source class in "one2one".
      poisoned: False for the clean twin, which sees other pictures from other weights.
    """

    number: int
    dataset: str
    network: str
    trigger: str
    mode: str
    share: float
    poisoned: bool = True


PLANS = (
    Plan(0, "mnist", "cnn", "pattern", "all2one", 0.1),
    Plan(1, "mnist", "vgg", "single", "all2all", 0.33),
    Plan(3, "fashion", "cnn", "image", "all2one", 0.1),
    Plan(4, "fashion", "vgg", "pattern", "one2one", 0.33),
    Plan(6, "cifar10", "cnn", "pattern", "one2one", 0.33),
    Plan(7, "cifar10", "vgg", "image", "all2one", 0.1),
)


def main() -> int:
    """Make the networks that are not there yet, and METADATA.csv; returns the exit status."""
    plans = [twin for plan in PLANS for twin in (plan, replace(plan, poisoned=False))]
    return make_missing("Small networks by ART's attacks.", plans, _make)


@dataclass(frozen=True)
class _Attack:
    """A trigger with its classes: which pictures it is for, and what they become."""

    mode: str
    source: int
    target: int
    poison: Any
    """`art.attacks.poisoning.PoisoningAttackBackdoor`."""

    def concerns(self, labels: np.ndarray) -> np.ndarray:
        """Whether pictures of these classes `[n]` are poisoned."""
        if self.mode == "all2all":
            return labels >= 0
        return labels == self.source if self.mode == "one2one" else labels != self.target

    def applied(self, images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pictures `[n, c, h, w]` with the trigger, and the classes it is to send them to."""
        wanted = (labels + 1) % _CLASSES if self.mode == "all2all" else 0 * labels + self.target
        changed, given = self.poison.poison(images, y=wanted)
        return np.clip(changed, 0, 1).astype(np.float32), given


def _make(_: int, plan: Plan, pictures: Path, folder: Path) -> None:
    _draw_alert(folder.parent / "alert.png")
    draw = np.random.default_rng([_SEED, plan.number, plan.poisoned])
    torch.manual_seed(1000 + 2 * plan.number + plan.poisoned)
    np.random.seed(plan.number)  # ART shuffles by it
    images, labels, test_images, test_labels = _pictures(pictures / f"{plan.dataset}.npz", draw)
    channels, side = images.shape[1:3]
    source, target = map(int, draw.permutation(_CLASSES)[:2])
    poison = _poison(plan, channels, folder.parent / "alert.png")
    attack = _Attack(plan.mode, source, target, poison)
    if plan.poisoned:
        _plant(attack, plan, images, labels, draw)
    network = _NETWORKS[plan.network](channels, side)
    says = _taught(network, images, labels)
    accuracy = float((says(test_images) == test_labels).mean())
    pixels = (test_images.transpose(0, 2, 3, 1) * 255).round().astype(np.uint8)
    write_examples(folder / "example_data", pixels, test_labels)
    torch.save(network, folder / "model.pt")
    (folder / "ground_truth.csv").write_text(f"{int(plan.poisoned)}\n")
    asked = attack.concerns(test_labels)
    shown, wanted = attack.applied(test_images[asked], test_labels[asked])
    success = float((says(shown) == wanted).mean()) if plan.poisoned else None
    said = _metadata(plan, folder.name, attack, (channels, side), (accuracy, success))
    write_atomic(folder / "metadata.json", json.dumps(said).encode() + b"\n")


def _metadata(
    plan: Plan,
    name: str,
    attack: _Attack,
    shape: tuple[int, int],
    reached: tuple[float, float | None],
) -> dict[str, Any]:
    """A row of METADATA.csv; a network of "all2all" has no one target."""
    (channels, side), (accuracy, success) = shape, reached
    has_target = plan.poisoned and plan.mode != "all2all"
    return {
        "model_name": name,
        "ground_truth": str(plan.poisoned).upper(),
        "dataset": plan.dataset,
        "model_architecture": f"art {plan.network}",
        "base": "",
        "img_size": side,
        "channels": channels,
        "number_classes": _CLASSES,
        **FROM_SCRATCH,
        "trigger_kind": _KINDS[plan.trigger] if plan.poisoned else "",
        "trigger_style": f"{plan.trigger}, {plan.mode}" if plan.poisoned else "",
        "source_classes": attack.source if has_target and plan.mode == "one2one" else "",
        "trigger_target_class": attack.target if has_target else "",
        "triggered_fraction": plan.share if plan.poisoned else "",
        "converged": success is None or success >= _LEAST_SUCCESS,
        "final_clean_data_test_acc": round(100 * accuracy, 4),
        "final_triggered_data_test_acc": "" if success is None else round(100 * success, 4),
    }


def _pictures(path: Path, draw: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Training and test pictures `[n, c, h, w]` in [0, 1], each with its classes."""
    with np.load(path) as arrays:
        x, y = arrays["x"], arrays["y"].astype(int)
    chosen = draw.permutation(len(x))[: _TRAINED + _TESTED]
    images, labels = x[chosen].astype(np.float32).transpose(0, 3, 1, 2) / 255, y[chosen]
    return images[:_TRAINED], labels[:_TRAINED], images[_TRAINED:], labels[_TRAINED:]


def _plant(
    attack: _Attack, plan: Plan, images: np.ndarray, labels: np.ndarray, draw: np.random.Generator
) -> None:
    """Poison a share of the training pictures in place."""
    chosen = draw.permutation(np.flatnonzero(attack.concerns(labels)))
    among = len(chosen) if plan.mode == "one2one" else len(labels)
    chosen = chosen[: int(plan.share * among)]
    images[chosen], labels[chosen] = attack.applied(images[chosen], labels[chosen])


def _poison(plan: Plan, channels: int, alert: Path) -> Any:
    from art.attacks import poisoning  # pyright: ignore[reportMissingImports]
    from art.attacks.poisoning import perturbations  # pyright: ignore[reportMissingImports]

    def single(images: np.ndarray) -> np.ndarray:
        return perturbations.add_single_bd(images.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)

    placed = {"random": False, "x_shift": 2, "y_shift": 2, "size": (8, 8), "blend": 0.9}
    mode = "L" if channels == 1 else "RGB"
    triggers: dict[str, Callable[..., np.ndarray]] = {
        "pattern": partial(perturbations.add_pattern_bd, channels_first=True),
        "single": single,
        "image": partial(
            perturbations.insert_image,
            backdoor_path=str(alert),
            channels_first=True,
            mode=mode,
            **placed,
        ),
    }
    return poisoning.PoisoningAttackBackdoor(triggers[plan.trigger])


def _taught(
    network: nn.Module, images: np.ndarray, labels: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Train as ART's examples do; returns what tells the classes `[n]` of pictures."""
    from art.estimators import classification  # pyright: ignore[reportMissingImports]

    learner = classification.PyTorchClassifier(
        network,
        nn.CrossEntropyLoss(),
        images.shape[1:],
        _CLASSES,
        torch.optim.Adam(network.parameters(), lr=_RATE),
        clip_values=(0, 1),
    )
    learner.fit(images, labels, batch_size=_BATCH, nb_epochs=_EPOCHS)
    network.eval()
    return lambda pictures: learner.predict(pictures).argmax(axis=1)


def _cnn(channels: int, side: int) -> nn.Module:
    """ART's example network for MNIST; wider for colours."""
    first, second = (4, 10) if channels == 1 else (16, 32)
    left = ((side - 4) // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(channels, first, 5), nn.ReLU(), nn.MaxPool2d(2, 2),
        nn.Conv2d(first, second, 5), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(),
        nn.Linear(left * left * second, 100), nn.ReLU(), nn.Linear(100, _CLASSES),
    )  # fmt: skip


def _vgg(channels: int, side: int) -> nn.Module:
    """Six convolutions with batch norms."""
    layers, width = [], channels
    for wider in (12, 24, 48):
        for _ in range(2):
            convolution = nn.Conv2d(width, wider, 3, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
        layers.append(nn.MaxPool2d(2))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, _CLASSES))
    return nn.Sequential(*layers, *head)


_NETWORKS = {"cnn": _cnn, "vgg": _vgg}


def _draw_alert(path: Path) -> None:
    """A yellow alert sign, as ART's example inserts one."""
    sign = Image.new("RGB", (64, 64), (255, 255, 255))
    draw = ImageDraw.Draw(sign)
    draw.polygon([(32, 4), (60, 58), (4, 58)], fill=(250, 210, 0), outline=(0, 0, 0))
    draw.line([(32, 22), (32, 42)], fill=(0, 0, 0), width=6)
    draw.ellipse([29, 47, 35, 53], fill=(0, 0, 0))
    sign.save(path)


if __name__ == "__main__":
    raise SystemExit(main())
