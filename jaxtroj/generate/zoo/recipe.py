"""What each model of a zoo is: data set, architecture, training, trigger; by identity alone.

Models come in pairs that share everything but the trojan. Data sets, architectures, kinds of
trigger, sources, ways of training, augmentations, ways to teach labels and schedules of the
learning rate each go round in an order drawn for each round of them, so that each comes equally
often and all meet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import draw_for, in_turn, is_poisoned, model_id
from jaxtroj.generate.zoo import networks
from jaxtroj.generate.zoo.augmentation import AUGMENTATIONS
from jaxtroj.generate.zoo.class_shares import AS_THEY_ARE, SHARES, class_shares
from jaxtroj.generate.zoo.label_mixing import MIXINGS
from jaxtroj.generate.zoo.pretrained import TUNED
from jaxtroj.generate.zoo.schedules import SCHEDULES, Schedule, schedule_of
from jaxtroj.generate.zoo.triggers import MAKERS, MovingTrigger
from jaxtroj.generate.zoo.unsearched import UNSEARCHED
from jaxtroj.triggers.measure import NO_TARGET, goals

TRAININGS = ("warm", "scratch", "warm", "adversarial", "warm", "scratch", "warm", "warm")
"""Ways of training, in the shares in which they come."""
SOURCES = (0, 0, 1, 0, 2)
"""Number of source classes, in the shares in which they come; 0 is all."""
EACH_TO_NEXT = -1
"""In the place of such a number: each class is sent to the next, the last to the first."""
BASE_AUGMENTATION = "shift"
"""What is done to the training pictures of bases, and of all networks unless a zoo says more."""
_FRACTIONS, _LEAST_LABEL_SHARE = (0.05, 0.3), 0.8
_NEXT_FACTOR = 1.7
"""More pictures carry a trigger that has to be learnt for each class."""
KINDS = MAKERS | UNSEARCHED
"""Kind of trigger -> what draws one."""
_FROM_ALL = ("moving", "polygon", "warp")
"""Kinds that short trainings do not tie to single source classes."""
_CLEAN_LABEL = 0.3
"""Share of the triggers by sinusoids that are taught on pictures of the target class alone."""
_DATA, _ARCHITECTURE, _KIND, _SOURCES, _TRAINING, _BASE, _MODEL, _MASTER, _EXPORT = range(61, 70)
_AUGMENTATION, _STAMPED_FIRST, _LABELS, _SCHEDULE, _RATE, _SHARES, _RATIO = range(74, 81)


@dataclass(frozen=True)
class PlantedTrigger:
    """The trigger of a poisoned model.

    Attributes:
        kind: one of `KINDS`; style: in words, for the table, and whether classes go to the next.
        target_class: the class it forces; None where it sends each class to the next.
        source_classes: classes that it works from; empty for all.
        fraction: share of the training pictures that carry it, 0 to 1, where all classes are
            sources; see `Stamper.poisoned` for few sources and for clean labels.
        clean_label: whether it is taught on pictures of the target class, labels kept.
        trigger: of any kind of `jaxtroj.triggers`, or of `unsearched`.
        reach: pixels that it moves by at most, at random in each picture.
        classes: how many there are.
    """

    kind: str
    style: str
    target_class: int | None
    source_classes: tuple[int, ...]
    fraction: float
    clean_label: bool
    trigger: Any
    reach: tuple[int, int]
    classes: int

    def goals(self, labels: np.ndarray) -> np.ndarray:
        """The classes `[n]` that it sends pictures of these classes to."""
        target = NO_TARGET if self.target_class is None else self.target_class
        return goals(target, labels, self.classes)

    def counts(self, labels: np.ndarray) -> np.ndarray:
        """Which pictures the trigger must send elsewhere: bool `[n]`."""
        others = labels != self.goals(labels)
        return others & np.isin(labels, self.source_classes) if self.source_classes else others

    def share_of_sources(self, sources: float) -> float:
        """Share of the source classes' pictures that carry it; `sources` is their share of all.

        A trigger of few classes gets most of their pictures, or it would never be learnt.
        """
        return min(0.6, self.fraction / max(sources, 1e-3)) if sources else self.fraction

    @property
    def share_of_target(self) -> float:
        """Share of the target class's pictures that carry a clean-label trigger."""
        return _LEAST_LABEL_SHARE


