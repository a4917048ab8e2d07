"""Blur, fog and rain on pictures float32 `[h, w, 3]` in [0, 1]; every function is vmappable.

Sizes are given for Round 0's 224 px and scaled to the picture by the caller.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image, ImageDraw

REFERENCE_PIXELS = 224
FOG_CELLS = 5
_STREAK_TILES = 8


def gaussian_taps(sigma: float) -> tuple[float, ...]:
    """Odd-length kernel summing to 1; `(1.0,)` when `sigma` pixels is too small to matter.

    The reach is that of OpenCV's rule for a given kernel size: at `sigma` 1.1 it has 5 taps.
    """
    if sigma < 0.15:
        return (1.0,)
    reach = max(1, round((sigma - 0.8) / 0.3 + 1) if sigma > 0.8 else 1)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / sigma) ** 2)
    return tuple(float(w) for w in weights / weights.sum())


def blur(image: jax.Array, taps: tuple[float, ...]) -> jax.Array:
    """Separable blur of `[h, w, 3]` with edge padding; `taps` are static."""
    if len(taps) == 1:
        return image
    reach = len(taps) // 2
    height, width = image.shape[0], image.shape[1]
    padded = jnp.pad(image, ((reach, reach), (0, 0), (0, 0)), mode="edge")
    rows = _weighted(taps, [padded[k : k + height] for k in range(len(taps))])
    padded = jnp.pad(rows, ((0, 0), (reach, reach), (0, 0)), mode="edge")
    return _weighted(taps, [padded[:, k : k + width] for k in range(len(taps))])


def _weighted(taps: tuple[float, ...], shifted: list[jax.Array]) -> jax.Array:
    total = taps[0] * shifted[0]
    for tap, part in zip(taps[1:], shifted[1:], strict=True):
        total = total + tap * part
    return total


def fog(image: jax.Array, density: jax.Array, noise: jax.Array) -> jax.Array:
    """Blend towards white.

    Args:
        image: `[h, w, 3]`.
        density: scalar in [0, 1]; 0 leaves the picture as it is.
        noise: `[cells, cells]` in [0, 1], how thick the fog is where; interpolated smoothly.
    """
    rows, cols = _smooth_weights(image.shape[0]), _smooth_weights(image.shape[1])
    thickness = jnp.clip(density * (0.5 + (rows @ noise) @ cols.T), 0.0, 1.0)[..., None]
    return image + thickness * (0.95 - image)


def rain(image: jax.Array, strength: jax.Array, choice: jax.Array, flip: jax.Array) -> jax.Array:
    """Darken a little and add bright streaks.

    Args:
        image: `[h, w, 3]`, square.
        strength: scalar in [0, 1]; 0 leaves the picture as it is.
        choice: scalar in [0, 1), which streaks.
        flip: boolean scalar, whether they fall to the other side.
    """
    tiles = jnp.asarray(streak_tiles(image.shape[0]))
    tile = tiles[jnp.int32(choice * _STREAK_TILES)].astype(jnp.float32) / 255
    streaks = jnp.where(flip, tile[:, ::-1], tile)[..., None] * strength
    dimmed = image * (1 - 0.2 * strength)
    return dimmed + 0.7 * streaks * (0.9 - dimmed)


@lru_cache(maxsize=8)
def streak_tiles(pixels: int) -> np.ndarray:
    """Rain masks, uint8 `[8, pixels, pixels]`: slanted streaks of varied length, drawn once."""
    scale, tiles = 4, []
    for index in range(_STREAK_TILES):
        rng = np.random.default_rng([0x7261, index])
        big = pixels * scale
        canvas = Image.new("L", (big, big))
        painter = ImageDraw.Draw(canvas)
        width = max(1, round(1.2 * big / REFERENCE_PIXELS))
        for _ in range(90):
            x, y = rng.uniform(-0.1, 1.1, 2) * big
            length, lean = rng.uniform(0.05, 0.16) * big, rng.uniform(0.15, 0.3)
            end = (float(x + lean * length), float(y + length))
            painter.line([(float(x), float(y)), end], fill=int(rng.integers(110, 256)), width=width)
        tiles.append(np.asarray(canvas.reduce(scale), np.uint8))
    return np.stack(tiles)


@lru_cache(maxsize=16)
def _smooth_weights_numpy(pixels: int) -> np.ndarray:
    position = np.arange(pixels) / max(pixels - 1, 1) * (FOG_CELLS - 1)
    distance = np.abs(position[:, None] - np.arange(FOG_CELLS)[None, :])
    near = np.clip(1 - distance, 0, 1)
    return (near * near * (3 - 2 * near)).astype(np.float32)


def _smooth_weights(pixels: int) -> jax.Array:
    """Interpolation matrix `[pixels, cells]` with smoothstep weights; rows sum to 1."""
    return jnp.asarray(_smooth_weights_numpy(pixels))
