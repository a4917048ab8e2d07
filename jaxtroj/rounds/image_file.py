"""One example picture: checked from its header first, then decoded to RGB bytes.

Example folders come from strangers, so nothing is decoded before the header has been checked
against caps, and only PNG is decoded at all. The policy, per kind of picture:

| picture | what happens |
|---|---|
| 8-bit RGB | read as it is |
| grayscale (1 to 8 bits), palette | converted to RGB, with a note |
| colours, where one channel is asked for | converted to grey by luma, with a note |
| with an alpha channel, opaque everywhere | alpha dropped, with a note |
| with transparent pixels | refused: the colour the model would see is undefined |
| 16 bits a channel | refused: scaling to 8 bits is a guess |
| animated | refused |
| not PNG, truncated, corrupt, empty, over the caps, not a plain file | refused |
"""

import io
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

MAX_FILE_BYTES = 64 * 2**20
MAX_PIXELS = 4096 * 4096
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">8sI4sIIBBBBB")  # signature, then the IHDR chunk up to its checksum
_COLOUR_TYPES = {0: "grayscale", 2: "RGB", 3: "palette", 4: "grayscale + alpha", 6: "RGBA"}
_DECODE_ERRORS = (  # what Pillow is known to raise on damaged PNG streams
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    IndexError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


class ImageFileError(Exception):
    """One picture cannot be used; the message is the reason, without the file's name."""


@dataclass(frozen=True)
class Header:
    """What a PNG says about itself: size in pixels, bits a channel, name of its colour type."""

    width: int
    height: int
    bits: int
    colours: str


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
    """The checked header of a PNG, without reading its pixels. Raises ImageFileError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ImageFileError("not a plain file")
        with open(path, "rb") as file:
            return parse_header(file.read(_HEADER.size))
    except OSError as error:
        raise ImageFileError(f"cannot be read ({error.strerror or error})") from error


def parse_header(start: bytes) -> Header:
    """Checks the first 29 bytes of a file against the PNG format and this module's policy."""
    if not start:
        raise ImageFileError("empty file")
    if not start.startswith(PNG_SIGNATURE):
        raise ImageFileError("not a PNG picture")
    if len(start) < _HEADER.size:
        raise ImageFileError("truncated PNG")
    _, length, kind, width, height, bits, colour_type, *_ = _HEADER.unpack(start[: _HEADER.size])
    if kind != b"IHDR" or length != 13 or colour_type not in _COLOUR_TYPES:
        raise ImageFileError("corrupt PNG header")
    if not width or not height or width * height > MAX_PIXELS:
        raise ImageFileError(f"{width} x {height} pixels, expected 1 to {MAX_PIXELS} in all")
    if bits > 8:
        raise ImageFileError(f"{bits} bits a channel, expected 8")
    return Header(width, height, bits, _COLOUR_TYPES[colour_type])


def read_rgb(path: Path) -> tuple[np.ndarray, str | None]:
    """Decodes one PNG.

    Returns:
        uint8 [h, w, 3] in RGB order, and a note where it was not plain 8-bit RGB on disk.
    Raises:
        ImageFileError: the picture cannot be used; the message says why.
    """
    content = read_bytes(path)
    header = parse_header(content[: _HEADER.size])
    if b"acTL" in content[: content.find(b"IDAT")]:
        raise ImageFileError("animated picture")
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            if picture.size != (header.width, header.height):
                raise ImageFileError("corrupt PNG: two headers that disagree")
            picture.load()
            return _to_rgb(picture, header)
    except _DECODE_ERRORS as error:
        raise ImageFileError(f"corrupt or truncated PNG ({error})") from error


def read_grey(path: Path) -> tuple[np.ndarray, str | None]:
    """Decodes one PNG as `read_rgb`, to uint8 [h, w, 1]; colours are converted by luma (Rec. 601).

    The note then says so. Raises ImageFileError.
    """
    pixels, note = read_rgb(path)
    if (pixels == pixels[..., :1]).all():
        is_whole = note is None or note.endswith("converted to RGB")
        return np.ascontiguousarray(pixels[..., :1]), None if is_whole else note
    grey = np.asarray(Image.fromarray(pixels).convert("L"))[..., None]
    return grey, "colour converted to grey (luma), since the network takes one channel"


def _to_rgb(picture: Image.Image, header: Header) -> tuple[np.ndarray, str | None]:
    has_alpha = "alpha" in header.colours or header.colours == "RGBA"
    if has_alpha or "transparency" in picture.info:
        pixels = np.asarray(picture.convert("RGBA"))
        if pixels[..., 3].min() < 255:
            raise ImageFileError("has transparent pixels")
        return np.ascontiguousarray(pixels[..., :3]), f"{header.colours}, opaque alpha dropped"
    pixels = np.array(picture.convert("RGB"))
    return pixels, None if header.colours == "RGB" else f"{header.colours} converted to RGB"
