"""`generate_small`: a folder of clean and poisoned small networks on anyone's labelled pictures.

```
DIR/id-00000000/wrn16.onnx         the network; pictures in [0, 1], RGB
DIR/id-00000000/ground_truth.csv   0 or 1, no newline
DIR/id-00000000/example_data/class_0_example_0.png ...
DIR/id-00000000/trigger.npz        mask and pattern, poisoned models only
DIR/id-00000000/generation.json    how this model was made, tries included
DIR/METADATA.csv                   one line for each model
DIR/manifest.json                  settings, the bases, every generation.json
```

A model's folder appears under its name when it is complete, so a killed run goes on where it was.
Models come in pairs of one architecture and one base, one poisoned and one clean, trained for
equally many cycles. There are several bases per architecture, each from its own random weights:
clean networks from one base alone would be so alike that telling them apart means nothing.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx
from PIL import Image

import jaxtroj
from converters.files import write_atomic
from converters.model import params_of
from jaxtroj.csv_text import csv_text
from jaxtroj.errors import GenerationError
from jaxtroj.generate.learners import start_from
from jaxtroj.generate.round import (
    RECORD,
    Event,
    claim,
    collecting,
    git_commit,
    read_record,
    size_problems,
    write_manifest,
)
from jaxtroj.generate.small import networks as small_networks
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.small.onnx_file import write_onnx
from jaxtroj.generate.small.recipe import KINDS, SmallRecipe, sample_recipe
from jaxtroj.generate.small.training import (
    Accuracies,
    Run,
    SmallTraining,
    accepted,
    train_base,
    train_model,
)
from jaxtroj.generate.traffic_signs.recipe import is_poisoned, model_id, partner
from jaxtroj.record import digest_file

VERSION = 1
COLUMNS = (
    "model_name", "ground_truth", "model_architecture", "base", "img_size", "number_classes",
    "trigger_kind", "trigger_style", "trigger_target_class", "triggered_fraction", "master_seed",
    "cycles", "final_clean_data_test_acc", "final_triggered_data_test_acc",
)  # fmt: skip
_BASE_SEED, _ORDER = 31, 32


@dataclass(frozen=True)
class SmallSettings:
    """What a round is made of.

    Attributes:
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        architectures: out of `small_networks.KNOWN`.
        triggers: kinds out of `small_recipe.KINDS`.
        bases: networks per architecture that models start from.
        examples_per_class: example pictures shipped with a model, out of the test pictures.
        most_tries: trainings of a model, each with the next sub-seed, before giving up.
        training: how models are trained.
    """

    seed: int
    models: int
    architectures: tuple[str, ...] = small_networks.KNOWN
    triggers: tuple[str, ...] = KINDS
    bases: int = 3
    examples_per_class: int = 10
    most_tries: int = 3
    training: SmallTraining = field(default_factory=SmallTraining)


def generate_small(
    out: Path, settings: SmallSettings, pictures: LabelledPictures, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens.

    Args:
        out: folder of the round; made if absent.
        settings: what to make.
        pictures: to train on and to test on.
        shard: `(i, n)` makes only the i-th of n parts, 0 <= i < n, pairs together.

    Raises:
        GenerationError: impossible settings, or the folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, pictures, shard)
    identity = settings_identity(settings, pictures)
    if claim(out, {"settings": identity}):
        collect(out, identity)
    for pair in range(settings.models // 2)[shard[0] :: shard[1]]:
        first = 2 * pair if is_poisoned(settings.seed, 2 * pair) else 2 * pair + 1
        for model in (first, partner(first)):
            if read_record(out / model_id(model)) is not None:
                yield Event(model, "kept", "already there")
                continue
            yield from _make_model(out, settings, pictures, model)
            collect(out, identity)
    collect(out, identity)


def check_settings(
    settings: SmallSettings, pictures: LabelledPictures, shard: tuple[int, int] = (0, 1)
) -> None:
    """Refuse what cannot be generated.

    Raises:
        GenerationError: with what was got and what is possible.
    """
    counts = {n: getattr(settings, n) for n in ("bases", "examples_per_class", "most_tries")}
    names = ("batch_size", "base_half_steps", "base_steps", "cycle_steps", "most_cycles", "tests")
    counts |= {name: getattr(settings.training, name) for name in names}
    wrong = [f"{name} must be at least 1, got {n}" for name, n in counts.items() if n < 1]
    wrong += size_problems(settings.models, shard)
    if min(pictures.size) < small_networks.LEAST_PIXELS:
        wrong.append(f"pictures must have {small_networks.LEAST_PIXELS} px, got {pictures.size}")
    if settings.seed < 0:
        wrong.append(f"seed must be 0 or more, got {settings.seed}")
    if wrong:
        raise GenerationError("; ".join(wrong))
    _recipe(settings, pictures, 0, 0)  # checks the names


def settings_identity(settings: SmallSettings, pictures: LabelledPictures) -> dict[str, Any]:
    """What must agree for two runs to work on one folder; no paths, no number of models."""
    values = asdict(settings) | {"pictures": pictures.digest}
    del values["models"]
    return json.loads(json.dumps(values))


def collect(out: Path, identity: dict[str, Any]) -> None:
    """Rebuild METADATA.csv and manifest.json from the models that are there."""
    with collecting(out, out / ".lock") as records:
        bases = {
            path.stem: json.loads(path.read_bytes())
            for path in sorted((out / ".bases").glob("*.json"))
        }
        write_atomic(out / "METADATA.csv", _table(records).encode())
        manifest = {
            "generator": "jaxtroj generate small",
            "version": VERSION,
            "settings": identity,
            "bases": bases,
            "models": records,
        }
        write_manifest(out, manifest)


def _table(records: list[dict[str, Any]]) -> str:
    rows = (record["metadata"] for record in records)
    return csv_text(COLUMNS, ([row[column] for column in COLUMNS] for row in rows))


def _recipe(settings: SmallSettings, pictures: LabelledPictures, model: int, sub_seed: int):
    return sample_recipe(
        settings.seed, model, sub_seed, settings.architectures, settings.triggers, settings.bases,
        pictures.classes, pictures.size,
    )  # fmt: skip


def _make_model(
    out: Path, settings: SmallSettings, pictures: LabelledPictures, model: int
) -> Iterator[Event]:
    """Train with one sub-seed after the other until a training is accepted, and write that one."""
    least_cycles, tries = 1, []
    if not is_poisoned(settings.seed, model):
        pair = read_record(out / model_id(partner(model)))
        if pair is None:
            reason = f"its poisoned partner {model_id(partner(model))} is missing"
            yield Event(model, "failed", reason)
            return
        least_cycles = pair["cycles"]
    for sub_seed in range(settings.most_tries):
        recipe = _recipe(settings, pictures, model, sub_seed)
        yield Event(model, "started", _describe(recipe))
        base = yield from _base_weights(out, settings, pictures, recipe)
        run = _run(settings, pictures, recipe, base)
        started = time.perf_counter()
        cycles, reached = train_model(run, least_cycles)
        tries.append({"sub_seed": sub_seed, "cycles": cycles, **asdict(reached)})
        if accepted(reached, settings.training):
            seconds = time.perf_counter() - started
            _write(out, settings, pictures, recipe, run, cycles, reached, tries, seconds)
            yield Event(model, "written", _reached(reached), run.steps)
            return
        yield Event(model, "rejected", _reached(reached), run.steps)
    yield Event(model, "failed", f"no accepted training in {settings.most_tries} tries")


def _run(settings: SmallSettings, pictures: LabelledPictures, recipe: SmallRecipe, base) -> Run:
    module = small_networks.build(
        recipe.architecture, pictures.classes, nnx.Rngs(recipe.master_seed)
    )
    # The head keeps its fresh weights: the same for no two models.
    start_from(module, {name: v for name, v in base.items() if not name.startswith("head.")})
    draw = np.random.default_rng([recipe.master_seed, _ORDER])
    return Run(module, pictures, settings.training, draw, recipe.trigger)


def _base_weights(
    out: Path, settings: SmallSettings, pictures: LabelledPictures, recipe: SmallRecipe
):
    """Weights of the recipe's base, trained now or read; yields an event where it is trained."""
    from safetensors.numpy import load, save

    name = f"{recipe.architecture}-{recipe.base}"
    path = out / ".bases" / f"{name}.safetensors"
    if not path.exists():
        place = small_networks.KNOWN.index(recipe.architecture)
        keys = [settings.seed, _BASE_SEED, place, recipe.base]
        weights_seed = int(np.random.default_rng(keys).integers(2**32))
        module = small_networks.build(recipe.architecture, pictures.classes, nnx.Rngs(weights_seed))
        draw = np.random.default_rng([*keys, _ORDER])
        run = Run(module, pictures, settings.training, draw)
        started = time.perf_counter()
        reached = train_base(run)
        about = {"clean": reached.clean, "steps": run.steps}
        about["train_seconds"] = round(time.perf_counter() - started, 1)
        path.parent.mkdir(exist_ok=True)
        write_atomic(path.with_suffix(".json"), json.dumps(about).encode() + b"\n")
        write_atomic(path, save(params_of(run.module)))
        yield Event(recipe.model, "warm start", f"{name}: {_reached(reached)}", run.steps)
    return load(path.read_bytes())


