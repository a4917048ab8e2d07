"""Procedural traffic signs: a shape with a border, a fill and a symbol, all drawn from a seed.

As in the TrojAI rounds the signs are invented: known outlines in any colour with a made-up symbol.
Classes of one seed differ in outline and fill, so that they can be told apart at 64 px.
"""

import colorsys
import math

import numpy as np
from PIL import Image, ImageDraw

_SUPERSAMPLE = 6
_BORDER = 0.86  # size of the fill relative to the outline
_GOLDEN = 0.618034  # successive hues a golden section apart stay far from each other

Points = list[tuple[float, float]]


def draw_sign(seed: int, label: int, pixels: int) -> np.ndarray:
    """Draw the sign of one class.

    Args:
        seed: identity of the sign set.
        label: class number, 0 or more; classes of one seed get different outlines and fills.
        pixels: side of the square picture.

    Returns:
        float32 `[pixels, pixels, 4]` RGBA in [0, 1], straight alpha, anti-aliased.
    """
    rng = np.random.default_rng([seed, 0x7369, label])
    outline = _outline(seed, label)
    fill, border, ink = _colours(seed, label, rng)
    big = pixels * _SUPERSAMPLE
    canvas = Image.new("RGB", (big, big), border)
    painter = ImageDraw.Draw(canvas)
    rim = 0.035
    painter.polygon(scaled(outline, 1 - rim, big), fill=border)
    painter.polygon(scaled(outline, _BORDER - rim, big), fill=fill)
    _draw_symbol(painter, rng, ink, big)
    edge = Image.new("RGB", (big, big), ink)
    inner = Image.new("L", (big, big))
    ImageDraw.Draw(inner).polygon(scaled(outline, 1 - rim, big), fill=255)
    edge.paste(canvas, mask=inner)
    alpha = Image.new("L", (big, big))
    ImageDraw.Draw(alpha).polygon(scaled(outline, 1.0, big), fill=255)
    return np.dstack([reduced(edge, pixels), reduced(alpha, pixels)[..., None]])


def reduced(canvas: Image.Image, pixels: int) -> np.ndarray:
    """The mean of each cell of a canvas drawn larger: float32 `[pixels, pixels, ...]` in [0, 1]."""
    array = np.asarray(canvas, np.float32) / np.float32(255)
    factor = canvas.size[0] // pixels
    shape = (pixels, factor, pixels, factor, *array.shape[2:])
    return array.reshape(shape).mean(axis=(1, 3))


def scaled(points: Points, scale: float, big: int) -> Points:
    """Scale points round the origin and move them from [-1, 1] to pixels of the canvas."""
    return [((x * scale + 1) * big / 2, (y * scale + 1) * big / 2) for x, y in points]


def regular(sides: int, turn: float) -> Points:
    """A regular polygon that touches the edge of [-1, 1]^2, turned by radians."""
    angles = [turn + 2 * math.pi * k / sides for k in range(sides)]
    points = [(math.cos(a), math.sin(a)) for a in angles]
    reach = max(max(abs(x), abs(y)) for x, y in points)
    return [(x / reach, y / reach) for x, y in points]


def _outlines() -> tuple[Points, ...]:
    """The outlines, each within [-1, 1]^2 with room for a symbol at the origin; y points down."""
    up = [(0.0, -1.0), (1.0, 0.75), (-1.0, 0.75)]
    down = [(x, -y) for x, y in up]
    square = [(-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)]
    tall = [(-0.68, -1.0), (0.68, -1.0), (0.68, 1.0), (-0.68, 1.0)]
    shield = [(-0.85, -0.95), (0.85, -0.95), (0.85, 0.15), (0.5, 0.7), (0.0, 1.0)]
    shield += [(-0.5, 0.7), (-0.85, 0.15)]
    pentagon = [(0.0, -1.0), (0.9, -0.3), (0.9, 0.9), (-0.9, 0.9), (-0.9, -0.3)]
    circle, octagon = regular(48, 0.0), regular(8, math.pi / 8)
    return up, circle, octagon, regular(4, 0.0), square, down, shield, pentagon, tall


def _outline(seed: int, label: int) -> Points:
    outlines = _outlines()
    order = np.random.default_rng([seed, 0x7368]).permutation(len(outlines))
    return outlines[order[label % len(outlines)]]


def _rgb(hue: float, saturation: float, value: float) -> tuple[int, int, int]:
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, saturation, value)
    return round(red * 255), round(green * 255), round(blue * 255)


def _colours(seed: int, label: int, rng: np.random.Generator) -> tuple[tuple[int, int, int], ...]:
    """Fill, border and ink; the border contrasts with the fill, the ink with both."""
    return hue_colours(float(np.random.default_rng([seed, 0x6875]).random()) + _GOLDEN * label, rng)


