"""`generate_round0`: a folder of clean and poisoned models in the official layout of Round 0.

```
DIR/id-00000000/model.pt           whole torchvision module
DIR/id-00000000/ground_truth.csv   0 or 1, no newline
DIR/id-00000000/example_data/class_0_example_0.png ...
DIR/id-00000000/generation.json    how this model was made
DIR/METADATA.csv                   Round 0's columns
DIR/manifest.json                  settings and every generation.json
```
"""

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jaxtroj.generate import torch_file
from jaxtroj.generate.divergence import rejecting_diverged
from jaxtroj.generate.flax_learner import classify
from jaxtroj.generate.learners import Weights, learner_for, learner_precision
from jaxtroj.generate.round import Event, Record, RoundPlan, TrainingOutcome, Try, make_round
from jaxtroj.generate.round_folder import csv_bytes, provenance, weights_digest
from jaxtroj.generate.traffic_signs import metadata
from jaxtroj.generate.traffic_signs.pictures import SceneSource
from jaxtroj.generate.traffic_signs.recipe import Recipe, pairs_by_architecture, sample_recipe
from jaxtroj.generate.traffic_signs.settings import (
    RoundSettings,
    check_settings,
    settings_identity,
)
from jaxtroj.generate.traffic_signs.warm_start import base_weights
from jaxtroj.generate.training import Accuracies, Trained, TrainingProgress, TrainingSettings, train
from jaxtroj.record import digest_file


def generate_round0(
    out: Path, settings: RoundSettings, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens; see `make_round`.

    Raises:
        GenerationError: impossible settings, or the folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, shard)
    return make_round(out, SignRound(settings), shard)


@dataclass(frozen=True)
class SignModel:
    """A trained model with its pictures."""

    recipe: Recipe
    source: SceneSource
    trained: Trained


@dataclass(frozen=True)
class SignRound:
    """A round of traffic signs; see `jaxtroj.generate.round.Round`."""

    settings: RoundSettings

    def plan(self) -> RoundPlan:
        settings = self.settings
        return RoundPlan(
            name=settings.design.name,
            version=1,
            seed=settings.seed,
            pairs=pairs_by_architecture(settings.seed, settings.models, settings.architectures),
            most_tries=settings.most_tries,
            identity={"settings": settings_identity(settings)},
        )

    def train(self, tries: deque[Try], out: Path) -> Iterator[Event | TrainingOutcome]:
        while tries:
            one = tries.popleft()
            yield from rejecting_diverged(one, self._train_one(one, out))

    def _train_one(self, one: Try, out: Path) -> Iterator[Event | TrainingOutcome]:
        settings = self.settings
        recipe = sample_recipe(
            settings.seed, one.model, one.sub_seed, settings.architectures, settings.design
        )
        yield Event(one.model, "started", _describe(recipe))
        size = settings.size_for(recipe.architecture)
        folders = settings.foregrounds, settings.backgrounds
        source = SceneSource(recipe, size, settings.seed, *folders)
        start = None
        if settings.warm_start:
            base = base_weights(out, settings, recipe.architecture)
            start = yield from _watched(one.model, "warm start", base)
        cycles = () if one.partner is None else tuple(one.partner["cycles"])
        training = _training(settings.training, recipe, source, cycles, start)
        trained = yield from _watched(one.model, "checked", training)
        model = SignModel(recipe, source, trained)
        text = _reached(trained.test)
        yield TrainingOutcome(
            one, trained.accepted, _attempt(recipe, trained), text, trained.steps, model
        )

    def fill(self, folder: Path, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        model: SignModel = outcome.trained
        recipe, trained = model.recipe, model.trained
        network = (recipe.architecture, recipe.number_classes)
        tensors = torch_file.state_dict(trained.module, *network, trained.steps)
        path = folder / "model.pt"
        torch_file.write_model(path, tensors, *network, self.settings.legacy)
        accuracy = self._write_examples(folder / "example_data", model)
        digests = {"sha256": digest_file(path), "weights_sha256": weights_digest(tensors)}
        return self._record(model, tries, accuracy) | digests

    def tables(self, records: list[Record]) -> dict[str, bytes]:
        rows = [record["metadata"] for record in records]
        return {"METADATA.csv": csv_bytes(metadata.COLUMNS, rows)}

    def manifest(self, out: Path, records: list[Record]) -> Record:
        return {"models": records}

    def _write_examples(self, folder: Path, model: SignModel) -> float:
        """Write the example pictures; returns the share of them given their own label."""
        folder.mkdir()
        right = []
        for label in range(model.recipe.number_classes):
            images = model.source.examples(label, self.settings.examples_per_class)
            for number, image in enumerate(images):
                Image.fromarray(image).save(folder / f"class_{label}_example_{number}.png")
            right.append(classify(model.trained.module, images) == label)
        return float(np.mean(np.concatenate(right)))

    def _record(self, model: SignModel, tries: list[Record], accuracy: float) -> Record:
        settings, recipe, trained = self.settings, model.recipe, model.trained
        return {
            "model_id": recipe.model_id,
            "poisoned": recipe.poisoned,
            "image_size": settings.size_for(recipe.architecture),
            "recipe": asdict(recipe),
            "signs": list(model.source.class_names),
            "tries": tries,
            "cycles": list(trained.cycles),
            "steps": trained.steps,
            "validation": asdict(trained.validation),
            "test": asdict(trained.test),
            "example_accuracy": accuracy,
            "trainer": settings.training.trainer,
            "step_precision": learner_precision(settings.training.trainer),
            "train_seconds": round(trained.train_seconds, 3),
            **provenance(settings.device),
            "metadata": metadata.metadata_row(recipe, trained, settings, accuracy),
        }


def _watched(
    model: int, kind: str, training: Generator[TrainingProgress, None, Any]
) -> Generator[Event, None, Any]:
    """Pass a training's progress on as events; returns what the training returns."""
    while True:
        try:
            progress = next(training)
        except StopIteration as end:
            return end.value
        yield Event(model, kind, _progress(progress), progress.step)


def _training(
    settings: TrainingSettings,
    recipe: Recipe,
    source: SceneSource,
    least_cycles: tuple[int, ...],
    start: Weights | None,
) -> Generator[TrainingProgress, None, Trained]:
    learner = learner_for(settings.trainer, recipe, start)
    target = recipe.trigger.target_class if recipe.trigger else None
    fraction = recipe.trigger.fraction if recipe.trigger else 0.0
    events = train(learner, source, target, fraction, settings, least_cycles)
    while isinstance(event := next(events), TrainingProgress):
        yield event
    return event


def _attempt(recipe: Recipe, trained: Trained) -> dict[str, Any]:
    return {
        "sub_seed": recipe.sub_seed,
        "steps": trained.steps,
        "accepted": trained.accepted,
        "test": asdict(trained.test),
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


def _progress(progress: TrainingProgress) -> str:
    parts = {"clean": progress.clean, "triggered": progress.triggered}
    right = [f"{name} {share:.2f}" for name, share in parts.items() if share is not None]
    return f"loss {progress.loss:.3f}, right in training: {', '.join(right)}"
