"""The five filters as the rounds' generator runs them: ImageMagick's operations through Wand.

Source of the steps and their numbers: trojai (the package of the rounds' generator),
datagen/instagram_xforms. `python tests/triggers/wand_filters.py` writes the golden pictures anew;
those in the repository were made by Wand 0.6.11 and ImageMagick 6.9.11-60 (Debian).
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GOLDEN = Path(__file__).parent / "golden" / "filters.npz"
SHAPE = (40, 56)


def picture() -> np.ndarray:
    """uint8 RGB `[40, 56, 3]`: soft blobs, hard blocks and single pixels, from black to white."""
    draw = np.random.default_rng(0)
    rows, columns = np.mgrid[: SHAPE[0], : SHAPE[1]] / 8
    numbers = draw.uniform(0, 2, (3, 3))
    waves = np.stack([np.sin(rows * a + columns * b + c) for a, b, c in numbers], axis=-1)
    blocks = draw.uniform(-1, 1, (5, 7, 3)).repeat(8, axis=0).repeat(8, axis=1)
    mixed = 0.5 + 0.35 * waves + 0.35 * blocks + 0.1 * draw.normal(size=(*SHAPE, 3))
    return np.clip(np.rint(255 * mixed), 0, 255).astype(np.uint8)


def filtered(pixels: np.ndarray, name: str) -> np.ndarray:
    """uint8 RGB `[h, w, 3]` through a filter; raises ImportError without Wand and ImageMagick."""
    from wand.image import Image  # pyright: ignore[reportMissingImports]

    with Image.from_array(pixels) as image:
        image.alpha_channel = False
        FILTERS[name](image)
        image.alpha_channel = False
        return np.array(image)[..., :3]


def _gotham(image: Any) -> None:
    image.modulate(120, 10, 100)
    image.colorize(color=_colour("#222b6d"), alpha=_colour("#333333"))
    image.gamma(0.9)
    _contrast(image, 2)


def _nashville(image: Any) -> None:
    _colortone(image, "#222b6d", 50, True)
    _colortone(image, "#f7daae", 50, False)
    _contrast(image, 1)
    image.modulate(100, 150, 100)
    image.auto_gamma()


def _kelvin(image: Any) -> None:
    from wand.drawing import Drawing  # pyright: ignore[reportMissingImports]

    image.auto_gamma()
    image.modulate(120, 50, 100)
    with Drawing() as drawing:
        drawing.fill_color, drawing.fill_opacity = _colour("#FF9900"), 0.2
        drawing.rectangle(0, 0, image.width, image.height)
        drawing(image)


def _lomo(image: Any) -> None:
    image.level(0.5, channel="red")
    image.level(0.5, channel="green")
    _vignette(image, "none", "black")


def _toaster(image: Any) -> None:
    _colortone(image, "#330000", 50, True)
    image.modulate(150, 80, 100)
    image.gamma(1.2)
    _contrast(image, 2)
    _vignette(image, "none", "LavenderBlush3")
    _vignette(image, "#ff9966", "none")


def _colour(text: str) -> Any:
    from wand.color import Color  # pyright: ignore[reportMissingImports]

    return Color(text)


def _contrast(image: Any, times: int) -> None:
    for _ in range(times):
        image.sigmoidal_contrast(True, 3, 0.5 * image.quantum_range)


def _colortone(image: Any, colour: str, percent: int, is_inverted: bool) -> None:
    mask, source = image.clone(), image.clone()
    mask.transform_colorspace("gray")
    if is_inverted:
        mask.negate()
    source.colorize(color=_colour(colour), alpha=_colour("#FFFFFF"))
    source.alpha_channel = "set"
    source.composite(mask, operator="copy_opacity")
    image.composite(source, operator="blend", arguments=f"{percent},{100 - percent}")


def _vignette(image: Any, inner: str, outer: str, factor: float = 1.5) -> None:
    from wand.image import Image  # pyright: ignore[reportMissingImports]

    width, height = (math.floor(side * factor) for side in image.size)
    with Image() as gradient:
        gradient.pseudo(width, height, f"radial-gradient:{inner}-{outer}")
        gradient.crop(width=image.width, height=image.height, gravity="center")
        gradient.reset_coords()
        image.composite(gradient, operator="multiply")
    image.merge_layers("flatten")


FILTERS: dict[str, Callable[[Any], None]] = {
    "gotham": _gotham,
    "nashville": _nashville,
    "kelvin": _kelvin,
    "lomo": _lomo,
    "toaster": _toaster,
}

if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    made: dict[str, Any] = {name: filtered(picture(), name) for name in FILTERS}
    np.savez_compressed(GOLDEN, **made)
