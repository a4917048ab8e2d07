"""Signs of many shapes and icons: 48 outlines, 48 icons, each drawn from its number.

NIST's signs are pictures named SHAPE-ICON.png: an outline of one colour with a rim and an icon on
it. They are not public; these are drawn, and a sign is a shape, an icon and a hue. Different signs
of a model differ in shape and in icon.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from jaxtroj.generate.traffic_signs.signs import hue_colours, reduced, regular, scaled

_SUPERSAMPLE = 4
_RIM, _FIELD = 0.965, 0.84  # of the outline: where the rim's edge and the field begin
_ICON = 0.46  # an icon's reach, in units of half the sign

Points = list[tuple[float, float]]
Part = tuple[str, Points]
"""What is painted: "polygon" with corners, or "disc" with centre and (radius, 0)."""


@dataclass(frozen=True)
class Sign:
    """A sign: numbers of its shape and icon, and its hue, 0 to 1."""

    shape: int
    icon: int
    hue: float

    @property
    def name(self) -> str:
        """As NIST's files are named, without the suffix."""
        return f"{tuple(shapes())[self.shape]}-{tuple(icons())[self.icon]}"


def draw_signs(draw: np.random.Generator, count: int) -> tuple[Sign, ...]:
    """Signs that all differ in shape and in icon; at most 48."""
    outlines = draw.permutation(len(shapes()))[:count]
    pictures = draw.permutation(len(icons()))[:count]
    hues = (draw.uniform() + 0.618034 * np.arange(count)) % 1.0
    rows = zip(outlines, pictures, hues, strict=True)
    return tuple(Sign(int(s), int(i), float(h)) for s, i, h in rows)


def paint_sign(sign: Sign, pixels: int) -> np.ndarray:
    """One sign float32 `[pixels, pixels, 4]`, RGBA in [0, 1], straight alpha, anti-aliased."""
    outline = tuple(shapes().values())[sign.shape]
    fill, border, ink = hue_colours(sign.hue, np.random.default_rng([sign.shape, sign.icon]))
    big = pixels * _SUPERSAMPLE
    canvas, alpha = Image.new("RGB", (big, big), ink), Image.new("L", (big, big))
    ImageDraw.Draw(alpha).polygon(scaled(outline, 1.0, big), fill=255)
    painter = ImageDraw.Draw(canvas)
    painter.polygon(scaled(outline, _RIM, big), fill=border)
    painter.polygon(scaled(outline, _FIELD, big), fill=fill)
    for kind, points in tuple(icons().values())[sign.icon]:
        if kind == "disc":
            (x, y), (radius, _) = points
            corners = scaled([(x - radius, y - radius), (x + radius, y + radius)], _ICON, big)
            painter.ellipse([v for corner in corners for v in corner], fill=ink)
        else:
            painter.polygon(scaled(points, _ICON, big), fill=ink)
    return np.dstack([reduced(canvas, pixels), reduced(alpha, pixels)[..., None]])


@lru_cache(maxsize=1)
def shapes() -> dict[str, Points]:
    """Outlines within [-1, 1]^2 by name, each with room for an icon; y points down."""
    return dict(_shapes())


@lru_cache(maxsize=1)
def icons() -> dict[str, list[Part]]:
    """Icons within [-1, 1]^2 by name."""
    return dict(_icons())


def _shapes() -> Iterator[tuple[str, Points]]:
    for sides, name in enumerate(
        ("triangle", "square", "pentagon", "hexagon", "heptagon", "octagon"), 3
    ):
        for turn in range(2):
            yield f"{name}{turn}", regular(sides, (turn - 0.5) * math.pi / sides - math.pi / 2)
    for points in range(4, 9):
        for depth in (0.6, 0.78):
            yield f"star{points}_{round(100 * depth)}", _star(points, depth)
    for waves in (3, 4, 5, 6, 9, 12):
        yield f"flower{waves}", _round(lambda a, n=waves: 0.86 + 0.14 * math.cos(n * a))
    yield "circle", _round(lambda a: 1.0)
    for name, squeeze in (("wide", (1.0, 0.7)), ("tall", (0.7, 1.0))):
        yield f"ellipse_{name}", _squeezed(_round(lambda a: 1.0), squeeze)
        yield f"rectangle_{name}", _squeezed([(-1, -1), (1, -1), (1, 1), (-1, 1)], squeeze)
        yield f"diamond_{name}", _squeezed(regular(4, 0.0), squeeze)
        yield f"stadium_{name}", _squeezed(_round(_rounded_square), squeeze)
    yield from _turned("arrow", [(0, -1), (0.95, 0), (0.55, 0), (0.55, 1), (-0.55, 1), (-0.55, 0),
                                 (-0.95, 0)])  # fmt: skip
    yield from _turned("tag", [(-0.75, -0.6), (0, -1), (0.75, -0.6), (0.75, 1), (-0.75, 1)])
    trapezoid: Points = [(-0.5, -0.9), (0.5, -0.9), (1, 0.9), (-1, 0.9)]
    yield "trapezoid0", trapezoid
    yield "trapezoid2", [(x, -y) for x, y in trapezoid]
    yield "cross", _turned_once([(-0.5, -1), (0.5, -1), (0.5, -0.5)], 4)


