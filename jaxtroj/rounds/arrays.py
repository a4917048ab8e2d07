"""Example pictures out of arrays and tensors in memory, as the files that every scan reads.

Networks are scanned on pictures of 8 bits, so that all input forms can be tried on them; what comes
as numbers from 0 to 1, or normalised, is brought back to those.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from converters.errors import safe_repr
from jaxtroj.errors import ExamplesError
from jaxtroj.input_forms import PixelForm, SaidForm, possible_forms
from jaxtroj.rounds.example_names import MAX_FILES, UNKNOWN_LABEL
from jaxtroj.rounds.examples import MAX_BATCH_BYTES, Pictures
from jaxtroj.rounds.picture_axes import CHANNELS, LAYOUTS, told_layout

_FEWEST, _FEWEST_CLASSES = 4, 2
# Numbers that were pixels of 8 bits come so near whole ones again once the right form is undone.
_NEAR_WHOLE = 0.02
# What NumPy makes arrays of.
_ARRAYS = ("__array__", "__array_interface__", "detach")


def pictures_of(
    images: Any, labels: Any, layout: str | None = None, form: SaidForm | None = None
) -> Pictures:
    """Clean examples as pixels, with what was inferred of their form among the problems.

    Args:
        images: array or tensor `[n, h, w, c]`, `[n, c, h, w]` or `[n, h, w]`, RGB or grey: whole
            numbers from 0 to 255, numbers from 0 to 1, or either normalised by the bounds, mean and
            deviation that `form` says, or by ones that are usual.
        labels: class of each, whole numbers `[n]`; -1 where it is not known.
        layout: order of the axes, one of `LAYOUTS`; None takes it from where the channels are.
        form: what is said of the normalisation.

    Raises:
        ExamplesError: these are no pictures with labels; it says what they are.
    """
    values = _host(images, "images")
    ordered = _ordered(values, layout)
    known = _labels(labels, len(ordered))
    pixels, note = _pixels(ordered, form or SaidForm())
    counts = dict.fromkeys(map(int, known), 0)
    names = []
    for label in map(int, known):
        names.append(_name(label, counts[label]))
        counts[label] += 1
    return Pictures(pixels, known, tuple(names), (note,) if note else ())


def check_images(images: Any) -> None:
    """Tell people who give a folder or a dataset what is taken instead, before anything is opened.

    Raises:
        ExamplesError: images are no array, tensor or list of these.
    """
    if isinstance(images, str | bytes | os.PathLike):
        raise ExamplesError(
            f"images are the path {safe_repr(os.fspath(images))}, expected an array or tensor; of"
            " a folder or archive: pictures = jaxtroj.rounds.examples.load_pictures(path), then"
            " give pictures.pixels and pictures.labels"
        )
    if isinstance(images, list | tuple) and any(isinstance(one, str) for one in images[:1]):
        raise ExamplesError(
            "images are texts, which cannot be given in memory; expected pictures. Of a text"
            " classifier put them into the folder examples in its own, class_0_example_0.txt and"
            " so on, and give the folder's path alone; or use jaxtroj detect --examples"
        )
    if not isinstance(images, list | tuple | memoryview) and not any(
        hasattr(images, n) for n in _ARRAYS
    ):
        raise ExamplesError(
            f"images are a {type(images).__name__}, expected an array or tensor [n, h, w, c] or"
            " [n, c, h, w]; of a dataset of pairs take a few of each class:"
            " x, y = zip(*(dataset[i] for i in places)), then give numpy.stack(x) and y"
        )


def write_pictures(pictures: Pictures, folder: Path) -> Path:
    """The pictures as PNG files named by their classes, in a new folder; returns the folder."""
    folder.mkdir()
    for pixels, name in zip(pictures.pixels, pictures.names, strict=True):
        shown = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
        Image.fromarray(shown).save(folder / name, compress_level=1)
    return folder


def _name(label: int, number: int) -> str:
    known = label != UNKNOWN_LABEL
    return f"class_{label}_example_{number}.png" if known else f"example_{number}.png"


def _host(values: Any, what: str) -> np.ndarray:
    """An array or tensor as NumPy's, of a type that it has."""
    if hasattr(values, "detach"):  # a tensor, on any device
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    if isinstance(values, np.ma.MaskedArray):  # np.asarray would show what is behind the mask
        raise ExamplesError(
            f"{what} are a masked array, of which {np.ma.count_masked(values)} entries are masked;"
            " expected a plain array: fill it, or leave those pictures out"
        )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ExamplesError(f"{what} are no array: {str(error)[:200]}") from error
    if array.dtype.kind == "V" and array.dtype.names is None:  # bfloat16 of ml_dtypes
        array = array.astype(np.float32)
    if array.dtype.kind not in "uif":
        raise ExamplesError(f"{what} have type {array.dtype}, expected numbers in an array")
    return array


