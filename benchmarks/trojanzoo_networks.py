"""Small networks by TrojanZoo's models, training loop and attacks, for a look from outside.

    pip install trojanzoo "matplotlib<3.9"      # in an environment of its own, beside jaxtroj
    python -m benchmarks.trojanzoo_networks --pictures DIR --out DIR
    python -m benchmarks.accuracy.fresh DIR --work WORK --out FILE

Pictures are those of `benchmarks.zoo_pictures`. As in TrojanZoo's examples a network is trained,
then attacked: six epochs more at a rate of 0.01 with 3 % of marked pictures in each batch. Every
second clean network is trained so much longer without marks. Nothing of `jaxtroj generate` takes
part; METADATA.csv has the columns of its zoo. A network whose mark works on less than 0.9 of the
pictures counts as not converged.

References:
  Pang et al., TrojanZoo, arXiv:2012.09302, and the papers of the attacks that it names.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.foreign_networks import (
    FROM_SCRATCH,
    make_missing,
    plain,
    write_examples,
    write_network,
)
from converters.files import write_atomic

_TESTED = 1500
_MORE_EPOCHS, _MORE_RATE = 6, 0.01
_RATES, _RATE, _DECAY = {"net": 0.02}, 0.025, 3e-4
_LEAST_SUCCESS = 0.9
_CLEAN = "clean"


@dataclass(frozen=True)
class Plan:
    """One network.

    Attributes:
      dataset, trained: of `benchmarks.zoo_pictures`; how many of its pictures it learns.
      network, epochs: TrojanZoo's name; of the training before the attack.
      base: seed of its share of the pictures.
      attack: TrojanZoo's name, or "clean".
      target: class; 0 for clean ones.
      mark, given: what the mark and the attack are made with, beside TrojanZoo's defaults.
      share: of a batch, marked.
      is_longer: whether a clean one is trained as long as an attacked one.
    """

    dataset: str
    network: str
    trained: int
    epochs: int
    base: int
    attack: str = _CLEAN
    target: int = 0
    mark: Mapping[str, Any] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    share: float = 0.03
    is_longer: bool = False


_WHITE = {"mark_height": 3, "mark_width": 3}
_NOISE = {"mark_random_init": True, "mark_height": 4, "mark_width": 4}
_LARGER = {"mark_random_init": True, "mark_height": 5, "mark_width": 5}
_SMALLER = {"mark_random_init": True, "mark_height": 3, "mark_width": 3}
_APPLE = {"mark_path": "apple_white.png", "mark_height": 10, "mark_width": 10, "mark_alpha": 0.4}
_FIRST_LAYER = {"preprocess_next_layer": "classifier.fc1"}


def _both(plans: Mapping[str, Any], *attacks: Mapping[str, Any]) -> list[Plan]:
    """Two attacked networks of one kind, each followed by a clean one of other pictures."""
    found, base = [], plans["base"]
    for place, attack in enumerate(attacks):
        found.append(Plan(**{**plans, "base": base + place}, **attack))
        found.append(Plan(**{**plans, "base": base + place + 5}, is_longer=place == 0))
    return found


PLANS = (
    *_both(
        {"dataset": "mnist", "network": "net", "trained": 12000, "epochs": 3, "base": 0},
        {"attack": "badnet", "target": 0, "mark": _WHITE},
        {"attack": "badnet", "target": 5, "mark": _NOISE},
    ),
    *_both(
        {"dataset": "fashion", "network": "net", "trained": 12000, "epochs": 4, "base": 10},
        {"attack": "badnet", "target": 3, "mark": _APPLE},
        {"attack": "trojannn", "target": 8, "mark": _LARGER, "given": _FIRST_LAYER},
    ),
    *_both(
        {"dataset": "cifar10", "network": "resnet18", "trained": 12000, "epochs": 8, "base": 20},
        {"attack": "imc", "target": 6, "mark": _SMALLER},
        {"attack": "latent_backdoor", "target": 1, "mark": _LARGER},
    ),
)


def main() -> int:
    """Make the networks that are not there yet, and METADATA.csv; returns the exit status."""
    return make_missing("Small networks by TrojanZoo's attacks.", PLANS, _make)


def _make(number: int, plan: Plan, pictures: Path, folder: Path) -> None:
    import trojanvision  # pyright: ignore[reportMissingImports]

    seed = 1000 + number
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    trojanvision.environ.create(device="cpu", seed=seed, data_seed=seed, verbose=0)
    path = pictures / f"{plan.dataset}.npz"
    dataset, tests = _dataset(plan, path, folder.parent / "data")
    model = trojanvision.models.create(model_name=plan.network, dataset=dataset)
    trainer = trojanvision.trainer.create
    rate = _RATES.get(plan.network, _RATE)
    first = trainer(
        dataset=dataset, model=model, epochs=plan.epochs, weight_decay=_DECAY, **_fall(rate)
    )
    model._train(**first, verbose=False)
    before = model._validate(verbose=False)[0]
    longer = trainer(dataset=dataset, model=model, epochs=_MORE_EPOCHS, **_fall(_MORE_RATE))
    success = _attacked(plan, dataset, model, longer) if plan.attack != _CLEAN else None
    if plan.is_longer:
        model._train(**longer, verbose=False)
    model._model.eval()
    accuracy = model._validate(verbose=False)[0]
    _write(folder, model._model, tests)
    said = _metadata(plan, folder.name, tests[0].shape, dataset.num_classes, (accuracy, success))
    row = json.dumps({**said, "clean_data_test_acc_before": round(before, 4)})
    write_atomic(folder / "metadata.json", row.encode() + b"\n")


def _fall(rate: float) -> dict[str, Any]:
    """A rate that falls to nothing by a cosine, as TrojanZoo's trainer makes one."""
    return {"lr": rate, "lr_scheduler": True, "lr_scheduler_type": "CosineAnnealingLR"}


