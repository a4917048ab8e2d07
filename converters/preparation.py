"""Pixels prepared before a network: moved to its bounds, then normalised per channel.

A mean cannot be folded into the first convolution, since that pads with zeros after normalising.
So it stays a step of its own in front of the network, in one program with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import numpy as np

from converters.errors import ConversionError
from converters.model import Model
from converters.wrapped import WrappedConfig

UNIT = (0.0, 1.0)
Pixels = TypeVar("Pixels", jax.Array, np.ndarray)


@dataclass(frozen=True)
class PreparedConfig(WrappedConfig):
    """A network with preparation in front; its parameters are those of the network.

    Attributes:
      bounds: values that pixels 0 and 1 have for the network.
      mean: per channel, subtracted after that; None for none.
      std: per channel, divided by after that; None for none.
    """

    bounds: tuple[float, float] = UNIT
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def prepare(self, images: jax.Array) -> jax.Array:
        """What the network takes, from images `[n, h, w, c]` in [0, 1]."""
        return self.inner.prepare(self.prepare_here(images))

    def prepare_here(self, images: Pixels) -> Pixels:
        """The same by this step alone, where the network prepares images itself."""
        low, high = self.bounds
        if images.dtype.kind in "uib":  # mean and deviation would be cut to whole numbers
            images = images.astype(np.float32)
        if self.bounds != UNIT:
            images = images * (high - low) + low
        if self.mean is not None:
            images = images - np.asarray(self.mean, images.dtype)
        return images if self.std is None else images / np.asarray(self.std, images.dtype)


def prepared(
    model: Model,
    bounds: tuple[float, float] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Model:
    """The same network over pictures in [0, 1] that are not prepared yet.

    Args:
      model: over images.
      bounds: values that pixels 0 and 1 have for the network; (0, 1) by default.
      mean: one value or one per channel, in the model's order of channels.
      std: the same; what pixels are divided by after `mean` was subtracted.

    Raises:
      ConversionError: the numbers do not fit the channels, or the model takes no images.
    """
    if bounds is None and mean is None and std is None:
        return model
    if model.input_kind != "image":
        raise ConversionError(
            f"the network takes {model.input_kind}s; bounds, mean and std are for images"
        )
    config = PreparedConfig(
        model.config,
        UNIT if bounds is None else (float(bounds[0]), float(bounds[1])),
        _per_channel("mean", mean, model.channels),
        _per_channel("std", std, model.channels),
    )
    return replace(model, config=config)


def _per_channel(
    name: str, values: Sequence[float] | None, channels: int
) -> tuple[float, ...] | None:
    if values is None:
        return None
    if len(values) not in (1, channels):
        raise ConversionError(
            f"{name} has {len(values)} values, expected {channels}, one for each channel"
        )
    numbers = tuple(float(value) for value in values)
    return numbers if len(numbers) == channels else numbers * channels
