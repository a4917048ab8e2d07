"""Pictures to look at: the backgrounds that fool most, and foregrounds on what fooled them."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

_TILE, _TEXT, _GAP, _LABEL = 112, 14, 4, 150


def sheet(rows: Sequence[tuple[str, Sequence[tuple[np.ndarray, str]]]]) -> bytes:
    """A PNG of labelled rows of pictures.

    Args:
        rows: (label, pictures with captions), pictures uint8 `[h, w, 3]`.
    """
    columns = max((len(pictures) for _, pictures in rows), default=0)
    step = _TILE + _TEXT + _GAP
    size = (_LABEL + columns * (_TILE + _GAP), max(1, len(rows)) * step)
    canvas = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(canvas)
    for i, (label, pictures) in enumerate(rows):
        draw.text((_GAP, i * step + _TILE // 2), label, fill="black")
        for j, (pixels, caption) in enumerate(pictures):
            left = _LABEL + j * (_TILE + _GAP)
            tile = Image.fromarray(pixels).resize((_TILE, _TILE), Image.Resampling.BILINEAR)
            canvas.paste(tile, (left, i * step))
            draw.text((left, i * step + _TILE), caption, fill="black")
    buffer = io.BytesIO()
    canvas.save(buffer, "PNG")
    return buffer.getvalue()


def most_adversarial(
    images: np.ndarray, strongest: dict[str, tuple[tuple[int, float], ...]]
) -> bytes:
    """A PNG: for each class of backgrounds, those that fool most foregrounds of other classes.

    Args:
        images: backgrounds, uint8 `[b, h, w, 3]`.
        strongest: `MatrixSummary.most_adversarial`.
    """
    return sheet(
        [
            (name, [(images[i], f"fools {100 * rate:.0f} %") for i, rate in pictures])
            for name, pictures in strongest.items()
        ]
    )