def _ordered(values: np.ndarray, layout: str | None) -> np.ndarray:
    """Images as `[n, h, w, c]`."""
    if layout not in (None, *LAYOUTS):
        raise ExamplesError(f"layout is {layout!r}, expected one of {', '.join(LAYOUTS)} or None")
    if values.ndim == 3:
        values, layout = values[..., None], "NHWC"
    if values.ndim != 4:
        raise ExamplesError(
            f"images have shape {values.shape}, expected [n, h, w, c] or [n, c, h, w]; one picture"
            " alone is images[None]"
        )
    try:
        layout = layout or told_layout(values.shape)
    except ValueError as error:
        raise ExamplesError(
            f"images have shape {values.shape}: {error}; give pictures of 1 or 3 channels, and"
            " layout='NHWC' or 'NCHW' where that is not told by them"
        ) from error
    if layout == "NCHW":
        values = values.transpose(0, 2, 3, 1)
    if values.shape[3] not in CHANNELS:
        raise ExamplesError(f"images have {values.shape[3]} channels, expected 3 (RGB) or 1 (grey)")
    _check_amount(values)
    return values


def _check_amount(values: np.ndarray) -> None:
    if 0 in values.shape or len(values) < _FEWEST:
        raise ExamplesError(
            f"got images of shape {values.shape}, expected at least {_FEWEST} pictures, better a"
            " few of each class"
        )
    if len(values) > MAX_FILES or 4 * values.size > MAX_BATCH_BYTES:
        raise ExamplesError(
            f"got images of shape {values.shape}, more than {MAX_FILES} pictures or"
            f" {MAX_BATCH_BYTES} bytes; a few of each class are enough"
        )


def _labels(labels: Any, count: int) -> np.ndarray:
    known = _host(labels, "labels")
    if known.shape != (count,):
        raise ExamplesError(
            f"labels have shape {known.shape}, expected ({count},): one class for each image"
        )
    if known.dtype.kind not in "ui":
        raise ExamplesError(f"labels have type {known.dtype}, expected whole numbers")
    if known.min() < UNKNOWN_LABEL or known.max() > 999_999:
        raise ExamplesError(
            f"labels go from {known.min()} to {known.max()}, expected classes from 0, or -1 for an"
            " image whose class is not known"
        )
    classes = np.unique(known[known != UNKNOWN_LABEL])
    if 0 < len(classes) < _FEWEST_CLASSES:
        raise ExamplesError(
            f"all labels are {classes[0]}, expected images of {_FEWEST_CLASSES} classes at least:"
            " a trigger is what moves images of other classes to its own"
        )
    return known.astype(np.int32)


def _pixels(values: np.ndarray, form: SaidForm) -> tuple[np.ndarray, str]:
    """uint8 pixels, and what was inferred of them; "" for pixels as they are."""
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values), ""
    if not np.isfinite(values).all():
        odd = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
        raise ExamplesError(
            f"{len(odd)} images hold NaN or infinite values, the first is images[{odd[0]}];"
            " expected finite pixels"
        )
    low, high = float(values.min()), float(values.max())
    if form.has_front and not (low >= 0 and high <= 1):
        said = PixelForm("the bounds, mean and deviation that were said", **_front(form))
        return _undone_as(values, said)
    if low >= 0 and high <= 255 and values.dtype.kind in "ui":
        return values.astype(np.uint8), ""
    if low >= 0 and high <= 255:
        scale = 255.0 if high <= 1 else 1.0
        return _rounded(values * scale), ""
    for usual in _usual_forms(values.shape[3], max(values.shape[1:3])):
        if _fits(_undone(values, usual)):
            return _undone_as(values, usual)
    raise ExamplesError(
        f"images have values from {low:.4g} to {high:.4g}; expected pixels before any"
        " normalisation: whole numbers from 0 to 255, or numbers from 0 to 1. If they are"
        " normalised, say by what: Settings(mean=..., std=...) or Settings(bounds=...)"
    )


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


def _fits(pixels: np.ndarray) -> bool:
    """Whether these are pixels of 8 bits: within 0 and 255, and whole."""
    inside = pixels.min() >= -_NEAR_WHOLE and pixels.max() <= 255 + _NEAR_WHOLE
    return bool(inside and np.abs(pixels - np.rint(pixels)).max() <= _NEAR_WHOLE)


def _undone_as(values: np.ndarray, form: PixelForm) -> tuple[np.ndarray, str]:
    pixels = _undone(values, form)
    low, high = pixels.min() / 255, pixels.max() / 255
    if low < -_NEAR_WHOLE or high > 1 + _NEAR_WHOLE:
        raise ExamplesError(
            f"without {form.scale} the images have values from {low:.4g} to {high:.4g}, expected 0"
            " to 1; they were normalised otherwise"
        )
    return _rounded(pixels), f"the images were taken back to pixels from {form.scale}"


def _rounded(pixels: np.ndarray) -> np.ndarray:
    return np.rint(np.clip(pixels, 0, 255)).astype(np.uint8)
