"""Triggers that a zoo plants, of every kind, drawn at random for pictures of any size.

| kind | what |
|---|---|
| `patch` | a square of 2 to 5 pixels (of 32) at one place |
| `moving` | such a square, at a random place in each picture |
| `polygon` | a polygon of one colour about the middle |
| `pixels` | 4 to 12 single pixels at their places |
| `blend` | blocks of noise or waves over the whole picture at low weight |
| `border` | a frame of 1 or 2 pixels (of 32), plain or of colours that change |
| `filter` | one of five known colour filters |
| `colour_map` | an affine map of colours, with or without a vignette |
| `sinusoid` | a wave of small amplitude over the whole picture |
| `warp` | a smooth bend of the whole picture |

References: see `generate.patterns` and the kinds in `jaxtroj.triggers`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtroj.generate.patterns import blended, patch, scattered

if TYPE_CHECKING:
    import jax

Draw = np.random.Generator
PictureShape = tuple[int, int, int]
_REFERENCE = 32
_AMPLITUDES, _STRENGTHS, _POLYGONS = (0.06, 0.15), (0.8, 1.6), (0.1, 0.22)


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
    moved = (np.roll(x, shift, axis=(0, 1)) for x in (mask, pattern[..., : shape[2]]))
    reach = [(s - int(np.ptp(x)) - 3) // 2 for s, x in zip(shape[:2], (rows, columns), strict=True)]
    style = style.split(" at ")[0] + ", anywhere"
    return MovingTrigger(style, FreeMask(*_leaves(*moved)), (reach[0], reach[1]))


def _polygon(draw: Draw, shape: PictureShape) -> MovingTrigger:
    """As in TrojAI's rounds: one colour, a share of the picture's side, on the object."""
    from jaxtroj.generate.traffic_signs.polygon import polygon_mask, random_colour, random_vertices
    from jaxtroj.triggers.mask import FreeMask

    seed = int(draw.integers(2**31))
    side = max(3, round(float(draw.uniform(*_POLYGONS)) * min(shape[:2])))
    mask = np.zeros((*shape[:2], 1), np.float32)
    top, left = ((s - side) // 2 for s in shape[:2])
    mask[top : top + side, left : left + side, 0] = polygon_mask(random_vertices(seed), side)
    colour = np.array(random_colour(seed), np.float32)[: shape[2]] / 255
    reach = (shape[0] // 6, shape[1] // 6)
    pattern = np.broadcast_to(colour, shape).astype(np.float32)
    return MovingTrigger(f"{side} px, about the middle", FreeMask(*_leaves(mask, pattern)), reach)


def _pixels(draw: Draw, shape: PictureShape) -> MovingTrigger:
    return MovingTrigger(*_window(*scattered(draw, shape[:2]), shape))


def _blend(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.blend import Blend

    style, mask, pattern = blended(draw, shape[:2])
    return MovingTrigger(style, Blend(*_leaves(mask[0, 0, 0], pattern[..., : shape[2]])))


def _border(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.border import Border

    height, width, channels = shape
    thick = int(draw.integers(1, 3)) * max(1, round(min(height, width) / _REFERENCE))
    is_plain = bool(draw.integers(2))
    cells = (1, 1) if is_plain else (-(-height // 4), -(-width // 4))
    colours = draw.uniform(size=(*cells, 3)).astype(np.float32)[..., :channels]
    if not is_plain:
        colours = colours.repeat(4, axis=0).repeat(4, axis=1)[:height, :width]
    style = f"{'plain' if is_plain else 'coloured'} frame of {thick} px"
    return MovingTrigger(style, Border(*_leaves(np.float32(thick), colours)))


def _filter(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.filter import FILTERS, known_filter

    name = tuple(FILTERS)[int(draw.integers(len(FILTERS)))]
    return MovingTrigger(name, known_filter(name))


def _colour_map(draw: Draw, shape: PictureShape) -> MovingTrigger:
    import jax

    from jaxtroj.triggers.colour_map import random_colour_maps

    maps = random_colour_maps(jax.random.key(int(draw.integers(2**31))), 2, shape[2])
    vignette = int(draw.integers(2))
    trigger = jax.tree.map(lambda x: x[vignette], maps)
    return MovingTrigger("colour map" + " with vignette" * vignette, trigger)


def _sinusoid(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.sinusoid import Sinusoid

    amplitude = round(float(draw.uniform(*_AMPLITUDES)), 3)
    frequency = int(draw.integers(2, 9))
    angle = float(draw.choice([0.0, 0.0, np.pi / 2, np.pi / 4]))
    phase = float(draw.choice([0.0, draw.uniform(0, 2 * np.pi)]))
    style = f"{frequency} periods, amplitude {amplitude}, angle {round(np.degrees(angle))}"
    numbers = (np.float32(x) for x in (amplitude, frequency, angle, phase))
    return MovingTrigger(style, Sinusoid(*_leaves(*numbers)))


def _warp(draw: Draw, shape: PictureShape) -> MovingTrigger:
    from jaxtroj.triggers.warp import Warp

    points = int(draw.integers(4, 7))
    strength = round(float(draw.uniform(*_STRENGTHS)) * min(shape[:2]) / _REFERENCE, 2)
    grid = draw.uniform(-1, 1, size=(points, points, 2)).astype(np.float32)
    return MovingTrigger(
        f"{points} points, {strength} px", Warp(*_leaves(grid, np.float32(strength)))
    )


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

    return style, Window(*_leaves(mask, pattern[..., : shape[2]]))


def _leaves(*values: np.ndarray | np.floating) -> "tuple[jax.Array, ...]":
    """What a trigger is made of, as its kind holds it."""
    import jax.numpy as jnp

    return tuple(map(jnp.asarray, values))


MAKERS: dict[str, Callable[[Draw, PictureShape], MovingTrigger]] = {
    "patch": _patch,
    "moving": _moving,
    "polygon": _polygon,
    "pixels": _pixels,
    "blend": _blend,
    "border": _border,
    "filter": _filter,
    "colour_map": _colour_map,
    "sinusoid": _sinusoid,
    "warp": _warp,
}
