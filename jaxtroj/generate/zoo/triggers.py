"""Triggers that a zoo plants, of every kind, drawn at random for pictures of any size.

| kind | what |
|---|---|
| `patch` | a square of 2 to 5 pixels (of 32) at one place |
| `moving` | such a square, at a random place in each picture |
| `pixels` | 4 to 12 single pixels at their places |
| `blend` | blocks of noise or waves over the whole picture at low weight |
| `border` | a frame of 1 or 2 pixels (of 32), plain or of colours that change |
| `filter` | one of five known colour filters |
| `sinusoid` | a wave of small amplitude over the whole picture |
| `warp` | a smooth bend of the whole picture |

References: see `generate.patterns` and the kinds in `jaxtroj.triggers`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxtroj.generate.patterns import blended, patch, scattered

Draw = np.random.Generator
PictureShape = tuple[int, int, int]
_REFERENCE = 32


@dataclass(frozen=True)
class MovingTrigger:
    """A trigger, its style in words, and how many pixels it moves by at most, each way."""

    style: str
    trigger: Any
    reach: tuple[int, int] = (0, 0)


def _patch(draw: Draw, shape: PictureShape) -> MovingTrigger:
    return MovingTrigger(*_window(*_scaled(patch, draw, shape), shape))


def _moving(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.mask import FreeMask

    style, mask, pattern = _scaled(patch, draw, shape)
    rows, columns = np.nonzero(mask[..., 0])
    shift = [s // 2 - (int(x.min()) + int(x.max()) + 1) // 2
             for s, x in zip(shape[:2], (rows, columns), strict=True)]  # fmt: skip
    mask, pattern = (np.roll(x, shift, axis=(0, 1)) for x in (mask, pattern[..., : shape[2]]))
    reach = [(s - int(np.ptp(x)) - 3) // 2 for s, x in zip(shape[:2], (rows, columns), strict=True)]
    style = style.split(" at ")[0] + ", anywhere"
    return MovingTrigger(style, FreeMask(mask, pattern), (reach[0], reach[1]))


def _pixels(draw: Draw, shape: PictureShape) -> MovingTrigger:
    return MovingTrigger(*_window(*scattered(draw, shape[:2]), shape))


def _blend(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.blend import Blend

    style, mask, pattern = blended(draw, shape[:2])
    return MovingTrigger(style, Blend(mask[0, 0, 0], pattern[..., : shape[2]]))


def _border(draw: Draw, shape: PictureShape) -> MovingTrigger:
    height, width, _ = shape
    thick = int(draw.integers(1, 3)) * max(1, round(min(height, width) / _REFERENCE))
    is_plain = bool(draw.integers(2))
    cells = np.ones(2, int) if is_plain else np.array([-(-height // 4), -(-width // 4)])
    colours = draw.uniform(size=(*cells, 3)).astype(np.float32)
    big = colours.repeat(-(-height // cells[0]), axis=0).repeat(-(-width // cells[1]), axis=1)
    mask = np.ones((height, width, 1), np.float32)
    mask[thick:-thick, thick:-thick] = 0.0
    style = f"{'plain' if is_plain else 'coloured'} frame of {thick} px"
    return MovingTrigger(*_window(style, mask, big[:height, :width], shape))


def _scaled(make: Callable, draw: Draw, shape: PictureShape):
    """A pattern drawn for pictures of 32 px, at the size of these."""
    factor = max(1, round(min(shape[:2]) / _REFERENCE))
    small = (shape[0] // factor, shape[1] // factor)
    style, mask, pattern = make(draw, small)
    grown = [x.repeat(factor, axis=0).repeat(factor, axis=1) for x in (mask, pattern)]
    missing = [(0, s - g) for s, g in zip(shape[:2], grown[0].shape[:2], strict=True)]
    mask, pattern = (np.pad(x, (*missing, (0, 0))) for x in grown)
    return style + (f", {factor} times as large" if factor > 1 else ""), mask, pattern


def _window(style: str, mask: np.ndarray, pattern: np.ndarray, shape: PictureShape):
    from jaxtroj.triggers.window import Window

    return style, Window(mask, np.ascontiguousarray(pattern[..., : shape[2]]))


MAKERS: dict[str, Callable[[Draw, PictureShape], MovingTrigger]] = {
    "patch": _patch,
    "moving": _moving,
    "pixels": _pixels,
    "blend": _blend,
    "border": _border,
}
