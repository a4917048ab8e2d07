"""JPEG: the header checked, then decoded to RGB bytes; `image_file` says what is refused.

A JPEG is a row of segments, each with a marker and its length, up to the first scan. They are
walked over without being read, up to the one that says size and colours and on to the scan.
"""

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from jaxtroj.rounds.image_format import Header, ImageFileError, opened

SIGNATURE = b"\xff\xd8\xff"
MAX_SEGMENTS = 1000
MAX_SCANS = 256
"""A progressive picture of a few bytes a scan would otherwise take hours."""
_FRAME = struct.Struct(">BHHB")  # bits, height, width, channels
_SCAN, _SCAN_MARKER = 0xDA, b"\xff\xda"
# Baseline, extended and progressive, the latter two also in arithmetic coding.
_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_OTHER_FRAMES = frozenset(range(0xC0, 0xD0)) - _FRAMES - {0xC4, 0xC8, 0xCC}
_FIRST_MARKER, _LONELY = 0xC0, range(0xD0, 0xDA)  # the latter have no length, and no place here
_COLOURS = {1: "grayscale", 3: "RGB", 4: "CMYK"}


def read_header(file: BinaryIO) -> Header:
    """The checked header of a file that begins with `SIGNATURE`. Raises ImageFileError."""
    found = None
    for marker, start in _segments(file):
        if marker in _OTHER_FRAMES:
            raise ImageFileError(
                f"a JPEG of coding SOF{marker - _FIRST_MARKER}, expected baseline or progressive"
            )
        if marker == 0xE2 and start.startswith(b"MPF\0"):
            raise ImageFileError("a file of several pictures")
        if marker in _FRAMES and found is not None:
            raise ImageFileError("corrupt JPEG: two headers")
        if marker in _FRAMES:
            found = _frame(start)
    if found is None:
        raise ImageFileError("corrupt JPEG: no header before the pixels")
    return found


def decode(content: bytes, header: Header) -> tuple[np.ndarray, str | None]:
    """uint8 [h, w, 3] in RGB order, and a note where it was grayscale. Raises ImageFileError.

    Args:
        content: of the file.
        header: of `read_header`.
    """
    scans = content.count(_SCAN_MARKER)
    if scans > MAX_SCANS:
        raise ImageFileError(f"a JPEG of {scans} scans, expected at most {MAX_SCANS}")
    with opened(content, "JPEG", header) as picture:
        pixels = np.array(picture.convert("RGB"))
    return pixels, None if header.colours == "RGB" else f"{header.colours} converted to RGB"


def _segments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Marker and first bytes of each segment before the first scan."""
    file.seek(2)
    for _ in range(MAX_SEGMENTS):
        start = file.read(4)
        if len(start) < 4:
            raise ImageFileError("truncated JPEG")
        if start.startswith(b"\xff\xff"):  # a byte that fills up
            file.seek(-3, os.SEEK_CUR)
            continue
        marker, rest = start[1], int.from_bytes(start[2:]) - 2
        if start[0] != 0xFF or marker < _FIRST_MARKER or marker in _LONELY or rest < 0:
            raise ImageFileError("corrupt JPEG header")
        if marker == _SCAN:
            return
        begin = file.read(min(rest, _FRAME.size))
        file.seek(rest - len(begin), os.SEEK_CUR)
        yield marker, begin
    raise ImageFileError(f"a JPEG of more than {MAX_SEGMENTS} segments before the pixels")


def _frame(start: bytes) -> Header:
    if len(start) < _FRAME.size:
        raise ImageFileError("corrupt JPEG header")
    bits, height, width, channels = _FRAME.unpack(start)
    colours = _COLOURS.get(channels, f"{channels} channels of")
    if channels not in (1, 3):
        raise ImageFileError(f"{colours} colours, expected RGB or grayscale")
    return Header(width, height, bits, colours)
