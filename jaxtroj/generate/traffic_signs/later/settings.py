"""What Rounds 1 to 4 are made with, what is impossible, and what must agree to go on."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jaxtroj.generate.round import check_sizes, plain, refuse
from jaxtroj.generate.traffic_signs.later.architectures import ARCHITECTURES
from jaxtroj.generate.traffic_signs.later.design import RoundDesign
from jaxtroj.generate.traffic_signs.later.recipe import TRAININGS, Choices, sample_recipe
from jaxtroj.generate.traffic_signs.later.training import SignTraining
from jaxtroj.generate.traffic_signs.settings import folder_identity

_COUNTS = ("bases", "base_size", "image_size", "most_tries")
_TRAINING_COUNTS = (
    "base_steps", "batch_size", "cycle_steps", "most_cycles", "pictures", "tests"
)  # fmt: skip


@dataclass(frozen=True)
class LaterSettings:
    """What a round is made of.

    Attributes:
        design: which round it is.
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        image_size: side of what networks take, pixels; examples of Round 2 on are larger.
        inception_size: the same for Inception v3; None for `image_size`.
        architectures: by NIST's keys; None for all of the round.
        foregrounds, backgrounds: folders of real pictures; None draws them.
        examples_per_class: instead of the round's numbers.
        most_tries: trainings of a model before one that has not converged is kept.
        trainings: ways of training, in the shares in which they come.
        bases: networks per architecture that warm models start from.
        base_size: side of what these learn on, pixels; None for that of the models.
        adversaries: kinds of adversarial training; None for all of the round's.
        training: how models are trained.
    """

    design: RoundDesign
    seed: int
    models: int
    image_size: int = 224
    inception_size: int | None = None
    architectures: tuple[str, ...] | None = None
    foregrounds: Path | None = None
    backgrounds: Path | None = None
    examples_per_class: int | None = None
    most_tries: int = 2
    trainings: tuple[str, ...] = TRAININGS
    bases: int = 1
    base_size: int | None = None
    adversaries: tuple[str, ...] | None = None
    training: SignTraining = field(default_factory=SignTraining)

    def size_for(self, architecture: str) -> int:
        """Side in pixels of what an architecture takes."""
        own = self.inception_size if architecture == "inceptionv3" else None
        return self.image_size if own is None else own

    @property
    def choices(self) -> Choices:
        """What recipes are drawn with."""
        names = self.design.architectures if self.architectures is None else self.architectures
        return Choices(names, self.trainings, self.bases, self.examples_per_class, self.adversaries)


def check_settings(settings: LaterSettings, shard: tuple[int, int] = (0, 1)) -> None:
    """Raises GenerationError for what cannot be generated."""
    given = {name: getattr(settings, name) for name in _COUNTS}
    counts = {name: value for name, value in given.items() if value is not None}
    counts |= {name: getattr(settings.training, name) for name in _TRAINING_COUNTS}
    wrong = check_sizes(settings, counts, shard)
    if settings.training.pictures < settings.training.batch_size:
        wrong.append(
            f"pictures must be at least the {settings.training.batch_size} of a batch, got"
            f" {settings.training.pictures}"
        )
    refuse(wrong)
    sample_recipe(settings.design, settings.choices, settings.seed, 0)  # checks the names
    for name in settings.choices.architectures:
        size, least = settings.size_for(name), ARCHITECTURES[name].least_pixels
        size = min(size, settings.base_size or size)
        if size < least:
            wrong.append(f"{name} needs pictures of at least {least} px, got {size}")
    refuse(wrong)


def settings_identity(settings: LaterSettings) -> dict[str, Any]:
    """What must agree for two runs to work on one folder; no paths, no number of models.

    The design is not among it: the manifest names the round.
    """
    values = plain(replace(settings, foregrounds=None, backgrounds=None))
    del values["design"]
    for name in ("adversaries", "base_size"):
        if values[name] is None:
            del values[name]  # as in folders made before there was the choice
    folders = ("foregrounds", "backgrounds")
    return values | {name: folder_identity(getattr(settings, name)) for name in folders}