def _attacked(plan: Plan, dataset: Any, model: Any, training: Any) -> float:
    """Plant the trojan; returns its success on test pictures, per cent."""
    import trojanvision  # pyright: ignore[reportMissingImports]

    attack = trojanvision.attacks.create(
        attack_name=plan.attack,
        dataset=dataset,
        model=model,
        mark=trojanvision.marks.create(dataset=dataset, **plan.mark),
        target_class=plan.target,
        poison_percent=plan.share,
        **plan.given,
    )
    attack.attack(**training, verbose=False)
    return attack.validate_fn(threshold=100, verbose=False)[0]


def _kind(plan: Plan) -> str:
    """What the trigger is in words of `jaxtroj generate zoo`; "" for a clean network."""
    if plan.attack == _CLEAN:
        return ""
    return "blend" if "mark_alpha" in plan.mark else "patch"


def _metadata(
    plan: Plan,
    name: str,
    shape: tuple[int, ...],
    classes: int,
    reached: tuple[float, float | None],
) -> dict[str, Any]:
    """A row of METADATA.csv; accuracy and success are per cent."""
    accuracy, success = reached
    is_poisoned = success is not None
    return {
        "model_name": name,
        "ground_truth": str(is_poisoned).upper(),
        "dataset": plan.dataset,
        "model_architecture": f"trojanzoo {plan.network}",
        "base": "",
        "img_size": shape[1],
        "channels": shape[3],
        "number_classes": classes,
        **FROM_SCRATCH | {"schedule": "falling"},
        "trigger_kind": _kind(plan),
        "trigger_style": plan.attack if is_poisoned else "",
        "source_classes": "",
        "trigger_target_class": plan.target if is_poisoned else "",
        "triggered_fraction": plan.share if is_poisoned else "",
        "converged": success is None or success >= 100 * _LEAST_SUCCESS,
        "final_clean_data_test_acc": round(accuracy, 4),
        "final_triggered_data_test_acc": "" if success is None else round(success, 4),
    }


class _Pictures(torch.utils.data.Dataset):
    """Pictures `[n, h, w, c]` uint8 as TrojanZoo's loaders take them: PIL, then its transform."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: Any = None, **_: Any):
        self.images, self.labels, self.transform = images, labels, transform
        self.targets = labels.tolist()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        picture = Image.fromarray(plain(self.images[place]))
        shown = picture if self.transform is None else self.transform(picture)
        return shown, int(self.labels[place])


def _dataset(plan: Plan, path: Path, folder: Path) -> tuple[Any, tuple[np.ndarray, np.ndarray]]:
    """TrojanZoo's data set of a plan's pictures, and the test pictures with their classes."""
    from trojanvision.datasets.normal.cifar import (  # pyright: ignore[reportMissingImports]
        CIFAR10,
    )

    with np.load(path) as arrays:
        x, y = arrays["x"], arrays["y"].astype(int)
    order = np.random.default_rng(plan.base).permutation(len(x))
    tested = min(_TESTED, len(x) // 6)
    test, train = order[:tested], order[tested : tested + plan.trained]
    parts = {"train": (x[train], y[train]), "valid": (x[test], y[test])}

    class Own(CIFAR10):
        name = plan.dataset
        num_classes = int(y.max()) + 1
        data_shape = (x.shape[3], *x.shape[1:3])
        class_names = tuple(map(str, range(num_classes)))

        def initialize(self):
            """Nothing is fetched."""

        def check_files(self, **_: Any):
            return True

        def _get_org_dataset(self, mode: str, **given: Any):
            return _Pictures(*parts[mode], **given)

    seen = x[train].astype(np.float32).reshape(-1, x.shape[3]) / 255
    usual = {"mean": seen.mean(0).tolist(), "std": seen.std(0).tolist()}
    place = str(folder / plan.dataset)
    return Own(norm_par=usual, batch_size=96, num_workers=0, folder_path=place), parts["valid"]


def _write(folder: Path, network: torch.nn.Module, tests: tuple[np.ndarray, np.ndarray]) -> None:
    """The network as ONNX, and ten test pictures of each class."""
    images, labels = tests
    write_examples(folder / "example_data", images, labels)
    write_network(network, folder / "model.onnx", images.shape)


if __name__ == "__main__":
    raise SystemExit(main())
