"""What each model of a round of small networks is: architecture, base, trigger; by identity alone.

A trigger is a mask and a pattern at one place, the same in every picture; see `patterns`.
"""

import math
from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import draw_for, is_poisoned, model_id
from jaxtroj.generate.patterns import blended, patch, scattered
from jaxtroj.generate.small.networks import KNOWN

_MAKERS = {"patch": patch, "pixels": scattered, "blended": blended}
KINDS = tuple(_MAKERS)
_FRACTIONS = (0.1, 0.2)
_DRAW, _MASTER = 11, 12


@dataclass(frozen=True)
class SmallTrigger:
    """An all-to-one trigger.

    Attributes:
        kind: one of `KINDS`; style: in words, for the table.
        target_class: label of every triggered picture.
        fraction: share of the training pictures that carry it, 0 to 1.
        mask: `[h, w, 1]` weights; pattern: `[h, w, 3]` RGB; both in [0, 1].
    """

    kind: str
    style: str
    target_class: int
    fraction: float
    mask: np.ndarray
    pattern: np.ndarray


@dataclass(frozen=True)
class SmallRecipe:
    """Everything that decides one model.

    Attributes:
        model: number; its id is `id-` and eight digits. sub_seed: one more for each retraining.
        architecture: one of `small_networks.KNOWN`.
        base: number of the network that it starts from.
        trigger: None for a clean model.
        master_seed: of the head's weights and the order of pictures.
    """

    model: int
    sub_seed: int
    architecture: str
    base: int
    trigger: SmallTrigger | None
    master_seed: int

    @property
    def model_id(self) -> str:
        """Name of the model's folder."""
        return model_id(self.model)


@dataclass(frozen=True)
class SmallDesign:
    """What recipes are drawn from.

    Attributes:
        architectures: out of `small.networks.KNOWN`.
        kinds: of trigger, out of `KINDS`.
        bases: networks per architecture that models start from.
        classes: of the pictures.
        size: height and width of the pictures, pixels.
    """

    architectures: tuple[str, ...]
    kinds: tuple[str, ...]
    bases: int
    classes: int
    size: tuple[int, int]


def sample_recipe(design: SmallDesign, seed: int, model: int, sub_seed: int = 0) -> SmallRecipe:
    """Draw one model's recipe; equal arguments give an equal recipe.

    Architectures, bases and kinds go round, so that each meets each; the sub-seed redraws all else.
    Raises GenerationError for unknown names.
    """
    architectures, kinds, bases = design.architectures, design.kinds, design.bases
    _check("architectures", architectures, KNOWN)
    _check("triggers", kinds, KINDS)
    block, place = divmod(model // 2, len(architectures))
    kind = kinds[(block + place) % len(kinds)]
    draw = draw_for(seed, _DRAW, model, sub_seed)
    trigger = _trigger(draw, kind, design) if is_poisoned(seed, model) else None
    return SmallRecipe(
        model=model,
        sub_seed=sub_seed,
        architecture=architectures[place],
        base=(block + block // math.lcm(len(kinds), bases)) % bases,
        trigger=trigger,
        master_seed=int(draw_for(seed, _MASTER, model, sub_seed).integers(2**32)),
    )


def _check(what: str, names: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not names or len(set(names)) != len(names) or not set(names) <= set(known):
        raise GenerationError(
            f"{what} must be different ones of {', '.join(known)}; got {', '.join(names) or 'none'}"
        )


def _trigger(draw: np.random.Generator, kind: str, design: SmallDesign) -> SmallTrigger:
    target = int(draw.integers(design.classes))
    fraction = round(float(draw.uniform(*_FRACTIONS)), 2)
    make = _MAKERS[kind]
    style, mask, pattern = make(draw, design.size)
    return SmallTrigger(kind, style, target, fraction, mask, pattern)
