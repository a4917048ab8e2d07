"""What training does to pictures, as the official generators do: a batch at a time, in torch, on
the device that trains.

Source (usnistgov/trojai-round-generation): ColorJitter(.1, .1, .1, .1), RandomResizedCrop with an
area of .8 to 1, RandomAffine(30 degrees, translate .1, scale .9 to 1.1); Round 1's page also names
mirrored pictures. Here crop and affine map are one resampling.
"""

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

_JITTER, _TURN, _SHIFT = 0.1, 30.0, 0.1
_AREAS, _SCALES, _LOG_RATIO = (0.8, 1.0), (0.9, 1.1), math.log(4 / 3)
_LUMA = (0.299, 0.587, 0.114)


def augmented(
    images: np.ndarray, side: int, draw: np.random.Generator, is_mirrored: bool, device: str = "cpu"
) -> "torch.Tensor":
    """A batch as training sees it.

    Args:
        images: uint8 RGB `[n, h, w, 3]`.
        side: of what comes out, pixels.
        draw: of all random choices.
        is_mirrored: whether half of the pictures are mirrored.
        device: what computes, and holds what comes out.

    Returns:
        float32 RGB `[n, side, side, 3]` in [0, 1].
    """
    import torch

    maps = torch.from_numpy(_maps(len(images), draw, is_mirrored)).to(device)
    pixels = torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float() / 255
    shape = [len(images), 3, side, side]
    grid = torch.nn.functional.affine_grid(maps, shape, align_corners=False)
    seen = torch.nn.functional.grid_sample(pixels, grid, align_corners=False)
    return _jittered(seen.permute(0, 2, 3, 1), draw)


def _maps(count: int, draw: np.random.Generator, is_mirrored: bool) -> np.ndarray:
    """Maps float32 `[n, 2, 3]` from places in what comes out to places in the picture, [-1, 1]."""
    area, ratio = draw.uniform(*_AREAS, count), np.exp(draw.uniform(-_LOG_RATIO, _LOG_RATIO, count))
    spans = np.minimum(np.sqrt(np.stack([area * ratio, area / ratio], axis=1)), 1.0)
    corners = draw.uniform(-1, 1, (count, 2)) * (1 - spans)
    turn = np.radians(draw.uniform(-_TURN, _TURN, count))
    scale = draw.uniform(*_SCALES, count)
    shift = 2 * draw.uniform(-_SHIFT, _SHIFT, (count, 2))
    flip = np.where(draw.uniform(size=count) < 0.5, -1.0, 1.0) if is_mirrored else np.ones(count)
    cos, sin = np.cos(turn) / scale, np.sin(turn) / scale
    rows = np.stack([np.stack([cos * flip, -sin], 1), np.stack([sin * flip, cos], 1)], axis=1)
    inner = np.concatenate([rows, shift[:, :, None]], axis=2)
    maps = spans[:, :, None] * inner
    maps[:, :, 2] += corners
    return maps.astype(np.float32)


def _jittered(pixels: "torch.Tensor", draw: np.random.Generator) -> "torch.Tensor":
    """Brightness, contrast, saturation and hue changed by up to a tenth, a picture at a time."""
    import torch

    count = len(pixels)
    light, contrast, colour = 1 + draw.uniform(-_JITTER, _JITTER, (3, count))
    hue = 2 * math.pi * draw.uniform(-_JITTER, _JITTER, count)
    maps = light[:, None, None] * _colour_maps(colour, hue)
    changed = torch.einsum("nhwc,ndc->nhwd", pixels, pixels.new_tensor(maps))
    mean = (changed @ pixels.new_tensor(_LUMA)).mean(dim=(1, 2))[:, None, None, None]
    return (mean + pixels.new_tensor(contrast)[:, None, None, None] * (changed - mean)).clip(0, 1)


def _colour_maps(saturation: np.ndarray, hue: np.ndarray) -> np.ndarray:
    """Maps `[n, 3, 3]` of RGB that keep grey: colours turned round it by `hue`, times a factor."""
    axis = 1 / math.sqrt(3)
    cos, sin = np.cos(hue)[:, None, None], np.sin(hue)[:, None, None]
    cross = axis * np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], float)
    third = np.full((3, 3), 1 / 3)
    turn = cos * (np.eye(3) - third) + sin * cross
    return third + saturation[:, None, None] * turn
