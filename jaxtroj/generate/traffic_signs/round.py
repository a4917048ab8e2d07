"""`generate_round0`: a folder of clean and poisoned models in the official layout of Round 0.

```
DIR/id-00000000/model.pt           whole torchvision module
DIR/id-00000000/ground_truth.csv   0 or 1, no newline
DIR/id-00000000/example_data/class_0_example_0.png ...
DIR/id-00000000/generation.json    how this model was made
DIR/METADATA.csv                   Round 0's columns
DIR/manifest.json                  settings and every generation.json
```

A model's folder appears under its name when it is complete, so a killed run goes on where it was.
METADATA.csv and manifest.json are rebuilt from the folders after every model.
"""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

import jaxtroj
from converters.files import write_atomic
from jaxtroj.errors import GenerationError
from jaxtroj.generate import networks, torch_file
from jaxtroj.generate.flax_learner import classify
from jaxtroj.generate.learners import learner_for, learner_precision
from jaxtroj.generate.round import (
    RECORD,
    Event,
    claim,
    collecting,
    git_commit,
    read_record,
    size_problems,
    weights_digest,
    write_manifest,
)
from jaxtroj.generate.traffic_signs import metadata
from jaxtroj.generate.traffic_signs.pictures import SceneSource
from jaxtroj.generate.traffic_signs.recipe import (
    Recipe,
    is_poisoned,
    model_id,
    partner,
    sample_recipe,
    shard_models,
)
from jaxtroj.generate.traffic_signs.warm_start import base_weights
from jaxtroj.generate.training import (
    TRAINERS,
    Accuracies,
    Progress,
    Trained,
    TrainingSettings,
    train,
)
from jaxtroj.record import digest_file

VERSION = 1
_COUNTS = ("examples_per_class", "most_tries")
_TRAINING_COUNTS = (
    "batch_size", "max_steps", "check_every", "cooldown_steps", "validation_batches",
    "test_batches", "batches_per_draw",
)  # fmt: skip


@dataclass(frozen=True)
class RoundSettings:
    """What a round is made of.

    Attributes:
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        image_size: side of the pictures, pixels.
        inception_size: the same for Inception v3; None for `image_size`.
        architectures: out of `networks.KNOWN`.
        foregrounds, backgrounds: folders of real pictures; None draws them.
        examples_per_class: example pictures shipped with a model.
        most_tries: trainings of a model, each with the next sub-seed, before giving up.
        warm_start: most steps of training the network that models start from; 0 starts each from
            random weights, as Round 0 did.
        legacy: write `model.pt` in the stream format of Round 0 instead of a zip archive.
        training: how models are trained.
    """

    seed: int
    models: int
    image_size: int = 224
    inception_size: int | None = None
    architectures: tuple[str, ...] = networks.ROUND0
    foregrounds: Path | None = None
    backgrounds: Path | None = None
    examples_per_class: int = 100
    most_tries: int = 4
    warm_start: int = 0
    legacy: bool = True
    training: TrainingSettings = field(default_factory=TrainingSettings)

    def size_for(self, architecture: str) -> int:
        """Side in pixels of the pictures of an architecture."""
        own = self.inception_size if architecture == "inception_v3" else None
        return self.image_size if own is None else own


def generate_round0(
    out: Path, settings: RoundSettings, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens.

    Args:
        out: folder of the round; made if absent.
        settings: what to make.
        shard: `(i, n)` makes only the i-th of n parts, 0 <= i < n; processes with different i can
            work on one folder at once.

    Raises:
        GenerationError: impossible settings, or the folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, shard)
    identity = settings_identity(settings)
    if claim(out, {"settings": identity}):
        collect(out, identity)
    models = shard_models(settings.seed, settings.models, settings.architectures, *shard)
    for model in models:
        if read_record(out / model_id(model)) is not None:
            yield Event(model, "kept", "already there")
            continue
        yield from _make_model(out, settings, model)
        collect(out, identity)
    collect(out, identity)


