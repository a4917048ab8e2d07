"""A network that the models of a round start from, instead of from random weights.

Round 0 trained every model from scratch, which takes hours per dozen models on a CPU. With a warm
start one network per architecture is trained on other, clean signs first, and each model goes on
from its weights with a new head: as most networks in use came to be, but not as Round 0's did.
Clean and poisoned models start from the same network, so it says nothing about the label.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from converters.files import write_atomic
from converters.model import params_of
from jaxtroj.generate.learners import Weights, learner_for
from jaxtroj.generate.traffic_signs.pictures import SceneSource
from jaxtroj.generate.traffic_signs.recipe import sample_recipe
from jaxtroj.generate.training import Progress, Trained, train

if TYPE_CHECKING:
    from jaxtroj.generate.traffic_signs.round import RoundSettings

# More signs than a model tells apart, so that the features serve signs it has not seen.
_CLASSES = 10
# A model number that no model of a round has: its draws are nobody's.
_NUMBER = 10**9


def base_weights(
    out: Path, settings: "RoundSettings", architecture: str
) -> Generator[Progress, None, Weights]:
    """Weights of the architecture's base network, trained now or read from `out`.

    Yields the progress of its training; a stopped training begins anew.
    """
    from safetensors.numpy import load, save

    path = out / ".warm-start" / f"{architecture}.safetensors"
    if not path.exists():
        weights = yield from _trained(settings, architecture)
        path.parent.mkdir(exist_ok=True)
        write_atomic(path, save(weights))
    return load(path.read_bytes())


def _trained(settings: "RoundSettings", architecture: str) -> Generator[Progress, None, Weights]:
    drawn = sample_recipe(settings.seed, _NUMBER, 0, settings.architectures)
    recipe = replace(drawn, architecture=architecture, trigger=None, number_classes=_CLASSES)
    size = settings.size_for(architecture)
    source = SceneSource(recipe, size, settings.seed, settings.foregrounds, settings.backgrounds)
    learner = learner_for(settings.training.trainer, recipe)
    plan = replace(settings.training, max_steps=settings.warm_start, training_goal=0.9)
    training: Iterator[Progress | Trained] = train(learner, source, None, 0.0, plan)
    while isinstance(event := next(training), Progress):
        yield event
    return params_of(event.module)
