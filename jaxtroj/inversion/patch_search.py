"""Patch search: the colour, place and size of a uniform polygon that sends everything to one class.

A trigger of six numbers instead of thousands: few gradient steps suffice, and what is found is what
TrojAI's generators plant. Many restarts, started from the probe bank's best.

    minimise  mean_i softplus(1 - margin(f(stamp(x_i, patch)), t)) + cost * area
"""

from dataclasses import dataclass, field
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
import optax

from jaxtroj.inversion.cost import CostSchedule, CostState, update_cost
from jaxtroj.inversion.driver import ArmTask
from jaxtroj.margins import attack_success_rate, margins, share
from jaxtroj.pytrees import pytree
from jaxtroj.triggers.patch import Patch

Values = tuple[jax.Array, jax.Array, jax.Array]
# Radii, shares of the side. A larger patch hides the object, and then any network changes its mind.
_SMALLEST, _LARGEST = 0.03, 0.1


@pytree
@dataclass(frozen=True)
class PatchState:
    """Unbounded colour, offset and size of a patch, its fixed outline, Adam's moments, the cost."""

    values: Values
    outline: tuple[jax.Array, jax.Array]
    moments: optax.OptState
    cost: CostState
    success: jax.Array
    margin: jax.Array


@dataclass(frozen=True)
class PatchSearch:
    """Hyperparameters.

    Attributes:
      learning_rate: of Adam on the unbounded values.
      schedule: cost of the patch's area (share of the picture).
    """

    name: ClassVar[str] = "patch search"

    learning_rate: float = 0.15
    schedule: CostSchedule = field(default=CostSchedule(initial=2.0, goal=0.95, patience=3))

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=0.7, b2=0.9)

    def init(self, start: tuple[Patch, jax.Array], shape: tuple[int, int, int]) -> PatchState:
        """State of one arm that starts at a patch whose success is known from the probe bank."""
        patch, success = start
        colour = jnp.clip(patch.colour, 0.02, 0.98)
        size = (jnp.clip(patch.radius, 1.02 * _SMALLEST, 0.98 * _LARGEST) - _SMALLEST) / (
            _LARGEST - _SMALLEST
        )
        values = (
            _logit(colour),
            jnp.arctanh(jnp.clip(patch.offset / 0.25, -0.95, 0.95)),
            _logit(size),
        )
        return PatchState(
            values=values,
            outline=(patch.angle, patch.sides),
            moments=self._optimiser().init(values),
            cost=self.schedule.init(),
            success=success,
            margin=jnp.asarray(0.0, jnp.float32),
        )

    def step(self, state: PatchState, forward, task: ArmTask) -> PatchState:
        """One Adam step of one arm; arguments as `NeuralCleanse.step`."""

        def loss_of(values):
            patch = _patch(values, state.outline)
            logits = forward(patch.apply(task.images, task.offsets))
            gains = margins(logits, task.target)
            loss = share(jax.nn.softplus(1.0 - gains), task.others)
            return loss + state.cost.cost * patch.radius**2 * jnp.pi, (
                logits,
                share(gains, task.others),
            )

        (_, (logits, gain)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.values)
        success = attack_success_rate(logits, task.sources, task.target)
        updates, moments = self._optimiser().update(gradients, state.moments)
        return PatchState(
            values=cast(Values, optax.apply_updates(state.values, updates)),
            outline=state.outline,
            moments=moments,
            cost=update_cost(self.schedule, state.cost, success),
            success=success,
            margin=gain,
        )

    def trigger(self, state: PatchState) -> Patch:
        """The patch of a state."""
        return _patch(state.values, state.outline)

    def rank(self, state: PatchState) -> jax.Array:
        """What successive halving sorts by, larger is better."""
        return state.success + jnp.tanh(state.margin / 10.0)


def _logit(share_: jax.Array) -> jax.Array:
    return jnp.log(share_) - jnp.log1p(-share_)


def _patch(values, outline) -> Patch:
    colour, offset, size = values
    angle, sides = outline
    radius = _SMALLEST + (_LARGEST - _SMALLEST) * jax.nn.sigmoid(size)
    offset = 0.25 * jnp.tanh(offset)
    return Patch(jax.nn.sigmoid(colour), offset, radius, angle, sides, wraps=True)
