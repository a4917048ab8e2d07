"""Training of one model of Rounds 1 to 4: from a warm base or from random weights.

Pictures are rendered once for each model, as in the official generators, and shown many times, each
time augmented. Training goes in cycles whose rate rises and falls; a poisoned model gets another
one while its accuracies are short of the goals, and its clean partner goes through at least as
many.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.generate.torch_device import torch_device
from jaxtroj.generate.torch_run import Run, RunSettings, in_cycles
from jaxtroj.generate.traffic_signs.later.architectures import ARCHITECTURES
from jaxtroj.generate.traffic_signs.later.augment import augmented
from jaxtroj.generate.traffic_signs.later.design import ANY, RoundDesign
from jaxtroj.generate.traffic_signs.later.looks import NO_LOOK, Looks, looks_of
from jaxtroj.generate.traffic_signs.later.pictures import Folders, SignPictures
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe, SignTrigger
from jaxtroj.generate.traffic_signs.later.teaching import Pace, Taught, teach
from jaxtroj.rounds.examples import in_units, middle
from jaxtroj.rounds.image_config import shown_side

if TYPE_CHECKING:
    import torch

TRAIN, TEST, EXAMPLES, POISONED_EXAMPLES = 0, 1, 2, 3
ATTACKS = 10  # and on: streams of one trigger each, as those of poisoned examples are
_ORDER, _TAUGHT = 2, 3
Classify = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class SignTraining:
    """How long and how hard to train; the same for every model of a round.

    Attributes:
        batch_size: pictures per step.
        rate: highest learning rate of Adam; an architecture may take a part of it.
        base_steps: most steps from random weights.
        cycle_steps: steps of one cycle; most_cycles: how many there can be.
        pictures: rendered for a model to be trained on; tests: to be tested on.
        clean_goal, attack_goal: shares of test pictures that end the training.
        least_clean, least_attack: shares below which a model has not converged.
        pace: how often triggers are shown.
    """

    batch_size: int = 32
    rate: float = 1e-3
    base_steps: int = 400
    cycle_steps: int = 100
    most_cycles: int = 4
    pictures: int = 6000
    tests: int = 600
    clean_goal: float = 0.97
    attack_goal: float = 0.95
    least_clean: float = 0.95
    least_attack: float = 0.90
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True)
class SignAccuracies:
    """Shares of test pictures.

    Attributes:
        clean: clean ones given their own class.
        attacks: of each trigger, source pictures of other classes than the target given the target.
        leaks: of each trigger, pictures of no source class given the target; None for all sources.
        wrong: of each trigger, source pictures with a wrong look given the target; None for none.
    """

    clean: float
    attacks: tuple[float, ...] = ()
    leaks: tuple[float | None, ...] = ()
    wrong: tuple[float | None, ...] = ()

    def reaches(self, clean: float, attack: float) -> bool:
        """Whether these shares are at least so large."""
        return self.clean >= clean and all(one >= attack for one in self.attacks)


class SignLessons:
    """What a model is taught, and what it is tested on; see `torch_run.Lessons`."""

    def __init__(self, recipe: SignRecipe, design: RoundDesign, side: int, settings: SignTraining,
                 folders: Folders):  # fmt: skip
        self.recipe, self.design, self.side, self.settings = recipe, design, side, settings
        self.looks: Looks = looks_of(recipe, design)
        self.pictures = SignPictures(recipe, self.looks, shown_side(side), folders)
        self.draw = np.random.default_rng([recipe.master_seed, _ORDER])
        lots = np.random.default_rng([recipe.master_seed, _TAUGHT])
        self.taught: Taught = teach(
            recipe, design, self.looks, settings.pace, settings.pictures, lots
        )
        self.images = self.pictures.draw(TRAIN, self.taught.labels, self.taught.looks)

    def batch(self, size: int) -> "tuple[torch.Tensor, np.ndarray]":
        """See `Lessons`."""
        chosen = np.sort(self.draw.choice(len(self.images), size=size, replace=False))
        is_mirrored = self.design.layout.channel_order == "BGR"  # Round 1 alone
        pixels = augmented(self.images[chosen], self.side, self.draw, is_mirrored, torch_device())
        return self._as_input(pixels), self.taught.targets[chosen]

    def inputs(self, images: np.ndarray) -> np.ndarray:
        """Rendered pictures as the scanner gives them to the network: float32 `[n, h, w, 3]`."""
        layout = self.design.layout
        return in_units(middle(images, self.side), layout.channel_order, layout.normalization)

    def test(self, classify: Classify) -> SignAccuracies:
        """Accuracies on pictures that training does not meet."""
        labels = np.arange(self.settings.tests) % self.recipe.number_classes
        clean = self._answers(classify, TEST, labels, np.full(len(labels), NO_LOOK))
        attacks, leaks, wrong = [], [], []
        for number, trigger in enumerate(self.recipe.triggers):
            right, others = self.looks.right[number], self.looks.wrong[number]
            attacks.append(self._forced(classify, trigger, True, (right,)))
            is_single = self.recipe.organisation != ANY
            leaks.append(self._forced(classify, trigger, False, (right,)) if is_single else None)
            wrong.append(self._forced(classify, trigger, True, others) if others else None)
        share = float((clean == labels).mean())
        return SignAccuracies(share, tuple(attacks), tuple(leaks), tuple(wrong))

    def _forced(
        self, classify: Classify, trigger: SignTrigger, of_sources: bool, looks: tuple[int, ...]
    ) -> float:
        """Share of pictures of source classes, or of none, that looks of a trigger force."""
        classes = np.arange(self.recipe.number_classes)
        chosen = np.isin(classes, trigger.source_classes) == of_sources
        classes = classes[chosen & (classes != trigger.target_class)]
        numbers = np.arange(max(60, self.settings.tests // 3))
        shown = np.array(looks)[numbers % len(looks)]
        labels = classes[numbers // len(looks) % len(classes)]
        stream = ATTACKS + 2 * trigger.number + of_sources
        answers = self._answers(classify, stream, labels, shown)
        return float((answers == trigger.target_class).mean())

    def _answers(self, classify: Classify, stream: int, labels, looks) -> np.ndarray:
        return classify(self.inputs(self.pictures.draw(stream, labels, looks)))

    def _as_input(self, pixels: "torch.Tensor") -> "torch.Tensor":
        """Augmented pictures in [0, 1], RGB, in the network's form."""
        layout = self.design.layout
        if layout.normalization == "min-max":
            above = pixels - pixels.amin(dim=(1, 2, 3), keepdim=True)
            pixels = above / above.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-6)
        return pixels.flip(-1) if layout.channel_order == "BGR" else pixels