def hue_colours(hue: float, rng: np.random.Generator) -> tuple[tuple[int, int, int], ...]:
    """Fill, border and ink of a sign of a hue, in turns of the colour wheel."""
    if rng.random() < 0.6:  # a coloured field with a light rim
        fill = _rgb(hue, rng.uniform(0.55, 1.0), rng.uniform(0.75, 1.0))
        border = _rgb(hue, 0.04, 0.97)
    else:  # a light field with a coloured rim
        fill = _rgb(hue, rng.uniform(0.02, 0.2), rng.uniform(0.92, 1.0))
        border = _rgb(hue, rng.uniform(0.75, 1.0), rng.uniform(0.6, 0.95))
    return fill, border, _rgb(hue + 0.5, 0.3, rng.uniform(0.02, 0.15))


def _draw_symbol(painter: ImageDraw.ImageDraw, rng: np.random.Generator, ink, big: int) -> None:
    kinds = (_bars, _arrow, _dots, _glyph, _ring, _zigzag)
    kinds[int(rng.integers(len(kinds)))](painter, rng, ink, big)


def _box(painter, ink, big: int, left: float, top: float, right: float, bottom: float) -> None:
    corners = [(v + 1) * big / 2 for v in (left, top, right, bottom)]
    painter.rectangle(corners, fill=ink)


def _disc(painter, ink, big: int, x: float, y: float, radius: float) -> None:
    corners = [(v + 1) * big / 2 for v in (x - radius, y - radius, x + radius, y + radius)]
    painter.ellipse(corners, fill=ink)


def _bars(painter, rng: np.random.Generator, ink, big: int) -> None:
    count, upright = int(rng.integers(2, 4)), bool(rng.random() < 0.5)
    reach = 0.32
    for k in range(count):
        middle = (k - (count - 1) / 2) * (2 * reach / count)
        half = 0.30 * reach * 2 / count
        across = (middle - half, middle + half)
        if upright:
            _box(painter, ink, big, across[0], -reach, across[1], reach)
        else:
            _box(painter, ink, big, -reach, across[0], reach, across[1])


def _arrow(painter, rng: np.random.Generator, ink, big: int) -> None:
    turn = float(rng.integers(8)) * math.pi / 4
    shape = [(-0.12, 0.42), (0.12, 0.42), (0.12, -0.02), (0.34, -0.02), (0.0, -0.42)]
    shape += [(-0.34, -0.02), (-0.12, -0.02)]
    cos, sin = math.cos(turn), math.sin(turn)
    rotated = [(x * cos - y * sin, x * sin + y * cos) for x, y in shape]
    painter.polygon(scaled(rotated, 1.0, big), fill=ink)


def _dots(painter, rng: np.random.Generator, ink, big: int) -> None:
    count, turn = int(rng.integers(2, 5)), float(rng.uniform(0, 2 * math.pi))
    for k in range(count):
        angle = turn + 2 * math.pi * k / count
        _disc(painter, ink, big, 0.27 * math.cos(angle), 0.27 * math.sin(angle), 0.15)


def _glyph(painter, rng: np.random.Generator, ink, big: int) -> None:
    """A digit-like figure: 3 to 5 of the seven segments of a display."""
    w, h, t = 0.24, 0.4, 0.07
    segments = [(-w, -h - t, w, -h + t), (-w, -t, w, t), (-w, h - t, w, h + t)]
    segments += [(x - t, a, x + t, b) for x in (-w, w) for a, b in ((-h, 0.0), (0.0, h))]
    lit = rng.choice(len(segments), size=int(rng.integers(3, 6)), replace=False)
    for k in lit:
        _box(painter, ink, big, *segments[k])


def _ring(painter, rng: np.random.Generator, ink, big: int) -> None:
    outer, width = 0.38, float(rng.uniform(0.1, 0.16))
    corners = [(v + 1) * big / 2 for v in (-outer, -outer, outer, outer)]
    painter.ellipse(corners, outline=ink, width=round(width * big / 2))
    if rng.random() < 0.5:
        _box(painter, ink, big, -width / 2, -outer, width / 2, outer)


def _zigzag(painter, rng: np.random.Generator, ink, big: int) -> None:
    teeth = int(rng.integers(2, 4))
    xs = np.linspace(-0.36, 0.36, 2 * teeth + 1)
    points = [(float(x), 0.22 if k % 2 == 0 else -0.22) for k, x in enumerate(xs)]
    if rng.random() < 0.5:
        points = [(y, x) for x, y in points]
    painter.line(scaled(points, 1.0, big), fill=ink, width=round(0.07 * big), joint="curve")
