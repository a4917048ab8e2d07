"""What batch norms remember of training, and what they see of pictures at hand.

In inference a batch norm uses the mean and variance that it gathered in training. Given those of
the pictures at hand instead, it says how the pictures differ from the ones that the network was
trained on, and the network says what it makes of them when the difference is taken away
(`by_batch`). Or the network stays as it is, and every norm says how what it sees of each picture
lies to what it saw in training (`moments`).

Norms that were folded into convolutions, by an exporter or by `converters.families.folding`, left
no statistics behind.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
from flax import nnx

from converters.graph.batch_norms import (
    NormStatistics,
    graph_by_batch,
    graph_moments,
    has_norm,
    statistics_of,
)
from converters.graph.module import GraphConfig
from converters.model import Model, NetworkConfig, Params, abstract_module, module_of
from converters.norm_moments import NormMoments, moments_of


def has_batch_norms(model: Model) -> bool:
    """Whether a network over images has a batch norm with running statistics."""
    network = model.config.core
    if isinstance(network, GraphConfig):
        return has_norm(network.graph)
    return bool(_norms_of(abstract_module(network)))


def norm_paths(model: Model) -> tuple[tuple[str, str], ...]:
    """Flat paths of mean and variance of every batch norm, in the order of `by_batch`.

    Empty where the network has none, or keeps them outside its parameters.
    """
    network = model.config.core
    if isinstance(network, GraphConfig):
        return statistics_of(network.graph)
    parts = nnx.iter_modules(abstract_module(network))
    paths = (".".join(map(str, path)) for path, part in parts if isinstance(part, nnx.BatchNorm))
    return tuple((f"{path}.mean", f"{path}.var") for path in paths)


def by_batch(model: Model, images) -> tuple[jax.Array, tuple[NormStatistics, ...]]:
    """Logits `[n, classes]` with the batch's statistics, and those of every batch norm.

    Each norm sees what the norms before it made with the statistics of the batch, as in training.

    Args:
      model: over images, with `has_batch_norms`.
      images: `[n, h, w, c]` in [0, 1], one batch.
    """
    return _by_batch(model.config, model.params, images)


@partial(jax.jit, static_argnums=0)
def _by_batch(config: NetworkConfig, params: Params, images: jax.Array):
    network, inputs = config.core, config.prepare(images)
    way = graph_by_batch if isinstance(network, GraphConfig) else _module_by_batch
    outputs, found = way(network, params, inputs)  # pyright: ignore[reportArgumentType]
    return config.finish(outputs), found


def _module_by_batch(network: NetworkConfig, params: Mapping[str, jax.Array], inputs: jax.Array):
    module = module_of(network, params)
    norms = _norms_of(module)
    running = [(norm.mean[...], norm.var[...]) for norm in norms]
    for norm in norms:
        # A norm in training moves its running statistics by 1 - momentum: here to the batch's.
        norm.use_running_average, norm.momentum, norm.use_fast_variance = False, 0.0, False
    logits = module(inputs)  # pyright: ignore[reportCallIssue]
    found = [
        NormStatistics(norm.mean[...], norm.var[...], *before)
        for norm, before in zip(norms, running, strict=True)
    ]
    return logits, tuple(found)


def moments(
    config: NetworkConfig, params: Params, images: jax.Array
) -> tuple[jax.Array, tuple[NormMoments, ...]]:
    """Logits `[n, classes]` as in inference, and of each image what every batch norm sees.

    In the order of `norm_paths`, but for families, whose norms come in the order of their calls.
    Differentiable, and part of a larger program: nothing is compiled here.

    Args:
      config, params: of a model over images, with `has_batch_norms`.
      images: `[n, h, w, c]` in [0, 1].
    """
    network, inputs = config.core, config.prepare(images)
    if isinstance(network, GraphConfig):
        outputs, seen = graph_moments(network, params, inputs)
        return config.finish(outputs), seen
    module, found = module_of(network, params), []
    for path, norm in list(nnx.iter_modules(module)):
        if isinstance(norm, nnx.BatchNorm):
            _replace(module, path, _Watched(norm, found.append))
    outputs = module(inputs)  # pyright: ignore[reportCallIssue]
    return config.finish(outputs), tuple(found)


class _Watched(nnx.Module):
    """A batch norm that tells what it sees of each image."""

    def __init__(self, norm: nnx.BatchNorm, tell: Callable[[NormMoments], None]):
        self.norm, self.tell = norm, tell

    def __call__(self, x: jax.Array) -> jax.Array:
        self.tell(moments_of(x, self.norm.mean[...], self.norm.var[...], x.ndim - 2))
        return self.norm(x)


def _replace(module: nnx.Module, path: Sequence[Any], part: nnx.Module) -> None:
    holder: Any = module
    for name in path[:-1]:
        holder = holder[name] if isinstance(name, int) else getattr(holder, name)
    if isinstance(path[-1], int):
        holder[path[-1]] = part
    else:
        setattr(holder, path[-1], part)


def _norms_of(module: nnx.Module) -> list[nnx.BatchNorm]:
    return [part for _, part in nnx.iter_modules(module) if isinstance(part, nnx.BatchNorm)]
