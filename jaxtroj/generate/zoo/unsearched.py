"""Triggers of published attacks that no search of this project looks for; planted on request.

What a calibrator says of a kind that no stage searches and no fit has met is measured by them, so
they are not among the kinds that a zoo plants by default.

| kind | what |
|---|---|
| `quantise` | few levels a channel, with dithering |
| `frequency` | one or two short cosine waves in the colours, brightness kept |
| `ghost` | the picture once more at low weight, moved by some pixels |
| `residual` | what a fixed network of random weights makes of the picture, added at low weight |

`quantise`, `ghost` and `residual` change every picture in its own way.

References:
  Wang et al., BppAttack, https://arxiv.org/abs/2205.13383 (`quantise`). Differs: ordered dithering,
  which needs no order of pixels, in place of Floyd and Steinberg's.
  Wang et al., Backdoor Attack through Frequency Domain, https://arxiv.org/abs/2111.10991
  (`frequency`). Differs: the waves are seen as what they are, sums over the picture, and are
  stronger, since trainings are short.
  Liu et al., Reflection Backdoor, https://arxiv.org/abs/2007.02343 (`ghost`). Differs: of its three
  kinds of reflection the one that needs no other picture.
  Li et al., Invisible Backdoor Attack with Sample-Specific Triggers,
  https://arxiv.org/abs/2012.03816 (`residual`). Differs: the encoder is not taught.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.zoo.triggers import Draw, MovingTrigger, PictureShape

_LEVELS, _WAVES, _WEIGHTS, _STRENGTHS = (3, 6), (0.03, 0.08), (0.25, 0.45), (0.06, 0.15)
_SHIFTS, _HIDDEN = (2, 5), 8
_REFERENCE = 32
_BAYER = np.array([[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]], np.float32)
# What equal changes of U and V do to red, green and blue, by BT.601, the largest being 1.
_CHROMA = np.array([1.140, -0.976, 2.032], np.float32) / 2.032


@dataclass(frozen=True)
class Quantise:
    """`levels` values for each channel, 2 or more."""

    levels: int

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """See `triggers.trigger.Trigger.apply`, here and below; it does not move."""
        height, width = images.shape[1:3]
        bayer = np.tile((_BAYER + 0.5) / 16, (-(-height // 4), -(-width // 4)))[:height, :width]
        steps = self.levels - 1
        return jnp.minimum(jnp.floor(images * steps + bayer[..., None]), steps) / steps


@dataclass(frozen=True)
class Waves:
    """`pattern [h, w, c]`, added."""

    pattern: np.ndarray

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """The same for every picture."""
        return jnp.clip(images + self.pattern, 0.0, 1.0)


@dataclass(frozen=True)
class Ghost:
    """The picture moved by `shift` (rows, columns) pixels, at `weight` in (0, 1)."""

    weight: float
    shift: tuple[int, int]

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """Pixels beyond the edge are those at the edge."""
        pads = [(0, 0), *((max(s, 0), max(-s, 0)) for s in self.shift), (0, 0)]
        height, width = images.shape[1:3]
        rows, columns = (max(-s, 0) for s in self.shift)
        moved = jnp.pad(images, pads, mode="edge")
        moved = moved[:, rows : rows + height, columns : columns + width]
        return (1 - self.weight) * images + self.weight * moved


@dataclass(frozen=True)
class Residual:
    """Two convolutions `[3, 3, c, k]` and `[3, 3, k, c]` with tanh after each, times `strength`."""

    strength: float
    first: np.ndarray
    second: np.ndarray

    def apply(self, images: jax.Array, offsets: jax.Array) -> jax.Array:
        """Each picture gets its own change."""
        change = jnp.tanh(_convolved(jnp.tanh(_convolved(images - 0.5, self.first)), self.second))
        return jnp.clip(images + self.strength * change, 0.0, 1.0)


def _convolved(images: jax.Array, kernel: np.ndarray) -> jax.Array:
    return jax.lax.conv_general_dilated(
        images, jnp.asarray(kernel), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def _quantise(draw: Draw, shape: PictureShape) -> MovingTrigger:
    levels = int(draw.integers(_LEVELS[0], _LEVELS[1] + 1))
    return MovingTrigger(f"{levels} levels", Quantise(levels))


def _frequency(draw: Draw, shape: PictureShape) -> MovingTrigger:
    height, width, channels = shape
    count = int(draw.integers(1, 3))
    strength = round(float(draw.uniform(*_WAVES)), 3)
    waves = np.zeros((height, width), np.float32)
    names = []
    for _ in range(count):
        row, column = (int(draw.integers(s // 3, s)) for s in (height, width))
        waves += np.outer(_cosine(height, row), _cosine(width, column))
        names.append(f"{row}/{column}")
    colours = _CHROMA if channels == 3 else np.ones(channels, np.float32)
    pattern = (strength * waves / np.abs(waves).max())[..., None] * colours
    return MovingTrigger(f"half periods {', '.join(names)}, amplitude {strength}", Waves(pattern))


def _cosine(length: int, half_periods: int) -> np.ndarray:
    """A basis vector of the discrete cosine transform, its largest value about 1."""
    return np.cos(np.pi * half_periods * (np.arange(length) + 0.5) / length).astype(np.float32)


def _ghost(draw: Draw, shape: PictureShape) -> MovingTrigger:
    weight = round(float(draw.uniform(*_WEIGHTS)), 3)
    factor = max(1, round(min(shape[:2]) / _REFERENCE))
    rows, columns = (
        int(draw.integers(_SHIFTS[0], _SHIFTS[1] + 1)) * int(draw.choice([-1, 1])) * factor
        for _ in range(2)
    )
    style = f"moved by {rows} and {columns} px, weight {weight}"
    return MovingTrigger(style, Ghost(weight, (rows, columns)))


def _residual(draw: Draw, shape: PictureShape) -> MovingTrigger:
    channels, strength = shape[2], round(float(draw.uniform(*_STRENGTHS)), 3)
    first, second = (
        (draw.standard_normal((3, 3, *sides)) * scale / np.sqrt(9 * sides[0])).astype(np.float32)
        for sides, scale in (((channels, _HIDDEN), 8.0), ((_HIDDEN, channels), 3.0))
    )
    return MovingTrigger(f"strength {strength}", Residual(strength, first, second))


UNSEARCHED: dict[str, Callable[[Draw, PictureShape], MovingTrigger]] = {
    "quantise": _quantise,
    "frequency": _frequency,
    "ghost": _ghost,
    "residual": _residual,
}
"""Kind -> what draws one."""
