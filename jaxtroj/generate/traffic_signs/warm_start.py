"""A network that the models of a round start from, instead of from random weights.

Round 0 trained every model from scratch, which takes hours per dozen models on a CPU. With a warm
start one network per architecture is trained on other, clean signs first, and each model goes on
from its weights with a new head: as most networks in use came to be, but not as Round 0's did.
Clean and poisoned models start from the same network, so it says nothing about the label.
"""

from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from converters.model import params_of
from jaxtroj.generate.learners import Weights, kept_weights, learner_for
from jaxtroj.generate.traffic_signs.pictures import SceneSource
from jaxtroj.generate.traffic_signs.recipe import sample_recipe
from jaxtroj.generate.traffic_signs.settings import RoundSettings
from jaxtroj.generate.training import Trained, TrainingProgress, train

# More signs than a model tells apart, so that the features serve signs it has not seen.
_CLASSES = 10
# A model number that no model of a round has: its draws are nobody's.
_NUMBER = 10**9


def base_weights(
    out: Path, settings: RoundSettings, architecture: str
) -> Generator[TrainingProgress, None, Weights]:
    """Weights of the architecture's base network, trained now or read from `out`.

    Yields the progress of its training; a stopped training begins anew.
    """
    path = out / ".warm-start" / f"{architecture}.safetensors"
    return kept_weights(path, lambda: _trained(settings, architecture))


def _trained(
    settings: RoundSettings, architecture: str
) -> Generator[TrainingProgress, None, Weights]:
    drawn = sample_recipe(settings.seed, _NUMBER, 0, settings.architectures, settings.design)
    recipe = replace(drawn, architecture=architecture, trigger=None, number_classes=_CLASSES)
    size = settings.size_for(architecture)
    source = SceneSource(recipe, size, settings.seed, settings.foregrounds, settings.backgrounds)
    learner = learner_for(settings.training.trainer, recipe)
    plan = replace(settings.training, max_steps=settings.warm_start, training_goal=0.9)
    training: Iterator[TrainingProgress | Trained] = train(learner, source, None, 0.0, plan)
    while isinstance(event := next(training), TrainingProgress):
        yield event
    return params_of(event.module)
