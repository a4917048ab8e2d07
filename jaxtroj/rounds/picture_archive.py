"""An `.npz` archive of example pictures: arrays `x` and `y`, or `x_test` and `y_test`.

Test sets have thousands of pictures, of which a search looks at a few of each class. So only the
first of each class are taken, in the order of the archive.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.example_names import MAX_FILES, natural_key
from jaxtroj.rounds.image_file import to_grey
from jaxtroj.rounds.image_format import MAX_PIXELS
from jaxtroj.rounds.npy_header import NpyHeader
from jaxtroj.rounds.npz_file import NpzError, NpzFile
from jaxtroj.rounds.picture_axes import told_layout
from jaxtroj.rounds.picture_folder import Size
from jaxtroj.rounds.places import some_of

PER_CLASS = 20
"""So many pictures of a class are taken, unless the user says how many."""
FEW, MANY, LEAST = 200, 4_000, 4
"""More of each of few classes, up to `FEW` in all; fewer of each of many classes, so that there are
`MANY` in all, but `LEAST` of each, which the stages look at."""
MAX_PICTURES, MAX_CLASS = 1_000_000, 999_999
SUFFIX = ".npz"
_PAIRS = (("x", "y"), ("x_test", "y_test"), ("test_x", "test_y"))
_TRAINING = "x_train"
_EXPECTED = (
    "expected an .npz archive with uint8 pictures x and labels y, or x_test and y_test, as"
    " numpy.savez(FILE, x=x, y=y) writes it"
)


def archives_in(folder: Path) -> list[str]:
    """Names of the files in a folder that are named as archives are, in order; none is opened."""
    try:
        names = [name for name in os.listdir(folder) if name.lower().endswith(SUFFIX)]
    except OSError:
        return []
    files = (name for name in names if name[0] != "." and os.path.isfile(folder / name))
    return sorted(files, key=natural_key)


@dataclass(frozen=True)
class PictureArchive:
    """The pictures of an archive that are taken; see `PictureSource`."""

    place: Path
    labels: Mapping[str, int]
    size: Size
    note: str
    _file: NpzFile = field(repr=False)
    _pictures: str = "x"

    def sizes(self) -> tuple[dict[str, Size], list[str]]:
        """See `PictureSource`."""
        return dict.fromkeys(self.labels, self.size), [self.note] if self.note else []

    def read(self, name: str, channels: int) -> tuple[np.ndarray, str | None]:
        """See `PictureSource`; raises ExamplesError where the archive is damaged."""
        number = int(name.removeprefix(f"{self._pictures}[").removesuffix("]"))
        pixels = np.ascontiguousarray(self._pixels[number])
        if pixels.shape[2] == channels:
            return pixels, None
        if channels == 1:
            return to_grey(pixels)
        return np.repeat(pixels, channels, axis=2), "grayscale converted to RGB"

    @cached_property
    def _pixels(self) -> np.ndarray:
        """uint8 [n, h, w, c] of all pictures, as a view of the archive where it can be one."""
        with _reading():
            pixels = self._file.array(self._pictures)
        if pixels.ndim == 3:
            return pixels[..., None]
        return pixels.transpose(0, 2, 3, 1) if told_layout(pixels.shape) == "NCHW" else pixels


def open_archive(path: Path, per_class: int | None = None) -> PictureArchive:
    """The first pictures of each class of an archive.

    Args:
        path: of the archive.
        per_class: how many of each class; None takes `usual_number`.

    Raises:
        ExamplesError: it is no archive of pictures with labels; it says what it is.
    """
    with _reading():
        file = NpzFile(path)
        x, y = _pair(path, file.names)
        header = file.header(x)
    size = _size(f"{path}: {x} is {header}", header)
    labels = _labels(f"{path}: {y}", file, y, header.shape[0])
    each = per_class or usual_number(len(np.unique(labels)))
    taken = first_of_each(labels, each)
    if len(taken) > MAX_FILES:
        raise ExamplesError(
            f"{len(taken)} pictures of {path} would be taken, expected at most {MAX_FILES}; give a"
            " smaller --examples-per-class"
        )
    named = {f"{x}[{place}]": int(labels[place]) for place in taken.tolist()}
    note = _note(x, len(labels), len(taken), each, file.names)
    return PictureArchive(path, named, size, note, file, x)


def usual_number(classes: int) -> int:
    """How many pictures of a class are taken of an archive of so many classes.

    >>> [usual_number(classes) for classes in (2, 10, 43, 1000)]
    [100, 20, 20, 4]
    """
    return max(LEAST, min(max(PER_CLASS, -(-FEW // classes)), MANY // classes))


def first_of_each(labels: np.ndarray, most: int) -> np.ndarray:
    """Places of the first `most` labels of each class, ascending.

    >>> first_of_each(np.array([1, 0, 1, 1, 0]), 2).tolist()
    [0, 1, 2, 4]
    """
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    rank = np.arange(len(labels)) - np.searchsorted(ordered, ordered)
    return np.sort(order[rank < most])


def _pair(path: Path, names: Collection[str]) -> tuple[str, str]:
    """Names of the pictures and of their labels."""
    found = [pair for pair in _PAIRS if not set(names).isdisjoint(pair)]
    if len(found) == 1 and set(found[0]) <= set(names):
        return found[0]
    if len(found) > 1:
        held = ", ".join(name for pair in found for name in pair if name in names)
        raise ExamplesError(
            f"{path} holds {held}, which are several sets of pictures; expected one, clean pictures"
            " that the network was not trained on: save these alone"
        )
    held = some_of([ascii(name)[1:-1][:40] for name in names]) or "no array"
    raise ExamplesError(f"{path} holds {held}; {_EXPECTED}")


def _size(found: str, header: NpyHeader) -> Size:
    """Height and width of pictures; raises ExamplesError, which says what was found instead."""
    if header.dtype != np.uint8:
        raise ExamplesError(f"{found}, expected uint8 pixels from 0 to 255; {_remedy(header)}")
    shape = header.shape
    if len(shape) not in (3, 4):
        raise ExamplesError(f"{found}, expected [n, h, w, c], [n, c, h, w] or [n, h, w]")
    try:
        layout = told_layout(shape) if len(shape) == 4 else "NHWC"
    except ValueError as error:
        raise ExamplesError(
            f"{found}: {error}; expected pictures of 1 or 3 channels, [n, h, w, c] or [n, c, h, w]"
        ) from error
    height, width = shape[1:3] if layout == "NHWC" else shape[2:4]
    if not 0 < shape[0] <= MAX_PICTURES or not 0 < height * width <= MAX_PIXELS:
        raise ExamplesError(
            f"{found}, expected 1 to {MAX_PICTURES} pictures of 1 to {MAX_PIXELS} pixels"
        )
    return height, width


def _remedy(header: NpyHeader) -> str:
    if header.dtype.kind == "f":
        return (
            "if they go from 0 to 1, save numpy.rint(255 * x).astype(numpy.uint8), and where they"
            " are normalised, undo that first"
        )
    return "if they do go from 0 to 255, save x.astype(numpy.uint8)"


def _labels(found: str, file: NpzFile, name: str, count: int) -> np.ndarray:
    """int64 [n] of classes; raises ExamplesError for anything else."""
    with _reading():
        header = file.header(name)
    are_whole = header.dtype.kind in "iu" and header.shape[1:] in ((), (1,))
    if are_whole and header.shape and header.shape[0] != count:
        number = abs(header.shape[0] - count)
        many = "few" if header.shape[0] < count else "many"
        raise ExamplesError(
            f"{found} is {header}, {number} label{'s' * (number > 1)} too {many} for {count}"
            " pictures; save the pictures with the labels that belong to them"
        )
    if not are_whole or not header.shape:
        raise ExamplesError(
            f"{found} is {header}, expected {count} labels, a whole number for each picture; save"
            " y.argmax(1) of rows with a 1 at the class, y.astype(int) of other numbers"
        )
    with _reading():
        labels = file.array(name).reshape(count)
    if labels.min() < 0 or labels.max() > MAX_CLASS:
        raise ExamplesError(
            f"{found} goes from {labels.min()} to {labels.max()}, expected classes from 0; leave"
            " out pictures without a class"
        )
    return labels.astype(np.int64)


@contextmanager
def _reading() -> Iterator[None]:
    """Turns NpzError into ExamplesError."""
    try:
        yield
    except NpzError as error:
        raise ExamplesError(f"{error}; {_EXPECTED}") from error


def _note(name: str, count: int, taken: int, each: int, names: Collection[str]) -> str:
    """What of the archive was taken; "" for all of it."""
    beside = f"; {_TRAINING} was left out" if _TRAINING in names else ""
    if taken == count:
        return f"the pictures of {name} were taken{beside}" if beside else ""
    return (
        f"{taken} of the {count} pictures of {name} were taken, the first {each} of each class"
        f" (--examples-per-class){beside}"
    )
