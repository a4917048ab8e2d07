"""What the readers of picture formats share: the header and its caps, and Pillow's decoders."""

import io
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

MAX_PIXELS = 4096 * 4096
_DECODE_ERRORS = (  # what Pillow is known to raise on damaged pictures
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    LookupError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)


class ImageFileError(Exception):
    """One picture cannot be used; the message is the reason, without the file's name."""


@dataclass(frozen=True)
class Header:
    """What a picture says about itself.

    Attributes:
        width, height: in pixels, together at most `MAX_PIXELS`.
        bits: a channel, at most 8.
        colours: name of the channels, such as "grayscale", "palette", "RGB" or "RGBA".

    Raises:
        ImageFileError: more pixels, none, or more bits.
    """

    width: int
    height: int
    bits: int
    colours: str

    def __post_init__(self) -> None:
        if not 0 < self.width * self.height <= MAX_PIXELS:
            size = f"{self.width} x {self.height}"
            raise ImageFileError(f"{size} pixels, expected 1 to {MAX_PIXELS} in all")
        if self.bits > 8:
            raise ImageFileError(f"{self.bits} bits a channel, expected 8")


@contextmanager
def opened(content: bytes, kind: str, header: Header) -> Iterator[Image.Image]:
    """A picture under Pillow's decoder for its format alone; what happens inside may decode it.

    Args:
        content: of the file.
        kind: Pillow's name of the format.
        header: as it was checked; Pillow must read the same size.

    Raises:
        ImageFileError: the file is damaged.
    """
    try:
        with Image.open(io.BytesIO(content), formats=(kind,)) as picture:
            if picture.size != (header.width, header.height):
                raise ImageFileError(f"corrupt {kind}: two headers that disagree")
            yield picture
    except UnidentifiedImageError as error:  # its text holds an address in memory
        raise ImageFileError(f"corrupt or truncated {kind}") from error
    except _DECODE_ERRORS as error:
        raise ImageFileError(f"corrupt or truncated {kind} ({error})") from error
