"""`shifted`: a network with a constant added to the logit of each class; `unshifted`: without."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from converters.errors import ConversionError
from converters.model import Model
from converters.wrapped import WrappedConfig


@dataclass(frozen=True)
class ShiftedConfig(WrappedConfig):
    """A network whose logits are moved; its parameters are those of the network.

    Attributes:
      shifts: what is added to the logit of each class.
    """

    shifts: tuple[float, ...] = ()

    def finish(self, outputs: jax.Array) -> jax.Array:
        """Logits `[n, classes]`, moved."""
        logits = self.inner.finish(outputs)
        return logits + np.asarray(self.shifts, logits.dtype)


def shifted(model: Model, shifts: Sequence[float]) -> Model:
    """The same network with moved logits.

    Args:
      model: over images.
      shifts: finite, one for each class.

    Raises:
      ConversionError: they are not as many as the classes, or not finite.
    """
    if len(shifts) != model.num_classes or not np.isfinite(shifts).all():
        raise ConversionError(
            f"got {len(shifts)} shifts {list(shifts)}, expected {model.num_classes} finite ones,"
            " one for each class"
        )
    return replace(model, config=ShiftedConfig(model.config, tuple(map(float, shifts))))


def unshifted(model: Model) -> Model:
    """The network that `shifted` was given last; any other one as it is."""
    config = model.config
    return replace(model, config=config.inner) if isinstance(config, ShiftedConfig) else model
