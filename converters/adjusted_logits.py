"""`adjusted`: a network whose logits are scaled and shifted by class; `unadjusted`: as it was."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from converters.errors import ConversionError
from converters.model import Model
from converters.wrapped import WrappedConfig


@dataclass(frozen=True)
class AdjustedConfig(WrappedConfig):
    """A network with other logits; its parameters are those of the network.

    Attributes:
      factor: what all logits are multiplied by, first.
      shifts: what is added to the logit of each class; () for nothing.
    """

    factor: float = 1.0
    shifts: tuple[float, ...] = ()

    def finish(self, outputs: jax.Array) -> jax.Array:
        """Logits `[n, classes]`, adjusted."""
        logits = self.inner.finish(outputs)
        if self.factor != 1:
            logits = logits * np.asarray(self.factor, logits.dtype)
        return logits + np.asarray(self.shifts, logits.dtype) if self.shifts else logits


def adjusted(model: Model, factor: float = 1.0, shifts: Sequence[float] = ()) -> Model:
    """The same network with other logits.

    Args:
      model: over images.
      factor: of all logits, finite and above 0, so that every answer stays the same.
      shifts: finite, one for each class, or none.

    Raises:
      ConversionError: the factor is not above 0, or the shifts are not as many as the classes, or
        one is not finite.
    """
    if not (np.isfinite(factor) and factor > 0):
        raise ConversionError(f"got the factor {factor} for logits, expected one above 0")
    if len(shifts) not in (0, model.num_classes) or not np.isfinite(shifts).all():
        raise ConversionError(
            f"got {len(shifts)} shifts {list(shifts)}, expected {model.num_classes} finite ones,"
            " one for each class"
        )
    config = AdjustedConfig(model.config, float(factor), tuple(map(float, shifts)))
    return replace(model, config=config)


def unadjusted(model: Model) -> Model:
    """The network without what `adjusted` did to it, however often; any other one as it is."""
    config = model.config
    while isinstance(config, AdjustedConfig):
        config = config.inner
    return replace(model, config=config)
