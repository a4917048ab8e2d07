"""Example pictures out of arrays and tensors in memory, as the files that every scan reads.

Networks are scanned on pictures of 8 bits, so that all input forms can be tried on them; what comes
as numbers from 0 to 1, or normalised, is brought back to those.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from converters.errors import safe_repr
from jaxtroj.errors import ExamplesError
from jaxtroj.input_forms import SaidForm
from jaxtroj.rounds.example_names import MAX_FILES, UNKNOWN_LABEL
from jaxtroj.rounds.examples import MAX_BATCH_BYTES, Pictures
from jaxtroj.rounds.picture_axes import CHANNELS, LAYOUTS, told_layout
from jaxtroj.rounds.pixel_values import pixels_of

_FEWEST, _FEWEST_CLASSES = 4, 2
# What NumPy makes arrays of.
_ARRAYS = ("__array__", "__array_interface__", "detach")


def pictures_of(
    images: Any, labels: Any, layout: str | None = None, form: SaidForm | None = None
) -> Pictures:
    """Clean examples as pixels, with what was inferred of their form among the problems.

    Args:
        images: array or tensor `[n, h, w, c]`, `[n, c, h, w]` or `[n, h, w]`, RGB or grey: whole
            numbers from 0 to 255, numbers from 0 to 1, or either normalised by the bounds, mean and
            deviation that `form` says, or by ones that are usual; bools, and whole types of 0 and 1
            alone, are black and white.
        labels: class of each, whole numbers `[n]`; -1 where it is not known.
        layout: order of the axes, one of `LAYOUTS`; None takes it from where the channels are.
        form: what is said of the normalisation.

    Raises:
        ExamplesError: these are no pictures with labels; it says what they are.
    """
    values = _host(images, "images", "uifb")
    ordered = _ordered(values, layout)
    known = _labels(labels, len(ordered))
    _check_finite(ordered)
    pixels, notes = pixels_of(ordered, form or SaidForm())
    counts = dict.fromkeys(map(int, known), 0)
    names = []
    for label in map(int, known):
        names.append(_name(label, counts[label]))
        counts[label] += 1
    return Pictures(pixels, known, tuple(names), notes)


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


def _host(values: Any, what: str, kinds: str = "uif") -> np.ndarray:
    """An array or tensor as NumPy's, of a type that it has: one of NumPy's kinds."""
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
    if array.dtype.kind not in kinds:
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


def _check_finite(values: np.ndarray) -> None:
    finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)
    if not finite.all():
        odd = np.flatnonzero(~finite)
        raise ExamplesError(
            f"{len(odd)} images hold NaN or infinite values, the first is images[{odd[0]}];"
            " expected finite pixels"
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
