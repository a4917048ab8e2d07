"""Pixels of 8 bits out of the numbers that pictures in memory hold.

Numbers from 0 to 1, and whole ones from 0 to 255, are pixels; others are taken back from the
normalisation that is said, or from a usual one. What could be either is refused: read as pixels,
normalised pictures are black.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxtroj.errors import ExamplesError
from jaxtroj.input_forms import PixelForm, SaidForm, possible_forms

# Numbers that were pixels of 8 bits come so near whole ones again once the right form is undone,
# and by such a share of the range beyond its ends.
_NEAR_WHOLE = 0.02
_LEVEL = 1 / 255  # resizing leaves white at 1.0000002
# Normalised pictures do not come so far, resized ones from 0 to 255 nearly all do.
_SURELY_PIXELS = 32
_DARK = 16  # of 255: nobody sees what is in such a picture


def pixels_of(values: np.ndarray, form: SaidForm) -> tuple[np.ndarray, tuple[str, ...]]:
    """uint8 pixels of finite numbers or bools, and what was inferred of them, in sentences.

    Args:
        values: `[n, h, w, c]`.
        form: what is said of their normalisation.

    Raises:
        ExamplesError: they are no pixels, or may be several things.
    """
    pixels, note = _pixels(values, form)
    notes = (note,) if note else ()
    brightest = int(pixels.max())
    if brightest < _DARK:
        notes += (f"the images are almost black: their largest pixel is {brightest} of 255",)
    return np.ascontiguousarray(pixels), notes


def _pixels(values: np.ndarray, form: SaidForm) -> tuple[np.ndarray, str]:
    if values.dtype == bool or (values.dtype.kind in "ui" and _within(values, 0, 1)):
        return _two_valued(values)
    if values.dtype == np.uint8:
        return values, ""
    if values.dtype.kind in "ui" and _within(values, 0, 255):
        return values.astype(np.uint8), ""
    if values.dtype.kind == "f" and _within(values, -_LEVEL, 1 + _LEVEL):
        return _of_unit(values), ""
    return _of_said(values, form) if form.has_front else _of_unsaid(values)


def _two_valued(values: np.ndarray) -> tuple[np.ndarray, str]:
    """Pictures of 0 and 1 alone, of a whole type."""
    known = values.dtype == bool or not values.any()
    note = "" if known else "the images hold 0 and 1 alone, which were taken as black and white"
    return values.astype(np.uint8) * np.uint8(255), note


def _of_unit(values: np.ndarray) -> np.ndarray:
    pixels = _rounded(values * 255.0)
    if values.any() and pixels.max() <= 1:
        raise ExamplesError(
            f"images have values from {_range(values)}, which is black where 1 is white; were they"
            " divided by 255 twice? Give whole numbers from 0 to 255, or numbers from 0 to 1"
        )
    return pixels


def _of_said(values: np.ndarray, form: SaidForm) -> tuple[np.ndarray, str]:
    """Of a normalisation that is said, unless they are pixels from before it."""
    said = PixelForm("the bounds, mean and deviation that were said", **_front(form))
    undone = _undone(values, said)
    surely = float(values.max()) >= _SURELY_PIXELS and _is_whole(values)
    if not (surely and _could_be_pixels(values)) and _fits(undone):
        return _rounded(undone), _taken_back(said)
    if _could_be_pixels(values):
        return _of_pixels(values), ""
    raise ExamplesError(
        f"images have values from {_range(values)}, and without {said.scale} from"
        f" {_range(undone / 255)}, expected 0 to 1; they were normalised otherwise"
    )


def _of_unsaid(values: np.ndarray) -> tuple[np.ndarray, str]:
    if _could_be_pixels(values) and _is_whole(values):
        return _of_pixels(values), ""
    for usual in _usual_forms(values.shape[3], max(values.shape[1:3])):
        undone = _undone(values, usual)
        if _fits(undone) and _is_whole(undone):
            return _rounded(undone), _taken_back(usual)
    if _could_be_pixels(values):
        return _of_pixels(values), ""
    raise ExamplesError(
        f"images have values from {_range(values)}; expected pixels before any normalisation:"
        " whole numbers from 0 to 255 (better as uint8), or numbers from 0 to 1 (where resizing"
        " overshot, clip them). If they are normalised, say by what: Settings(mean=..., std=...)"
        " or Settings(bounds=...)"
    )


def _could_be_pixels(values: np.ndarray) -> bool:
    """Whether these are from 0 to 255, and cannot be taken for normalised ones."""
    large = float(values.max()) >= _SURELY_PIXELS
    return _within(values, -1, 256) and (large or _is_whole(values))


def _of_pixels(values: np.ndarray) -> np.ndarray:
    """Pixels of numbers from 0 to 255; refuses sets of which some pictures are from 0 to 1."""
    highest = values.reshape(len(values), -1).max(axis=1)
    for place in np.flatnonzero(highest <= 1 + _LEVEL):
        if not _is_whole(values[place]):
            raise ExamplesError(
                f"images have values from {_range(values)}, but images[{place}] from"
                f" {_range(values[place])}; expected all from 0 to 255, or all from 0 to 1"
            )
    return _rounded(values)


def _front(form: SaidForm) -> dict[str, Any]:
    return {"bounds": form.bounds, "mean": form.mean, "std": form.std}


def _usual_forms(channels: int, side: int) -> Sequence[PixelForm]:
    forms = possible_forms(SaidForm(channel_order="RGB"), channels, side)
    return [form for form in forms if any(form.preparation) and form.normalization == "unit"]


def _undone(values: np.ndarray, form: PixelForm) -> np.ndarray:
    """Values from 0 to 255 that a form's bounds, mean and deviation made these of."""
    low, high = form.bounds or (0.0, 1.0)
    inner = values * np.asarray(form.std or (1.0,), np.float64) + np.asarray(form.mean or (0.0,))
    return (inner - low) / (high - low) * 255


def _taken_back(form: PixelForm) -> str:
    return f"the images were taken back to pixels from {form.scale}"


def _fits(undone: np.ndarray) -> bool:
    return _within(undone, -255 * _NEAR_WHOLE, 255 * (1 + _NEAR_WHOLE))


def _within(values: np.ndarray, low: float, high: float) -> bool:
    return bool(values.min() >= low and values.max() <= high)


def _is_whole(values: np.ndarray) -> bool:
    return bool(np.abs(values - np.rint(values)).max() <= _NEAR_WHOLE)


def _range(values: np.ndarray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.4g} to {high:.4g}"


def _rounded(pixels: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(pixels, 0, 255)).astype(np.uint8)