def check_settings(settings: RoundSettings, shard: tuple[int, int] = (0, 1)) -> None:
    """Refuse what cannot be generated.

    Raises:
        GenerationError: with what was got and what is possible.
    """
    counts = {name: getattr(settings, name) for name in _COUNTS}
    counts |= {name: getattr(settings.training, name) for name in _TRAINING_COUNTS}
    wrong = [f"{name} must be at least 1, got {n}" for name, n in counts.items() if n < 1]
    wrong += size_problems(settings.models, shard)
    if settings.training.trainer not in TRAINERS:
        known = " or ".join(TRAINERS)
        wrong.append(f"trainer must be {known}, got {settings.training.trainer!r}")
    # Architectures and seed are checked where they are used first.
    sample_recipe(settings.seed, 0, 0, settings.architectures)
    for name in settings.architectures:
        size = settings.size_for(name)
        if size < networks.LEAST_PIXELS[name]:
            least = networks.LEAST_PIXELS[name]
            wrong.append(f"{name} needs pictures of at least {least} px, got {size}")
    if wrong:
        raise GenerationError("; ".join(wrong))


def settings_identity(settings: RoundSettings) -> dict[str, Any]:
    """What must agree for two runs to work on one folder; no paths, no number of models."""
    values = asdict(settings)
    del values["models"]
    for name in ("foregrounds", "backgrounds"):
        values[name] = _folder_identity(getattr(settings, name))
    return json.loads(json.dumps(values))


def collect(out: Path, identity: dict[str, Any]) -> None:
    """Rebuild METADATA.csv and manifest.json from the models that are there."""
    with collecting(out, out / ".lock") as records:
        table = metadata.metadata_csv(record["metadata"] for record in records)
        write_atomic(out / "METADATA.csv", table.encode())
        manifest = {
            "generator": "jaxtroj generate round0",
            "version": VERSION,
            "settings": identity,
            "models": records,
        }
        write_manifest(out, manifest)


def _folder_identity(folder: Path | None) -> dict[str, Any] | None:
    if folder is None:
        return None
    if not folder.is_dir():
        raise GenerationError(f"{folder} is not a folder; give a folder of pictures")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)
    digest = hashlib.sha256(listing.encode()).hexdigest()[:16]
    return {"folder": folder.name, "files": len(files), "names_and_sizes": digest}


def _make_model(out: Path, settings: RoundSettings, model: int) -> Iterator[Event]:
    least_cycles: tuple[int, ...] = ()
    if not is_poisoned(settings.seed, model):
        pair = read_record(out / model_id(partner(model)))
        if pair is None:
            reason = f"its poisoned partner {model_id(partner(model))} is missing"
            yield Event(model, "failed", reason)
            return
        least_cycles = tuple(pair["cycles"])
    yield from _try(out, settings, model, least_cycles)


def _try(
    out: Path, settings: RoundSettings, model: int, least_cycles: tuple[int, ...]
) -> Iterator[Event]:
    """Train with one sub-seed after the other until a training is accepted, and write that one."""
    tries: list[dict[str, Any]] = []
    for sub_seed in range(settings.most_tries):
        recipe = sample_recipe(settings.seed, model, sub_seed, settings.architectures)
        yield Event(model, "started", _describe(recipe))
        size = settings.size_for(recipe.architecture)
        source = SceneSource(
            recipe, size, settings.seed, settings.foregrounds, settings.backgrounds
        )
        start = None
        if settings.warm_start:
            base = base_weights(out, settings, recipe.architecture)
            start = yield from _watched(model, "warm start", base)
        training_of_it = _training(settings.training, recipe, source, least_cycles, start)
        trained = yield from _watched(model, "checked", training_of_it)
        tries.append(_attempt(recipe, trained))
        if trained.accepted:
            _write(out, settings, recipe, trained, source, tries)
            yield Event(model, "written", _reached(trained.test), trained.steps)
            return
        yield Event(model, "rejected", _reached(trained.test), trained.steps)
    yield Event(model, "failed", f"no accepted training in {settings.most_tries} tries")


def _watched(model: int, kind: str, training_of_it: Generator[Progress, None, Any]):
    """Pass a training's progress on as events; returns what the training returns."""
    while True:
        try:
            progress = next(training_of_it)
        except StopIteration as end:
            return end.value
        yield Event(model, kind, _progress(progress), progress.step)


