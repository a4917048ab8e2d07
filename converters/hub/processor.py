"""How a folder wants its pictures: size, bounds, mean and deviation, by transformers' processor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.errors import ConversionError, LoadError, safe_repr
from converters.files import read_json
from converters.hub.folder import MOST_CONFIG_BYTES, PROCESSORS

_SQUARE = (256, 256)
_UNIT = 1 / 255
_REFUSALS = (
    *(ValueError, TypeError, LookupError, AttributeError, OSError, RuntimeError, ArithmeticError),
)
_OLDER, _NEWER = PROCESSORS
# Entries that name a class, and change no picture.
_NAMES = ("image_processor_type", "feature_extractor_type", "processor_class")
_PIXELS_STAY = {"do_resize": False, "do_center_crop": False, "do_pad": False}
# Switches whose effect a `FolderForm` has, or that change nothing in pictures of three channels.
_KNOWN = frozenset(
    "do_resize do_center_crop do_pad do_rescale do_normalize do_flip_channel_order do_convert_rgb"
    " default_to_square".split()
)
# In steps of a pixel: resized pictures are rounded to whole pixels here.
_ROUNDING = 0.51


@dataclass(frozen=True)
class FolderForm:
    """What a folder says of its pictures.

    Attributes:
      source: name of the file that says it.
      size: height and width in pixels of what the network takes; None where that is left open.
      bounds: values that pixels 0 and 1 have before mean and deviation; None for (0, 1).
      mean: per channel, subtracted; None for nothing.
      std: per channel, what pixels are divided by then; None for nothing.
      channel_order: "RGB" or "BGR".
      processor: of transformers; None where the folder says numbers alone.
    """

    source: str
    size: tuple[int, int] | None
    bounds: tuple[float, float] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    channel_order: str = "RGB"
    processor: Any = None

    def resized(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 pictures `[n, h, w, 3]` as the folder's processor resizes and crops them."""
        if self.processor is None or self.size == pixels.shape[1:3]:
            return pixels
        return _processed(self.processor, pixels)

    def prepared(self, pixels: np.ndarray) -> np.ndarray:
        """uint8 pictures `[n, h, w, 3]` of the network's size as the network gets them."""
        low, high = self.bounds or (0.0, 1.0)
        scaled = (pixels[..., ::-1] if self.channel_order == "BGR" else pixels) / 255
        return (scaled * (high - low) + low - np.array(self.mean or 0.0)) / self._deviation

    @property
    def rounding(self) -> np.ndarray:
        """What rounding to whole pixels may change in each channel of `prepared`."""
        low, high = self.bounds or (0.0, 1.0)
        return np.abs(_ROUNDING / 255 * (high - low) / self._deviation)

    @property
    def _deviation(self) -> np.ndarray:
        return np.array(self.std or 1.0)


def form_of(folder: Path, usual_size: tuple[int, int] | None) -> FolderForm | None:
    """What the processor of a folder does; None where there is none.

    Args:
      folder: with a preprocessor's config that asks for no code.
      usual_size: of the pictures at hand: some processors keep their proportions.

    Raises:
      ConversionError: transformers cannot use the config, or does more than a `FolderForm` says.
      LoadError: two configs prepare pictures in two ways.
    """
    name = _file_of(folder)
    if name is None:
        return None
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        _refuse_other_values(folder, processor)
        size = _processed(processor, _noise(usual_size or _SQUARE)).shape
        mean, std = _normalisation(processor)
        form = FolderForm(
            source=name,
            size=(size[1], size[2]),
            bounds=_bounds(processor),
            mean=mean,
            std=std,
            channel_order="BGR" if getattr(processor, "do_flip_channel_order", False) else "RGB",
            processor=processor,
        )
        _refuse_more(form, usual_size or _SQUARE)
        return form
    except _REFUSALS as error:
        raise ConversionError(
            f"transformers cannot use {name}: {type(error).__name__}: {safe_repr(str(error)[:300])}"
        ) from error


def _file_of(folder: Path) -> str | None:
    """Name of the file that says how pictures are prepared, in transformers 5."""
    if (folder / _NEWER).exists() and _of_pictures(folder) is not None:
        return _NEWER
    return next((name for name in PROCESSORS if (folder / name).exists()), None)


