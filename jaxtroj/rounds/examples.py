"""The clean pictures shipped with a model, as the batch its network expects.

Rounds 0 and 1 (NIST's detector template): RGB on disk, channels swapped to BGR, then per picture,
over the whole array, `x - min` and `/ max`.
"""

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from jaxtroj.errors import ExamplesError
from jaxtroj.input_forms import CHANNEL_ORDERS, NORMALIZATIONS
from jaxtroj.model_files import digest_or_reason
from jaxtroj.rounds.class_folders import imagenet_classes, named_classes
from jaxtroj.rounds.example_names import UNKNOWN_LABEL, labels_in
from jaxtroj.rounds.image_file import ImageFileError, read_bytes
from jaxtroj.rounds.picture_archive import open_archive
from jaxtroj.rounds.picture_folder import PictureSource, Size, open_folder, sentences
from jaxtroj.rounds.resizing import Fit
from jaxtroj.rounds.turns import in_turn

MAX_BATCH_BYTES = 4 * 2**30
_Reader = Callable[[str], tuple[np.ndarray, str | None]]


@dataclass(frozen=True, eq=False)
class Pictures:
    """The example pictures of one model as they lie in their files, in the order of `Examples`."""

    pixels: np.ndarray
    """uint8 [n, h, w, c], RGB or grey."""
    labels: np.ndarray
    """As in `Examples`, and so are the following."""
    names: tuple[str, ...]
    problems: tuple[str, ...] = ()
    of_other_size: float = 0.0
    """Share of the pictures that was left out for its size, 0 to 1."""
    unknown_folders: tuple[str, ...] = ()
    """Class folders that cannot be matched with the network's classes, see `for_classes`."""
    is_named: bool = False
    """Whether class folders have the numbers of the network's own names, see `for_classes`."""

    def for_classes(self, classes: int, own_names: Sequence[str] = ()) -> "Pictures":
        """The same for a network of so many classes.

        Class folders that the network knows by their names have its numbers. Fewer than it has
        classes, whose names are neither these nor numbers nor ImageNet's, do not say which classes
        they are of. Their pictures lose their labels, and come in turn of the folders.

        Args:
            classes: of the network.
            own_names: what it calls them, in their order; may be empty.
        """
        own = [name.partition("/")[0] for name in self.names if "/" in name]
        folders = sorted(set(own))
        if not folders or all(name.isdecimal() for name in folders):
            return self
        if known := named_classes(folders, own_names):
            labels = np.array([known[name] for name in own], np.int32)
            return replace(self, labels=labels, is_named=True)
        if len(folders) >= classes:
            return self
        if known := imagenet_classes(folders, classes):
            return replace(self, labels=np.array([known[name] for name in own], np.int32))
        order = in_turn(self.labels, len(self.labels))
        return replace(
            self,
            pixels=self.pixels[order],
            labels=np.full(len(order), UNKNOWN_LABEL, np.int32),
            names=tuple(self.names[place] for place in order),
            unknown_folders=tuple(folders),
        )

    def cut(self, side: int | None, notes: Iterable[str] = ()) -> "Pictures":
        """The middle `side` pixels of each, or all; notes that are not empty join the problems."""
        pixels = self.pixels if side is None else middle(self.pixels, side)
        return replace(self, pixels=pixels, problems=(*self.problems, *filter(None, notes)))

    def examples(self, channel_order: str, normalization: str) -> "Examples":
        """The pictures as the batch that a network of this form expects."""
        images = in_units(self.pixels, channel_order, normalization)
        return Examples(images, self.labels, self.names, channel_order, self.problems)


@dataclass(frozen=True)
class Examples:
    """Clean example pictures of one model, all of one size, in natural order of their names."""

    images: np.ndarray
    """float32 [n, h, w, c] in [0, 1]: three channels in `channel_order`, or one, grey."""
    labels: np.ndarray
    """int32 [n], the class in the file name; -1 where the name does not say."""
    names: tuple[str, ...]
    """File names, [n]."""
    channel_order: str
    """"BGR" or "RGB"."""
    problems: tuple[str, ...] = ()
    """One sentence for each kind of picture that was left out or converted."""


