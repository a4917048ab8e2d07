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

import io
from pathlib import Path

import numpy as np

from jaxtroj.errors import DatasetError
from jaxtroj.rounds.image_file import ImageFileError, read_bytes, read_rgb

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif")
"""Endings, in lower case, that the published loader takes for pictures."""
_MAX_NPY_HEADER = 1024


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
        values = _npy(read_bytes(path))
    except (ImageFileError, ValueError, SyntaxError, TypeError) as error:
        raise DatasetError(f"{path}: {error}; expected a 2-D .npy array of 0 and 1") from error
    if values.ndim != 2 or not values.size:
        raise DatasetError(f"{path}: an array of shape {values.shape}, expected a 2-D mask")
    if not ((values == 0) | (values == 1)).all():
        raise DatasetError(f"{path}: holds other values than 0 and 1; expected a mask of these")
    return values.astype(bool)


def _npy(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"npy version {version}")
    shape, column_major, dtype = readers[version](stream, max_header_size=_MAX_NPY_HEADER)
    if dtype.kind not in "buif" or dtype.itemsize > 8:
        raise ValueError(f"elements of type {dtype}")
    # Python's integers: a product of hostile extents must not wrap around.
    count = 1
    for extent in shape:
        count *= int(extent)
    rest = len(content) - stream.tell()
    if rest != count * dtype.itemsize:
        raise ValueError(f"{rest} bytes of data for shape {shape[:4]} of {dtype}")
    values = np.frombuffer(content, dtype, count, stream.tell())
    return values.reshape(shape, order="F" if column_major else "C")