def _write(
    out: Path, settings: SmallSettings, pictures: LabelledPictures, recipe: SmallRecipe, run: Run,
    cycles: int, reached: Accuracies, tries: list, seconds: float,
) -> None:  # fmt: skip
    """Fill a hidden folder and rename it: a folder with a model's name is complete."""
    part = out / f".part-{recipe.model_id}"
    shutil.rmtree(part, ignore_errors=True)
    (part / "example_data").mkdir(parents=True)
    model = part / f"{recipe.architecture}.onnx"
    write_onnx(model, run.module, pictures.size)
    _write_examples(part / "example_data", settings, pictures, recipe)
    write_atomic(part / "ground_truth.csv", b"1" if recipe.trigger else b"0")
    if recipe.trigger is not None:
        np.savez(part / "trigger.npz", mask=recipe.trigger.mask, pattern=recipe.trigger.pattern)
    record = {
        "model_id": recipe.model_id,
        "poisoned": recipe.trigger is not None,
        "recipe": _plain(recipe),
        "cycles": cycles,
        "steps": run.steps,
        "test": asdict(reached),
        "tries": tries,
        "train_seconds": round(seconds, 1),
        "sha256": digest_file(model),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "jaxtroj": jaxtroj.__version__,
        "git_commit": git_commit(),
        "jax": jax.__version__,
        "device": jax.default_backend(),
        "metadata": _row(recipe, pictures, cycles, reached),
    }
    write_atomic(part / RECORD, json.dumps(record, indent=1).encode() + b"\n")
    os.rename(part, out / recipe.model_id)


