"""Labelled pictures of one size, out of a file or a folder: what small networks are trained on."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from converters.files import what_is
from jaxtroj.errors import GenerationError
from jaxtroj.rounds.example_names import natural_key
from jaxtroj.rounds.image_file import ImageFileError, read_rgb
from jaxtroj.rounds.npz_file import NpzError, NpzFile

_TEST_SHARE, _SPLIT = 0.15, 21
_LARGEST = 256
_NAMES = ("x", "y", "test_x", "test_y")
_EXPECTED = (
    "expected an .npz archive with x, uint8 [n, h, w, 3], and y, whole numbers [n], as numpy.savez"
    " writes it, or a folder with one of PNG or JPEG files per class"
)


@dataclass(frozen=True)
class LabelledPictures:
    """Pictures uint8 `[n, h, w, c]`, RGB or grey, with labels `[n]`, to train on and to test on."""

    images: np.ndarray
    labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray

    @property
    def classes(self) -> int:
        """Number of classes: the largest label and one."""
        return int(max(self.labels.max(), self.test_labels.max())) + 1

    @property
    def size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images.shape[1], self.images.shape[2]

    @property
    def digest(self) -> str:
        """Identity of all pixels and labels."""
        digest = hashlib.sha256()
        for part in (self.images, self.labels, self.test_images, self.test_labels):
            digest.update(f"{part.shape} {part.dtype}".encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()


def write_examples(
    folder: Path, pictures: LabelledPictures, draw: np.random.Generator, most: int
) -> None:
    """Write test pictures as PNG, at most so many of each class, into a folder that it makes."""
    folder.mkdir()
    for label in range(pictures.classes):
        places = draw.permutation(np.flatnonzero(pictures.test_labels == label))
        for number, place in enumerate(places[:most]):
            picture = as_picture(pictures.test_images[place])
            picture.save(folder / f"class_{label}_example_{number}.png")


def as_picture(array: np.ndarray) -> Image.Image:
    """A picture of uint8 `[h, w, c]`, RGB or grey."""
    return Image.fromarray(array[..., 0] if array.shape[-1] == 1 else array)


def load_pictures(path: Path, seed: int = 0, channels: tuple[int, ...] = (3,)) -> LabelledPictures:
    """Read an `.npz` with `x` `[n, h, w, c]` uint8 and `y` `[n]`, or a folder with one per class.

    Test pictures are `test_x` and `test_y` of the file; else a sixth or so, chosen by `seed`, is
    kept back. Folders are numbered in natural order. `channels` says how many are allowed.

    Raises:
        GenerationError: the path holds no such pictures, or a class has none to train or test on.
    """
    arrays = _of_folder(path) if path.is_dir() else _of_file(path)
    _check(path, arrays, channels)
    if "test_x" not in arrays:
        arrays = _split(arrays, seed)
    pictures = LabelledPictures(*(arrays[name] for name in _NAMES))
    _check_classes(path, pictures)
    return pictures


def _of_file(path: Path) -> dict[str, np.ndarray]:
    if (kind := what_is(path)) != "a file":
        raise GenerationError(f"{path} is {kind}; {_EXPECTED}")
    try:
        file = NpzFile(path)
        arrays = {name: file.array(name) for name in _NAMES if name in file.names}
    except NpzError as error:
        raise GenerationError(f"{error}; {_EXPECTED}") from error
    missing = [name for name in ("x", "y") if name not in arrays]
    if missing or ("test_x" in arrays) != ("test_y" in arrays):
        raise GenerationError(
            f"{path} holds {', '.join(arrays) or 'nothing'}; expected x and y, and test_x with "
            "test_y or neither"
        )
    return arrays


def _of_folder(path: Path) -> dict[str, np.ndarray]:
    folders = sorted((p for p in path.iterdir() if p.is_dir()), key=lambda p: natural_key(p.name))
    images, labels = [], []
    for label, folder in enumerate(folders):
        for file in sorted(folder.iterdir(), key=lambda p: natural_key(p.name)):
            try:
                images.append(read_rgb(file)[0])
            except ImageFileError as error:
                raise GenerationError(f"{file}: {error}") from error
            labels.append(label)
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise GenerationError(
            f"{path} holds pictures of {len(shapes)} sizes in {len(folders)} folders; expected a "
            "folder for each class, and pictures of one size"
        )
    return {"x": np.stack(images), "y": np.array(labels)}


def _check(path: Path, arrays: dict[str, np.ndarray], channels: tuple[int, ...]) -> None:
    shape = arrays["x"].shape
    for images, labels in (("x", "y"), ("test_x", "test_y")):
        if images not in arrays:
            continue
        x, y = arrays[images], arrays[labels]
        fits = x.ndim == 4 and x.shape[1:] == shape[1:] and x.shape[3] in channels
        fits = fits and x.dtype == np.uint8
        if not fits or len(x) == 0 or max(x.shape[1:3]) > _LARGEST:
            raise GenerationError(
                f"{path}: {images} is {x.dtype} {x.shape}; expected uint8 [n, h, w,"
                f" {' or '.join(str(c) for c in channels)}] of at"
                f" most {_LARGEST} px"
            )
        if y.shape != (len(x),) or y.dtype.kind not in "iu" or y.min() < 0 or y.max() > 999:
            raise GenerationError(
                f"{path}: {labels} is {y.dtype} {y.shape}; expected {len(x)} labels of 0 to 999"
            )
        arrays[labels] = y.astype(np.int64)
    if arrays["y"].max() < 1:
        raise GenerationError(f"{path} holds one class; expected at least 2")


def _check_classes(path: Path, pictures: LabelledPictures) -> None:
    """Raise where a class has nothing to be learnt from, or to be tested and shown with."""
    for part, labels in (("training", pictures.labels), ("test", pictures.test_labels)):
        lost = np.setdiff1d(np.arange(pictures.classes), labels)
        if len(lost):
            raise GenerationError(
                f"{path} has no {part} picture of class {lost[0]}, of classes 0 to"
                f" {pictures.classes - 1}; expected some of each: number classes without a gap, or"
                f" give more pictures of this one ({_TEST_SHARE:.0%} are kept back to test on"
                " where no test_x is given)"
            )


def _split(arrays: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    order = np.random.default_rng([seed, _SPLIT]).permutation(len(arrays["y"]))
    kept = max(1, round(_TEST_SHARE * len(order)))
    test, train = np.sort(order[:kept]), np.sort(order[kept:])
    if not train.size:
        raise GenerationError("one picture cannot be both trained and tested on; give more")
    x, y = arrays["x"], arrays["y"]
    return {"x": x[train], "y": y[train], "test_x": x[test], "test_y": y[test]}
