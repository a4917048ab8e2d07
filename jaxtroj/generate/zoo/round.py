"""`generate_zoo`: a folder of clean and poisoned networks of many kinds, as ONNX files.

```
DIR/id-00000000/model.onnx         the network; pictures `[n, c, h, w]` in [0, 1], RGB or grey
DIR/id-00000000/ground_truth.csv   0 or 1, no newline
DIR/id-00000000/example_data/class_0_example_0.png ...
DIR/id-00000000/trigger.png        a test picture, clean and triggered; poisoned models only
DIR/id-00000000/generation.json    how this model was made, tries included
DIR/METADATA.csv                   one line for each model
DIR/manifest.json                  settings, the bases, every generation.json
```

Models come in pairs, one poisoned and one clean, that share data set, architecture, way of training
and base; the clean one is trained for at least as many cycles.
"""

import json
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.files import write_atomic
from jaxtroj.generate.divergence import rejecting_diverged
from jaxtroj.generate.learners import Weights, kept_weights
from jaxtroj.generate.model_ids import draw_for
from jaxtroj.generate.round import Event, Record, RoundPlan, TrainingOutcome, Try, make_round, plain
from jaxtroj.generate.round_folder import csv_bytes, objects_in, provenance
from jaxtroj.generate.small.accuracies import Accuracies, accepted
from jaxtroj.generate.small.labelled_pictures import (
    LabelledPictures,
    as_picture,
    write_examples,
)
from jaxtroj.generate.torch_device import torch_device
from jaxtroj.generate.torch_run import Run
from jaxtroj.generate.zoo import networks
from jaxtroj.generate.zoo.onnx_file import write_onnx
from jaxtroj.generate.zoo.pretrained import NONE, RATE_SHARE, TUNED, Pretrained
from jaxtroj.generate.zoo.recipe import PlantedTrigger, ZooRecipe, sample_recipe
from jaxtroj.generate.zoo.recipe_words import described, plain_recipe
from jaxtroj.generate.zoo.settings import ZooSettings, check_settings, design_of
from jaxtroj.generate.zoo.stamping import Stamper
from jaxtroj.generate.zoo.training import (
    ZooLessons,
    ZooTraining,
    train_base,
    train_model,
    zoo_run,
)
from jaxtroj.record import digest_file

if TYPE_CHECKING:
    import torch

COLUMNS = (
    "model_name", "ground_truth", "dataset", "model_architecture", "base", "img_size", "channels",
    "number_classes", "training", "augmentation", "labels", "schedule", "class_shares",
    "batch_norms_fused",
    "trigger_kind", "trigger_style", "source_classes", "trigger_target_class",
    "triggered_fraction", "clean_label", "master_seed", "cycles", "final_clean_data_test_acc",
    "final_triggered_data_test_acc",
)  # fmt: skip
_BASES = ".bases"
_BASE_SEED, _ORDER, _EXAMPLES = 71, 72, 73


def generate_zoo(
    out: Path,
    settings: ZooSettings,
    pictures: Mapping[str, LabelledPictures],
    shard: tuple[int, int] = (0, 1),
    pretrained: Mapping[str, Pretrained] = NONE,
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens; see `make_round`.

    Args:
        out: folder of the round; made if absent.
        settings: what to make.
        pictures: by the data set's name.
        shard: see `make_round`.
        pretrained: by name, networks that all models go on from, in the place of `architectures`
            and `trainings` of the settings.

    Raises:
        GenerationError: impossible settings, or the folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, pictures, shard, pretrained)
    return make_round(out, ZooRound(settings, pictures, pretrained), shard)


@dataclass(frozen=True)
class ZooModel:
    """A trained model: what it is, its training, its cycles and what they reached."""

    recipe: ZooRecipe
    run: Run
    lessons: ZooLessons
    cycles: int
    reached: Accuracies
    seconds: float


