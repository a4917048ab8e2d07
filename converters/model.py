"""A converted model: a static configuration and traced parameters.

The split is what makes scanning fast: jitted code takes the hashable configuration as a static
argument and the parameters as a traced one, so all models of one architecture share one compiled
program.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.errors import ConversionError

Params = dict[str, jax.Array]
InputKind = Literal["image", "embedding", "tokens"]


class Buildable(Protocol):
    """A hashable description that a module is built from."""

    def build(self, rngs: Any) -> nnx.Module:
        """A module of this shape with initial weights."""
        ...


class NetworkConfig(ABC):
    """What is asked of the description of a network: a family's, or a captured graph's.

    One is a frozen dataclass of everything that decides shapes or branches, hashable, derived from
    `ImageConfig` or `EmbeddingConfig`; its fields and properties take the place of what stands
    here.

    Attributes:
      last_path: path of the linear layer that gives the logits, the same in torch and in Flax.
      num_classes: number of logits.
      input_kind: what the network takes.
      channels: of the images; 0 for others.
      input_size: width of the embeddings; 0 for others.
      image_size: height and width of the only images it takes; None if it takes others.
      batch_first: whether the input's first axis is the batch, not time.
      eps: what batch norms add to the variance; 0 without any.
      folded: whether batch norms were folded into convolutions.
      single_step: whether what is inert on sequences of one step was left out.
      mixes_types: whether it takes inputs of other floating types than its parameters have.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    last_path: ClassVar[str]
    mixes_types: ClassVar[bool] = False
    num_classes: int
    input_kind: InputKind
    channels: int
    input_size: int
    image_size: tuple[int, int] | None = None
    batch_first: bool = True
    eps: float = 0.0
    folded: bool = False
    single_step: bool = False

    @abstractmethod
    def build(self, rngs: Any) -> nnx.Module:
        """A module of this shape with initial weights."""

    def prepare(self, inputs: jax.Array) -> jax.Array:
        """What the module takes, from the model's inputs: those themselves."""
        return inputs

    def finish(self, outputs: jax.Array) -> jax.Array:
        """Logits `[n, classes]`, from what the module gives: that itself."""
        return outputs

    @property
    def core(self) -> "NetworkConfig":
        """The network alone, without steps that stand before or after it."""
        return self

    def around(self, core: "NetworkConfig") -> "NetworkConfig":
        """The same steps before and after another network."""
        return core

    def last_layer(self, params: Mapping[str, Any]) -> np.ndarray | None:
        """Rows float64 `[classes, features]` that the logits are made with; None for none."""
        kernel = params.get(f"{self.last_path}.kernel")
        return None if kernel is None else np.asarray(kernel, np.float64).T


class ImageConfig(NetworkConfig):
    """Of networks over images `[n, h, w, c]`."""

    last_path = "fc"
    input_kind = "image"
    channels = 3
    input_size = 0


class EmbeddingConfig(NetworkConfig):
    """Of heads over embeddings `[n, input_size]` or sequences of them."""

    last_path = "linear"
    input_kind = "embedding"
    channels = 0

    @property
    @abstractmethod
    def first_kernels(self) -> tuple[str, ...]:
        """Flax paths of the kernels `[input_size, width]` that meet the embedding."""


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
def abstract_module(config: Buildable) -> nnx.Module:
    """The module of a configuration in inference mode, shapes without values; do not change it."""

    rngs = _OneKey(jax.random.key(0))

    def build():
        module = config.build(rngs)
        module.eval()
        return module

    return nnx.eval_shape(build)


@lru_cache(maxsize=256)
def _abstract(config: Buildable) -> tuple[nnx.GraphDef, nnx.State]:
    return nnx.split(abstract_module(config))


def _dotted(path: tuple) -> str:
    return ".".join(map(str, path))


def param_shapes(config: Buildable) -> dict[str, tuple[int, ...]]:
    """Flax path -> shape of every parameter and statistic that a configuration needs."""
    flat = nnx.to_flat_state(_abstract(config)[1])
    return {_dotted(path): tuple(leaf.shape) for path, leaf in flat}


def module_of(config: Buildable, params: Mapping[str, jax.Array]) -> nnx.Module:
    """The NNX module in inference mode, holding `params`."""
    graph, state = _abstract(config)
    flat = [(path, leaf.replace(params[_dotted(path)])) for path, leaf in nnx.to_flat_state(state)]
    return nnx.merge(graph, nnx.from_flat_state(flat))


