"""Patch search: the colour, place and size of a uniform polygon that sends everything to one class.

A trigger of six numbers instead of thousands: few gradient steps suffice, and what is found is what
TrojAI's generators plant. Many restarts, started from the probe bank's best.

    minimise  mean_i softplus(1 - margin(f(stamp(x_i, patch)), t)) + cost * area
"""

from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import optax

from jaxtroj.inversion.cost import CostSchedule, CostState, update_cost
from jaxtroj.triggers.mask import Trigger, attack_success_rate, margins, share, shift, stamp
from jaxtroj.triggers.patch import Patch, patch_trigger

Values = tuple[jax.Array, jax.Array, jax.Array]
# Radii, shares of the side. A larger patch hides the object, and then any network changes its mind.
_SMALLEST, _LARGEST = 0.03, 0.1


@jax.tree_util.register_dataclass
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

    learning_rate: float = 0.15
    schedule: CostSchedule = field(default=CostSchedule(initial=2.0, goal=0.95, patience=3))

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=0.7, b2=0.9)

    def init(self, patch: Patch, success: jax.Array) -> PatchState:
        """State of one arm that starts at `patch`, whose success is known from the probe bank."""
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

    def step(self, state: PatchState, forward, images, offsets, sources, target) -> PatchState:
        """One Adam step of one arm; arguments as `NeuralCleanse.step`."""
        others, (height, width) = sources != target, images.shape[1:3]

        def loss_of(values):
            patch = _patch(values, state.outline)
            trigger = _centred(patch, height, width)
            moved = jax.vmap(shift, in_axes=(None, 0))(trigger, offsets)
            logits = forward(stamp(images, moved))
            gains = margins(logits, target)
            loss = share(jax.nn.softplus(1.0 - gains), others)
            return loss + state.cost.cost * patch.radius**2 * jnp.pi, (logits, share(gains, others))

        (_, (logits, gain)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.values)
        success = attack_success_rate(logits, sources, target)
        updates, moments = self._optimiser().update(gradients, state.moments)
        return PatchState(
            values=cast(Values, optax.apply_updates(state.values, updates)),
            outline=state.outline,
            moments=moments,
            cost=update_cost(self.schedule, state.cost, success),
            success=success,
            margin=gain,
        )

    def patch(self, state: PatchState) -> Patch:
        """The patch of a state."""
        return _patch(state.values, state.outline)

    def trigger_at(self, state: PatchState, height: int, width: int) -> Trigger:
        """The patch as a trigger at the centre of a picture."""
        return _centred(self.patch(state), height, width)

    def rank(self, state: PatchState) -> jax.Array:
        """What successive halving sorts by, larger is better."""
        return state.success + jnp.tanh(state.margin / 10.0)


def _centred(patch: Patch, height: int, width: int) -> Trigger:
    return patch_trigger(patch, jnp.asarray([height // 2, width // 2], jnp.float32), height, width)


def _logit(share_: jax.Array) -> jax.Array:
    return jnp.log(share_) - jnp.log1p(-share_)


def _patch(values, outline) -> Patch:
    colour, offset, size = values
    angle, sides = outline
    radius = _SMALLEST + (_LARGEST - _SMALLEST) * jax.nn.sigmoid(size)
    return Patch(jax.nn.sigmoid(colour), 0.25 * jnp.tanh(offset), radius, angle, sides)
