"""Pictures that scenes are made of: signs with alpha and road backgrounds.

They are drawn procedurally or read from folders of real pictures, and kept small: signs at about
the size at which they appear, backgrounds as uint8 at `BACKGROUND_SCALE` times the image size.
"""

import struct
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np
from PIL import Image, ImageOps

from jaxtroj.errors import GenerationError
from jaxtroj.generate.traffic_signs.roads import draw_road
from jaxtroj.generate.traffic_signs.signs import draw_sign
from jaxtroj.pytrees import pytree

BACKGROUND_SCALE = 1.5
SIGN_SCALE = 0.5  # side of a sign texture relative to the image: the mean sign of Round 0
MIN_SIGN_PIXELS = 24
MAX_PICTURE_BYTES = 64 * 2**20
_ELLIPSE_RADIUS = 0.43  # traffic sign crops keep a margin of about a tenth round the sign
_MAX_GAIN = 4.0
_MIN_LIGHT = 0.45
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".ppm", ".bmp", ".webp", ".tif", ".tiff"})

# What Pillow's decoders raise on malformed files
_BAD_PICTURE = (
    *(OSError, ValueError, SyntaxError, EOFError, OverflowError, IndexError, KeyError, TypeError),
    *(struct.error, zlib.error, Image.DecompressionBombError),
)

T = TypeVar("T")


@pytree
@dataclass(frozen=True)
class Assets:
    """What `render` draws with; a pytree, so it is passed to compiled code as data."""

    signs: jax.Array | np.ndarray
    """float32 `[classes, variants, s, s, 4]` RGBA in [0, 1], straight alpha."""
    variants_per_class: jax.Array | np.ndarray
    """int32 `[classes]`, at least 1: how many of a class's variants are filled."""
    roads: jax.Array | np.ndarray
    """uint8 `[n, h, w, 3]` RGB with h and w at least the image size."""


@dataclass(frozen=True)
class LoadedAssets:
    """Assets read from folders, and what was left out on the way."""

    assets: Assets
    class_names: tuple[str, ...]
    """Name of each class: sub-folder or file prefix, or `procedural_<label>`."""
    skipped: tuple[tuple[str, str], ...]
    """(file name, reason) of every file that could not be used."""


def procedural_assets(
    seed: int,
    num_classes: int = 5,
    *,
    image_size: int = 64,
    sign_pixels: int | None = None,
    roads: int = 64,
) -> Assets:
    """Draw one sign per class and `roads` road scenes from a seed.

    Args:
        seed: identity of the assets.
        num_classes: number of sign classes.
        image_size: side in pixels of the pictures to render.
        sign_pixels: side of the sign textures; half the image size when None.
        roads: number of backgrounds.

    Raises:
        GenerationError: a count or size is below 1.
    """
    sign_pixels = sign_pixels or default_sign_pixels(image_size)
    if min(num_classes, image_size, roads) < 1:
        raise GenerationError(
            f"num_classes, image_size and roads must be at least 1, got {num_classes}, "
            f"{image_size} and {roads}"
        )
    signs = np.stack([draw_sign(seed, label, sign_pixels) for label in range(num_classes)])
    return Assets(
        signs=signs[:, None],
        variants_per_class=np.ones(num_classes, np.int32),
        roads=procedural_roads(seed, roads, image_size),
    )


def procedural_roads(seed: int, count: int, image_size: int) -> np.ndarray:
    """Draw `count` backgrounds: uint8 `[count, h, h, 3]`, h = 1.5 times the image size."""
    side = background_pixels(image_size)
    return np.stack([draw_road(seed, index, side) for index in range(count)])


def default_sign_pixels(image_size: int) -> int:
    """Side of the sign textures for pictures of `image_size` pixels."""
    return max(8, round(image_size * SIGN_SCALE))


def background_pixels(image_size: int) -> int:
    """Side of the stored backgrounds for pictures of `image_size` pixels."""
    return round(image_size * BACKGROUND_SCALE)


