"""Networks with batch norms that remember pictures of one's choice, and such pictures."""

from collections.abc import Iterator
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.batch_norms import by_batch
from converters.families.densenet import DenseNetConfig
from converters.model import Model, params_of
from jaxtroj.rounds.examples import Examples

SIDE = 24


def untaught(classes: int = 3, channels: int = 3) -> Model:
    config = DenseNetConfig(8, (((8, 4),), ((8, 4),)), (6,), classes, channels)
    params = params_of(config.build(nnx.Rngs(0)))
    return Model(config, {k: jnp.asarray(v) for k, v in params.items()}, "densenet")


def pictures(count: int, classes: int = 3, channels: int = 3, seed: int = 0) -> Examples:
    images = np.random.default_rng(seed).random((count, SIDE, SIDE, channels), np.float32)
    labels = (np.arange(count) % classes).astype(np.int32)
    return Examples(images, labels, tuple(map(str, labels)), "RGB")


def taught(model: Model, images: np.ndarray) -> Model:
    """Running statistics that are those of some pictures, as training leaves them."""
    _, found = by_batch(model, images)
    # Norms come in the order of their paths.
    norms = sorted(path.removesuffix(".mean") for path in model.params if path.endswith(".mean"))
    params = dict(model.params)
    for norm, own in zip(norms, found, strict=True):
        params[f"{norm}.mean"], params[f"{norm}.var"] = own.mean, own.var
    return replace(model, params=params)


def odd_ones() -> Iterator[tuple[Model, Examples]]:
    """Two classes and one channel, examples without labels, flat ones, a network of zeros."""
    yield untaught(2, 1), pictures(5, 2, 1)
    yield untaught(), replace(pictures(4), labels=np.full(4, -1, np.int32))
    yield untaught(), replace(pictures(4), images=np.zeros((4, SIDE, SIDE, 3), np.float32))
    model = untaught()
    dead = {k: jnp.zeros_like(v) for k, v in model.params.items()}
    yield replace(model, params=dead), pictures(4)


def overflowing() -> Model:
    """A network whose numbers run over."""
    model = untaught()
    huge = {k: v * 1e15 if k.endswith("kernel") else v for k, v in model.params.items()}
    return replace(model, params=huge)
