"""All to all: one small mask and pattern that sends every class to the one after it.

    minimise  mean_i max-margin loss(f(stamp(x_i, m, p)), (c_i + 1) mod k) + cost * mean(m)

A trojan of this kind has no one target, so searches for a target do not find it.

Reference:
  Gu et al., BadNets: Identifying Vulnerabilities in the Machine Learning Model Supply Chain,
  https://arxiv.org/abs/1708.06733, 2017, whose all-to-all attack it is.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxtroj.inversion.driver import ArmTask
from jaxtroj.inversion.neural_cleanse import NeuralCleanse, NeuralCleanseState
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import NO_TARGET


@dataclass(frozen=True)
class AllToAll:
    """Neural Cleanse on logits that are turned until each example's next class stands first.

    Attributes:
      search: from an even mask, since nobody knows where the trigger lies.
    """

    name: ClassVar[str] = "all to all"

    search: NeuralCleanse = field(default=NeuralCleanse(start_share=None))

    def init(self, start: jax.Array, shape: tuple[int, int, int]) -> NeuralCleanseState:
        """See `NeuralCleanse.init`."""
        return self.search.init(start, shape)

    def step(self, state: NeuralCleanseState, forward, task: ArmTask) -> NeuralCleanseState:
        """One step of one arm, whose target is `NO_TARGET`; see `NeuralCleanse.step`."""
        nobody = jnp.full_like(task.sources, NO_TARGET)
        turned = ArmTask(task.images, task.offsets, nobody, jnp.zeros_like(task.target))
        return self.search.step(state, partial(_turned, forward, task.sources), turned)

    def rank(self, state: NeuralCleanseState) -> jax.Array:
        """See `NeuralCleanse.rank`."""
        return self.search.rank(state)

    def trigger(self, state: NeuralCleanseState) -> FreeMask:
        """See `NeuralCleanse.trigger`."""
        return self.search.trigger(state)


def _turned(forward, sources: jax.Array, images: jax.Array) -> jax.Array:
    """Logits `[n, classes]` with the class after each image's own at place 0."""
    return jax.vmap(jnp.roll)(forward(images), -(sources + 1))
