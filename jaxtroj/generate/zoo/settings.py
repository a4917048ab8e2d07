"""What a zoo is made with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jaxtroj.generate.round import check_sizes, refuse
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.zoo import networks
from jaxtroj.generate.zoo.class_shares import AS_THEY_ARE
from jaxtroj.generate.zoo.label_mixing import HARD
from jaxtroj.generate.zoo.pretrained import NONE, TUNED, Pretrained
from jaxtroj.generate.zoo.recipe import (
    BASE_AUGMENTATION,
    SOURCES,
    TRAININGS,
    Pictures,
    ZooDesign,
    sample_recipe,
)
from jaxtroj.generate.zoo.schedules import FALLING
from jaxtroj.generate.zoo.training import ZooTraining
from jaxtroj.generate.zoo.triggers import MAKERS

ARCHITECTURES = networks.KNOWN[: networks.KNOWN.index("resnet18")]
"""What a zoo has where nothing is said: a seed keeps its networks when more become known."""


@dataclass(frozen=True)
class ZooSettings:
    """Settings of `generate_zoo`; see `recipe.ZooDesign` for what is not said here.

    Attributes:
        seed: identity of the zoo; models: how many there are, half of them poisoned.
        examples_per_class: clean pictures that lie beside a model; pictures that a model gets
            wrong may be among them.
        most_tries: trainings of a model before its pair is given up.
    """

    seed: int = 0
    models: int = 240
    architectures: tuple[str, ...] = ARCHITECTURES
    per_dataset: int = 4
    kinds: tuple[str, ...] = tuple(MAKERS)
    trainings: tuple[str, ...] = TRAININGS
    augmentations: tuple[str, ...] = (BASE_AUGMENTATION,)
    labels: tuple[str, ...] = (HARD,)
    schedules: tuple[str, ...] = (FALLING,)
    sources: tuple[int, ...] = SOURCES
    class_shares: tuple[str, ...] = (AS_THEY_ARE,)
    bases: int = 1
    fused: float = 0.25
    examples_per_class: int = 10
    most_tries: int = 1
    training: ZooTraining = field(default_factory=ZooTraining)


def check_settings(
    settings: ZooSettings,
    pictures: Mapping[str, LabelledPictures],
    shard: tuple[int, int],
    pretrained: Mapping[str, Pretrained] = NONE,
) -> None:
    """Raises GenerationError when a setting is impossible."""
    names = ("bases", "examples_per_class", "most_tries", "per_dataset")
    counts = {name: getattr(settings, name) for name in names}
    names = ("batch_size", "base_steps", "cycle_steps", "most_cycles", "tests")
    counts |= {name: getattr(settings.training, name) for name in names}
    wrong = check_sizes(settings, counts, shard)
    if settings.training.batch_size == 1:
        wrong.append("batch_size must be at least 2, as batch norms compare its pictures; got 1")
    if not pictures:
        wrong.append("a zoo needs at least one data set")
    least = networks.LEAST_PIXELS
    wrong += [
        f"pictures of {name} must have at least {least} px on each side, got"
        f" {found.size[0]} x {found.size[1]}"
        for name, found in pictures.items()
        if min(found.size) < least
    ]
    wrong += _against_pretrained(settings, pictures) if pretrained else []
    wrong += [] if wrong else _unfit(pictures, pretrained)  # runs the networks
    if not pretrained and TUNED in settings.trainings:
        wrong.append(f"training {TUNED} needs a pretrained network")
    refuse(wrong)
    sample_recipe(design_of(settings, pictures, pretrained), settings.seed, 0)  # checks the names


def _against_pretrained(
    settings: ZooSettings, pictures: Mapping[str, LabelledPictures]
) -> list[str]:
    """What is asked for and cannot be had of pretrained networks."""
    usual = ZooSettings()
    names = [n for n in ("architectures", "trainings") if getattr(settings, n) != getattr(usual, n)]
    wrong = [f"{name} cannot be chosen where networks are pretrained" for name in names]
    grey = [name for name, found in pictures.items() if found.images.shape[3] != 3]
    return wrong + [f"pictures of {name} must be RGB for pretrained networks" for name in grey]


def _unfit(
    pictures: Mapping[str, LabelledPictures], pretrained: Mapping[str, Pretrained]
) -> list[str]:
    """Which pretrained networks cannot take which pictures."""
    wrong = []
    for name, network in pretrained.items():
        size = network.size
        made = f" of {size[0]} x {size[1]} px" if size else " of another size"
        for dataset, found in pictures.items():
            height, width = found.images.shape[1:3]
            if why := network.trouble_with(height, width):
                wrong.append(
                    f"pretrained {name} cannot go on with pictures of {dataset}, {height} x {width}"
                    f" px ({why}); its file is made for pictures{made}: give such, or export it for"
                    " these, with an open batch"
                )
    return wrong


def design_of(
    settings: ZooSettings,
    pictures: Mapping[str, LabelledPictures],
    pretrained: Mapping[str, Pretrained] = NONE,
) -> ZooDesign:
    """What recipes are drawn from; of pretrained networks alone where there are any."""
    own = tuple(pretrained)
    return ZooDesign(
        datasets={n: Pictures(p.classes, p.images.shape[1:]) for n, p in pictures.items()},
        architectures=own or settings.architectures,
        per_dataset=settings.per_dataset,
        kinds=settings.kinds,
        trainings=(TUNED,) if own else settings.trainings,
        augmentations=settings.augmentations,
        labels=settings.labels,
        schedules=settings.schedules,
        sources=settings.sources,
        bases=settings.bases,
        fused=settings.fused,
        class_shares=settings.class_shares,
        known=own or networks.KNOWN,
    )