def _of_pictures(folder: Path) -> dict[str, Any] | None:
    """What the file of transformers 5 says of pictures; those before it read the other alone."""
    said = read_json(folder / _NEWER, MOST_CONFIG_BYTES).get("image_processor")
    return said if isinstance(said, dict) else None


def _refuse_other_values(folder: Path, processor: Any) -> None:
    """Raise LoadError where the file that transformers 4 reads says something else of pictures."""
    if _file_of(folder) != _NEWER or not (folder / _OLDER).exists():
        return
    said = (read_json(folder / _OLDER, MOST_CONFIG_BYTES), _of_pictures(folder) or {})
    kinds = {str(one.get("image_processor_type")).removesuffix("Fast") for one in said}
    older, newer = (type(processor).from_dict(one).to_dict() for one in said)
    differing = [key for key in newer if key not in _NAMES and newer[key] != older.get(key)]
    if len(kinds) > 1 or differing:
        raise LoadError(
            f"{folder}: {_OLDER} and {_NEWER} prepare pictures in two ways, of other"
            f" {safe_repr(', '.join(differing) or 'image_processor_type')}. transformers 4 reads"
            " the one, transformers 5 the other; expected the same: take away the one that is not"
            " meant"
        )


def _noise(size: tuple[int, int]) -> np.ndarray:
    """Two random pictures."""
    return np.random.default_rng(0).integers(0, 256, (2, *size, 3), np.uint8)


def _refuse_more(form: FolderForm, usual_size: tuple[int, int]) -> None:
    """Raise ConversionError where the processor makes other values of pixels than `form` does.

    Its attributes do not tell: each class has its own, such as an offset or grey pictures.
    """
    given, alone = _noise(usual_size), _noise(form.size or usual_size)
    whole = _processed(form.processor, given)
    for pixels, same, how in ((alone, alone, _PIXELS_STAY), (given, whole, {})):
        found, expected = _values(form.processor, pixels, **how), form.prepared(same)
        if found.shape == expected.shape and (np.abs(found - expected) <= form.rounding).all():
            continue
        more = [k for k, v in form.processor.to_dict().items() if v is True and k not in _KNOWN]
        raise ConversionError(
            f"{form.source}: {type(form.processor).__name__}"
            f"{' with ' + safe_repr(', '.join(more)) if more else ''} makes other values of pixels"
            " than size, crop, rescaling, mean, deviation and order of channels do:"
            f" {_range(found)} of random pictures, expected {_range(expected)}. Check the file's"
            " numbers, or take it out and say how pixels are prepared: --bounds, --mean and --std"
        )


def _range(values: np.ndarray) -> str:
    shape = "x".join(map(str, values.shape))
    return f"{shape} values from {values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}"


def _values(processor: Any, pixels: np.ndarray, **how: Any) -> np.ndarray:
    """What a processor makes of uint8 pictures `[n, h, w, 3]`, channels last."""
    images = [image.transpose(2, 0, 1) for image in pixels]
    plain = {"return_tensors": "np", "input_data_format": "channels_first"}
    return np.asarray(processor(images, **plain, **how)["pixel_values"]).transpose(0, 2, 3, 1)


def _processed(processor: Any, pixels: np.ndarray) -> np.ndarray:
    """Pictures resized and cropped, in whole pixels; nothing else is done to them."""
    plain = {"do_rescale": False, "do_normalize": False}
    if hasattr(processor, "do_flip_channel_order"):
        plain["do_flip_channel_order"] = False
    return np.rint(np.clip(_values(processor, pixels, **plain), 0, 255)).astype(np.uint8)


def _bounds(processor: Any) -> tuple[float, float] | None:
    factor = processor.rescale_factor if getattr(processor, "do_rescale", True) else 1.0
    return None if abs(factor - _UNIT) < 1e-6 else (0.0, 255.0 * float(factor))


def _normalisation(processor: Any) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    if not getattr(processor, "do_normalize", False):
        return None, None
    mean, std = processor.image_mean, processor.image_std
    return tuple(map(float, mean)), tuple(map(float, std))
