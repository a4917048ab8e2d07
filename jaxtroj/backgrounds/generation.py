"""The eight variants of ImageNet-9 from any labelled pictures with masks or boxes.

Every draw is keyed by seed, variant and picture, so the same picture meets the same background
whatever the order; the manifest names it.
"""

import hashlib
import io
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from jaxtroj.backgrounds import grabcut, variations
from jaxtroj.backgrounds.files import read_mask, read_picture
from jaxtroj.backgrounds.layout import MASKS, VARIANTS
from jaxtroj.backgrounds.sources import Source, list_sources, mask_paths, read_boxes
from jaxtroj.backgrounds.variations import Box
from jaxtroj.errors import DatasetError, GenerationError

MANIFEST = "manifest.json"
VERSION = 1
_LARGEST_BOX, _LEAST_INSIDE = 0.9, 0.5
_MOST_PIXELS = 2**27  # of a scaled picture before it is cropped
_MIXED = ("mixed_same", "mixed_rand", "mixed_next")


@dataclass(frozen=True)
class GenerationSettings:
    """What is asked for.

    Attributes:
        seed: 0 or more.
        masks: folder of `class/stem.npy`, or None.
        boxes: CSV of `sources.COLUMNS`, or None; one of both.
        size: side of the pictures written, pixels.
        convert_grayscale: take grayscale pictures as three equal channels.
    """

    seed: int
    masks: Path | None = None
    boxes: Path | None = None
    size: int = 224
    convert_grayscale: bool = False


@dataclass(frozen=True)
class Foreground:
    """One picture that is used: all of `size`; where its mask came from, and tries it took."""

    source: Source
    image: np.ndarray
    mask: np.ndarray
    box: Box
    tries: int


@dataclass(frozen=True)
class Dropped:
    """One picture that is not used, and why."""

    source: Source
    reason: str


@dataclass(frozen=True)
class Done:
    """The folder as it was written, and its manifest."""

    folder: Path
    manifest: Mapping[str, Any] = field(default_factory=dict)


def generate(
    images: Path, out: Path, settings: GenerationSettings
) -> Iterator[Foreground | Dropped | Done]:
    """Writes the variants, yielding each picture as it is prepared and `Done` at the end.

    Args:
        images: a folder per class; their sorted places are the labels.
        out: made by this; it appears when everything in it is written.
        settings: see there.
    Raises:
        GenerationError: `out` is there, OpenCV is missing, or a class has no picture left.
        DatasetError: pictures, masks or boxes are missing, unreadable or do not match.
    """
    if os.path.lexists(out):
        raise GenerationError(f"{out} is there already; name a folder that is not")
    if (settings.masks is None) == (settings.boxes is None):
        raise GenerationError("expected either masks or boxes")
    classes, sources = list_sources(images)
    prepare = _preparer(sources, settings)
    used: list[Foreground] = []
    dropped: list[Dropped] = []
    for source in sources:
        prepared = prepare(source)
        if isinstance(prepared, Foreground):
            used.append(prepared)
        else:
            dropped.append(prepared)
        yield prepared
    lost = set(range(len(classes))) - {f.source.label for f in used}
    if lost:
        raise GenerationError(
            f"no picture of class {ascii(classes[min(lost)])} can be used: "
            f"{next(d.reason for d in dropped if d.source.label == min(lost))}"
        )
    yield Done(out, _write_whole(out, classes, used, dropped, settings))


def _preparer(
    sources: list[Source], settings: GenerationSettings
) -> Callable[[Source], Foreground | Dropped]:
    """What makes a source into a foreground; everything missing is found before the first."""
    if settings.masks is not None:
        masks = mask_paths(settings.masks, sources)
        return lambda source: _with_mask(source, masks[source.name], settings)
    assert settings.boxes is not None
    boxes = read_boxes(settings.boxes, sources)
    grabcut.require_opencv()
    return lambda source: _with_box(source, boxes[source.name], settings)


def _with_mask(source: Source, path: Path, settings: GenerationSettings) -> Foreground | Dropped:
    image = read_picture(source.path, settings.convert_grayscale)
    mask = read_mask(path)
    if mask.shape != image.shape[:2]:
        raise DatasetError(
            f"{path} is {mask.shape[1]} x {mask.shape[0]}, expected {image.shape[1]} x "
            f"{image.shape[0]} as its picture {source.name}"
        )
    if not mask.any():
        return Dropped(source, "its mask is empty")
    return _fitted(source, image, mask, variations.box_of(mask), 0, settings.size)


def _with_box(source: Source, box: Box, settings: GenerationSettings) -> Foreground | Dropped:
    image = read_picture(source.path, settings.convert_grayscale)
    height, width = image.shape[:2]
    if box[2] > width or box[3] > height:
        raise DatasetError(
            f"{settings.boxes}: the box {box} of {source.name} is not inside its {width} x "
            f"{height} pixels"
        )
    if reason := _unfit(variations.mask_of(box, height, width), settings.size):
        return Dropped(source, reason)
    mask, tries = grabcut.cut_out(image, box, _key(settings.seed, "grabcut", source.name) % 2**31)
    if mask is None:
        return Dropped(source, f"GrabCut found less than a tenth of the box in {tries} tries")
    return _fitted(source, image, mask, box, tries, settings.size)


