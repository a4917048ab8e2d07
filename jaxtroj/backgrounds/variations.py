"""The variants of one picture with a foreground: pure functions of bytes, mask and box.

Source: the data set's paper (https://arxiv.org/abs/2006.09994, appendix A) and the behaviour of the
authors' generator. A box is (left, top, right, bottom) in pixels, right and bottom not in it.
"""

import numpy as np
from PIL import Image

Box = tuple[int, int, int, int]


def only_foreground(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Black outside the mask. uint8 `[h, w, 3]` and bool `[h, w]`, as everywhere here."""
    return image * mask[..., None]


def no_foreground(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Black inside the mask."""
    return image * ~mask[..., None]


def black_box(image: np.ndarray, box: Box) -> np.ndarray:
    """Black inside the box, its right and bottom edge lines included as in the original."""
    left, top, right, bottom = box
    result = image.copy()
    result[top : bottom + 1, left : right + 1] = 0
    return result


def tiled_box(image: np.ndarray, box: Box) -> np.ndarray:
    """The box filled with copies of the largest strip beside it.

    Of the strips left, right, above and below the box (over the full height or width), the one of
    the largest area is laid from the top left corner over the whole picture, and the box shows it.
    Strips of one direction that are equal: right, bottom. Directions that are equal: vertical.

    Raises:
        ValueError: the box covers the picture; there is no background.
    """
    left, top, right, bottom = box
    height, width = image.shape[:2]
    beside, above = max(left, width - right), max(top, height - bottom)
    if not (beside or above):
        raise ValueError(f"the box {box} covers the whole picture")
    if beside * height > above * width:
        strip = image[:, right:] if width - right >= left else image[:, :left]
    else:
        strip = image[bottom:] if height - bottom >= top else image[:top]
    times = (-(-height // strip.shape[0]), -(-width // strip.shape[1]), 1)
    canvas = np.tile(strip, times)[:height, :width]
    result = image.copy()
    result[top:bottom, left:right] = canvas[top:bottom, left:right]
    return result


def on_background(image: np.ndarray, mask: np.ndarray, background: np.ndarray) -> np.ndarray:
    """The foreground on another background, by the mask.

    The authors' script takes black pixels for background, so black parts of an object became
    transparent; here the mask decides.
    """
    return np.where(mask[..., None], image, background)


def box_of(mask: np.ndarray) -> Box:
    """The smallest box around a mask. Raises ValueError for an empty one."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        raise ValueError("the mask is empty")
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def mask_of(box: Box, height: int, width: int) -> np.ndarray:
    """bool `[height, width]`, set in the box."""
    mask = np.zeros((height, width), bool)
    mask[box[1] : box[3], box[0] : box[2]] = True
    return mask


def resized(pixels: np.ndarray, size: int) -> np.ndarray:
    """Shorter side to `size * 256 / 224`: pictures bilinear, masks nearest."""
    mode = Image.Resampling.NEAREST if pixels.dtype == bool else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(pixels).resize(scaled_size(pixels, size), mode))


def scaled_size(pixels: np.ndarray, size: int) -> tuple[int, int]:
    """Width and height that `resized` gives."""
    height, width = pixels.shape[:2]
    short = round(size * 256 / 224)
    return int(short * width / min(height, width)), int(short * height / min(height, width))


def cropped(pixels: np.ndarray, size: int) -> np.ndarray:
    """The central `size` x `size` pixels."""
    top, left = ((side - size) // 2 for side in pixels.shape[:2])
    return pixels[top : top + size, left : left + size]
