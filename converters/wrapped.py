"""`WrappedConfig`: a network over images with a step before or after it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import numpy as np
from flax import nnx

from converters.model import ImageConfig, NetworkConfig


@dataclass(frozen=True)
class WrappedConfig(ImageConfig):
    """What such a network passes on; its parameters are those of the network.

    Attributes:
      inner: configuration of the network, which may be wrapped itself.
    """

    inner: NetworkConfig

    @property
    def num_classes(self) -> int:
        """Number of logits."""
        return self.inner.num_classes

    @property
    def channels(self) -> int:
        """Channels of the images."""
        return self.inner.channels

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the images, of a network that takes one size only."""
        return self.inner.image_size

    @property
    def eps(self) -> float:
        """What the network's batch norms add to the variance."""
        return self.inner.eps

    @property
    def folded(self) -> bool:
        """Whether the network's batch norms are folded."""
        return self.inner.folded

    @property
    def core(self) -> NetworkConfig:
        """The network alone, without steps that stand before or after it."""
        return self.inner.core

    def around(self, core: NetworkConfig) -> Self:
        """The same steps before and after another network."""
        return replace(self, inner=self.inner.around(core))

    def build(self, rngs: Any) -> nnx.Module:
        """The network alone; `converters.model.apply` adds the steps."""
        return self.inner.build(rngs)

    def prepare(self, images: jax.Array) -> jax.Array:
        """What the network takes, from images `[n, h, w, c]` in [0, 1]."""
        return self.inner.prepare(images)

    def finish(self, outputs: jax.Array) -> jax.Array:
        """Logits `[n, classes]`, from what the network's module gives."""
        return self.inner.finish(outputs)

    def last_layer(self, params: Mapping[str, Any]) -> np.ndarray | None:
        """Rows `[classes, features]` of the network's last layer."""
        return self.inner.last_layer(params)