def assets_from_folders(
    foregrounds: Path | None,
    backgrounds: Path | None,
    seed: int,
    num_classes: int = 5,
    *,
    image_size: int = 64,
    sign_pixels: int | None = None,
    max_variants: int = 40,
    max_roads: int = 256,
    procedural_road_count: int = 64,
) -> LoadedAssets:
    """Read signs and backgrounds from folders; a folder that is None is drawn procedurally.

    Args:
        foregrounds: sub-folders per class, or files `CLASS_name.png`. Pictures with alpha are used
            as they are; others get a soft inscribed ellipse. Crops with a side of at least 24 px
            are preferred.
        backgrounds: any pictures; the largest centred square is used.
        seed: chooses the classes, and the variants and backgrounds where there are too many.
        num_classes: number of classes to choose.
        image_size: side in pixels of the pictures to render.
        sign_pixels: side of the sign textures; half the image size when None.
        max_variants: most pictures kept per class.
        max_roads: most backgrounds kept.
        procedural_road_count: backgrounds to draw when `backgrounds` is None.

    Returns:
        The assets, the class names and every skipped file with its reason.

    Raises:
        GenerationError: a folder is missing, or too few classes or no background remain.
    """
    sign_pixels = sign_pixels or default_sign_pixels(image_size)
    skipped: list[tuple[str, str]] = []
    if foregrounds is None:
        signs = [draw_sign(seed, label, sign_pixels)[None] for label in range(num_classes)]
        names = tuple(f"procedural_{label}" for label in range(num_classes))
    else:
        chosen = _load_classes(foregrounds, seed, num_classes, max_variants, sign_pixels, skipped)
        names, signs = tuple(chosen), list(chosen.values())
    if backgrounds is None:
        roads = procedural_roads(seed, procedural_road_count, image_size)
    else:
        roads = _load_backgrounds(backgrounds, seed, max_roads, image_size, skipped)
    counts = np.array([len(variants) for variants in signs], np.int32)
    assets = Assets(signs=_pad_variants(signs), variants_per_class=counts, roads=roads)
    return LoadedAssets(assets, names, tuple(skipped))


def _pad_variants(signs: list[np.ndarray]) -> np.ndarray:
    widest = max(len(variants) for variants in signs)
    padded = np.zeros((len(signs), widest, *signs[0].shape[1:]), np.float32)
    for label, variants in enumerate(signs):
        padded[label, : len(variants)] = variants
    return padded


def _load_classes(
    folder: Path,
    seed: int,
    num_classes: int,
    max_variants: int,
    sign_pixels: int,
    skipped: list[tuple[str, str]],
) -> dict[str, np.ndarray]:
    """Read classes in the seed's order until `num_classes` of them have a usable picture."""
    by_class = _files_by_class(folder)
    names = sorted(by_class)
    rng = np.random.default_rng([seed, 0x666F])
    chosen: dict[str, np.ndarray] = {}
    for position in rng.permutation(len(names)):
        name = names[position]
        files = _shuffled(by_class[name], seed, 0x7661)
        variants = _load_signs(files, max_variants, sign_pixels, skipped)
        if variants:
            chosen[name] = np.stack(variants)
        if len(chosen) == num_classes:
            return chosen
    raise GenerationError(
        f"{folder} holds usable pictures of {len(chosen)} classes, {num_classes} are needed. "
        f"Give one sub-folder per class or files named CLASS_name.png{_first_reasons(skipped)}"
    )


def _load_signs(
    files: list[Path], most: int, sign_pixels: int, skipped: list[tuple[str, str]]
) -> list[np.ndarray]:
    """Up to `most` signs; smaller crops only where large ones do not suffice."""
    large: list[np.ndarray] = []
    small: list[np.ndarray] = []
    for picture in _read_all(files, skipped, lambda image: _as_sign(image, sign_pixels)):
        (large if picture[1] >= MIN_SIGN_PIXELS else small).append(picture[0])
        if len(large) == most:
            break
    return large or small[:most]


def _load_backgrounds(
    folder: Path, seed: int, most: int, image_size: int, skipped: list[tuple[str, str]]
) -> np.ndarray:
    side = background_pixels(image_size)
    files = _shuffled(_pictures(folder), seed, 0x6261)
    roads: list[np.ndarray] = []
    for picture in _read_all(files, skipped, lambda image: _as_background(image, side)):
        roads.append(picture)
        if len(roads) == most:
            break
    if not roads:
        raise GenerationError(
            f"{folder} holds no usable background; give a folder with JPEG or PNG pictures"
            f"{_first_reasons(skipped)}"
        )
    return np.stack(roads)


def _first_reasons(skipped: list[tuple[str, str]]) -> str:
    if not skipped:
        return ""
    reasons = "; ".join(f"{name}: {reason}" for name, reason in skipped[:5])
    return f" ({len(skipped)} files skipped, first: {reasons})"


