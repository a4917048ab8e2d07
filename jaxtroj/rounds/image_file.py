"""One example picture: checked from its header first, then decoded to RGB bytes.

Example folders come from strangers, so nothing is decoded before the header has been checked
against caps, and only PNG and JPEG are decoded at all; the content says which, not the name. The
policy, per kind of picture:

| picture | what happens |
|---|---|
| 8-bit RGB | read as it is, in the orientation of its pixels: what EXIF says of it is ignored |
| grayscale (1 to 8 bits), palette | converted to RGB, with a note |
| colours, where one channel is asked for | converted to grey by luma, with a note |
| with an alpha channel, opaque everywhere | alpha dropped, with a note |
| with transparent pixels | refused: the colour the model would see is undefined |
| CMYK, YCCK | refused: without the colour profile the conversion to RGB is a guess |
| more than 8 bits a channel | refused: scaling to 8 bits is a guess |
| animated, or several pictures in one file | refused |
| neither JPEG nor PNG, truncated, corrupt, empty, over the caps, not a plain file | refused |

PNG has checksums; in a JPEG, bytes that were changed inside the picture may pass for other pixels.
"""

import io
import os
import stat
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

import numpy as np
from PIL import Image

from jaxtroj.rounds import jpeg_file, png_file
from jaxtroj.rounds.image_format import Header, ImageFileError

SUFFIXES = (".png", ".jpg", ".jpeg")
"""Endings, in lower case, of the names that are taken for pictures."""
MAX_FILE_BYTES = 64 * 2**20
_FORMATS = (png_file, jpeg_file)


def is_named_as_picture(name: str) -> bool:
    """Whether a file's name ends as a picture's, in any case.

    >>> is_named_as_picture("n01440764_10026.JPEG"), is_named_as_picture("data.csv")
    (True, False)
    """
    return name.lower().endswith(SUFFIXES)


def read_bytes(path: Path) -> bytes:
    """The content of a plain file of at most `MAX_FILE_BYTES`. Raises ImageFileError."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise ImageFileError("not a plain file")
        if status.st_size > MAX_FILE_BYTES:
            raise ImageFileError(f"larger than {MAX_FILE_BYTES} bytes")
        with open(path, "rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise ImageFileError(f"cannot be read ({error.strerror or error})") from error


def read_header(path: Path) -> Header:
    """The checked header of a picture, without reading its pixels. Raises ImageFileError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ImageFileError("not a plain file")
        with open(path, "rb") as file:
            return _format_of(file).read_header(file)
    except OSError as error:
        raise ImageFileError(f"cannot be read ({error.strerror or error})") from error


def read_rgb(path: Path) -> tuple[np.ndarray, str | None]:
    """Decodes one picture.

    Returns:
        uint8 [h, w, 3] in RGB order, and a note where it was not plain 8-bit RGB on disk.
    Raises:
        ImageFileError: the picture cannot be used; the message says why.
    """
    content = read_bytes(path)
    file = io.BytesIO(content)
    reader = _format_of(file)
    return reader.decode(content, reader.read_header(file))


def read_grey(path: Path) -> tuple[np.ndarray, str | None]:
    """Decodes one picture as `read_rgb`, to uint8 [h, w, 1]; colours are converted by luma
    (Rec. 601).

    The note then says so. Raises ImageFileError.
    """
    pixels, note = read_rgb(path)
    grey, lost = to_grey(pixels)
    is_whole = note is None or note.endswith("converted to RGB")
    return grey, lost or (None if is_whole else note)


def to_grey(pixels: np.ndarray) -> tuple[np.ndarray, str | None]:
    """uint8 [h, w, 3] in RGB order to grey, uint8 [h, w, 1], and a note where it had colours."""
    if (pixels == pixels[..., :1]).all():
        return np.ascontiguousarray(pixels[..., :1]), None
    grey = np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    return grey, "colour converted to grey (luma), since the network takes one channel"


def _format_of(file: BinaryIO) -> ModuleType:
    """The reader of a file's format, by its first bytes; the file stands at its beginning then."""
    start = file.read(max(len(reader.SIGNATURE) for reader in _FORMATS))
    file.seek(0)
    if not start:
        raise ImageFileError("empty file")
    for reader in _FORMATS:
        if start.startswith(reader.SIGNATURE):
            return reader
    raise ImageFileError("neither JPEG nor PNG")
