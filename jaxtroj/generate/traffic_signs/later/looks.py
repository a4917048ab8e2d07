"""How triggers look: right, and wrong in the ways that a condition tells apart.

A trigger under the condition "spatial" works in one quadrant of the sign, so it also appears in
the others; under "spectral" it appears in other colours, or as other filters; under "class" it
appears on other classes, looking right. Pictures with a wrong look keep their label.
"""

from dataclasses import dataclass, replace

import numpy as np

from jaxtroj.generate.traffic_signs.later.design import RoundDesign
from jaxtroj.generate.traffic_signs.later.recipe import FILTERS, SignRecipe, SignTrigger
from jaxtroj.generate.traffic_signs.later.scene import Stamps
from jaxtroj.generate.traffic_signs.polygon import polygon_mask, random_vertices

STAMP_PIXELS = 64
NO_LOOK = -1


@dataclass(frozen=True)
class Look:
    """One appearance: a trigger with its colour, quadrant and filter as it appears."""

    trigger: SignTrigger

    @property
    def filter(self) -> int:
        """Number of the filter in `jaxtroj.triggers.filter.FILTERS`, or -1."""
        name = self.trigger.filter
        return NO_LOOK if name is None else tuple(FILTERS).index(name)


@dataclass(frozen=True)
class Looks:
    """All looks of a model's triggers.

    Attributes:
        every: the looks.
        right: number of each trigger's right look.
        wrong: numbers of each trigger's wrong looks; none for the conditions "none" and "class".
        of_alpha: see `RoundDesign.size_of_alpha`.
    """

    every: tuple[Look, ...]
    right: tuple[int, ...]
    wrong: tuple[tuple[int, ...], ...]
    of_alpha: bool = False

    @property
    def stamp_numbers(self) -> np.ndarray:
        """Number of each look's stamp int32 `[looks]`; -1 for a filter."""
        polygons = np.array([look.filter == NO_LOOK for look in self.every], bool)
        return np.where(polygons, np.cumsum(polygons) - 1, NO_LOOK).astype(np.int32)

    @property
    def filter_numbers(self) -> np.ndarray:
        """Number of each look's filter int32 `[looks]`; -1 for a polygon."""
        return np.array([look.filter for look in self.every], np.int32)

    def stamps(self) -> Stamps:
        """The polygons to paint, in the order of `stamp_numbers`; an unused one where there are
        none."""
        polygons = [look.trigger for look in self.every if look.filter == NO_LOOK]
        if not polygons:
            blank = np.zeros((1, STAMP_PIXELS, STAMP_PIXELS), np.float32)
            one = np.ones(1, np.float32)
            return Stamps(blank, blank[:, 0, :3], one, one, np.zeros(1, np.int32), one > 2)
        return Stamps(
            alpha=np.stack([trigger_mask(one) for one in polygons]),
            colour=np.array([one.color for one in polygons], np.float32) / 255,
            low=np.array([(one.sizes or (0, 0))[0] for one in polygons], np.float32),
            high=np.array([(one.sizes or (0, 0))[1] for one in polygons], np.float32),
            quadrant=np.array([one.quadrant for one in polygons], np.int32),
            of_alpha=np.full(len(polygons), self.of_alpha),
        )


def trigger_mask(trigger: SignTrigger, pixels: int = STAMP_PIXELS) -> np.ndarray:
    """Coverage float32 `[pixels, pixels]` in [0, 1] of a polygon."""
    return polygon_mask(random_vertices(trigger.seed or 0, trigger.sides), pixels)


def looks_of(recipe: SignRecipe, design: RoundDesign) -> Looks:
    """The looks of a model's triggers; none for a clean model."""
    every: list[Look] = []
    right, wrong = [], []
    for trigger in recipe.triggers:
        right.append(len(every))
        others = _wrong(trigger, design)
        wrong.append(tuple(range(len(every) + 1, len(every) + 1 + len(others))))
        every += [Look(one) for one in (trigger, *others)]
    return Looks(tuple(every), tuple(right), tuple(wrong), design.size_of_alpha)


def _wrong(trigger: SignTrigger, design: RoundDesign) -> tuple[SignTrigger, ...]:
    if trigger.condition == "spatial":
        others = (q for q in range(1, 5) if q != trigger.quadrant)
        return tuple(replace(trigger, quadrant=quadrant) for quadrant in others)
    if trigger.condition == "spectral" and trigger.filter is not None:
        names = (name for name in FILTERS if name != trigger.filter)
        return tuple(replace(trigger, filter=name) for name in names)
    if trigger.condition == "spectral":
        colours = (colour for colour in design.colours if colour != trigger.color)
        return tuple(replace(trigger, color=colour) for colour in colours)
    return ()
