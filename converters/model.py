"""A converted model: a static configuration and traced parameters.

The split is what makes scanning fast: jitted code takes the hashable configuration as a static
argument and the parameters as a traced one, so all models of one architecture share one compiled
program.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

Params = dict[str, jax.Array]


class _OneKey:
    """Stands for `nnx.Rngs` where no value is ever drawn.

    A counter inside a trace costs time quadratic in the number of layers: 4 s for DenseNet121.
    """

    def __init__(self, key: jax.Array):
        self._key = key

    def params(self) -> jax.Array:
        """The same key each time."""
        return self._key


@lru_cache(maxsize=256)
def abstract_module(config) -> nnx.Module:
    """The module of a configuration in inference mode, shapes without values; do not change it."""

    rngs = _OneKey(jax.random.key(0))

    def build():
        module = config.build(rngs)
        module.eval()
        return module

    return nnx.eval_shape(build)


@lru_cache(maxsize=256)
def _abstract(config) -> tuple[nnx.GraphDef, nnx.State]:
    return nnx.split(abstract_module(config))


def _dotted(path: tuple) -> str:
    return ".".join(map(str, path))


def param_shapes(config) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape of every parameter and statistic that a configuration needs."""
    flat = nnx.to_flat_state(_abstract(config)[1])
    return {_dotted(path): tuple(leaf.shape) for path, leaf in flat}


def module_of(config, params: Mapping[str, jax.Array]) -> nnx.Module:
    """The NNX module in inference mode, holding `params`."""
    graph, state = _abstract(config)
    flat = [(path, leaf.replace(params[_dotted(path)])) for path, leaf in nnx.to_flat_state(state)]
    return nnx.merge(graph, nnx.from_flat_state(flat))


def params_of(module: nnx.Module) -> dict[str, np.ndarray]:
    """Flax path -> value of every parameter and statistic of a module, on the host."""
    state = nnx.state(module, (nnx.Param, nnx.BatchStat))
    flat = nnx.to_flat_state(state)
    return {_dotted(path): np.asarray(leaf[...]) for path, leaf in flat}


def apply(config, params: Params, inputs: jax.Array) -> jax.Array:
    """Logits `[n, classes]` of images `[n, h, w, c]`, or of embeddings `[n, d]` for a head.

    Pure; `config` is static under jit, and `vmap` over stacked `params` runs many models. A
    configuration with `prepare` (see `converters.preparation`) has its pixels prepared by it.
    """
    prepare = getattr(config, "prepare", None)
    return module_of(config, params)(inputs if prepare is None else prepare(inputs))


_jitted_apply = jax.jit(apply, static_argnums=0)


@dataclass(frozen=True)
class Model:
    """A network ready for scanning.

    Attributes:
      config: hashable description of the architecture, a static jit argument.
      params: Flax path -> array, traced.
      architecture: torchvision's name, e.g. "resnet50", the family for odd depths, or TrojAI's
        name of a head, e.g. "GruLinear".
      findings: what was noticed while reading and converting.
    """

    config: object
    params: Params
    architecture: str
    findings: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """Number of logits."""
        return self.config.num_classes  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def channels(self) -> int:
        """Channels of the input images."""
        return self.config.channels  # pyright: ignore[reportAttributeAccessIssue]

    def __call__(self, inputs) -> jax.Array:
        """Logits `[n, classes]` of what the configuration's `input_kind` says.

        Args:
          inputs: images `[n, h, w, c]` in [0, 1] in the model's channels, or embeddings `[n, d]`.
        """
        return _jitted_apply(self.config, self.params, jnp.asarray(inputs))

    def astype(self, dtype) -> "Model":
        """The same model with parameters of another floating type."""
        # Cast on the host: on the device every shape would compile a program of its own.
        params = {k: jnp.asarray(np.asarray(v).astype(dtype)) for k, v in self.params.items()}
        return replace(self, params=params)
