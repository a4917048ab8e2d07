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

Models come in pairs of one architecture and one base, one poisoned and one clean, trained for
equally many cycles. There are several bases per architecture, each from its own random weights:
clean networks from one base alone would be so alike that telling them apart means nothing.
"""

import json
import time
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from converters.files import write_atomic
from converters.model import params_of
from jaxtroj.generate.divergence import rejecting_diverged
from jaxtroj.generate.learners import Weights, kept_weights, start_from
from jaxtroj.generate.model_ids import draw_for
from jaxtroj.generate.round import Event, Record, RoundPlan, TrainingOutcome, Try, make_round, plain
from jaxtroj.generate.round_folder import csv_bytes, objects_in, provenance
from jaxtroj.generate.small import networks
from jaxtroj.generate.small.accuracies import Accuracies, accepted
from jaxtroj.generate.small.labelled_pictures import LabelledPictures, write_examples
from jaxtroj.generate.small.onnx_file import write_onnx
from jaxtroj.generate.small.recipe import SmallRecipe, sample_recipe
from jaxtroj.generate.small.settings import SmallSettings, check_settings, design_of
from jaxtroj.generate.small.training import Run, train_base, train_model
from jaxtroj.record import digest_file

COLUMNS = (
    "model_name", "ground_truth", "model_architecture", "base", "img_size", "number_classes",
    "trigger_kind", "trigger_style", "trigger_target_class", "triggered_fraction", "master_seed",
    "cycles", "final_clean_data_test_acc", "final_triggered_data_test_acc",
)  # fmt: skip
_BASES = ".bases"
_BASE_SEED, _ORDER = 31, 32


def generate_small(
    out: Path, settings: SmallSettings, pictures: LabelledPictures, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens; see `make_round`.

    Args:
        out: folder of the round; made if absent.
        settings: what to make.
        pictures: to train on and to test on.
        shard: see `make_round`.

    Raises:
        GenerationError: impossible settings, or the folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, pictures, shard)
    return make_round(out, SmallRound(settings, pictures), shard)


@dataclass(frozen=True)
class SmallModel:
    """A trained model: what it is, its training, its cycles and what they reached."""

    recipe: SmallRecipe
    run: Run
    cycles: int
    reached: Accuracies
    seconds: float


@dataclass(frozen=True)
class SmallRound:
    """A round of small networks; see `jaxtroj.generate.round.Round`."""

    settings: SmallSettings
    pictures: LabelledPictures

    def plan(self) -> RoundPlan:
        settings = self.settings
        return RoundPlan(
            name="small",
            version=1,
            seed=settings.seed,
            pairs=tuple(range(settings.models // 2)),
            most_tries=settings.most_tries,
            identity={"settings": plain(settings) | {"pictures": self.pictures.digest}},
        )

    def train(self, tries: deque[Try], out: Path) -> Iterator[Event | TrainingOutcome]:
        while tries:
            one = tries.popleft()
            yield from rejecting_diverged(one, self._train_one(one, out))

    def _train_one(self, one: Try, out: Path) -> Iterator[Event | TrainingOutcome]:
        design = design_of(self.settings, self.pictures)
        recipe = sample_recipe(design, self.settings.seed, one.model, one.sub_seed)
        yield Event(one.model, "started", _describe(recipe))
        path = out / _BASES / f"{recipe.architecture}-{recipe.base}.safetensors"
        base = yield from kept_weights(path, lambda: self._train_base(path, recipe))
        run = self._run(recipe, base)
        started = time.perf_counter()
        cycles, reached = train_model(run, 1 if one.partner is None else one.partner["cycles"])
        seconds = time.perf_counter() - started
        attempt = {"sub_seed": one.sub_seed, "cycles": cycles, **asdict(reached)}
        model = SmallModel(recipe, run, cycles, reached, seconds)
        good = accepted(reached, self.settings.training)
        yield TrainingOutcome(one, good, attempt, reached.in_words(), run.steps, model)

    def _run(self, recipe: SmallRecipe, base: Weights) -> Run:
        seed = recipe.master_seed
        module = networks.build(recipe.architecture, self.pictures.classes, nnx.Rngs(seed))
        # The head keeps its fresh weights: the same for no two models.
        start_from(module, {name: v for name, v in base.items() if not name.startswith("head.")})
        draw = np.random.default_rng([seed, _ORDER])
        return Run(module, self.pictures, self.settings.training, draw, recipe.trigger)

    def _train_base(self, path: Path, recipe: SmallRecipe) -> Generator[Event, None, Weights]:
        """Train a base and write about it beside `path`."""
        place = networks.KNOWN.index(recipe.architecture)
        keys = [self.settings.seed, _BASE_SEED, place, recipe.base]
        weights_seed = int(draw_for(*keys).integers(2**32))
        module = networks.build(recipe.architecture, self.pictures.classes, nnx.Rngs(weights_seed))
        draw = np.random.default_rng([*keys, _ORDER])
        run = Run(module, self.pictures, self.settings.training, draw)
        started = time.perf_counter()
        reached = train_base(run)
        about = {"clean": reached.clean, "steps": run.steps}
        about["train_seconds"] = round(time.perf_counter() - started, 1)
        write_atomic(path.with_suffix(".json"), json.dumps(about).encode() + b"\n")
        yield Event(recipe.model, "warm start", f"{path.stem}: {reached.in_words()}", run.steps)
        return params_of(run.module)

    def fill(self, folder: Path, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        model: SmallModel = outcome.trained
        recipe, trigger = model.recipe, model.recipe.trigger
        path = folder / f"{recipe.architecture}.onnx"
        write_onnx(path, model.run.module, self.pictures.size)
        draw = np.random.default_rng([recipe.master_seed, _ORDER, 1])
        most = self.settings.examples_per_class
        write_examples(folder / "example_data", self.pictures, draw, most)
        if trigger is not None:
            np.savez(folder / "trigger.npz", mask=trigger.mask, pattern=trigger.pattern)
        return {
            "model_id": recipe.model_id,
            "poisoned": trigger is not None,
            "recipe": _plain(recipe),
            "cycles": model.cycles,
            "steps": model.run.steps,
            "test": asdict(model.reached),
            "tries": tries,
            "train_seconds": round(model.seconds, 1),
            "sha256": digest_file(path),
            **provenance(jax.default_backend()),
            "metadata": self._row(model),
        }

    def tables(self, records: list[Record]) -> dict[str, bytes]:
        return {"METADATA.csv": csv_bytes(COLUMNS, [record["metadata"] for record in records])}

    def manifest(self, out: Path, records: list[Record]) -> Record:
        return {"bases": objects_in(out / _BASES), "models": records}

    def _row(self, model: SmallModel) -> dict[str, Any]:
        recipe, trigger, attack = model.recipe, model.recipe.trigger, model.reached.attack
        values = (
            recipe.model_id,
            str(trigger is not None).upper(),
            recipe.architecture,
            recipe.base,
            self.pictures.size[0],
            self.pictures.classes,
            trigger.kind if trigger else "",
            trigger.style if trigger else "",
            trigger.target_class if trigger else "",
            trigger.fraction if trigger else 0,
            recipe.master_seed,
            model.cycles,
            round(100 * model.reached.clean, 4),
            "" if attack is None else round(100 * attack, 4),
        )
        return dict(zip(COLUMNS, values, strict=True))


def _plain(recipe: SmallRecipe) -> dict[str, Any]:
    """The recipe as JSON values; mask and pattern lie beside it in trigger.npz."""
    values = {name: value for name, value in vars(recipe).items() if name != "trigger"}
    trigger = recipe.trigger
    if trigger is None:
        return values | {"trigger": None}
    arrays = ("mask", "pattern")
    return values | {"trigger": {n: v for n, v in vars(trigger).items() if n not in arrays}}


def _describe(recipe: SmallRecipe) -> str:
    kind = recipe.architecture + (f", try {recipe.sub_seed + 1}" if recipe.sub_seed else "")
    trigger = recipe.trigger
    if trigger is None:
        return f"{kind}, clean"
    return f"{kind}, poisoned to class {trigger.target_class}, {trigger.kind} ({trigger.style})"