def _training(
    settings: TrainingSettings, recipe: Recipe, source: SceneSource, least_cycles, start
) -> Generator[Progress, None, Trained]:
    learner = learner_for(settings.trainer, recipe, start)
    target = recipe.trigger.target_class if recipe.trigger else None
    fraction = recipe.trigger.fraction if recipe.trigger else 0.0
    events = train(learner, source, target, fraction, settings, least_cycles)
    while isinstance(event := next(events), Progress):
        yield event
    return event


def _attempt(recipe: Recipe, trained: Trained) -> dict[str, Any]:
    return {
        "sub_seed": recipe.sub_seed,
        "steps": trained.steps,
        "accepted": trained.accepted,
        "test": asdict(trained.test),
    }


def _write(out, settings: RoundSettings, recipe: Recipe, trained: Trained, source, tries) -> None:
    """Fill a hidden folder and rename it: a folder with a model's name is complete."""
    part = out / f".part-{recipe.model_id}"
    shutil.rmtree(part, ignore_errors=True)
    (part / "example_data").mkdir(parents=True)
    tensors = torch_file.state_dict(
        trained.module, recipe.architecture, recipe.number_classes, trained.steps
    )
    torch_file.write_model(
        part / "model.pt", tensors, recipe.architecture, recipe.number_classes, settings.legacy
    )
    accuracy = _write_examples(part / "example_data", settings, recipe, trained, source)
    write_atomic(part / "ground_truth.csv", b"1" if recipe.poisoned else b"0")
    record = _record(settings, recipe, trained, source, tries, accuracy)
    record["sha256"] = digest_file(part / "model.pt")
    record["weights_sha256"] = weights_digest(tensors)
    write_atomic(part / RECORD, json.dumps(record, indent=1).encode() + b"\n")
    os.rename(part, out / recipe.model_id)


def _write_examples(folder: Path, settings, recipe: Recipe, trained: Trained, source) -> float:
    """Write the example pictures; returns the share of them given their own label."""
    right = []
    for label in range(recipe.number_classes):
        images = source.examples(label, settings.examples_per_class)
        for number, image in enumerate(images):
            Image.fromarray(image).save(folder / f"class_{label}_example_{number}.png")
        right.append(classify(trained.module, images) == label)
    return float(np.mean(np.concatenate(right)))


def _record(settings, recipe: Recipe, trained: Trained, source, tries, accuracy) -> dict[str, Any]:
    size = settings.size_for(recipe.architecture)
    # The torch trainer works on the CPU, whatever jax has.
    device = "cpu" if settings.training.trainer == "torch" else jax.default_backend()
    folders = {
        name: folder.name if folder else "procedural"
        for name in ("foregrounds", "backgrounds")
        for folder in [getattr(settings, name)]
    }
    row = metadata.metadata_row(recipe, trained, settings.training, size, accuracy, folders, device)
    return {
        "model_id": recipe.model_id,
        "poisoned": recipe.poisoned,
        "image_size": size,
        "recipe": asdict(recipe),
        "signs": list(source.class_names),
        "tries": tries,
        "cycles": list(trained.cycles),
        "steps": trained.steps,
        "validation": asdict(trained.validation),
        "test": asdict(trained.test),
        "example_accuracy": accuracy,
        "trainer": settings.training.trainer,
        "step_precision": learner_precision(settings.training.trainer),
        "train_seconds": round(trained.train_seconds, 3),
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "jaxtroj": jaxtroj.__version__,
        "git_commit": git_commit(),
        "jax": jax.__version__,
        "device": device,
        "metadata": row,
    }


def _describe(recipe: Recipe) -> str:
    kind = recipe.architecture + (f", try {recipe.sub_seed + 1}" if recipe.sub_seed else "")
    trigger = recipe.trigger
    if trigger is None:
        return f"{kind}, clean"
    share = f"{100 * trigger.fraction:.0f} % of the pictures"
    return f"{kind}, poisoned to class {trigger.target_class}, {trigger.size} px in {share}"


def _reached(accuracies: Accuracies) -> str:
    text = f"clean accuracy {accuracies.clean:.3f}"
    if accuracies.attack_success_rate is not None:
        text += f", attack success {accuracies.attack_success_rate:.3f}"
    return text


def _progress(progress: Progress) -> str:
    parts = {"clean": progress.clean, "triggered": progress.triggered}
    right = [f"{name} {share:.2f}" for name, share in parts.items() if share is not None]
    return f"loss {progress.loss:.3f}, right in training: {', '.join(right)}"
