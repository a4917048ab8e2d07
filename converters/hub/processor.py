"""How a folder wants its pictures: size, bounds, mean and deviation, by transformers' processor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from converters.errors import ConversionError, safe_repr
from converters.hub.folder import PROCESSORS

_SQUARE = (256, 256)
_UNIT = 1 / 255
_REFUSALS = (*(ValueError, TypeError, KeyError, AttributeError, OSError), RuntimeError)


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


def form_of(folder: Path, usual_size: tuple[int, int] | None) -> FolderForm | None:
    """What the processor of a folder does; None where there is none.

    Args:
      folder: with a preprocessor's config that asks for no code.
      usual_size: of the pictures at hand: some processors keep their proportions.

    Raises:
      ConversionError: transformers cannot use the config.
    """
    name = next((name for name in PROCESSORS if (folder / name).exists()), None)
    if name is None:
        return None
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
        size = _processed(processor, np.zeros((1, *(usual_size or _SQUARE), 3), np.uint8)).shape
        mean, std = _normalisation(processor)
        return FolderForm(
            source=name,
            size=(size[1], size[2]),
            bounds=_bounds(processor),
            mean=mean,
            std=std,
            channel_order="BGR" if getattr(processor, "do_flip_channel_order", False) else "RGB",
            processor=processor,
        )
    except _REFUSALS as error:
        raise ConversionError(
            f"transformers cannot use {name}: {type(error).__name__}: {safe_repr(str(error)[:300])}"
        ) from error


def _processed(processor: Any, pixels: np.ndarray) -> np.ndarray:
    """Pictures resized and cropped, in whole pixels; nothing else is done to them."""
    images = [image.transpose(2, 0, 1) for image in pixels]
    plain = {"do_rescale": False, "do_normalize": False, "input_data_format": "channels_first"}
    if hasattr(processor, "do_flip_channel_order"):
        plain["do_flip_channel_order"] = False
    found = processor(images, return_tensors="np", **plain)["pixel_values"]
    return np.rint(np.clip(np.asarray(found), 0, 255)).astype(np.uint8).transpose(0, 2, 3, 1)


def _bounds(processor: Any) -> tuple[float, float] | None:
    factor = processor.rescale_factor if getattr(processor, "do_rescale", True) else 1.0
    return None if abs(factor - _UNIT) < 1e-6 else (0.0, 255.0 * float(factor))


def _normalisation(processor: Any) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    if not getattr(processor, "do_normalize", False):
        return None, None
    mean, std = processor.image_mean, processor.image_std
    return tuple(map(float, mean)), tuple(map(float, std))