def _unfit(box_mask: np.ndarray, size: int) -> str | None:
    """Why a picture with such a box is not used: the authors' conditions, and our limit."""
    width, height = variations.scaled_size(box_mask, size)
    if width * height > _MOST_PIXELS:
        return (
            f"it is {box_mask.shape[1]} x {box_mask.shape[0]} pixels, which scaled for --size"
            f" {size} are {width} x {height}; expected at most {_MOST_PIXELS} pixels"
        )
    whole = variations.resized(box_mask, size)
    inside = int(variations.cropped(whole, size).sum())
    if inside > _LARGEST_BOX * size * size:
        return "its box fills more than 0.9 of the crop"
    if inside < _LEAST_INSIDE * whole.sum() or not inside:
        return "less than half of its box is inside the crop"
    return None


def _fitted(
    source: Source, image: np.ndarray, mask: np.ndarray, box: Box, tries: int, size: int
) -> Foreground | Dropped:
    box_mask = variations.mask_of(box, *mask.shape)
    if reason := _unfit(box_mask, size):
        return Dropped(source, reason)
    image, mask, box_mask = (
        variations.cropped(variations.resized(pixels, size), size)
        for pixels in (image, mask, box_mask)
    )
    if not mask.any():
        return Dropped(source, "none of its foreground is inside the crop")
    return Foreground(source, image, mask, variations.box_of(box_mask), tries)


def _write_whole(
    out: Path,
    classes: tuple[str, ...],
    used: list[Foreground],
    dropped: list[Dropped],
    settings: GenerationSettings,
) -> dict[str, Any]:
    """Fill a hidden folder beside `out` and rename it."""
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        groups = [[f for f in used if f.source.label == i] for i in range(len(classes))]
        entries = [_write_one(part, foreground, groups, settings) for foreground in used]
        manifest = {
            "version": VERSION,
            "seed": settings.seed,
            "size": settings.size,
            "classes": classes,
            "masks": "given" if settings.masks is not None else "GrabCut from boxes",
            "pictures": entries,
            "dropped": [{"image": d.source.name, "reason": d.reason} for d in dropped],
        }
        text = json.dumps(manifest, indent=1, allow_nan=False)
        (part / MANIFEST).write_text(text + "\n")
        os.rename(part, out)
    except OSError as error:
        raise GenerationError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return manifest


def _write_one(
    part: Path, foreground: Foreground, groups: list[list[Foreground]], settings: GenerationSettings
) -> dict[str, Any]:
    """All variants and the mask of one picture; returns its line of the manifest."""
    source, image, mask = foreground.source, foreground.image, foreground.mask
    plain = {
        "original": image,
        "only_fg": variations.only_foreground(image, mask),
        "no_fg": variations.no_foreground(image, mask),
        "only_bg_b": variations.black_box(image, foreground.box),
        "only_bg_t": variations.tiled_box(image, foreground.box),
    }
    files = {variant: f"{source.stem}.png" for variant in plain}
    partners = {v: partner(foreground, groups, v, settings.seed) for v in _MIXED}
    for variant, other in partners.items():
        background = variations.tiled_box(other.image, other.box)
        plain[variant] = variations.on_background(image, mask, background)
        files[variant] = f"fg_{source.stem}_bg_{other.source.stem}.png"
    assert set(plain) == set(VARIANTS)
    for variant, pixels in plain.items():
        path = _free(part / variant / "val" / source.class_name / files[variant])
        files[variant] = path.name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, compress_level=1)
    path = part / MASKS / "val" / source.class_name / f"{source.stem}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.save(buffer, mask.astype(np.uint8))
    path.write_bytes(buffer.getvalue())
    return {
        "foreground": source.name,
        "class": source.class_name,
        "label": source.label,
        "box": foreground.box,
        "mask_pixels": int(mask.sum()),
        "grabcut_tries": foreground.tries,
        "files": files,
        "backgrounds": {
            v: {"background": o.source.name, "class": o.source.class_name, "label": o.source.label}
            for v, o in partners.items()
        },
    }


def _free(path: Path) -> Path:
    """The path, its name with a number where another pair's is the same: "a" on "b_bg_c" has the
    name of "a_bg_b" on "c"."""
    numbered = (path.with_name(f"{path.stem}_{n}{path.suffix}") for n in itertools.count(2))
    return path if not path.exists() else next(one for one in numbered if not one.exists())


def partner(
    foreground: Foreground, groups: list[list[Foreground]], variant: str, seed: int
) -> Foreground:
    """Whose background a mixed variant takes.

    Args:
        foreground: the picture.
        groups: the pictures of each class, sorted by name; its own background is taken only where
            there is no other.
        variant: "mixed_same" (its class), "mixed_rand" (any class, each as probable), or
            "mixed_next" (the class after its own, the first after the last).
        seed: of the draw, with variant and name.
    """
    random = np.random.default_rng(_key(seed, variant, foreground.source.name))
    own, classes = foreground.source.label, len(groups)
    label = {
        "mixed_same": own,
        "mixed_rand": int(random.integers(classes)),
        "mixed_next": (own + 1) % classes,
    }[variant]
    others = [f for f in groups[label] if f.source.name != foreground.source.name] or groups[label]
    return others[int(random.integers(len(others)))]


def _key(seed: int, purpose: str, name: str) -> int:
    content = f"{seed}\0{purpose}\0{name}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "big")