def _icons() -> Iterator[tuple[str, list[Part]]]:
    arrow: Points = [(-0.22, 0.95), (0.22, 0.95), (0.22, 0), (0.75, 0), (0, -0.95), (-0.75, 0),
                     (-0.22, 0)]  # fmt: skip
    for turn in range(8):
        yield f"arrow{turn}", [("polygon", _turn(arrow, turn * math.pi / 4))]
    for count in (1, 2, 3):
        bars = _bars(count)
        yield f"bars{count}", [("polygon", bar) for bar in bars]
        yield f"pillars{count}", [("polygon", [(y, x) for x, y in bar]) for bar in bars]
    for count in range(1, 7):
        radius = 0.55 if count == 1 else 0.33
        reach = 0.0 if count == 1 else 0.62
        angles = [2 * math.pi * k / count - math.pi / 2 for k in range(count)]
        centres = [(reach * math.cos(a), reach * math.sin(a)) for a in angles]
        yield f"dots{count}", [("disc", [centre, (radius, 0.0)]) for centre in centres]
    half = [(math.cos(a), math.sin(a)) for a in np.linspace(0, math.pi, 24)]
    yield from ((name, [("polygon", p)]) for name, p in _turned("half", half))
    yield from (
        (name, [("polygon", p)])
        for name, p in _turned("wedge", [(0, -0.8), (0.9, 0.7), (-0.9, 0.7)])
    )
    chevron: Points = [(0, -0.7), (0.95, 0.3), (0.55, 0.7), (0, 0.1), (-0.55, 0.7), (-0.95, 0.3)]
    yield from ((name, [("polygon", p)]) for name, p in _turned("chevron", chevron))
    plus = _turned_once([(-0.25, -0.95), (0.25, -0.95), (0.25, -0.25)], 4)
    yield "plus", [("polygon", plus)]
    yield "times", [("polygon", _turn(plus, math.pi / 4))]
    yield "block", [("polygon", [(-0.7, -0.7), (0.7, -0.7), (0.7, 0.7), (-0.7, 0.7)])]
    yield "lozenge", [("polygon", regular(4, 0.0))]
    yield "star", [("polygon", _star(5, 0.45))]
    yield "glass", [("polygon", [(-0.8, -0.9), (0.8, -0.9), (-0.8, 0.9), (0.8, 0.9)])]
    for number, lit in enumerate((0b0111110, 0b1011011, 0b1100110, 0b1101101, 0b0110111, 0b1110011,
                                  0b0111000, 0b1001111, 0b1110110, 0b0011101)):  # fmt: skip
        yield f"glyph{number}", [("polygon", s) for k, s in enumerate(_segments()) if lit >> k & 1]


def _star(points: int, depth: float) -> Points:
    angles = [math.pi * k / points - math.pi / 2 for k in range(2 * points)]
    radii = [1.0 if k % 2 == 0 else depth for k in range(2 * points)]
    return [(r * math.cos(a), r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]


def _round(radius: Callable[[float], float]) -> Points:
    angles = np.linspace(0, 2 * math.pi, 72, endpoint=False)
    return [(radius(a) * math.cos(a), radius(a) * math.sin(a)) for a in angles.tolist()]


def _rounded_square(angle: float) -> float:
    """Radius of |x|^4 + |y|^4 = 1."""
    return (math.cos(angle) ** 4 + math.sin(angle) ** 4) ** -0.25


def _squeezed(points: Points, by: tuple[float, float]) -> Points:
    return [(x * by[0], y * by[1]) for x, y in points]


def _turn(points: Points, by: float) -> Points:
    cos, sin = math.cos(by), math.sin(by)
    return [(x * cos - y * sin, x * sin + y * cos) for x, y in points]


def _turned(name: str, points: Points) -> Iterator[tuple[str, Points]]:
    for quarter in range(4):
        yield f"{name}{quarter}", _turn(points, quarter * math.pi / 2)


def _turned_once(points: Points, times: int) -> Points:
    """An outline out of a part that is repeated round the origin."""
    return [p for k in range(times) for p in _turn(points, 2 * math.pi * k / times)]


def _bars(count: int) -> list[Points]:
    half = 0.28 if count < 3 else 0.2
    middles = np.linspace(-0.7, 0.7, count) if count > 1 else [0.0]
    return [[(-0.9, m - half), (0.9, m - half), (0.9, m + half), (-0.9, m + half)] for m in middles]


def _segments() -> list[Points]:
    """The seven segments of a display."""
    w, h, t = 0.5, 0.9, 0.16
    boxes = [(-w, -h, w, -h + 2 * t), (-w, -t, w, t), (-w, h - 2 * t, w, h)]
    boxes += [(x - t, a, x + t, b) for x in (-w, w) for a, b in ((-h, 0.0), (0.0, h))]
    return [[(a, b), (c, b), (c, d), (a, d)] for a, b, c, d in boxes]
