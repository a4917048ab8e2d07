"""`function_model`: a JAX function of its parameters and images, as a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.errors import ConversionError
from converters.model import ImageConfig, Model

Function = Callable[[Any, jax.Array], jax.Array]
"""Parameters, a pytree, and images `[n, h, w, c]` to logits `[n, classes]`."""


@dataclass(frozen=True)
class FunctionConfig(ImageConfig):
    """A function as a network over images; hashable, so it is a static argument of jit.

    Attributes:
      function: what computes the logits; two models of one function share compiled programs.
      structure: of its parameters.
      leaves: flat path, shape and type of each parameter, in the structure's order.
      num_classes: number of logits.
      channels: of the images.
      image_size: height and width of the images it was tried on.
    """

    function: Function
    structure: Any
    leaves: tuple[tuple[str, tuple[int, ...], str], ...]
    num_classes: int
    channels: int
    image_size: tuple[int, int]

    mixes_types = True

    def build(self, rngs: Any) -> "FunctionModule":
        """A module of this shape, all parameters 0."""
        return FunctionModule(self)

    def last_layer(self, params: Mapping[str, Any]) -> np.ndarray | None:
        """None: which parameter makes the logits is not known of a function."""
        return None


class FunctionModule(nnx.Module):
    """The function over its parameters; each is an attribute of its path."""

    def __init__(self, config: FunctionConfig):
        self.config = config
        for path, shape, dtype in config.leaves:
            setattr(self, path, nnx.Param(jnp.zeros(shape, dtype)))

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits `[n, classes]` of images `[n, h, w, c]`."""
        leaves = [getattr(self, path)[...] for path, _, _ in self.config.leaves]
        return self.config.function(self.config.structure.unflatten(leaves), images)


def function_model(function: Function, params: Any, image_shape: tuple[int, int, int]) -> Model:
    """The model of a pure JAX function.

    Args:
      function: takes parameters and images `[n, h, w, c]`, returns logits `[n, classes]`; it can be
        differentiated with respect to the images, and mapped over.
      params: pytree of numbers and arrays; all of it is traced.
      image_shape: height, width and channels of the images.

    Raises:
      ConversionError: the function fails on such images, or does not return a row of logits each.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(params)
    arrays = {f"param{jax.tree_util.keystr(path)}": _array(path, leaf) for path, leaf in paths}
    leaves = tuple((path, value.shape, str(value.dtype)) for path, value in arrays.items())
    classes = _classes(function, structure.unflatten(arrays.values()), image_shape)
    height, width, channels = image_shape
    config = FunctionConfig(function, structure, leaves, classes, channels, (height, width))
    name = getattr(function, "__qualname__", type(function).__name__)
    return Model(config, arrays, f"function {name}")


def _array(path: Any, leaf: Any) -> jax.Array:
    try:
        return jnp.asarray(leaf)
    except TypeError as error:
        raise ConversionError(
            f"parameter {jax.tree_util.keystr(path)} is a {type(leaf).__name__}, expected a number"
            " or an array; close over what is no parameter"
        ) from error


def _classes(function: Function, params: Any, image_shape: tuple[int, int, int]) -> int:
    """Number of logits, by tracing the function for two images."""
    images = jax.ShapeDtypeStruct((2, *image_shape), jnp.float32)
    try:
        logits = jax.eval_shape(function, params, images)
    except Exception as error:  # the user's own code may raise anything
        raise ConversionError(
            f"the function cannot be run on images {images.shape}: {type(error).__name__}: {error}"
        ) from error
    shape = getattr(logits, "shape", None)
    if shape is None or len(shape) != 2 or shape[0] != 2:
        got = f"a {type(logits).__name__}" if shape is None else f"shape {tuple(shape)}"
        raise ConversionError(
            f"the function returns {got} for 2 images, expected logits of shape (2, classes)"
        )
    return int(shape[1])
