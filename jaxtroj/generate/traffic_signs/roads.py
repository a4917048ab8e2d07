"""Procedural road scenes: sky, hills, verge, trees, a road in perspective with lane marks."""

import numpy as np
from PIL import Image, ImageDraw

_SUPERSAMPLE = 2


def draw_road(seed: int, index: int, pixels: int) -> np.ndarray:
    """Draw one road scene.

    Args:
        seed: identity of the set of scenes.
        index: number of the scene in the set; scenes are independent of each other.
        pixels: side of the square picture.

    Returns:
        uint8 `[pixels, pixels, 3]` RGB.
    """
    rng = np.random.default_rng([seed, 0x726F, index])
    big = pixels * _SUPERSAMPLE
    horizon = float(rng.uniform(0.35, 0.6))
    canvas = Image.fromarray(_sky_and_ground(rng, horizon, big))
    painter = ImageDraw.Draw(canvas)
    light = float(rng.uniform(0.45, 1.0))
    _hills(painter, rng, horizon, light, big)
    _trees(painter, rng, horizon, light, big)
    _road(painter, rng, horizon, light, big)
    picture = np.asarray(canvas.reduce(_SUPERSAMPLE), np.float32)
    grain = smooth_noise(rng, pixels, 8) * 18 + rng.normal(0, 5, (pixels, pixels, 1))
    return np.clip(np.rint(picture + grain), 0, 255).astype(np.uint8)


def smooth_noise(rng: np.random.Generator, pixels: int, cells: int) -> np.ndarray:
    """Smooth random field `[pixels, pixels, 1]`, roughly in [-1, 1], `cells` bumps a side."""
    coarse = Image.fromarray(rng.uniform(-1, 1, (cells, cells)).astype(np.float32))
    return np.asarray(coarse.resize((pixels, pixels), Image.Resampling.BICUBIC))[..., None]


def _sky_and_ground(rng: np.random.Generator, horizon: float, big: int) -> np.ndarray:
    rows = np.linspace(0, 1, big, dtype=np.float32)[:, None, None]
    zenith = rng.uniform(0.5, 1.05) * np.array((105, 145, 215)) + rng.normal(0, 10, 3)
    haze = rng.uniform(150, 245) + rng.normal(0, 9, 3)  # nearly grey
    sky = zenith + (haze - zenith) * np.minimum(rows / horizon, 1)
    clouds = np.clip(smooth_noise(rng, big, int(rng.integers(3, 9))), 0, 1) * rng.uniform(0, 90)
    sky = sky + clouds
    near, far = earth_colour(rng), earth_colour(rng)
    ground = far + (near - far) * np.clip((rows - horizon) / (1 - horizon), 0, 1)
    ground = ground + smooth_noise(rng, big, 16) * 22
    return np.clip(np.where(rows < horizon, sky, ground), 0, 255).astype(np.uint8)


def earth_colour(rng: np.random.Generator) -> np.ndarray:
    """A ground or leaf colour `[3]`: between two of grass, dry grass, soil, rock and snow."""
    grass, soil = [(58, 92, 40), (38, 60, 34), (140, 130, 80)], [(110, 90, 65)]
    palette = np.array(grass + soil + [(125, 125, 120), (205, 208, 215)])
    first, second = palette[rng.choice(len(palette), 2, p=[0.3, 0.25, 0.15, 0.12, 0.12, 0.06])]
    blend = rng.random()
    return blend * first + (1 - blend) * second


def _shade(colour: np.ndarray, light: float) -> tuple[int, int, int]:
    red, green, blue = np.clip(colour * light, 0, 255).astype(int)
    return int(red), int(green), int(blue)


def _hills(painter: ImageDraw.ImageDraw, rng, horizon: float, light: float, big: int) -> None:
    xs = np.linspace(0, 1, 40)
    for layer in range(int(rng.integers(1, 4))):
        rise = np.zeros_like(xs)
        for _ in range(3):
            waves, phase = rng.uniform(1, 5), rng.uniform(0, 6.3)
            rise += rng.uniform(0.01, 0.06) * (1 + np.sin(6.3 * waves * xs + phase))
        heights = horizon + 0.02 - rise * (1 - 0.25 * layer)
        ridge = [(float(x) * big, float(y) * big) for x, y in zip(xs, heights, strict=True)]
        base = [(big, (horizon + 0.03) * big), (0, (horizon + 0.03) * big)]
        painter.polygon(ridge + base, fill=_shade(earth_colour(rng) + 15 * layer, light))


def _trees(painter: ImageDraw.ImageDraw, rng, horizon: float, light: float, big: int) -> None:
    for _ in range(int(rng.integers(0, 14))):
        side = -1 if rng.random() < 0.5 else 1
        depth = float(rng.uniform(0.05, 1.0)) ** 2
        x = 0.5 + side * (0.12 + 0.5 * depth + float(rng.uniform(0, 0.15)))
        foot, size = horizon + depth * 0.35, 0.05 + 0.25 * depth
        trunk = [(x - 0.05 * size), foot - size, x + 0.05 * size, foot]
        painter.rectangle([v * big for v in trunk], fill=_shade(np.array([80.0, 60, 45]), light))
        green = earth_colour(rng)
        for _ in range(4):
            cx, cy = x + rng.normal(0, 0.18) * size, foot - size * rng.uniform(0.6, 1.2)
            r = size * rng.uniform(0.2, 0.4)
            crown = [float(v) * big for v in (cx - r, cy - r, cx + r, cy + r)]
            painter.ellipse(crown, fill=_shade(green * rng.uniform(0.8, 1.2), light))


def _road(painter: ImageDraw.ImageDraw, rng, horizon: float, light: float, big: int) -> None:
    """Strips from the horizon down; the centre bends as 1/distance does in perspective."""
    vanish, bend = float(rng.uniform(0.35, 0.65)), float(rng.uniform(-0.35, 0.35))
    foot, half = float(rng.uniform(0.3, 0.7)), float(rng.uniform(0.3, 0.6))
    asphalt, mark = rng.uniform(60, 130) + rng.normal(0, 5, 3), rng.uniform((190, 170, 90), 245)
    steps = np.linspace(0, 1, 49)
    centre = vanish + (foot - vanish) * steps + bend * (1 - steps) ** 2 * steps
    top = horizon + (1 - horizon) * steps
    for k in range(48):
        edges = [(float(centre[j]), float(top[j]), half * float(steps[j])) for j in (k, k + 1)]
        painter.polygon(_strip(edges, -1.0, 1.0, big), fill=_shade(asphalt, light))
        for left in (-0.93, 0.88):
            painter.polygon(_strip(edges, left, left + 0.05, big), fill=_shade(mark, light))
        if int(6 / (0.15 + steps[k])) % 2 == 0:
            painter.polygon(_strip(edges, -0.03, 0.03, big), fill=_shade(mark, light))


def _strip(edges, left: float, right: float, big: int) -> list[tuple[float, float]]:
    (c0, y0, h0), (c1, y1, h1) = edges
    corners = [(c0 + left * h0, y0), (c0 + right * h0, y0)]
    corners += [(c1 + right * h1, y1), (c1 + left * h1, y1)]
    return [(x * big, y * big) for x, y in corners]