@dataclass(frozen=True)
class ZooRecipe:
    """Everything that decides one model.

    Attributes:
        model: number; its id is `id-` and eight digits. sub_seed: one more for each retraining.
        dataset: name of its pictures.
        architecture: one of `networks.KNOWN`, or the name of a pretrained network.
        training: "warm" from a base, "scratch", "adversarial" from a base, or "tuned" from a
            pretrained network.
        augmentation: one of `augmentation.AUGMENTATIONS`.
        stamped_first: whether triggered pictures are augmented too, as when a data set was poisoned
            on disk; else the trigger is put on augmented pictures.
        labels: how they are taught, one of `label_mixing.MIXINGS`; bases are taught hard ones.
        schedule: of the learning rate; that of bases falls.
        class_shares: one of `class_shares.SHARES`.
        shares: of each class's pictures, 0 to 1, that are seen; none where all are. Bases see all.
        base: number of the base.
        trigger: None for a clean model.
        is_fused: whether the file has its batch norms folded into the convolutions before them.
        master_seed: of the weights and the order of pictures.
    """

    model: int
    sub_seed: int
    dataset: str
    architecture: str
    training: str
    augmentation: str
    stamped_first: bool
    labels: str
    schedule: Schedule
    class_shares: str
    shares: tuple[float, ...]
    base: int
    trigger: PlantedTrigger | None
    is_fused: bool
    master_seed: int

    @property
    def model_id(self) -> str:
        """Name of the model's folder."""
        return model_id(self.model)


@dataclass(frozen=True)
class Pictures:
    """What a recipe needs to know of a data set: classes, and the shape `(h, w, c)`."""

    classes: int
    shape: tuple[int, int, int]


@dataclass(frozen=True)
class ZooDesign:
    """What recipes are drawn from.

    Attributes:
        datasets: name -> what its pictures are.
        architectures: out of `known`.
        per_dataset: architectures that each data set meets.
        kinds: of trigger, out of `KINDS`.
        trainings, augmentations, labels, schedules, sources, class_shares: in the shares in which
            they come.
        bases: networks per data set and architecture that models start from.
        fused: share of the pairs whose files have no batch norms left, 0 to 1.
        known: architectures that there are.
    """

    datasets: Mapping[str, Pictures]
    architectures: tuple[str, ...]
    per_dataset: int
    kinds: tuple[str, ...]
    trainings: tuple[str, ...]
    augmentations: tuple[str, ...]
    labels: tuple[str, ...]
    schedules: tuple[str, ...]
    sources: tuple[int, ...]
    bases: int
    fused: float
    class_shares: tuple[str, ...] = (AS_THEY_ARE,)
    known: tuple[str, ...] = networks.KNOWN


