"""JPEG: the header checked, then decoded to RGB bytes; `image_file` says what is refused.

A JPEG is a row of segments, each with a marker and its length, up to the first scan. They are
walked over without being read, up to the one that says size and colours and on to the scan. Those
that change no pixel (EXIF, profiles, comments) are not shown to the decoder at all.
"""

import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
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
# What programs and people note; JFIF's and Adobe's segments say how colours are coded.
_NOTES = frozenset({*range(0xE0, 0xF0), 0xFE}) - {0xE0, 0xEE}
_COLOURS = {1: "grayscale", 3: "RGB", 4: "CMYK"}


def read_header(file: BinaryIO) -> Header:
    """The checked header of a file that begins with `SIGNATURE`. Raises ImageFileError."""
    found = None
    for segment in _segments(file):
        marker, start = segment.marker, segment.start
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
    bare = _bare(content)
    scans = bare.count(_SCAN_MARKER)
    if scans > MAX_SCANS:
        raise ImageFileError(f"a JPEG of {scans} scans, expected at most {MAX_SCANS}")
    with opened(bare, "JPEG", header) as picture:
        pixels = np.array(picture.convert("RGB"))
    return pixels, None if header.colours == "RGB" else f"{header.colours} converted to RGB"


@dataclass(frozen=True)
class _Segment:
    """Its marker, the first bytes of its content, and its place in the file."""

    marker: int
    start: bytes
    place: slice


def _bare(content: bytes) -> bytes:
    """A file without the notes before its first scan."""
    segments = list(_segments(io.BytesIO(content)))
    kept = [content[part.place] for part in segments[:-1] if part.marker not in _NOTES]
    return b"".join([content[:2], *kept, content[segments[-1].place.start :]])


def _segments(file: BinaryIO) -> Iterator[_Segment]:
    """The segments up to the first scan, which is the last of them."""
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
        place = file.tell() - len(start)
        begin = file.read(min(rest, _FRAME.size))
        end = file.seek(rest - len(begin), os.SEEK_CUR)
        yield _Segment(marker, begin, slice(place, end))
        if marker == _SCAN:
            return
    raise ImageFileError(f"a JPEG of more than {MAX_SEGMENTS} segments before the pixels")


def _frame(start: bytes) -> Header:
    if len(start) < _FRAME.size:
        raise ImageFileError("corrupt JPEG header")
    bits, height, width, channels = _FRAME.unpack(start)
    colours = _COLOURS.get(channels, f"{channels} channels")
    if channels not in (1, 3):
        raise ImageFileError(f"{colours}, expected RGB or grayscale")
    return Header(width, height, bits, colours)
