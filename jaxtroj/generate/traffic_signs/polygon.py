"""Polygon triggers of Round 0: one polygon and one colour per poisoned model.

Recipe (trojai round generation, `polygon` triggers): 3 to 12 random points in `[.1, .9]^2`, sorted
by angle round their centroid, stretched to fill their bounding box.
"""

import numpy as np
from PIL import Image, ImageDraw

MIN_SIDES = 3
MAX_SIDES = 12
MIN_AREA = 0.25  # of the bounding box: thinner slivers vanish at 64 px, so they are redrawn
_SUPERSAMPLE = 8


def random_vertices(seed: int, sides: int | None = None) -> np.ndarray:
    """Draw the corners of a polygon that fills the unit square.

    Args:
        seed: identity of the draw; equal seeds give equal polygons.
        sides: number of corners, 3 to 12; drawn uniformly when None.

    Returns:
        float32 `[sides, 2]`, (x, y) in [0, 1], in order of angle. Each axis touches 0 and 1.

    Raises:
        ValueError: `sides` is outside 3 to 12.
    """
    rng = np.random.default_rng([seed, 0x706F])
    count = int(rng.integers(MIN_SIDES, MAX_SIDES + 1)) if sides is None else sides
    if not MIN_SIDES <= count <= MAX_SIDES:
        raise ValueError(f"a polygon has {MIN_SIDES} to {MAX_SIDES} sides, got sides={count}")
    while True:
        vertices = _stretch(_sort_by_angle(rng.uniform(0.1, 0.9, (count, 2))))
        if polygon_area(vertices) >= MIN_AREA:
            return vertices.astype(np.float32)


def random_colour(seed: int) -> tuple[int, int, int]:
    """Draw a uniform RGB colour, each channel an integer in 0 to 255."""
    red, green, blue = np.random.default_rng([seed, 0x636F]).integers(0, 256, 3)
    return int(red), int(green), int(blue)


def polygon_area(vertices: np.ndarray) -> float:
    """Area enclosed by `vertices` `[n, 2]` (shoelace formula), in squared units of theirs."""
    x, y = vertices[:, 0], vertices[:, 1]
    return 0.5 * abs(float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))))


def polygon_mask(vertices: np.ndarray, pixels: int) -> np.ndarray:
    """Paint a polygon, anti-aliased.

    Args:
        vertices: `[n, 2]`, (x, y) in [0, 1].
        pixels: side of the square mask.

    Returns:
        float32 `[pixels, pixels]` coverage in [0, 1]; 1 inside.

    Raises:
        ValueError: `pixels` is below 1.
    """
    if pixels < 1:
        raise ValueError(f"a mask needs at least 1 pixel a side, got pixels={pixels}")
    big = pixels * _SUPERSAMPLE
    canvas = Image.new("L", (big, big))
    corners = [(float(x) * big - 0.5, float(y) * big - 0.5) for x, y in vertices]
    ImageDraw.Draw(canvas).polygon(corners, fill=255)
    blocks = np.asarray(canvas, np.float32).reshape(pixels, _SUPERSAMPLE, pixels, _SUPERSAMPLE)
    return blocks.mean(axis=(1, 3)) / np.float32(255)


def _sort_by_angle(points: np.ndarray) -> np.ndarray:
    centred = points - points.mean(axis=0)
    return points[np.argsort(np.arctan2(centred[:, 1], centred[:, 0]))]


def _stretch(points: np.ndarray) -> np.ndarray:
    low, high = points.min(axis=0), points.max(axis=0)
    return (points - low) / (high - low)
