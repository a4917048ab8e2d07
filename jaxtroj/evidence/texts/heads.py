"""A sentiment head and the examples that it is judged by.

Every head brings its own clean examples. For a target class the *sources* are the examples that the
head itself puts into another class, so a trigger for that class has something to flip.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model, Params, apply
from jaxtroj.errors import EvidenceError
from jaxtroj.margins import all_margins


@dataclass(frozen=True)
class Head:
    """A head and its source examples.

    Attributes:
      config: static under jit: heads of one shape share their compiled programs.
      params: Flax path -> array, traced.
      sources: float32 `[targets, n, d]`, embeddings of examples that the head does not give the
        target; the first half is for fitting, the second for measuring.
    """

    config: object
    params: Params
    sources: jax.Array

    @property
    def stacked(self) -> Params:
        """The parameters with an axis of one head in front, as groups of references have it."""
        return {name: value[None] for name, value in self.params.items()}

    @property
    def fitting(self) -> jax.Array:
        """The first half of the sources, `[targets, n // 2, d]`."""
        return self.sources[:, : self.sources.shape[1] // 2]

    @property
    def held_out(self) -> jax.Array:
        """The second half."""
        return self.sources[:, self.sources.shape[1] // 2 :]


def head_with_sources(model: Model, embeddings: np.ndarray, per_target: int) -> Head:
    """Choose the source examples of a head.

    Args:
      model: with what acts on one step only, see `converters.families.folding.single_step`.
      embeddings: float32 `[n, d]` of its clean examples.
      per_target: even number of sources per target class; examples repeat where there are fewer,
        and where there is none the one nearest to another class stands in.

    Raises:
      EvidenceError: the head's answers are not finite.
    """
    margins = clean_margins(model, embeddings)
    if not np.isfinite(margins).all():
        raise EvidenceError("the head gives answers that are not finite on its clean examples")
    rows = []
    for target in range(margins.shape[1]):
        outside = np.flatnonzero(margins[:, target] < 0)
        places = outside if outside.size else np.argsort(margins[:, target], kind="stable")[:1]
        rows.append(embeddings[np.resize(places, per_target)])
    return Head(model.config, model.params, jnp.asarray(np.stack(rows).astype(np.float32)))


def clean_margins(model: Model, embeddings: np.ndarray) -> np.ndarray:
    """Margins `[n, classes]`; the batch is filled up so that few programs compile."""
    count = len(embeddings)
    padded = np.resize(embeddings, (-(-count // 64) * 64, embeddings.shape[1]))
    logits = model(padded.astype(np.float32))[:count]
    return np.asarray(all_margins(logits))


def in_basis(config, params: Params, basis: jax.Array) -> tuple[Any, Params]:
    """A head, or heads stacked, over coordinates: answers `c` as the head answers `c @ basis`.

    A head's first layer is affine, so the products with hundreds of moved examples shrink from the
    embeddings' width to the number of examples and directions that they are made of.

    Args:
      config: of the head, static.
      params: of the head or of stacked heads.
      basis: `[k, d]`.
    """
    inner = {name: jnp.matmul(basis, params[name]) for name in config.first_kernels}
    return replace(config, input_size=len(basis)), {**params, **inner}


def sums(rows: int, moves: int) -> np.ndarray:
    """Coordinates float32 `[moves, rows, rows + moves]` of each row of a basis plus each move."""
    ones = np.eye(rows + moves, dtype=np.float32)
    return ones[None, :rows] + ones[rows:, None]


def margin(config, params: Params, x: jax.Array, target: jax.Array) -> jax.Array:
    """Logit of the target less the largest other, `[n]`, of one head and embeddings `[n, d]`."""
    return jnp.take(all_margins(apply(config, params, x)), target, axis=-1)


@partial(jax.jit, static_argnums=0)
def margins(config, params: Params, x: jax.Array) -> jax.Array:
    """Margins `[targets, n]` of a head for embeddings `[targets, n, d]`."""
    by_target = jax.vmap(partial(margin, config), in_axes=(None, 0, 0))
    return by_target(params, x, jnp.arange(x.shape[0]))