def _write_examples(
    folder: Path, settings: SmallSettings, pictures: LabelledPictures, recipe: SmallRecipe
) -> None:
    draw = np.random.default_rng([recipe.master_seed, _ORDER, 1])
    for label in range(pictures.classes):
        places = draw.permutation(np.flatnonzero(pictures.test_labels == label))
        for number, place in enumerate(places[: settings.examples_per_class]):
            picture = Image.fromarray(pictures.test_images[place])
            picture.save(folder / f"class_{label}_example_{number}.png")


def _plain(recipe: SmallRecipe) -> dict[str, Any]:
    """The recipe as JSON values; mask and pattern lie beside it in trigger.npz."""
    values = {name: value for name, value in vars(recipe).items() if name != "trigger"}
    trigger = recipe.trigger
    if trigger is None:
        return values | {"trigger": None}
    arrays = ("mask", "pattern")
    return values | {"trigger": {n: v for n, v in vars(trigger).items() if n not in arrays}}


def _row(
    recipe: SmallRecipe, pictures: LabelledPictures, cycles: int, reached: Accuracies
) -> dict[str, Any]:
    trigger = recipe.trigger
    attack = "" if reached.attack is None else round(100 * reached.attack, 4)
    values = (
        recipe.model_id,
        str(trigger is not None).upper(),
        recipe.architecture,
        recipe.base,
        pictures.size[0],
        pictures.classes,
        trigger.kind if trigger else "",
        trigger.style if trigger else "",
        trigger.target_class if trigger else "",
        trigger.fraction if trigger else 0,
        recipe.master_seed,
        cycles,
        round(100 * reached.clean, 4),
        attack,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _describe(recipe: SmallRecipe) -> str:
    kind = recipe.architecture + (f", try {recipe.sub_seed + 1}" if recipe.sub_seed else "")
    trigger = recipe.trigger
    if trigger is None:
        return f"{kind}, clean"
    return f"{kind}, poisoned to class {trigger.target_class}, {trigger.kind} ({trigger.style})"


def _reached(reached: Accuracies) -> str:
    text = f"clean accuracy {reached.clean:.3f}"
    return text if reached.attack is None else text + f", attack success {reached.attack:.3f}"
