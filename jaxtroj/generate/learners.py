"""The learner of a recipe: a fresh or warm-started network, with what trains it."""

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, TypeVar

import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.files import write_atomic
from jaxtroj.errors import GenerationError
from jaxtroj.generate import networks
from jaxtroj.generate.flax_learner import FlaxLearner
from jaxtroj.generate.torch_device import step_precision
from jaxtroj.generate.torch_learner import TorchLearner
from jaxtroj.generate.training import Learner

Weights = dict[str, np.ndarray]
Progressing = TypeVar("Progressing")


class NetworkRecipe(Protocol):
    """What a recipe says about its network."""

    @property
    def architecture(self) -> str:
        """Out of `networks.KNOWN`."""
        ...

    @property
    def number_classes(self) -> int:
        """Width of the head."""
        ...

    @property
    def master_seed(self) -> int:
        """Of the initial weights."""
        ...


def learner_for(trainer: str, recipe: NetworkRecipe, start: Weights | None = None) -> Learner:
    """A learner of the recipe's network, its initial weights drawn from the master seed.

    Args:
        trainer: one of `training.TRAINERS`.
        recipe: which network, how many classes.
        start: weights to go on from.
    """
    architecture, classes, seed = recipe.architecture, recipe.number_classes, recipe.master_seed
    module = networks.build(architecture, classes, nnx.Rngs(seed))
    if start is not None:
        start_from(module, start)
    if trainer == "torch":
        return TorchLearner(module, architecture, classes, seed)
    return FlaxLearner(module)


def learner_precision(trainer: str) -> str:
    """Number format in which a trainer multiplies on this machine; the weights are float32."""
    return step_precision() if trainer == "torch" else "float32"


def start_from(module: nnx.Module, weights: Weights) -> None:
    """Overwrite every parameter and statistic of `module` that `weights` has in the same shape.

    The head has another number of classes, so it keeps its fresh weights.
    """
    for path, leaf in nnx.to_flat_state(nnx.state(module, (nnx.Param, nnx.BatchStat))):
        value = weights.get(".".join(map(str, path)))
        if value is not None and value.shape == leaf.shape:
            leaf[...] = jnp.asarray(value)


def kept_weights(
    path: Path, train: Callable[[], Generator[Progressing, None, Weights]]
) -> Generator[Progressing, None, Weights]:
    """Weights that many models start from: read from `path`, or trained and written there first.

    Yields what the training yields; a stopped training begins anew.

    Raises:
        GenerationError: the file is there and damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    if not path.exists():
        trained = yield from train()
        # The file's writer takes memory as it lies, and torch's lies in other orders.
        weights = {name: np.ascontiguousarray(value) for name, value in trained.items()}
        write_atomic(path, save(weights))
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        raise GenerationError(
            f"{path} is damaged ({error}); delete it, and it is trained again"
        ) from error
