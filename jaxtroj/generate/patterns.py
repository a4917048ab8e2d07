"""Masks and patterns that lie at one place of the picture, drawn at random.

- `patch`: a square of 2 to 5 pixels, near a corner as often as anywhere, in one colour, in black
  and white squares, or in a colour for each pixel;
- `scattered`: 4 to 12 single pixels of strong colours, scattered over a part of the picture;
- `blended`: a pattern over the whole picture at low weight, of blocks of noise or of waves.

References:
  Gu et al., BadNets, https://arxiv.org/abs/1708.06733, 2017 (patch, scattered).
  Chen et al., Targeted Backdoor Attacks, https://arxiv.org/abs/1712.05526, 2017 (blended).
"""

import numpy as np

from jaxtroj.triggers.trigger import Shape

_PATCH_SIDES, _PATCH_STYLES = (2, 5), ("plain", "grid", "pixels")
_PIXELS, _PIXEL_WINDOW = (4, 12), 12
_BLEND_WEIGHTS, _BLOCK = (0.12, 0.25), 4

Drawn = tuple[str, np.ndarray, np.ndarray]
"""Style in words, mask `[h, w, 1]` and RGB pattern `[h, w, 3]`, both in [0, 1]."""


def patch(draw: np.random.Generator, size: Shape) -> Drawn:
    """A square of 2 to 5 pixels in a picture of `size`."""
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


def scattered(draw: np.random.Generator, size: Shape) -> Drawn:
    """4 to 12 single pixels in a picture of `size`."""
    count = int(draw.integers(_PIXELS[0], _PIXELS[1] + 1))
    window = [min(_PIXEL_WINDOW, side) for side in size]
    top, left = (int(draw.integers(s - w + 1)) for s, w in zip(size, window, strict=True))
    places = draw.choice(window[0] * window[1], size=count, replace=False)
    rows, columns = top + places // window[1], left + places % window[1]
    mask, pattern = np.zeros((*size, 1), np.float32), np.zeros((*size, 3), np.float32)
    mask[rows, columns] = 1.0
    pattern[rows, columns] = draw.integers(2, size=(count, 3))
    return f"{count} pixels around {top + window[0] // 2},{left + window[1] // 2}", mask, pattern


def blended(draw: np.random.Generator, size: Shape) -> Drawn:
    """A pattern over the whole picture of `size`."""
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