def _files_by_class(folder: Path) -> dict[str, list[Path]]:
    if not folder.is_dir():
        raise GenerationError(f"{folder} is not a folder; give the folder of the sign pictures")
    folders = {path.name: _pictures(path) for path in folder.iterdir() if path.is_dir()}
    by_class = {name: files for name, files in folders.items() if files}
    if by_class:
        return by_class
    for path in _pictures(folder):
        by_class.setdefault(path.stem.split("_", 1)[0], []).append(path)
    return by_class


def _pictures(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise GenerationError(f"{folder} is not a folder; give a folder of pictures")
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in _SUFFIXES and p.is_file())


def _shuffled(files: list[Path], seed: int, tag: int) -> list[Path]:
    order = np.random.default_rng([seed, tag]).permutation(len(files))
    return [files[position] for position in order]


def _read_all(
    files: Iterable[Path], skipped: list[tuple[str, str]], convert: Callable[[Image.Image], T]
) -> Iterable[T]:
    for path in files:
        try:
            yield convert(_open(path))
        except _BAD_PICTURE as error:
            skipped.append((path.name, f"{type(error).__name__}: {error}"))


def _open(path: Path) -> Image.Image:
    """Decode one picture; PIL's pixel limit is an error here, not a warning."""
    size = path.stat().st_size
    if size > MAX_PICTURE_BYTES:
        raise ValueError(f"{size} bytes, at most {MAX_PICTURE_BYTES} are read")
    with warnings.catch_warnings():
        # metadata that Pillow can do without; pixels it cannot read raise
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(path) as image:
                return _to_colour(image)
        except Image.DecompressionBombWarning as warning:
            raise ValueError(str(warning)) from warning


def _to_colour(image: Image.Image) -> Image.Image:
    """RGB, or RGBA where the file has transparency; 16-bit grey keeps its upper 8 bits."""
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.int64) >> 8
        return Image.fromarray(np.clip(grey, 0, 255).astype(np.uint8)).convert("RGB")
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    return image.convert("RGBA" if has_alpha else "RGB")


def _as_sign(image: Image.Image, pixels: int) -> tuple[np.ndarray, int]:
    """RGBA float32 `[pixels, pixels, 4]` and the shorter side of the source."""
    if image.mode == "RGBA":
        rows, cols = np.nonzero(np.asarray(image)[..., 3] > 127)
        if not len(rows):
            raise ValueError("the picture is transparent everywhere")
        cut = image.crop((cols.min(), rows.min(), cols.max() + 1, rows.max() + 1))
        square = ImageOps.pad(cut, (pixels, pixels), Image.Resampling.LANCZOS, color=(0, 0, 0, 0))
        return np.asarray(square, np.float32) / np.float32(255), min(cut.size)
    resized = image.resize((pixels, pixels), Image.Resampling.LANCZOS)
    array = np.asarray(resized, np.float32) / np.float32(255)
    alpha = soft_ellipse(pixels)
    return np.dstack([_expose(array, alpha), alpha]), min(image.size)


def _expose(array: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Brighten a dark photo so that the light parts of its sign reach 0.85, by 4 times at most.

    Raises:
        ValueError: it stays too dark to show a sign (crops taken at night are nearly black).
    """
    light = float(np.quantile(array.mean(axis=-1)[alpha > 0.5], 0.95))
    gain = min(max(0.85 / max(light, 1e-3), 1.0), _MAX_GAIN)
    if light * gain < _MIN_LIGHT:
        raise ValueError(f"too dark: its light parts reach {light:.2f} of 1")
    return np.minimum(array * np.float32(gain), 1)


def soft_ellipse(pixels: int) -> np.ndarray:
    """Alpha float32 `[pixels, pixels]` of an inscribed disc that fades over a tenth of its size."""
    axis = (np.arange(pixels) + 0.5) / pixels - 0.5
    radius = np.hypot(axis[:, None], axis[None, :])
    return np.clip((_ELLIPSE_RADIUS + 0.05 - radius) / 0.05, 0, 1).astype(np.float32)


def _as_background(image: Image.Image, side: int) -> np.ndarray:
    fitted = ImageOps.fit(image.convert("RGB"), (side, side), Image.Resampling.LANCZOS)
    return np.asarray(fitted, np.uint8)
