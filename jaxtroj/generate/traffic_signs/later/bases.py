"""Networks that warm models start from: trained on many clean signs that no model has.

They may learn on smaller pictures than the models do: 64 px have a twelfth of the pixels of 224.
Clean and poisoned models of a pair start from the same one, so it says nothing about the label.
"""

import json
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.files import write_atomic
from jaxtroj.generate.learners import Weights, kept_weights
from jaxtroj.generate.round import Event
from jaxtroj.generate.round_folder import objects_in
from jaxtroj.generate.traffic_signs.later import architectures
from jaxtroj.generate.traffic_signs.later.pictures import Folders
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe
from jaxtroj.generate.traffic_signs.later.settings import LaterSettings
from jaxtroj.generate.traffic_signs.later.training import SignLessons, run_of

if TYPE_CHECKING:
    import torch

FOLDER = ".warm-start"
_CLASSES, _BASE_SEED = 40, 99


def base_weights(
    out: Path, settings: LaterSettings, recipe: SignRecipe
) -> Generator[Event, None, Weights]:
    """Weights of a recipe's base, by torch name: read from the round's folder, or trained now."""
    path = out / FOLDER / f"{recipe.architecture}-{recipe.base}.safetensors"
    return kept_weights(path, lambda: _trained(path, settings, recipe))


def start_from(network: "torch.nn.Module", weights: Weights) -> None:
    """Take over every tensor but the head's, which keeps its fresh weights."""
    import torch

    head = f"{architectures.head_of(network)}."
    kept = {n: torch.from_numpy(np.array(v)) for n, v in weights.items() if not n.startswith(head)}
    network.load_state_dict(kept, strict=False)


def about_bases(out: Path) -> dict[str, dict]:
    """What is known of the bases of a folder, by name."""
    return objects_in(out / FOLDER)


def _trained(
    path: Path, settings: LaterSettings, recipe: SignRecipe
) -> Generator[Event, None, Weights]:
    own = _recipe(settings, recipe)
    started = time.perf_counter()
    side = settings.base_size or settings.size_for(own.architecture)
    lessons = SignLessons(
        own, settings.design, side, settings.training,
        Folders(settings.seed, settings.foregrounds, settings.backgrounds),
    )  # fmt: skip
    network = architectures.build(own.architecture, own.number_classes, own.master_seed)
    run = run_of(network, lessons)
    known, training = architectures.ARCHITECTURES[own.architecture], settings.training
    run.phase(known.steps * training.base_steps, training.rate * known.rate, True)
    clean = lessons.test(run.classes).clean
    seconds = round(time.perf_counter() - started, 1)
    about = {"clean": clean, "steps": run.steps, "seed": own.master_seed, "train_seconds": seconds}
    write_atomic(path.with_suffix(".json"), json.dumps(about).encode() + b"\n")
    text = f"{path.stem}: clean accuracy {clean:.3f} of {own.number_classes} classes"
    yield Event(recipe.model, "warm start", text, run.steps)
    return run.weights()


def _recipe(settings: LaterSettings, recipe: SignRecipe) -> SignRecipe:
    """A clean model of many signs, which neither the model nor the training of `recipe` changes."""
    design = settings.design
    known = tuple(architectures.ARCHITECTURES)
    key = [settings.seed, _BASE_SEED, known.index(recipe.architecture), recipe.base]
    most = max(design.class_levels) + design.class_spread[1]
    return SignRecipe(
        model=recipe.model,
        sub_seed=0,
        architecture=recipe.architecture,
        class_level=_CLASSES,
        number_classes=_CLASSES if settings.foregrounds is None else most,
        training="scratch",
        base=recipe.base,
        organisation="",
        triggers=(),
        adversary=None,
        sign_areas=design.sign_areas,
        rain_probability=0.1,
        fog_probability=0.1,
        examples=1,
        master_seed=int(np.random.default_rng(key).integers(2**32)),
    )