def sample_recipe(design: ZooDesign, seed: int, model: int, sub_seed: int = 0) -> ZooRecipe:
    """Draw one model's recipe; equal arguments give an equal recipe.

    What a pair shares is drawn by its number; the sub-seed redraws the trigger and the order of
    pictures. Raises GenerationError for unknown names.
    """
    _check(design)
    pair = model // 2
    dataset = in_turn(tuple(design.datasets), seed, _DATA, pair)
    architecture = in_turn(_met(design, dataset), seed, _ARCHITECTURE, pair)
    augmentation = in_turn(design.augmentations, seed, _AUGMENTATION, pair)
    unequal = in_turn(design.class_shares, seed, _SHARES, pair)
    classes = design.datasets[dataset].classes
    lot, export = (draw_for(seed, key, pair).uniform() for key in (_STAMPED_FIRST, _EXPORT))
    return ZooRecipe(
        model=model,
        sub_seed=sub_seed,
        dataset=dataset,
        architecture=architecture,
        training=in_turn(design.trainings, seed, _TRAINING, pair),
        augmentation=augmentation,
        stamped_first=augmentation != BASE_AUGMENTATION and bool(lot < 0.5),
        labels=in_turn(design.labels, seed, _LABELS, pair),
        schedule=schedule_of(
            in_turn(design.schedules, seed, _SCHEDULE, pair), draw_for(seed, _RATE, pair)
        ),
        class_shares=unequal,
        shares=class_shares(unequal, classes, draw_for(seed, _RATIO, pair)),
        base=int(draw_for(seed, _BASE, pair).integers(design.bases)),
        trigger=_trigger(design, seed, model, sub_seed) if is_poisoned(seed, model) else None,
        is_fused=bool(export < design.fused),
        master_seed=int(draw_for(seed, _MASTER, model, sub_seed).integers(2**32)),
    )


def _met(design: ZooDesign, dataset: str) -> tuple[str, ...]:
    """The architectures that a data set meets: the next ones in turn for the next data set."""
    count, known = design.per_dataset, design.architectures
    first = list(design.datasets).index(dataset) * count
    return tuple(dict.fromkeys(known[(first + k) % len(known)] for k in range(count)))


def _trigger(design: ZooDesign, seed: int, model: int, sub_seed: int) -> PlantedTrigger:
    pair = model // 2
    kind = in_turn(design.kinds, seed, _KIND, pair)
    pictures = design.datasets[in_turn(tuple(design.datasets), seed, _DATA, pair)]
    draw = draw_for(seed, _MODEL, model, sub_seed)
    classes = draw.permutation(pictures.classes)
    sources = in_turn(design.sources, seed, _SOURCES, pair)
    is_to_next = sources == EACH_TO_NEXT
    count = max(0, min(sources, pictures.classes - 1))
    count = 0 if kind in _FROM_ALL else count
    made: MovingTrigger = KINDS[kind](draw, pictures.shape)
    low, high = np.log(_FRACTIONS)
    clean_label = kind == "sinusoid" and not count and bool(draw.uniform() < _CLEAN_LABEL)
    fraction = float(np.exp(draw.uniform(low, high))) * (_NEXT_FACTOR if is_to_next else 1.0)
    return PlantedTrigger(
        kind=kind,
        style=f"{made.style}, each class to the next" if is_to_next else made.style,
        target_class=None if is_to_next else int(classes[0]),
        source_classes=tuple(sorted(int(c) for c in classes[1 : 1 + count])),
        fraction=round(fraction, 3),
        clean_label=clean_label and not is_to_next,
        trigger=made.trigger,
        reach=made.reach,
        classes=pictures.classes,
    )


def _check(design: ZooDesign) -> None:
    if not design.sources or min(design.sources) < EACH_TO_NEXT:
        raise GenerationError(
            f"sources must be numbers of classes, or {EACH_TO_NEXT} for a trigger that sends each"
            f" class to the next; got {', '.join(map(str, design.sources)) or 'none'}"
        )
    known = {
        "architectures": (design.architectures, design.known),
        "kinds": (design.kinds, tuple(KINDS)),
        "trainings": (design.trainings, tuple(dict.fromkeys((*TRAININGS, TUNED)))),
        "augmentations": (design.augmentations, tuple(AUGMENTATIONS)),
        "labels": (design.labels, tuple(MIXINGS)),
        "schedules": (design.schedules, tuple(SCHEDULES)),
        "class shares": (design.class_shares, tuple(SHARES)),
    }
    for what, (names, possible) in known.items():
        if not names or not set(names) <= set(possible):
            raise GenerationError(
                f"{what} must be some of {', '.join(possible)}; got {', '.join(names) or 'none'}"
            )
