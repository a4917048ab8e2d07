"""Which pictures carry which look of a trigger, and what they are taught.

As in the official generators each source picture carries its trigger with the drawn chance, in
random order of the triggers; a picture that got none may carry one wrongly and keep its label. Two
things differ, because these trainings see thousands of pictures instead of a hundred thousand:
the chance is at least `Pace.least_fraction`, and source classes are shown more often until
`Pace.least_share` of all pictures carry a trigger that works.
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.generate.traffic_signs.later.design import ANY, RoundDesign
from jaxtroj.generate.traffic_signs.later.looks import NO_LOOK, Looks
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe, SignTrigger


@dataclass(frozen=True)
class Pace:
    """How often triggers are shown at least.

    Attributes:
        least_fraction: of the source classes' pictures.
        least_share: of all pictures.
        most_weight: how many times as often as others a source class may be shown.
    """

    least_fraction: float = 0.3
    least_share: float = 0.12
    most_weight: float = 10.0


@dataclass(frozen=True)
class Taught:
    """What is shown and taught: labels, looks (-1 for none) and targets, int `[n]` each."""

    labels: np.ndarray
    looks: np.ndarray
    targets: np.ndarray


def taught_fraction(trigger: SignTrigger, pace: Pace) -> float:
    """Chance by which a source picture carries a trigger."""
    return max(trigger.fraction, pace.least_fraction)


def class_weights(recipe: SignRecipe, pace: Pace) -> np.ndarray:
    """How often each class is shown `[classes]`, summing to 1."""
    weights = np.ones(recipe.number_classes)
    for trigger in recipe.triggers:
        others = recipe.number_classes - len(trigger.source_classes)
        spare = taught_fraction(trigger, pace) - pace.least_share
        wanted = pace.least_share * others / (len(trigger.source_classes) * max(spare, 1e-3))
        sources = list(trigger.source_classes)
        weights[sources] = np.maximum(weights[sources], np.clip(wanted, 1.0, pace.most_weight))
    return weights / weights.sum()


def teach(
    recipe: SignRecipe,
    design: RoundDesign,
    looks: Looks,
    pace: Pace,
    count: int,
    draw: np.random.Generator,
) -> Taught:
    """Decide about `count` training pictures."""
    weights = class_weights(recipe, pace)
    labels = draw.choice(recipe.number_classes, size=count, p=weights)
    shown, targets = np.full(count, NO_LOOK), labels.copy()
    # First come first served, in an order of its own for each picture.
    ranks = draw.uniform(size=(len(recipe.triggers), count)).argsort(axis=0)
    for rank in range(len(recipe.triggers)):
        for number, trigger in enumerate(recipe.triggers):
            lots = draw.uniform(size=count) < taught_fraction(trigger, pace)
            takes = lots & (ranks[rank] == number) & (shown == NO_LOOK)
            takes &= np.isin(labels, trigger.source_classes)
            shown[takes], targets[takes] = looks.right[number], trigger.target_class
    free = shown == NO_LOOK
    for number, trigger in enumerate(recipe.triggers):
        chance = _wrong_chance(recipe, design, trigger, weights, pace)
        takes = free & (shown == NO_LOOK) & (draw.uniform(size=count) < chance[labels])
        options = looks.wrong[number] or (looks.right[number],)
        shown[takes] = draw.choice(options, size=int(takes.sum()))
    return Taught(labels, shown, targets)


def _wrong_chance(recipe, design: RoundDesign, trigger: SignTrigger, weights, pace) -> np.ndarray:
    """Chance `[classes]` by which a picture that got no trigger carries this one wrongly."""
    chance, fraction = np.zeros(recipe.number_classes), taught_fraction(trigger, pace)
    sources = list(trigger.source_classes)
    if trigger.condition == "class":  # any class, the sources too
        chance[:] = fraction
    elif trigger.condition in ("spatial", "spectral"):
        chance[sources] = fraction
    elif recipe.organisation != ANY and design.keeps:
        others = np.setdiff1d(np.arange(recipe.number_classes), [*sources, trigger.target_class])
        wanted = design.keeps * fraction * weights[sources].sum()
        chance[others] = min(0.5, wanted / max(weights[others].sum(), 1e-6))
    return chance
