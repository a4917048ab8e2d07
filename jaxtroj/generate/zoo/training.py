"""Training of a zoo's networks, by torch: from random weights or from a warm base.

A run goes in cycles whose rate rises, then falls linearly or stays (`schedules`); a poisoned
network gets another cycle while its trigger works too seldom, and its clean partner goes through at
least as many, so that no clean network is one that was trained for less. Pictures are augmented,
then stamped, or stamped first.

A trigger that works from some classes only is taught with pictures of the other classes that carry
it and keep their label. A clean-label trigger lies on pictures of the target class alone. An
adversarially trained network sees, in half of its steps, pictures moved one step against their
label.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.generate.small.accuracies import Accuracies
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.torch_run import Adversary, Run, in_cycles
from jaxtroj.generate.zoo.augmentation import AUGMENTATIONS
from jaxtroj.generate.zoo.class_shares import seen_of
from jaxtroj.generate.zoo.label_mixing import HARD, mixed
from jaxtroj.generate.zoo.recipe import BASE_AUGMENTATION, PlantedTrigger, ZooRecipe
from jaxtroj.generate.zoo.schedules import FALLS
from jaxtroj.generate.zoo.stamping import Stamper

if TYPE_CHECKING:
    import torch

Classify = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ZooTraining:
    """How long and how hard to train; the same for every model of a zoo.

    Attributes:
        batch_size: pictures per step.
        base_rate, rate: highest learning rate from random weights, and from a base.
        weight_decay: pull on the weights, per unit of the learning rate.
        base_steps: most steps from random weights.
        cycle_steps: steps of one cycle from there; most_cycles: how many there can be.
        warmup: share of the steps in which the rate rises, 0 to 1.
        train_share: share of the pictures that a model sees, its own choice.
        adversarial_step: size of the step against the label, in [0, 1] pixel units.
        attack_goal: attack success rate that ends the training of a poisoned model.
        clean_goal: share of its base's clean accuracy that ends the training of a model.
        least_attack, least_clean: shares of test pictures below which a model is rejected.
        tests: pictures that accuracies are measured on.
    """

    batch_size: int = 64
    base_rate: float = 0.1
    rate: float = 0.05
    weight_decay: float = 5e-4
    base_steps: int = 400
    cycle_steps: int = 100
    most_cycles: int = 3
    warmup: float = 0.2
    train_share: float = 0.7
    adversarial_step: float = 0.01
    attack_goal: float = 0.95
    clean_goal: float = 0.93
    least_attack: float = 0.9
    least_clean: float = 0.4
    tests: int = 750


class ZooLessons:
    """What a network of a zoo is taught, and what it is tested on."""

    def __init__(
        self,
        pictures: LabelledPictures,
        tests: int,
        recipe: ZooRecipe | None,
        draw: np.random.Generator,
    ):
        self.pictures, self.tests, self.draw = pictures, tests, draw
        self.trigger = recipe.trigger if recipe else None
        self.stamped_first = recipe is not None and recipe.stamped_first
        self.mixing = recipe.labels if recipe else HARD
        self.augment = AUGMENTATIONS[recipe.augmentation if recipe else BASE_AUGMENTATION]
        self.stamper = Stamper(self.trigger, draw)
        self.seen = seen_of(pictures.labels, recipe.shares if recipe else (), draw)

    def keep(self, share: float) -> None:
        """Teach a share of the pictures only, chosen at random."""
        count = len(self.seen)
        self.seen = np.sort(self.draw.permutation(self.seen)[: max(1, round(share * count))])

    def batch(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """See `Lessons`; some pictures carry the trigger."""
        pixels, targets = self._pictures(size)
        return mixed(self.mixing, pixels, targets, self.pictures.classes, self.draw)

    def _pictures(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Augmented pictures, and the class to teach for each."""
        chosen = np.sort(self.draw.choice(self.seen, size=size, replace=len(self.seen) < size))
        pixels = self.pictures.images[chosen].astype(np.float32) / 255
        labels = self.pictures.labels[chosen]
        if not self.stamped_first:
            return self.stamper.poisoned(self.augment(pixels, self.draw), labels)
        stamped, targets = self.stamper.poisoned(pixels, labels)
        return self.augment(stamped, self.draw), targets

    def test(self, classify: Classify) -> Accuracies:
        """Accuracies on the test pictures, spread over them."""
        images, labels = self.pictures.test_images, self.pictures.test_labels
        chosen = np.unique(np.linspace(0, len(labels) - 1, self.tests).round().astype(int))
        pixels, true = images[chosen].astype(np.float32) / 255, labels[chosen]
        clean = float((classify(pixels) == true).mean())
        if self.trigger is None:
            return Accuracies(clean, None)
        return Accuracies(clean, self._attack(classify, self.trigger))

    def _attack(self, classify: Classify, trigger: PlantedTrigger) -> float:
        """Share of triggered test pictures of the source classes that go where they are sent.

        Of a trigger that sends each class to the next: those that the network knows without it.
        """
        images, labels = self.pictures.test_images, self.pictures.test_labels
        counted = np.flatnonzero(trigger.counts(labels))
        places = np.linspace(0, len(counted) - 1, min(self.tests, len(counted)))
        chosen = counted[places.round().astype(int)]
        pixels, true = images[chosen].astype(np.float32) / 255, labels[chosen]
        if trigger.target_class is None:
            known = classify(pixels) == true
            pixels, true = pixels[known], true[known]
        if not len(true):
            return 0.0
        return float((classify(self.stamper.stamped(pixels)) == trigger.goals(true)).mean())


def zoo_run(
    network: "torch.nn.Module",
    pictures: LabelledPictures,
    settings: ZooTraining,
    recipe: ZooRecipe | None,
    draw: np.random.Generator,
) -> tuple[Run, ZooLessons]:
    """A network in training and what it is taught; no `recipe` makes a base."""
    lessons = ZooLessons(pictures, settings.tests, recipe, draw)
    schedule = recipe.schedule if recipe else FALLS
    how = schedule.settings(settings.batch_size, settings.weight_decay, settings.warmup)
    is_adversarial = recipe is not None and recipe.training == "adversarial"
    adversary = Adversary(settings.adversarial_step, Fraction(1, 2)) if is_adversarial else None
    return Run(network, lessons, how, draw, adversary), lessons


def train_base(run: Run, lessons: ZooLessons, settings: ZooTraining) -> Accuracies:
    """Train a base from its random weights."""
    run.phase(settings.base_steps, settings.base_rate, True)
    return lessons.test(run.classes)


def train_model(
    run: Run, lessons: ZooLessons, settings: ZooTraining, is_scratch: bool, least_cycles: int
) -> tuple[int, Accuracies]:
    """Train a model in cycles; returns how many there were, and what was reached.

    Args:
        run: of a network with random weights where `is_scratch`, else at its base.
        lessons: that `run` is taught.
        settings: of the round.
        is_scratch: whether a long phase from random weights comes first.
        least_cycles: cycles of the poisoned partner; 1 for a poisoned model.
    """
    lessons.keep(settings.train_share)
    if is_scratch:
        run.phase(settings.base_steps, settings.base_rate, True)
    least = 0.0 if is_scratch else settings.clean_goal * lessons.test(run.classes).clean

    def cycle() -> Accuracies:
        run.phase(settings.cycle_steps, settings.rate, False)
        return lessons.test(run.classes)

    def is_enough(reached: Accuracies) -> bool:
        attacked = reached.attack is None or reached.attack >= settings.attack_goal
        return attacked and reached.clean >= least

    return in_cycles(cycle, is_enough, least_cycles, settings.most_cycles)
