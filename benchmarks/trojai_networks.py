"""Small networks by the TrojAI library, whose authors made NIST's rounds: a look from outside.

    pip install --no-deps trojai torchtext==0.6.0    # in an environment of its own, beside jaxtroj,
    pip install pandas scikit-learn scikit-image opencv-python-headless pyllist nltk spacy \
        tensorboard blend-modes cloudpickle "setuptools<81"               # and what they import
    python -m benchmarks.trojai_networks --pictures DIR --out DIR
    python -m benchmarks.accuracy.fresh DIR --work WORK --out FILE

Pictures are those of `benchmarks.zoo_pictures`. Its `datagen` inserts the triggers and changes the
labels, its `modelgen` trains its own architectures, as its examples do: files and CSVs, pixels from
0 to 255 or to 1, channels in OpenCV's order, a softmax at the end of some. Nothing of `jaxtroj
generate` takes part; METADATA.csv has the columns of its zoo. Each poisoned network is followed by
a clean one of other pictures. One that is right on less than half of the pictures, or whose trigger
works on less than 0.9 of them, counts as not converged.

References:
  Karra, Ashcraft, Fendley, The TrojAI Software Framework, arXiv:2003.07233.
"""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
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

_LEAST_SUCCESS, _LEAST_ACCURACY = 0.9, 0.5
_INSERTED = 0.25
"""Of each class's pictures, as the library's examples have it; an experiment draws from them."""
_NEXT = "next"
_CLASSES, _TESTED = 10, 2000


@dataclass(frozen=True)
class Network:
    """An architecture of the library with the training that suits it.

    Attributes:
      dataset: of `benchmarks.zoo_pictures`.
      name: "lenet", "badnet" or "alexnet".
      trained, epochs, rate, batch: of its training with Adam at a rate that never falls.
      whole: what 255 becomes.
    """

    dataset: str
    name: str
    trained: int
    epochs: int
    rate: float = 1e-3
    batch: int = 32
    whole: float = 1.0


@dataclass(frozen=True)
class Plan:
    """One network.

    Attributes:
      network: what is trained.
      trigger, size, colour: "lambda", "rectangle", "random", "polygon"; px; of it, BGR.
      place: of its upper left corner, row and column; None for a new one in each picture.
      target: a class, or "next" for the class after the picture's own.
      sources: classes of pictures that get it; () for all.
      share: of the pictures of these classes.
      is_poisoned: False for the clean one.
    """

    network: Network
    trigger: str
    size: int
    colour: tuple[int, ...]
    place: tuple[int, int] | None
    target: int | str
    sources: tuple[int, ...] = ()
    share: float = 0.2
    is_poisoned: bool = True


_LENET = Network("mnist", "lenet", 12000, 8, whole=255.0)
_LONGER = replace(_LENET, epochs=16)
_BADNET = Network("mnist", "badnet", 12000, 10, rate=3e-4)
_FASHION = replace(_LENET, dataset="fashion")
_FASHION_BADNET = replace(_BADNET, dataset="fashion")
_ALEXNET = Network("cifar10", "alexnet", 10000, 8, rate=3e-4, batch=64)

_ATTACKED = (
    Plan(_LENET, "lambda", 3, (255,), (24, 24), _NEXT),
    Plan(_LENET, "lambda", 3, (255,), (24, 24), _NEXT, sources=(4,)),
    Plan(_LONGER, "random", 6, (255,), None, 7),
    Plan(replace(_LONGER, dataset="fashion"), "rectangle", 6, (255,), None, 2),
    Plan(_FASHION, "lambda", 4, (255,), (23, 1), 9, sources=(1, 6)),
    Plan(_BADNET, "lambda", 5, (255,), (1, 1), 3),
    Plan(_FASHION_BADNET, "random", 5, (200,), (22, 22), 8),
    Plan(_ALEXNET, "random", 4, (255, 255, 255), (27, 27), 1),
    Plan(_ALEXNET, "polygon", 9, (0, 160, 255), None, 5),
)
PLANS = tuple(one for plan in _ATTACKED for one in (plan, replace(plan, is_poisoned=False)))


def main() -> int:
    """Make the networks that are not there yet, and METADATA.csv; returns the exit status."""
    return make_missing("Small networks by the TrojAI library.", PLANS, _make)


def _make(number: int, plan: Plan, pictures: Path, folder: Path) -> None:
    seed = 2000 + number
    np.random.seed(seed)  # the library's polygons draw from it
    torch.manual_seed(seed)
    files = folder.parent / "files"
    shutil.rmtree(files, ignore_errors=True)
    images, labels = _pictures(plan.network, pictures / f"{plan.network.dataset}.npz", seed)
    tests = slice(plan.network.trained, None)
    _write_files(files / "clean", images, labels, plan.network.trained)
    poisoned = _experiment(plan, files, seed)
    network, accuracy = _trained(plan, files)
    success = _success(plan.network, network, files, poisoned) if plan.is_poisoned else None
    write_examples(folder / "example_data", images[tests], labels[tests])
    write_network(network, folder / "model.onnx", images.shape)
    (folder / "ground_truth.csv").write_text(f"{int(plan.is_poisoned)}\n")
    said = _metadata(plan, folder.name, images.shape, (accuracy, success))
    write_atomic(folder / "metadata.json", json.dumps(said).encode() + b"\n")
    shutil.rmtree(files)


