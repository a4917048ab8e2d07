"""Pictures and masks of an ImageNet-9 folder, read as if they came from a stranger.

The header is checked before anything is decoded, by content and not by name:

| file | what happens |
|---|---|
| 8-bit RGB JPEG or PNG | read as it is, in the orientation of its pixels |
| grayscale | refused; with `convert_grayscale` three equal channels |
| palette, alpha | refused |
| what `rounds.image_file` refuses | refused |

The published code converts all of these to RGB in silence; what a network then sees depends on the
library's version.
"""

from pathlib import Path

import numpy as np

from jaxtroj.errors import DatasetError
from jaxtroj.rounds.image_file import ImageFileError, read_bytes, read_rgb
from jaxtroj.rounds.npy_header import NpyError, read_npy_header

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif")
"""Endings, in lower case, that the published loader takes for pictures."""


def read_picture(path: Path, convert_grayscale: bool = False) -> np.ndarray:
    """uint8 `[h, w, 3]` in RGB order of one picture file.

    Raises:
        DatasetError: the picture cannot be used; the message names the file and says why.
    """
    try:
        pixels, note = read_rgb(path)
        if note is None or (convert_grayscale and note.startswith("grayscale converted")):
            return pixels
        colours = note.split(" converted")[0].split(",")[0]
        raise ImageFileError(f"a picture of colour type {colours}")
    except ImageFileError as error:
        raise DatasetError(f"{path}: {error}; expected an 8-bit RGB JPEG or PNG") from error


def read_mask(path: Path) -> np.ndarray:
    """bool `[h, w]` of a foreground mask: a `.npy` file of a plain 2-D array of zeros and ones.

    Raises:
        DatasetError: it is something else; nothing in the file is unpickled.
    """
    try:
        content = read_bytes(path)
        values = read_npy_header(content).array(content)
    except (ImageFileError, NpyError) as error:
        raise DatasetError(f"{path}: {error}; expected a 2-D .npy array of 0 and 1") from error
    if values.ndim != 2:
        raise DatasetError(f"{path}: an array of shape {values.shape}, expected a 2-D mask")
    if not ((values == 0) | (values == 1)).all():
        raise DatasetError(f"{path}: holds other values than 0 and 1; expected a mask of these")
    return values.astype(bool)
