"""`generate_later`: folders of clean and poisoned models in the official layouts of Rounds 1 to 4.

```
DIR/[models/]id-00000000/model.pt            whole torchvision module
DIR/[models/]id-00000000/ground_truth.csv    0 or 1, no newline
DIR/[models/]id-00000000/[clean_]example_data/class_0_example_0.png ...
DIR/[models/]id-00000000/config.json, foregrounds/, trigger.png ...   from Round 2 on
DIR/[models/]id-00000000/generation.json     how this model was made, tries included
DIR/METADATA.csv, DIR/METADATA_DICTIONARY.csv
DIR/manifest.json                            settings, the bases, every generation.json
```

Models come in pairs, one poisoned and one clean, that share architecture, number of classes, way of
training, base and adversary; the clean one is trained for at least as many cycles. A model that
has not converged in its last try is written and says so in METADATA.csv.
"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from jaxtroj.generate.divergence import rejecting_diverged
from jaxtroj.generate.learners import Weights
from jaxtroj.generate.round import Event, Record, RoundPlan, TrainingOutcome, Try, make_round
from jaxtroj.generate.round_folder import csv_bytes, provenance
from jaxtroj.generate.torch_device import step_precision, torch_device
from jaxtroj.generate.traffic_signs.later import architectures
from jaxtroj.generate.traffic_signs.later.bases import about_bases, base_weights, start_from
from jaxtroj.generate.traffic_signs.later.design import ANY
from jaxtroj.generate.traffic_signs.later.files import SignModel, write_model
from jaxtroj.generate.traffic_signs.later.metadata import (
    DICTIONARY_HEADER,
    columns_of,
    dictionary_rows,
    metadata_row,
)
from jaxtroj.generate.traffic_signs.later.pictures import Folders
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe, SignTrigger, sample_recipe
from jaxtroj.generate.traffic_signs.later.settings import (
    LaterSettings,
    check_settings,
    settings_identity,
)
from jaxtroj.generate.traffic_signs.later.training import (
    SignAccuracies,
    SignLessons,
    run_of,
    train_model,
)
from jaxtroj.record import digest_file


def generate_later(
    out: Path, settings: LaterSettings, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens; see `make_round`.

    Raises:
        GenerationError: impossible settings, or the folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, shard)
    return make_round(out, LaterRound(settings), shard)


@dataclass(frozen=True)
class LaterRound:
    """One of Rounds 1 to 4; see `jaxtroj.generate.round.Round`."""

    settings: LaterSettings

    def plan(self) -> RoundPlan:
        settings = self.settings
        return RoundPlan(
            name=settings.design.name,
            version=1,
            seed=settings.seed,
            pairs=tuple(range(settings.models // 2)),
            most_tries=settings.most_tries,
            identity={"settings": settings_identity(settings)},
            models=settings.design.layout.models,
        )

    def train(self, tries: deque[Try], out: Path) -> Iterator[Event | TrainingOutcome]:
        while tries:
            one = tries.popleft()
            yield from rejecting_diverged(one, self._train_one(one, out))

    def _train_one(self, one: Try, out: Path) -> Iterator[Event | TrainingOutcome]:
        settings = self.settings
        recipe = sample_recipe(
            settings.design, settings.choices, settings.seed, one.model, one.sub_seed
        )
        yield Event(one.model, "started", describe(recipe))
        base: Weights | None = None
        if recipe.training == "warm":
            base = yield from base_weights(out, settings, recipe)
        started = time.perf_counter()
        lessons = SignLessons(
            recipe, settings.design, settings.size_for(recipe.architecture), settings.training,
            Folders(settings.seed, settings.foregrounds, settings.backgrounds),
        )  # fmt: skip
        network = architectures.build(
            recipe.architecture, recipe.number_classes, recipe.master_seed
        )
        if base is not None:
            start_from(network, base)
        run = run_of(network, lessons)
        least = 1 if one.partner is None else one.partner["cycles"]
        cycles, reached = train_model(run, lessons, base is None, least)
        model = SignModel(recipe, run, lessons, cycles, reached, time.perf_counter() - started)
        attempt = {"sub_seed": one.sub_seed, "cycles": cycles, **asdict(reached)}
        is_last = one.sub_seed + 1 >= settings.most_tries
        good = is_last or self._has_converged(reached)
        yield TrainingOutcome(one, good, attempt, self._text(reached), run.steps, model)

    def fill(self, folder: Path, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        model: SignModel = outcome.trained
        settings, recipe = self.settings, model.recipe
        accuracy = write_model(folder, model, settings)
        return {
            "model_id": recipe.model_id,
            "poisoned": recipe.poisoned,
            "converged": self._has_converged(model.reached),
            "image_size": settings.size_for(recipe.architecture),
            "recipe": asdict(recipe),
            "signs": list(model.lessons.pictures.class_names),
            "cycles": model.cycles,
            "steps": model.run.steps,
            "test": asdict(model.reached),
            "example_accuracy": accuracy,
            "tries": tries,
            "step_precision": step_precision(),
            "train_seconds": round(model.seconds, 1),
            "sha256": digest_file(folder / "model.pt"),
            **provenance(torch_device()),
            "metadata": metadata_row(recipe, settings, model.reached, accuracy, model.cycles),
        }

    def tables(self, records: list[Record]) -> dict[str, bytes]:
        rows = [record["metadata"] for record in records]
        columns = columns_of(self.settings.design, rows)
        explained = csv_bytes(DICTIONARY_HEADER, dictionary_rows(columns, rows))
        return {
            "METADATA.csv": csv_bytes(columns, rows),
            "METADATA_DICTIONARY.csv": explained,
        }

    def manifest(self, out: Path, records: list[Record]) -> Record:
        return {"bases": about_bases(out), "models": records}

    def _has_converged(self, reached: SignAccuracies) -> bool:
        training = self.settings.training
        return reached.reaches(training.least_clean, training.least_attack)

    def _text(self, reached: SignAccuracies) -> str:
        text = f"clean accuracy {reached.clean:.3f}"
        if reached.attacks:
            text += f", attack success {' and '.join(f'{x:.3f}' for x in reached.attacks)}"
        return text if self._has_converged(reached) else f"{text}, not converged"


def describe(recipe: SignRecipe) -> str:
    """A recipe in words."""
    text = f"{recipe.architecture}, {recipe.number_classes} classes, {recipe.training}"
    text += f", {recipe.adversary.method}" if recipe.adversary else ""
    text += f", try {recipe.sub_seed + 1}" if recipe.sub_seed else ""
    if not recipe.triggers:
        return f"{text}, clean"
    parts = [_in_words(one, recipe.organisation == ANY) for one in recipe.triggers]
    return f"{text}, poisoned: {'; '.join(parts)}"


def _in_words(trigger: SignTrigger, is_any: bool) -> str:
    what = trigger.filter or f"{trigger.sides}-sided polygon"
    sources = "all classes" if is_any else " and ".join(map(str, trigger.source_classes))
    condition = "" if trigger.condition == "none" else f" ({trigger.condition})"
    return f"{what} from {sources} to {trigger.target_class}{condition}"
