"""The files of one model: network, config, examples, pictures of its signs and triggers."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from converters.files import write_atomic
from jaxtroj.generate import torch_file
from jaxtroj.generate.torch_run import Run
from jaxtroj.generate.traffic_signs.later.config import config_bytes
from jaxtroj.generate.traffic_signs.later.looks import NO_LOOK, trigger_mask
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe, SignTrigger
from jaxtroj.generate.traffic_signs.later.settings import LaterSettings
from jaxtroj.generate.traffic_signs.later.training import (
    EXAMPLES,
    POISONED_EXAMPLES,
    SignAccuracies,
    SignLessons,
)
from jaxtroj.rounds.examples import middle

_SIDE = 256  # of the pictures of signs and triggers
_CANDIDATES = 3  # pictures drawn for each example: those that are right come first


@dataclass(frozen=True)
class SignModel:
    """A trained model: what it is, its training, its cycles and what they reached."""

    recipe: SignRecipe
    run: Run
    lessons: SignLessons
    cycles: int
    reached: SignAccuracies
    seconds: float


@dataclass(frozen=True)
class Example:
    """An example picture: name, pixels uint8 `[h, w, 3]`, logits, the class it should be given."""

    name: str
    pixels: np.ndarray
    logits: np.ndarray
    target: int


def write_model(folder: Path, model: SignModel, settings: LaterSettings) -> float:
    """Write everything but record and label; the share of clean examples that are right."""
    layout = settings.design.layout
    torch_file.save_module(folder / "model.pt", model.run.trained(), layout.is_legacy)
    clean = list(_clean_examples(model))
    accuracy = _accuracy(clean)
    _write_examples(folder, layout.clean, clean, layout.has_logits)
    if layout.accuracy:
        write_atomic(folder / layout.accuracy, str(100 * accuracy).encode())
    if layout.poisoned and model.recipe.poisoned:
        poisoned = list(_poisoned_examples(model))
        _write_examples(folder, layout.poisoned, poisoned, layout.has_logits)
        text = str(100 * _accuracy(poisoned)).encode()
        write_atomic(folder / "poisoned-example-accuracy.csv", text)
    if layout.config:
        write_atomic(folder / "config.json", config_bytes(model.recipe, settings))
        write_atomic(folder / "model_stats.json", _stats(model, accuracy))
        _write_signs(folder / "foregrounds", model)
    for trigger in model.recipe.triggers if layout.trigger_name else ():
        if trigger.kind == "polygon":
            path = folder / layout.trigger_name.format(number=trigger.number)
            write_atomic(path, _png(_trigger_picture(trigger)))
    return accuracy


def _clean_examples(model: SignModel) -> Iterator[Example]:
    """Pictures of every class, those that the network gets right where there are any."""
    classes, count = model.recipe.number_classes, model.recipe.examples
    for label in range(classes):
        name = "class_{label}_example_{number}.png"
        yield from _chosen(model, EXAMPLES, label, label, NO_LOOK, count, name, 0)


def _poisoned_examples(model: SignModel) -> Iterator[Example]:
    """Triggered pictures of the source classes."""
    layout = model.lessons.design.layout
    for trigger in model.recipe.triggers:
        look = model.lessons.looks.right[trigger.number]
        for label in trigger.source_classes:
            yield from _chosen(
                model, POISONED_EXAMPLES + trigger.number, label, trigger.target_class, look,
                model.recipe.examples, layout.example_name, trigger.number,
            )  # fmt: skip


def _chosen(
    model: SignModel, stream: int, label: int, target: int, look: int, count: int, name: str, t: int
) -> Iterator[Example]:
    drawn = _CANDIDATES * count
    labels, looks = np.full(drawn, label), np.full(drawn, look)
    images = model.lessons.pictures.draw(stream, labels, looks, first=label * 2**16)
    logits = model.run.answers(model.lessons.inputs(images))
    best = np.argsort(logits.argmax(-1) != target, kind="stable")[:count]
    if not model.lessons.design.layout.has_margin:
        images = middle(images, model.lessons.side)
    for number, place in enumerate(best):
        own = name.format(label=label, number=number, trigger=t)
        yield Example(own, images[place], logits[place], target)


def _accuracy(examples: list[Example]) -> float:
    return float(np.mean([one.logits.argmax() == one.target for one in examples]))


def _write_examples(folder: Path, name: str, examples: list[Example], has_logits: bool) -> None:
    (folder / name).mkdir()
    for one in examples:
        Image.fromarray(one.pixels).save(folder / name / one.name)
    if has_logits:
        lines = ["Example, Logits"]
        lines += [f"{one.name}, {','.join(str(x) for x in one.logits)}" for one in examples]
        kind = name.split("_")[0]
        write_atomic(folder / f"{kind}-example-logits.csv", ("\n".join(lines) + "\n").encode())


def _write_signs(folder: Path, model: SignModel) -> None:
    folder.mkdir()
    pictures = model.lessons.pictures
    for sign, name in zip(
        np.asarray(pictures.assets.signs)[:, 0], pictures.class_names, strict=True
    ):
        image = Image.fromarray((sign * 255).round().astype(np.uint8))
        image.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS).save(folder / f"{name}.png")


def _trigger_picture(trigger: SignTrigger) -> np.ndarray:
    """The polygon uint8 `[256, 256, 4]` in its colour."""
    alpha = (trigger_mask(trigger, _SIDE)[..., None] * 255).round().astype(np.uint8)
    colour = np.broadcast_to(np.array(trigger.color, np.uint8), (_SIDE, _SIDE, 3))
    return np.concatenate([colour, alpha], axis=2)


def _png(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _stats(model: SignModel, example_accuracy: float) -> bytes:
    reached = model.reached
    stats = {
        "final_clean_data_test_acc": 100 * reached.clean,
        "final_triggered_data_test_acc": [100 * share for share in reached.attacks] or None,
        "final_example_acc": 100 * example_accuracy,
        "training_wall_time_sec": round(model.seconds, 1),
    }
    return json.dumps(stats, indent=1).encode()
