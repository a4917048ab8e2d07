"""Pictures of any size made pictures of one, as torchvision's Resize and CenterCrop make them."""

from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from jaxtroj.rounds.image_format import MAX_PIXELS, ImageFileError

Fit = Callable[[np.ndarray], tuple[np.ndarray, str]]
"""uint8 [h, w, c] to a picture of the one size that all get, and a note; "" for none. It raises
ImageFileError for a picture of which it can make none."""


def resizing(shorter: int, size: tuple[int, int]) -> Fit:
    """What makes the shorter side so many pixels, then cuts out the middle.

    Args:
        shorter: pixels of the shorter side, at least those of `size`.
        size: height and width in pixels of the middle.
    """
    return lambda pixels: _fitted(pixels, shorter, size)


def _fitted(pixels: np.ndarray, shorter: int, size: tuple[int, int]) -> tuple[np.ndarray, str]:
    note = (
        f"enlarged to {shorter} pixels on the shorter side"
        if min(pixels.shape[:2]) < shorter
        else ""
    )
    return center(with_shorter_side(pixels, shorter), size), note


def with_shorter_side(pixels: np.ndarray, shorter: int) -> np.ndarray:
    """A picture with so many pixels on its shorter side, in its own proportions.

    Bilinear over as many pixels as fall into one, as torchvision's Resize on PIL's pictures.

    >>> with_shorter_side(np.zeros((30, 45, 3), np.uint8), 20).shape
    (20, 30, 3)

    Args:
        pixels: uint8 [h, w, 3] or [h, w, 1].
        shorter: at least 1.

    Raises:
        ImageFileError: as `resized_size`.
    """
    new = resized_size(pixels.shape, shorter)
    if new == pixels.shape[:2]:
        return pixels
    plain = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    resized = np.asarray(plain.resize((new[1], new[0]), Image.Resampling.BILINEAR))
    return resized.reshape(*new, pixels.shape[2])


def resized_size(shape: Sequence[int], shorter: int) -> tuple[int, int]:
    """Height and width of a picture of a shape [h, w, ...] with so many pixels on its shorter side.

    >>> resized_size((500, 333), 256)
    (384, 256)

    Raises:
        ImageFileError: they are over `MAX_PIXELS` together.
    """
    height, width = shape[:2]
    least = min(height, width)
    # The same division as torchvision's: the longer side is rounded down from a float.
    new = tuple(shorter if n == least else int(shorter * n / least) for n in (height, width))
    if new[0] * new[1] > MAX_PIXELS:
        raise ImageFileError(
            f"{height} x {width} pixels would be {new[0]} x {new[1]}, expected at most {MAX_PIXELS}"
        )
    return new[0], new[1]


def center(pixels: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """The middle of a picture [h, w, c], height and width in pixels, as torchvision cuts it."""
    top, left = (round((n - m) / 2) for n, m in zip(pixels.shape, size, strict=False))
    return pixels[top : top + size[0], left : left + size[1]]
