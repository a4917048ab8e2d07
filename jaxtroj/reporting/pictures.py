"""Pictures of recovered triggers, cut into their panels and made small enough to be embedded."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from converters.files import leads_out
from jaxtroj.file_names import file_stem
from jaxtroj.record import Record
from jaxtroj.record_text import GAP_PIXELS
from jaxtroj.rounds.image_file import ImageFileError, read_rgb

PANELS = ("clean example", "same example, stamped", "mask", "pattern under the mask")
MAX_EMBEDDED_BYTES = 12 * 2**20
FEW = 60  # up to so many pictures keep their size
LARGE, SMALL = 224, 128  # longest side of a panel, in pixels
_QUALITY = 80
_WIDEST = 8  # times its height


@dataclass(frozen=True)
class Picture:
    """A trigger's picture for a page.

    Attributes:
        panels: data URIs, one for each of `PANELS`; a single one where the picture on disk is not
            made of panels; none where it is not embedded.
        note: why it is not embedded.
    """

    panels: tuple[str, ...] = ()
    note: str = ""


def embed(
    run: Path, records: Sequence[Record], most_bytes: int = MAX_EMBEDDED_BYTES
) -> dict[str, Picture]:
    """Pictures by model name, of the records that have one; the most probable ones first.

    Only files in the run's own folder `triggers` are read, whatever a record says. Once
    `most_bytes` are embedded the rest is named and left out.
    """
    wanted = [record for record in records if record.trigger is not None]
    side = LARGE if len(wanted) <= FEW else SMALL
    found: dict[str, Picture] = {}
    left = most_bytes
    for record in sorted(wanted, key=lambda r: -r.probability):
        name = f"triggers/{file_stem(record.model)}.png"
        if left <= 0:
            found[record.model] = Picture(note=f"not embedded, to keep this file small: {name}")
            continue
        picture = _read(run, name, side)
        left -= sum(map(len, picture.panels))
        found[record.model] = picture
    return found


def _read(run: Path, name: str, side: int) -> Picture:
    path = run / name
    try:
        # A link would carry a file from elsewhere into a page that is made to be passed on.
        if leads_out(path, run):
            raise ImageFileError("it is a link to another folder")
        pixels, _ = read_rgb(path)
    except ImageFileError as error:
        return Picture(note=f"{name} cannot be shown: {error}")
    return Picture(tuple(_data_uri(panel, side) for panel in _panels(pixels)))


def _panels(pixels: np.ndarray) -> list[np.ndarray]:
    """The four panels of `record_text.write_trigger`'s picture, or the whole of any other."""
    count, gap = len(PANELS), GAP_PIXELS
    width, rest = divmod(pixels.shape[1] - (count - 1) * gap, count)
    if rest or width < 1:
        return [pixels]
    starts = [number * (width + gap) for number in range(count)]
    gaps = [pixels[:, start - gap : start] for start in starts[1:]]
    if not all((part == 255).all() for part in gaps):
        return [pixels]
    return [pixels[:, start : start + width] for start in starts]


def _data_uri(pixels: np.ndarray, side: int) -> str:
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    ratio = min(max(1, round(pixels.shape[1] / pixels.shape[0])), _WIDEST)
    picture.thumbnail((side * ratio, side))
    buffer = io.BytesIO()
    picture.save(buffer, format="WEBP", quality=_QUALITY)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