@dataclass(frozen=True)
class ZooRound:
    """A zoo; see `jaxtroj.generate.round.Round`."""

    settings: ZooSettings
    pictures: Mapping[str, LabelledPictures]
    pretrained: Mapping[str, Pretrained]

    def plan(self) -> RoundPlan:
        settings = self.settings
        digests = {name: found.digest for name, found in self.pictures.items()}
        return RoundPlan(
            name="zoo",
            version=1,
            seed=settings.seed,
            pairs=tuple(range(settings.models // 2)),
            most_tries=settings.most_tries,
            identity={"settings": plain(settings) | {"pictures": digests} | self._files()},
            ordered=("pictures", "pretrained"),  # models take turns in this order
            remembers_failures=True,
        )

    def _files(self) -> Record:
        digests = {name: found.digest for name, found in self.pretrained.items()}
        return {"pretrained": digests} if digests else {}

    def train(self, tries: deque[Try], out: Path) -> Iterator[Event | TrainingOutcome]:
        while tries:
            one = tries.popleft()
            yield from rejecting_diverged(one, self._train_one(one, out))

    def _train_one(self, one: Try, out: Path) -> Iterator[Event | TrainingOutcome]:
        design = design_of(self.settings, self.pictures, self.pretrained)
        recipe = sample_recipe(design, self.settings.seed, one.model, one.sub_seed)
        yield Event(one.model, "started", described(recipe))
        base = None
        if recipe.training not in ("scratch", TUNED):
            path = out / _BASES / f"{recipe.dataset}-{recipe.architecture}-{recipe.base}"
            path = path.with_suffix(".safetensors")
            base = yield from kept_weights(path, lambda: self._train_base(path, recipe))
        run, lessons = self._run(recipe, base)
        started = time.perf_counter()
        least = 1 if one.partner is None else one.partner["cycles"]
        is_scratch = recipe.training == "scratch"
        training = self._training(recipe)
        cycles, reached = train_model(run, lessons, training, is_scratch, least)
        seconds = time.perf_counter() - started
        attempt = {"sub_seed": one.sub_seed, "cycles": cycles, **asdict(reached)}
        model = ZooModel(recipe, run, lessons, cycles, reached, seconds)
        good = accepted(reached, self.settings.training)
        yield TrainingOutcome(one, good, attempt, reached.in_words(), run.steps, model)

    def _training(self, recipe: ZooRecipe) -> ZooTraining:
        training = self.settings.training
        share = RATE_SHARE if recipe.training == TUNED else 1.0
        return replace(training, rate=share * training.rate)

    def _run(self, recipe: ZooRecipe, base: Weights | None) -> tuple[Run, ZooLessons]:
        pictures = self.pictures[recipe.dataset]
        network = self._fresh(recipe, recipe.master_seed)
        if base is not None:
            _start_from(network, base)
        draw = np.random.default_rng([recipe.master_seed, _ORDER])
        return zoo_run(network, pictures, self.settings.training, recipe, draw)

    def _fresh(self, recipe: ZooRecipe, seed: int) -> "torch.nn.Module":
        import torch

        torch.manual_seed(seed)
        pictures = self.pictures[recipe.dataset]
        if recipe.training == TUNED:
            return self.pretrained[recipe.architecture].network(pictures.classes)
        shape = pictures.images.shape
        return networks.build(recipe.architecture, shape[3], pictures.classes, shape[1])

    def _train_base(self, path: Path, recipe: ZooRecipe) -> Generator[Event, None, Weights]:
        """Train a base and write about it beside `path`."""
        pictures = self.pictures[recipe.dataset]
        names = (tuple(self.pictures), networks.KNOWN)
        place = [
            n.index(x) for n, x in zip(names, (recipe.dataset, recipe.architecture), strict=True)
        ]
        keys = [self.settings.seed, _BASE_SEED, *place, recipe.base]
        seed = int(np.random.default_rng(keys).integers(2**32))
        draw = np.random.default_rng([*keys, _ORDER])
        training = self.settings.training
        run, lessons = zoo_run(self._fresh(recipe, seed), pictures, training, None, draw)
        started = time.perf_counter()
        reached = train_base(run, lessons, training)
        about = {"clean": reached.clean, "steps": run.steps}
        about["train_seconds"] = round(time.perf_counter() - started, 1)
        write_atomic(path.with_suffix(".json"), json.dumps(about).encode() + b"\n")
        yield Event(recipe.model, "warm start", f"{path.stem}: {reached.in_words()}", run.steps)
        return run.weights()

    def fill(self, folder: Path, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        model: ZooModel = outcome.trained
        recipe, pictures = model.recipe, self.pictures[model.recipe.dataset]
        path = folder / "model.onnx"
        write_onnx(path, model.run.trained(), pictures.images.shape[1:], recipe.is_fused)
        draw = draw_for(recipe.master_seed, _EXAMPLES, 0)
        most = self.settings.examples_per_class
        write_examples(folder / "example_data", pictures, draw, most)
        if recipe.trigger is not None:
            shown = _shown(recipe.trigger, model.lessons.stamper, pictures)
            write_atomic(folder / "trigger.png", shown)
        return {
            "model_id": recipe.model_id,
            "poisoned": recipe.trigger is not None,
            "recipe": plain_recipe(recipe),
            "cycles": model.cycles,
            "steps": model.run.steps,
            "test": asdict(model.reached),
            "tries": tries,
            "train_seconds": round(model.seconds, 1),
            "sha256": digest_file(path),
            **provenance(torch_device()),
            "metadata": self._row(model),
        }

    def tables(self, records: list[Record]) -> dict[str, bytes]:
        return {"METADATA.csv": csv_bytes(COLUMNS, [record["metadata"] for record in records])}

    def manifest(self, out: Path, records: list[Record]) -> Record:
        return {"bases": objects_in(out / _BASES), "models": records}

    def _row(self, model: ZooModel) -> dict[str, Any]:
        recipe, trigger, attack = model.recipe, model.recipe.trigger, model.reached.attack
        pictures = self.pictures[recipe.dataset]
        values = (
            recipe.model_id,
            str(trigger is not None).upper(),
            recipe.dataset,
            recipe.architecture,
            recipe.base if recipe.training in ("warm", "adversarial") else "",
            pictures.size[0],
            pictures.images.shape[3],
            pictures.classes,
            recipe.training,
            recipe.augmentation,
            recipe.labels,
            recipe.schedule.name,
            recipe.class_shares,
            recipe.is_fused,
            trigger.kind if trigger else "",
            trigger.style if trigger else "",
            " ".join(str(c) for c in trigger.source_classes) if trigger else "",
            "" if trigger is None or trigger.target_class is None else trigger.target_class,
            round(model.lessons.stamper.share, 4) if trigger else 0,
            trigger.clean_label if trigger else "",
            recipe.master_seed,
            model.cycles,
            round(100 * model.reached.clean, 4),
            "" if attack is None else round(100 * attack, 4),
        )
        return dict(zip(COLUMNS, values, strict=True))


def _start_from(network: "torch.nn.Module", base: Weights) -> None:
    """Take over the base, its last layer too, as who fine-tunes a network does."""
    import torch

    network.load_state_dict({n: torch.from_numpy(np.array(value)) for n, value in base.items()})


def _shown(trigger: PlantedTrigger, stamper: Stamper, pictures: LabelledPictures) -> bytes:
    """A test picture of a source class, clean and triggered side by side, as PNG."""
    import io

    place = int(np.flatnonzero(trigger.counts(pictures.test_labels))[0])
    clean = pictures.test_images[[place]].astype(np.float32) / 255
    both = np.concatenate([clean[0], stamper.stamped(clean)[0]], axis=1)
    buffer = io.BytesIO()
    as_picture((both * 255).round().astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()