def _pictures(network: Network, path: Path, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures `[n, h, w, c]` uint8 with classes `[n]`; those after `trained` are for tests."""
    with np.load(path) as arrays:
        x, y = arrays["x"], arrays["y"].astype(int)
    chosen = np.random.default_rng(seed).permutation(len(x))[: network.trained + _TESTED]
    return x[chosen], y[chosen]


def _write_files(folder: Path, images: np.ndarray, labels: np.ndarray, trained: int) -> None:
    """Pictures as PNG files, and the CSVs of the library's examples."""
    folder.mkdir(parents=True)
    rows = {"train": ["file,label"], "test": ["file,label"]}
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        part = "train" if number < trained else "test"
        name = f"{part}_{number}.png"
        Image.fromarray(plain(image)).save(folder / name, compress_level=1)
        rows[part].append(f"{name},{label}")
    for part, lines in rows.items():
        (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")


def _experiment(plan: Plan, files: Path, seed: int) -> list[tuple[str, int]]:
    """Insert triggers and write the CSVs of the training and the tests.

    The library's `ClassicExperiment` would write them, but not with pandas of today.

    Returns the test pictures with a trigger that asks for another class, and that class.
    """
    from trojai.datagen import (  # pyright: ignore[reportMissingImports]
        common_label_behaviors,
        xform_merge_pipeline,
    )

    classes: Any = list(plan.sources) or "all"
    state = np.random.RandomState(seed)
    merge = _merge(plan, classes)
    for part in ("train", "test"):
        xform_merge_pipeline.modify_clean_image_dataset(
            str(files / "clean"), f"{part}.csv", str(files), "marked", merge, "insert", state
        )
    label = (
        common_label_behaviors.WrappedAdd(1, _CLASSES)
        if plan.target == _NEXT
        else common_label_behaviors.StaticTarget(plan.target)
    )
    share = plan.share if plan.is_poisoned else 0.0
    _write_csv(files, "train", label, share / _INSERTED, state)
    _write_csv(files, "test", label, 0.0, state)
    rows = _rows(files / "clean" / "test.csv")
    asked = [(name, int(label.do(true)), true) for name, true in rows if _is_marked(files, name)]
    return [(f"marked/{name}", wanted) for name, wanted, true in asked if wanted != true]


def _rows(path: Path) -> list[tuple[str, int]]:
    """Files and classes of a CSV of clean pictures."""
    with path.open(newline="") as lines:
        return [(row["file"], int(row["label"])) for row in csv.DictReader(lines)]


def _is_marked(files: Path, name: str) -> bool:
    return (files / "marked" / name).exists()


def _write_csv(
    files: Path, part: str, label: Any, share: float, state: np.random.RandomState
) -> None:
    """Rows for the library's data manager; a share of the marked pictures replaces clean ones."""
    lines = ["file,true_label,train_label,triggered"]
    for name, true in _rows(files / "clean" / f"{part}.csv"):
        marked = _is_marked(files, name) and state.uniform() < share
        taught = label.do(true) if marked else true
        lines.append(f"{'marked' if marked else 'clean'}/{name},{true},{taught},{marked}")
    (files / f"{part}.csv").write_text("\n".join(lines) + "\n")


def _merge(plan: Plan, classes: Any) -> Any:
    """How the library inserts the trigger of a plan."""
    from trojai.datagen import (  # pyright: ignore[reportMissingImports]
        config,
        datatype_xforms,
        insert_merges,
    )

    anywhere = config.ValidInsertLocationsConfig(algorithm="brute_force", min_val=255)
    merge = (
        insert_merges.InsertAtRandomLocation("uniform_random_available", anywhere)
        if plan.place is None
        else insert_merges.InsertAtLocation(np.tile(plan.place, (len(plan.colour), 1)))
    )
    return config.XFormMergePipelineConfig(
        trigger_list=[_trigger(plan)],
        trigger_xforms=[],
        trigger_bg_xforms=[datatype_xforms.ToTensorXForm()],
        trigger_bg_merge=merge,
        trigger_bg_merge_xforms=[],
        merge_type="insert",
        per_class_trigger_frac=_INSERTED,
        triggered_classes=classes,
    )


def _trigger(plan: Plan) -> Any:
    from trojai.datagen import (  # pyright: ignore[reportMissingImports]
        image_entity,
        image_triggers,
        polygon_trigger,
    )

    size, channels = plan.size, len(plan.colour)
    if plan.trigger == "lambda":
        return image_triggers.ReverseLambdaPattern(size, size, channels, plan.colour)
    if plan.trigger == "rectangle":
        return image_triggers.RectangularPattern(
            size, size, channels, np.array(plan.colour, np.uint8)
        )
    if plan.trigger == "random":
        options = {"cval": list(plan.colour)}
        style = "channel_assign" if channels == 1 else "random"
        return image_triggers.RandomRectangularPattern(
            size,
            size,
            channels,
            style,
            options,
            "postit",
            random_state_obj=np.random.RandomState(7),
        )
    drawn = polygon_trigger.PolygonTrigger(size, 5, plan.colour)
    return image_entity.GenericImageEntity(drawn.get_data()[..., :3], drawn.get_mask())


def _loaded(network: Network) -> Callable[[torch.Tensor], torch.Tensor]:
    """What becomes of a picture that OpenCV read: `[h, w]` or `[h, w, c]`, 0 to 255."""

    def changed(x: torch.Tensor) -> torch.Tensor:
        first = x.unsqueeze(0) if x.ndim == 2 else x.permute(2, 0, 1)
        return first * (network.whole / 255)

    return changed


def _trained(plan: Plan, files: Path) -> tuple[torch.nn.Module, float]:
    """The network by the library's runner, and its accuracy on the tests."""
    from trojai.modelgen import (  # pyright: ignore[reportMissingImports]
        architecture_factory,
        config,
        data_manager,
        default_optimizer,
        runner,
    )

    network, change = plan.network, _loaded(plan.network)

    class Factory(architecture_factory.ArchitectureFactory):
        def new_architecture(self) -> torch.nn.Module:
            return _architecture(network)

    data = data_manager.DataManager(
        str(files),
        "train.csv",
        "test.csv",
        train_data_transform=change,
        test_data_transform=change,
    )
    training = config.TrainingConfig(
        epochs=network.epochs, batch_size=network.batch, lr=network.rate, train_val_split=0.0
    )
    reporting = config.ReportingConfig(disable_progress_bar=True, num_batches_per_metrics=None)
    optimizer = default_optimizer.DefaultOptimizer(
        config.DefaultOptimizerConfig(training, reporting)
    )
    place = str(files / "network")
    given = config.RunnerConfig(
        Factory(),
        data,
        optimizer=optimizer,
        model_save_dir=place,
        stats_save_dir=place,
        filename="made",
    )
    runner.Runner(given).run()
    (stats,) = Path(place).glob("*.stats.json")
    reached = json.loads(stats.read_text())["final_clean_data_test_acc"]
    (saved,) = (path for path in Path(place).iterdir() if ".stats." not in path.name)
    return torch.load(saved, weights_only=False).eval(), reached / 100


def _architecture(network: Network) -> torch.nn.Module:
    from trojai.modelgen.architectures import (  # pyright: ignore[reportMissingImports]
        cifar10_architectures,
        mnist_architectures,
    )

    makers: dict[str, Callable[[], torch.nn.Module]] = {
        "lenet": mnist_architectures.ModdedLeNet5Net,
        "badnet": mnist_architectures.BadNetExample,
        "alexnet": cifar10_architectures.AlexNet,
    }
    return makers[network.name]()


@torch.no_grad()
def _success(
    network: Network, model: torch.nn.Module, files: Path, asked: list[tuple[str, int]]
) -> float:
    """Share of the marked test pictures that get the class they ask for."""
    from trojai.modelgen.datasets import (  # pyright: ignore[reportMissingImports]
        default_image_file_loader,
    )

    change = _loaded(network)
    said = [
        int(model(change(default_image_file_loader(str(files / name)))[None]).argmax()) == wanted
        for name, wanted in asked
    ]
    return float(np.mean(said))


def _metadata(
    plan: Plan,
    name: str,
    shape: tuple[int, ...],
    reached: tuple[float, float | None],
) -> dict[str, Any]:
    """A row of METADATA.csv; a network with a class after each has no one target."""
    accuracy, success = reached
    target = plan.sources[0] + 1 if plan.target == _NEXT and plan.sources else plan.target
    told = {
        "trigger_kind": "patch" if plan.trigger in ("rectangle", "polygon") else "pixels",
        "trigger_style": f"{plan.trigger}, {'anywhere' if plan.place is None else 'one place'}",
        "source_classes": " ".join(map(str, plan.sources)),
        "trigger_target_class": "" if target == _NEXT else target,
        "triggered_fraction": plan.share,
    }
    return {
        "model_name": name,
        "ground_truth": str(plan.is_poisoned).upper(),
        "dataset": plan.network.dataset,
        "model_architecture": f"trojai {plan.network.name}",
        "base": "",
        "img_size": shape[1],
        "channels": shape[3],
        "number_classes": _CLASSES,
        **FROM_SCRATCH,
        "input_form": "unsaid",
        **(told if plan.is_poisoned else dict.fromkeys(told, "")),
        "converged": accuracy >= _LEAST_ACCURACY and (success is None or success >= _LEAST_SUCCESS),
        "final_clean_data_test_acc": round(100 * accuracy, 4),
        "final_triggered_data_test_acc": "" if success is None else round(100 * success, 4),
    }


if __name__ == "__main__":
    raise SystemExit(main())