def params_of(module: nnx.Module) -> dict[str, np.ndarray]:
    """Flax path -> value of every parameter and statistic of a module, on the host."""
    state = nnx.state(module, (nnx.Param, nnx.BatchStat))
    flat = nnx.to_flat_state(state)
    return {_dotted(path): np.asarray(leaf[...]) for path, leaf in flat}


def cast(params: Params, dtype) -> Params:
    """Parameters of another floating type."""
    # On the host: on the device every shape would compile a program of its own.
    return {path: jnp.asarray(np.asarray(value).astype(dtype)) for path, value in params.items()}


def apply(config: NetworkConfig, params: Params, inputs: jax.Array) -> jax.Array:
    """Logits `[n, classes]` of images `[n, h, w, c]`, of embeddings `[n, d]` for a head, or of
    token ids and mask `[n, 2, t]` for a text classifier.

    Pure; `config` is static under jit, and `vmap` over stacked `params` runs many models. Pixels
    are prepared as the configuration says (see `converters.preparation`), and outputs finished.
    Inputs of another type than a family's parameters are made theirs; for float32, which scans
    have, nothing is traced.

    Raises:
      ConversionError: the shape is not that of images of the network's channels.
    """
    module: Any = module_of(config, params)
    return config.finish(module(config.prepare(_of_type(config, params, inputs))))


def _of_type(config: NetworkConfig, params: Params, inputs: jax.Array) -> jax.Array:
    if config.input_kind == "tokens":
        return inputs
    if config.input_kind == "image":
        _check_images(config, inputs.shape)
    if config.core.mixes_types:
        return inputs
    dtype = next(iter(params.values())).dtype
    return inputs if inputs.dtype == dtype else inputs.astype(dtype)


def _check_images(config: NetworkConfig, shape: tuple[int, ...]) -> None:
    if len(shape) == 4 and shape[3] == config.channels:
        return
    size = config.image_size
    height, width = ("h", "w") if size is None else size
    others = (
        (len(shape) == 3, "one image alone is images[None]"),
        (len(shape) == 4 and shape[1] == config.channels, "move axis 1, the channels, to the end"),
        (True, "give images of these axes and channels"),
    )
    todo = next(text for holds, text in others if holds)
    raise ConversionError(
        f"got images of shape {tuple(shape)}, expected (n, {height}, {width}, {config.channels});"
        f" {todo}"
    )


_jitted_apply = jax.jit(apply, static_argnums=0)


@dataclass(frozen=True, eq=False)
class Model:
    """A network ready for scanning; equal to itself alone, as its parameters are arrays.

    Attributes:
      config: hashable description of the architecture, a static jit argument.
      params: Flax path -> array, traced.
      architecture: torchvision's name, e.g. "resnet50", the family for odd depths, or TrojAI's
        name of a head, e.g. "GruLinear".
      findings: what was noticed while reading and converting.
    """

    config: NetworkConfig
    params: Params = field(repr=False)  # pages of numbers
    architecture: str
    findings: tuple[str, ...] = ()

    @property
    def num_classes(self) -> int:
        """Number of logits."""
        return self.config.num_classes

    @property
    def input_kind(self) -> InputKind:
        """What the model takes."""
        return self.config.input_kind

    @property
    def channels(self) -> int:
        """Channels of the input images; 0 for embeddings."""
        return self.config.channels

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the only images the model takes; None if it takes others."""
        return self.config.image_size

    @property
    def input_size(self) -> int:
        """Width of the embeddings; 0 for images."""
        return self.config.input_size

    def last_layer(self) -> np.ndarray | None:
        """Rows float64 `[classes, features]` that the logits are made with; None for none."""
        return self.config.last_layer(self.params)

    def __call__(self, inputs) -> jax.Array:
        """Logits `[n, classes]` of what the configuration's `input_kind` says.

        Args:
          inputs: images `[n, h, w, c]` in [0, 1] in the model's channels, embeddings `[n, d]`, or
            token ids and mask `[n, 2, t]`.

        Raises:
          ConversionError: images have another shape.
        """
        return _jitted_apply(self.config, self.params, jnp.asarray(inputs))

    def astype(self, dtype) -> "Model":
        """The same model with parameters of another floating type."""
        return replace(self, params=cast(self.params, dtype))
