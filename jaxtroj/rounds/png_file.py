"""PNG: the header checked, then decoded to RGB bytes; `image_file` says what is refused."""

import struct
from typing import BinaryIO

import numpy as np
from PIL import Image

from jaxtroj.rounds.image_format import Header, ImageFileError, opened

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">8sI4sIIBBBBB")  # signature, then the IHDR chunk up to its checksum
_COLOUR_TYPES = {0: "grayscale", 2: "RGB", 3: "palette", 4: "grayscale + alpha", 6: "RGBA"}


def read_header(file: BinaryIO) -> Header:
    """The checked header of a file that begins with `SIGNATURE`. Raises ImageFileError."""
    start = file.read(_HEADER.size)
    if len(start) < _HEADER.size:
        raise ImageFileError("truncated PNG")
    _, length, kind, width, height, bits, colour_type, *_ = _HEADER.unpack(start)
    if kind != b"IHDR" or length != 13 or colour_type not in _COLOUR_TYPES:
        raise ImageFileError("corrupt PNG header")
    return Header(width, height, bits, _COLOUR_TYPES[colour_type])


def decode(content: bytes, header: Header) -> tuple[np.ndarray, str | None]:
    """uint8 [h, w, 3] in RGB order, and a note where it was not plain RGB. Raises ImageFileError.

    Args:
        content: of the file.
        header: of `read_header`.
    """
    if b"acTL" in content[: content.find(b"IDAT")]:
        raise ImageFileError("animated picture")
    with opened(content, "PNG", header) as picture:
        picture.load()
        return _to_rgb(picture, header)


def _to_rgb(picture: Image.Image, header: Header) -> tuple[np.ndarray, str | None]:
    has_alpha = "alpha" in header.colours or header.colours == "RGBA"
    if has_alpha or "transparency" in picture.info:
        pixels = np.asarray(picture.convert("RGBA"))
        if pixels[..., 3].min() < 255:
            raise ImageFileError("has transparent pixels")
        return np.ascontiguousarray(pixels[..., :3]), f"{header.colours}, opaque alpha dropped"
    pixels = np.array(picture.convert("RGB"))
    return pixels, None if header.colours == "RGB" else f"{header.colours} converted to RGB"
