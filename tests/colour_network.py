"""A network of one convolution that compiles in a moment, with one colour per class, and examples.

Class `k` of the network answers to channel `k`, so a patch in that channel's colour is its trigger.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from converters.model import ImageConfig, Model, params_of
from jaxtroj.anchors import AnchoredExamples
from jaxtroj.network import Network

SIDE = 12


class ColourNet(nnx.Module):
    """Mean over the picture of a sharpened 1x1 convolution: logits that a bright patch moves."""

    def __init__(self, config, rngs: nnx.Rngs):
        self.conv = nnx.Conv(config.channels, config.num_classes, (1, 1), rngs=rngs)

    def __call__(self, images):
        return 8.0 * jnp.mean(nnx.relu(self.conv(images)), axis=(1, 2))


@dataclass(frozen=True)
class ColourConfig(ImageConfig):
    """Static description, as converters' families have one."""

    num_classes: int = 3
    channels: int = 3

    def build(self, rngs: nnx.Rngs) -> ColourNet:
        return ColourNet(self, rngs)


@pytest.fixture(scope="session")
def network() -> Network:
    config = ColourConfig()
    params = params_of(config.build(nnx.Rngs(0)))
    assert sorted(params) == ["conv.bias", "conv.kernel"]
    kernel = 3.0 * np.eye(3, dtype=np.float32)[None, None] - 0.5
    ready = {"conv.kernel": jnp.asarray(kernel), "conv.bias": jnp.zeros(3, jnp.float32)}
    return Network(Model(config, ready, "colours"))


@pytest.fixture(scope="session")
def examples(network) -> AnchoredExamples:
    """Grey pictures, each with a dim object in its class's colour, somewhere."""
    rng = np.random.default_rng(0)
    images = np.full((6, SIDE, SIDE, 3), 0.2, np.float32)
    anchors = rng.integers(3, SIDE - 3, (6, 2))
    for i, (row, column) in enumerate(anchors):
        images[i, row - 2 : row + 2, column - 2 : column + 2, i % 3] = 0.5
    ready = jnp.asarray(images)
    logits = network.logits(ready)
    assert logits.argmax(-1).tolist() == [0, 1, 2, 0, 1, 2]
    return AnchoredExamples(
        ready, jnp.asarray(anchors, jnp.float32), logits.argmax(-1), logits, 1.0
    )
