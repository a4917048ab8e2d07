"""The folder of ImageNet-9: which files it must hold, and its pictures as arrays.

DATA/<variant>/val/<class>/*.JPEG            eight variants
DATA/fg_mask/val/<class>/<stem>.npy          the mask of DATA/original/val/<class>/<stem>.JPEG
"""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from jaxtroj.backgrounds.files import SUFFIXES, read_mask, read_picture
from jaxtroj.errors import DatasetError

CLASSES = (
    "00_dog",
    "01_bird",
    "02_wheeled vehicle",
    "03_reptile",
    "04_carnivore",
    "05_insect",
    "06_musical instrument",
    "07_primate",
    "08_fish",
)
"""Class folders; a class's number is its place here."""
VARIANTS = (
    "original",
    "mixed_same",
    "mixed_rand",
    "mixed_next",
    "only_fg",
    "only_bg_b",
    "only_bg_t",
    "no_fg",
)
FOREGROUNDS, BACKGROUNDS, MASKS = "original", "only_bg_t", "fg_mask"
PUBLISHED_SIZE = (224, 224)
PUBLISHED_COUNT = 4050
MAX_FILES = 200_000
MAX_BYTES = 16 * 2**30
_THREADS = 8
_NEAREST = Image.Resampling.NEAREST


@dataclass(frozen=True)
class Reading:
    """How pictures are read.

    Attributes:
        resize: side in pixels that every picture is stretched to, or None to take them as they
            are. Results with it are not comparable with published ones.
        convert_grayscale: take grayscale pictures as three equal channels instead of refusing.
    """

    resize: int | None = None
    convert_grayscale: bool = False


AS_IS = Reading()


@dataclass(frozen=True)
class Pictures:
    """Pictures of one variant, in order of class, then name.

    Attributes:
        images: uint8 `[n, h, w, 3]`, RGB.
        labels: int32 `[n]`, place of the class in `CLASSES`.
        names: `class/file`, `[n]`.
    """

    images: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True)
class ChallengeData:
    """What the challenge composes: foregrounds with masks `[f, h, w]` (bool), and backgrounds."""

    foregrounds: Pictures
    masks: np.ndarray
    backgrounds: Pictures

    def digest(self) -> str:
        """sha256 over names and values: equal digests mean equal answers."""
        digest = hashlib.sha256()
        for pictures in (self.foregrounds, self.backgrounds):
            digest.update("\0".join(pictures.names).encode("utf-8", "surrogateescape"))
            digest.update(
                str(pictures.images.shape).encode() + np.ascontiguousarray(pictures.images).data
            )
        digest.update(np.packbits(self.masks).data)
        return digest.hexdigest()


def list_variant(data: Path, variant: str) -> list[tuple[int, Path]]:
    """(class number, file) of every picture of a variant, sorted by class, then name.

    Raises:
        DatasetError: the variant or a class is missing, classes have other names, or are empty.
    """
    folder = _val_folder(data, variant)
    files = []
    for label, name in enumerate(CLASSES):
        found = _files(folder / name, SUFFIXES)
        if not found:
            raise DatasetError(f"{folder / name} holds no picture; expected {', '.join(SUFFIXES)}")
        files += [(label, path) for path in found]
    if len(files) > MAX_FILES:
        raise DatasetError(f"{folder} holds {len(files)} pictures, expected at most {MAX_FILES}")
    return files


def _val_folder(data: Path, variant: str) -> Path:
    """`data/variant/val`, checked to hold the nine classes and no other folder."""
    folder = data / variant / "val"
    try:
        names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise DatasetError(
            f"{folder} cannot be read ({error.strerror or error}); expected the folder of an "
            f"ImageNet-9 data set, with {variant}/val/{CLASSES[0]} and so on in it"
        ) from error
    if tuple(names) != CLASSES:
        missing = ", ".join(name for name in CLASSES if name not in names) or "none"
        odd = ", ".join(ascii(name) for name in names[:20] if name not in CLASSES) or "none"
        raise DatasetError(
            f"{folder} has not the nine class folders of ImageNet-9: missing {missing}; not "
            f"expected {odd}"
        )
    return folder


def _files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read ({error.strerror or error})") from error
    return [folder / name for name in names if name.lower().endswith(tuple(suffixes))]


def load_variant(data: Path, variant: str, reading: Reading = AS_IS) -> Pictures:
    """Every picture of one variant, all of one size.

    Raises:
        DatasetError: see `list_variant`; or a picture cannot be used or has another size.
    """
    files = list_variant(Path(data), variant)
    return _pictures(Path(data) / variant / "val", files, reading)