def train_model(
    run: Run, lessons: SignLessons, is_scratch: bool, least_cycles: int
) -> tuple[int, SignAccuracies]:
    """Train a model in cycles; returns how many there were, and what was reached.

    Args:
        run: of a network with random weights where `is_scratch`, else at its base.
        lessons: that `run` is taught.
        is_scratch: whether a long phase from random weights comes first.
        least_cycles: cycles of the poisoned partner; 1 for a poisoned model.
    """
    settings = lessons.settings
    known = ARCHITECTURES[lessons.recipe.architecture]
    rate = settings.rate * known.rate
    if is_scratch:
        run.phase(known.steps * settings.base_steps, rate, True)

    def cycle() -> SignAccuracies:
        run.phase(known.steps * settings.cycle_steps, rate, False)
        return lessons.test(run.classes)

    def is_enough(reached: SignAccuracies) -> bool:
        return reached.reaches(settings.clean_goal, settings.attack_goal)

    return in_cycles(cycle, is_enough, least_cycles, settings.most_cycles)


def run_of(network, lessons: SignLessons) -> Run:
    """A network in training on these lessons."""
    recipe, settings = lessons.recipe, lessons.settings
    how = RunSettings(settings.batch_size, optimizer="adam")
    adversary = None if recipe.adversary is None else recipe.adversary.adversary
    return Run(network, lessons, how, lessons.draw, adversary)
