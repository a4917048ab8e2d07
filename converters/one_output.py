"""`two_classes`: a network of one output as one of two classes, no (0) and yes (1).

Such a network gives z or sigmoid(z). Beside a logit of 0 for no, z is the logit of yes: the softmax
of [0, z] is [1 - sigmoid(z), sigmoid(z)]. So its answers and probabilities stay what they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model
from converters.wrapped import WrappedConfig

BY_SIGMOID = "one output: class 1 where its sigmoid is above 0.5, class 0 elsewhere"
AS_LOGIT = "one output, taken as the logit of class 1: class 1 where it is above 0, else class 0"


@dataclass(frozen=True)
class OneOutputConfig(WrappedConfig):
    """A network of one output z as a network of the logits [0, z]."""

    @property
    def num_classes(self) -> int:
        """Two: no and yes."""
        return 2

    def finish(self, outputs: jax.Array) -> jax.Array:
        """Logits `[n, 2]` of outputs `[n, 1]`."""
        z = self.inner.finish(outputs)
        return jnp.concatenate([jnp.zeros_like(z), z], axis=-1)

    def last_layer(self, params: Mapping[str, Any]) -> np.ndarray | None:
        """Rows float64 `[2, features]`: zeros, and those that z is made with; None for none."""
        rows = self.inner.last_layer(params)
        return None if rows is None else np.concatenate([np.zeros_like(rows), rows])


def two_classes(model: Model, by_sigmoid: bool = False) -> tuple[Model, tuple[str, ...]]:
    """The model as one of two classes, and the finding that says what was taken for them.

    A model of another number of outputs, or of texts, comes back as it is.

    Args:
      model: its output is z.
      by_sigmoid: whether a sigmoid stood behind it; else that z is a logit is an assumption.
    """
    if model.num_classes != 1 or model.input_kind != "image":
        return model, ()
    found = BY_SIGMOID if by_sigmoid else AS_LOGIT
    return replace(model, config=OneOutputConfig(model.config)), (found,)