def normalize(pixels: np.ndarray, normalization: str = "min-max") -> np.ndarray:
    """uint8 [h, w, c] to float32 [h, w, c] in [0, 1].

    "min-max" subtracts the picture's smallest value and divides by the largest that is left, as
    NIST's template does; a picture of one value only becomes all zeros instead of 0 / 0.
    "unit" divides by 255.

    >>> normalize(np.array([[[10, 20, 30]]], np.uint8)).tolist()
    [[[0.0, 0.5, 1.0]]]
    >>> normalize(np.full((1, 1, 3), 7, np.uint8)).max()
    np.float32(0.0)
    """
    values = pixels.astype(np.float32)
    if normalization == "unit":
        return values / np.float32(255)
    values -= values.min()
    largest = values.max()
    return values / largest if largest > 0 else values


def in_units(pixels: np.ndarray, channel_order: str, normalization: str) -> np.ndarray:
    """uint8 [n, h, w, c], RGB or grey, to float32 [n, h, w, c] in [0, 1]; see `normalize`."""
    flip = slice(None, None, -1) if channel_order == "BGR" else slice(None)
    images = np.empty(pixels.shape, np.float32)  # many pictures are not held twice
    for place, picture in enumerate(pixels):
        images[place] = normalize(picture[..., flip], normalization)
    return images


def middle(pixels: np.ndarray, side: int) -> np.ndarray:
    """The middle `side` pixels of pictures `[..., h, w, c]`, as NIST's detectors cut them.

    Both edges follow from the width, as there.
    """
    edge = (pixels.shape[-2] - side) // 2
    return pixels[..., edge : edge + side, edge : edge + side, :]


def load_examples(
    place: str | os.PathLike[str],
    channel_order: str = "BGR",
    limit_per_class: int | None = None,
    normalization: str = "min-max",
    channels: int = 3,
) -> Examples:
    """Reads the example pictures of a model in one form; see `load_pictures` for the rest.

    Args:
        place: a folder of `class_{c}_example_{n}.png`, or `.jpg` or `.jpeg`; pictures of other
            names get label -1, files with other endings are ignored. Or of one folder of pictures
            for each class, see `class_folders`. Or an archive, see `picture_archive`.
        channel_order: "BGR" (Rounds 0 and 1) or "RGB" (Round 2 on): order of the last axis.
        limit_per_class: at least 1, or None for all of a folder, the usual number of an archive.
        normalization: "min-max" (per picture, Rounds 0 and 1) or "unit" (divide by 255).
        channels: 3, or 1 for grey: colour pictures are converted by luma, which `problems` says.
    Raises:
        ExamplesError: place missing, no usable picture in it, or more than fits in memory.
        ValueError: an argument is none of the values above.
    """
    if channel_order not in CHANNEL_ORDERS:
        raise ValueError(f"channel_order must be one of {CHANNEL_ORDERS}, got {channel_order!r}")
    if normalization not in NORMALIZATIONS:
        raise ValueError(f"normalization must be one of {NORMALIZATIONS}, got {normalization!r}")
    pictures = load_pictures(place, limit_per_class, channels)
    return pictures.examples(channel_order, normalization)


def load_pictures(
    place: str | os.PathLike[str],
    limit_per_class: int | None = None,
    channels: int = 3,
    fit: Fit | None = None,
    is_bounded: bool = False,
) -> Pictures:
    """Reads the example pictures of a model as they are.

    A single picture that cannot be used (see `image_file`) or whose size differs from that of
    most others is left out and named in `problems`; one usable picture is enough. With
    `limit_per_class` = k, the first k usable pictures of each class in natural order are taken.

    Args:
        place, limit_per_class, channels: see `load_examples`.
        fit: makes all pictures one size, so that none is left out for its own; None takes them as
            they are.
        is_bounded: whether without a limit only some pictures of very many classes are taken, see
            `picture_folder.some_of_many`.

    Raises:
        ExamplesError, ValueError: as `load_examples`.
    """
    if limit_per_class is not None and limit_per_class < 1:
        raise ValueError(f"limit_per_class must be at least 1 or None, got {limit_per_class}")
    if channels not in (1, 3):
        raise ValueError(f"channels must be 1 or 3, got {channels}")
    source = _source(Path(place), limit_per_class, is_bounded and limit_per_class is None)
    sizes, problems = source.sizes()
    names = list(sizes)
    if fit is None:
        names, others = _of_usual_size(sizes)
        problems += others
    labels, read = source.labels, _reader(source, channels, fit)
    known = {name: labels[name] for name in names}
    pixels, taken, notes = _read_pixels(source.place, known, limit_per_class, read)
    problems += notes
    if not taken:
        raise ExamplesError(
            f"no usable example picture in {place}: {'; '.join(problems)}. Expected 8-bit RGB PNG "
            "or JPEG files named class_0_example_0.png and so on."
        )
    lost = set(labels.values()) - {labels[name] for name in taken} - {UNKNOWN_LABEL}
    problems += [f"class {label} has no usable picture" for label in sorted(lost)]
    own = np.array([labels[name] for name in taken], dtype=np.int32)
    share = 1 - len(names) / len(sizes)
    return Pictures(np.stack(pixels), own, tuple(taken), tuple(problems), share)


