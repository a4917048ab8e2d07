"""The cost schedule of Neural Cleanse as one pure function.

The weight of the mask's size rises while the attack works and falls while it does not, so the
search walks along the smallest mask that still works.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxtroj.pytrees import pytree

_LEAST, _MOST = 1e-12, 1e12


@pytree
@dataclass(frozen=True)
class CostState:
    """Current `cost`, and how many steps in a row the attack has worked (`up`) or not (`down`)."""

    cost: jax.Array
    up: jax.Array
    down: jax.Array


@dataclass(frozen=True)
class CostSchedule:
    """Neural Cleanse's rule for the weight of the mask's size.

    The authors' code has `patience` 5, factor 2 up and 2 ** 1.5 down; here 1.5, as in later
    re-implementations.

    Attributes:
      initial: cost at the start.
      goal: attack success rate in [0, 1] that counts as working.
      patience: steps in a row before the cost moves.
      factor: multiplier up; the divisor down is `factor ** 1.5`.
    """

    initial: float = 1e-3
    goal: float = 0.99
    patience: int = 5
    factor: float = 1.5

    def init(self) -> CostState:
        """The state before the first step."""
        # Typed: a weakly typed start would differ from the states that follow and compile twice.
        return CostState(
            jnp.asarray(self.initial, jnp.float32),
            jnp.asarray(0, jnp.int32),
            jnp.asarray(0, jnp.int32),
        )


def update_cost(schedule: CostSchedule, state: CostState, success: jax.Array) -> CostState:
    """The next state after a step whose attack success rate was `success`."""
    works = success >= schedule.goal
    up = jnp.where(works, state.up + 1, 0)
    down = jnp.where(works, 0, state.down + 1)
    raised, lowered = up >= schedule.patience, down >= schedule.patience
    cost = jnp.where(raised, state.cost * schedule.factor, state.cost)
    cost = jnp.where(lowered, cost / schedule.factor**1.5, cost)
    # Hundreds of equal steps would else end at 0, which no factor raises again, or at infinity.
    cost = jnp.clip(cost, _LEAST, _MOST)
    return CostState(cost, jnp.where(raised, 0, up), jnp.where(lowered, 0, down))
