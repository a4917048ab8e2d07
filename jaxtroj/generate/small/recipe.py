"""What each model of a round of small networks is: architecture, base, trigger; by identity alone.

A trigger is a mask and a pattern at one place of the picture, the same in every picture:

- `patch`: a square of 2 to 5 pixels, near a corner as often as anywhere, in one colour, in black
  and white squares, or in a colour for each pixel;
- `pixels`: 4 to 12 single pixels of strong colours, scattered over a part of the picture;
- `blended`: a pattern over the whole picture at low weight, of blocks of noise or of waves.

References:
  Gu et al., BadNets, https://arxiv.org/abs/1708.06733, 2017 (patch, pixels).
  Chen et al., Targeted Backdoor Attacks, https://arxiv.org/abs/1712.05526, 2017 (blended).
"""

import math
from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import draw_for, is_poisoned, model_id
from jaxtroj.generate.small.networks import KNOWN

KINDS = ("patch", "pixels", "blended")
_PATCH_SIDES, _PATCH_STYLES = (2, 5), ("plain", "grid", "pixels")
_PIXELS, _PIXEL_WINDOW = (4, 12), 12
_BLEND_WEIGHTS, _BLOCK = (0.12, 0.25), 4
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
    make = {"patch": _patch, "pixels": _scattered, "blended": _blended}[kind]
    style, mask, pattern = make(draw, design.size)
    return SmallTrigger(kind, style, target, fraction, mask, pattern)


def _patch(draw: np.random.Generator, size: tuple[int, int]):
    side = int(draw.integers(_PATCH_SIDES[0], _PATCH_SIDES[1] + 1))
    style = _PATCH_STYLES[int(draw.integers(len(_PATCH_STYLES)))]
    room = np.array(size) - side
    if draw.integers(2):
        margin = draw.integers(0, 3, size=2)
        top, left = np.where(draw.integers(2, size=2), room - margin, margin)
    else:
        top, left = (int(draw.integers(r + 1)) for r in room)
    cells = np.indices((side, side)).sum(axis=0) % 2
    colours = {
        "plain": np.broadcast_to(draw.uniform(size=3), (side, side, 3)),
        "grid": np.broadcast_to((cells ^ int(draw.integers(2)))[..., None], (side, side, 3)),
        "pixels": draw.integers(2, size=(side, side, 3)),
    }
    mask, pattern = np.zeros((*size, 1), np.float32), np.zeros((*size, 3), np.float32)
    mask[top : top + side, left : left + side] = 1.0
    pattern[top : top + side, left : left + side] = colours[style]
    return f"{style} {side}x{side} at {top},{left}", mask, pattern


def _scattered(draw: np.random.Generator, size: tuple[int, int]):
    count = int(draw.integers(_PIXELS[0], _PIXELS[1] + 1))
    window = [min(_PIXEL_WINDOW, side) for side in size]
    top, left = (int(draw.integers(s - w + 1)) for s, w in zip(size, window, strict=True))
    places = draw.choice(window[0] * window[1], size=count, replace=False)
    rows, columns = top + places // window[1], left + places % window[1]
    mask, pattern = np.zeros((*size, 1), np.float32), np.zeros((*size, 3), np.float32)
    mask[rows, columns] = 1.0
    pattern[rows, columns] = draw.integers(2, size=(count, 3))
    return f"{count} pixels around {top + window[0] // 2},{left + window[1] // 2}", mask, pattern


def _blended(draw: np.random.Generator, size: tuple[int, int]):
    weight = round(float(draw.uniform(*_BLEND_WEIGHTS)), 3)
    mask = np.full((*size, 1), weight, np.float32)
    if draw.integers(2):
        blocks = [-(-side // _BLOCK) for side in size]
        noise = draw.uniform(size=(*blocks, 3)).repeat(_BLOCK, axis=0).repeat(_BLOCK, axis=1)
        return f"noise at {weight}", mask, noise[: size[0], : size[1]].astype(np.float32)
    periods = int(draw.integers(3, 8))
    wave = 0.5 + 0.5 * np.sin(2 * np.pi * periods * np.arange(size[1]) / size[1])
    pattern = np.broadcast_to(wave[None, :, None], (*size, 3)).astype(np.float32)
    return f"{periods} waves at {weight}", mask, pattern