def usual_size(place: str | os.PathLike[str]) -> Size | None:
    """Height and width in pixels of most pictures of a folder or archive, by their headers.

    None where no picture can be used; raises ExamplesError as `load_examples` for no folder.
    """
    sizes, _ = _source(Path(place), 1, is_bounded=True).sizes()
    return _most_common(sizes)


def _source(place: Path, limit_per_class: int | None, is_bounded: bool) -> PictureSource:
    is_file = os.path.isfile(place)
    return open_archive(place, limit_per_class) if is_file else open_folder(place, is_bounded)


def _most_common(sizes: Mapping[str, Size]) -> Size | None:
    return Counter(sizes.values()).most_common(1)[0][0] if sizes else None


def _of_usual_size(sizes: Mapping[str, Size]) -> tuple[list[str], list[str]]:
    """Names of the pictures of the most common size, and what was left out."""
    common = _most_common(sizes)
    others = [name for name, size in sizes.items() if size != common]
    if common is None or not others:
        return list(sizes), []
    height, width = common
    reason = f"of another size, where most are {height} x {width} pixels; --resize PX takes all"
    return [name for name in sizes if sizes[name] == common], sentences(
        {reason: others}, "left out"
    )


def _reader(source: PictureSource, channels: int, fit: Fit | None) -> _Reader:
    """What reads one picture and makes it the size that all get."""

    def fitted(name: str) -> tuple[np.ndarray, str | None]:
        pixels, note = source.read(name, channels)
        if fit is None:
            return pixels, note
        pixels, more = fit(pixels)
        return pixels, "; ".join(filter(None, (note, more))) or None

    return fitted


def _read_pixels(
    place: Path, names: Mapping[str, int], limit_per_class: int | None, read: _Reader
) -> tuple[list[np.ndarray], list[str], list[str]]:
    """Decoded pictures (uint8 [h, w, c]), their names, and sentences about the odd ones."""
    pixels: list[np.ndarray] = []
    taken: list[str] = []
    left_out: dict[str, list[str]] = defaultdict(list)
    notes: dict[str, list[str]] = defaultdict(list)
    counts: Counter[int] = Counter()
    for name in names:
        if limit_per_class is not None and counts[names[name]] >= limit_per_class:
            continue
        try:
            picture, note = read(name)
        except ImageFileError as error:
            left_out[str(error)].append(name)
            continue
        if note:
            notes[note].append(name)
        if picture.size and picture.min() == picture.max():
            notes["one colour value only"].append(name)
        counts[names[name]] += 1
        pixels.append(picture)
        taken.append(name)
        if len(pixels) * picture.size * 4 > MAX_BATCH_BYTES:
            raise ExamplesError(
                f"the pictures in {place} need more than {MAX_BATCH_BYTES} bytes as float32 "
                f"({len(names)} of {picture.shape[0]} x {picture.shape[1]}); set a limit per"
                " class (--examples-per-class)"
            )
    return pixels, taken, sentences(left_out, "left out") + sentences(notes, "used")


def examples_digest(place: str | os.PathLike[str]) -> str:
    """Identity of an examples folder: sha256 over the names and contents of its pictures.

    Independent of the folder's own place, of file times and of files that are not pictures. A
    picture that cannot be read counts by its name and the reason. Raises ExamplesError as
    `load_examples` does for a missing or empty folder. An archive's is that of its bytes.
    """
    if os.path.isfile(place):
        return digest_or_reason(Path(place))
    digest = hashlib.sha256()
    for name in labels_in(Path(place)):
        try:
            content = hashlib.sha256(read_bytes(Path(place) / name)).digest()
        except ImageFileError as error:
            content = hashlib.sha256(f"unreadable: {error}".encode()).digest()
        digest.update(hashlib.sha256(os.fsencode(name)).digest() + content)
    return digest.hexdigest()