def picture_size(data: Path, variant: str, reading: Reading = AS_IS) -> tuple[int, int]:
    """Height and width of a variant's first picture, in pixels; raises as `load_variant` does."""
    height, width, _ = _picture(list_variant(Path(data), variant)[0][1], reading).shape
    return height, width


def load_challenge(data: Path, reading: Reading = AS_IS) -> ChallengeData:
    """Foregrounds, their masks and all backgrounds.

    Raises:
        DatasetError: see `list_variant`; or masks and pictures do not pair up one to one, differ
            in size, or cannot be read.
    """
    data = Path(data)
    files = list_variant(data, FOREGROUNDS)
    pairs = _pair_masks(data, files)
    foregrounds = _pictures(data / FOREGROUNDS / "val", files, reading)
    masks = _masks(pairs, foregrounds.images.shape[1:3], reading)
    backgrounds = load_variant(data, BACKGROUNDS, reading)
    if backgrounds.images.shape[1:] != foregrounds.images.shape[1:]:
        raise DatasetError(
            f"{data / BACKGROUNDS} holds pictures of {_size(backgrounds.images)}, "
            f"{data / FOREGROUNDS} of {_size(foregrounds.images)}; expected one size. "
            "Use --resize for figures that need not be comparable."
        )
    return ChallengeData(foregrounds, masks, backgrounds)


def _pair_masks(data: Path, files: list[tuple[int, Path]]) -> list[tuple[Path, Path]]:
    """(mask, picture) by stem, every one of both used."""
    folder = _val_folder(data, MASKS)
    masks = {
        (i, p.stem): p for i, name in enumerate(CLASSES) for p in _files(folder / name, (".npy",))
    }
    pictures = {(label, path.stem): path for label, path in files}
    if len(pictures) != len(files):
        raise DatasetError(f"{data / FOREGROUNDS} has pictures that differ only in their ending")
    if lost := sorted(set(pictures) - set(masks)):
        raise DatasetError(
            f"{pictures[lost[0]]} has no mask {folder / CLASSES[lost[0][0]] / lost[0][1]}.npy; "
            f"{len(lost)} of {len(pictures)} masks are missing"
        )
    if lost := sorted(set(masks) - set(pictures)):
        raise DatasetError(
            f"{masks[lost[0]]} is the mask of no picture in {data / FOREGROUNDS}; "
            f"{len(lost)} of {len(masks)} masks have none"
        )
    return [(masks[key], path) for key, path in pictures.items()]


def _pictures(folder: Path, files: list[tuple[int, Path]], reading: Reading) -> Pictures:
    first = _picture(files[0][1], reading)
    if len(files) * first.nbytes > MAX_BYTES:
        raise DatasetError(f"{folder}: {len(files)} pictures need more than {MAX_BYTES} bytes")
    images = np.empty((len(files), *first.shape), np.uint8)

    def fill(i: int) -> None:
        pixels = _picture(files[i][1], reading)
        if pixels.shape != first.shape:
            raise DatasetError(
                f"{files[i][1]} is {_size(pixels[None])}, expected {_size(images)} as "
                f"{files[0][1].name}. Use --resize for figures that need not be comparable."
            )
        images[i] = pixels

    _in_threads(fill, len(files))
    names = tuple(str(path.relative_to(folder)) for _, path in files)
    return Pictures(images, np.array([label for label, _ in files], np.int32), names)


def _picture(path: Path, reading: Reading) -> np.ndarray:
    pixels = read_picture(path, reading.convert_grayscale)
    if reading.resize is None:
        return pixels
    size = (reading.resize, reading.resize)
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))


def _masks(pairs: list[tuple[Path, Path]], size: tuple[int, ...], reading: Reading) -> np.ndarray:
    height, width = size
    masks = np.empty((len(pairs), height, width), bool)

    def fill(i: int) -> None:
        mask = read_mask(pairs[i][0])
        if reading.resize is not None:
            mask = np.asarray(Image.fromarray(mask).resize((width, height), _NEAREST))
        if mask.shape != (height, width):
            raise DatasetError(
                f"{pairs[i][0]} is {mask.shape[1]} x {mask.shape[0]}, expected "
                f"{width} x {height} as its picture {pairs[i][1].name}"
            )
        masks[i] = mask

    _in_threads(fill, len(pairs))
    return masks


def _in_threads(work, count: int) -> None:
    """Call `work(i)` for each i, decoding in parallel; the error of the smallest i is raised."""
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for _ in pool.map(work, range(count)):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _size(images: np.ndarray) -> str:
    return f"{images.shape[2]} x {images.shape[1]} pixels"
