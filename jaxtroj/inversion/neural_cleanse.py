"""Neural Cleanse: a mask and a pattern per target class, as small as still works.

    minimise  mean_i max-margin loss(f(stamp(x_i, m, p)), t) + cost * mean(m)

References:
  Wang et al., Neural Cleanse: Identifying and Mitigating Backdoor Attacks in Neural Networks, IEEE
  S&P 2019. Followed: tanh-like bounded mask and pattern, Adam with betas (.5, .9), the cost
  schedule.
  Differs: the loss is a softplus of the margin, whose gradient does not vanish on
  confident networks; an arm may move its trigger to each image's anchor; the mask starts as a soft
  disc, not at random.
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
from jaxtroj.triggers.mask import FreeMask, mask_l1


@pytree
@dataclass(frozen=True)
class NeuralCleanseState:
    """Unbounded mask and pattern, Adam's moments, the cost, and the best trigger so far."""

    mask: jax.Array
    pattern: jax.Array
    moments: optax.OptState
    cost: CostState
    best: FreeMask
    best_l1: jax.Array
    success: jax.Array
    margin: jax.Array


@dataclass(frozen=True)
class NeuralCleanse:
    """Hyperparameters; a frozen value, so equal settings share one compiled program.

    Attributes:
      learning_rate: of Adam, on logits of mask and pattern.
      schedule: cost of the mask's mean.
      start_share: share of the picture's side that the starting disc spans; None for an even mask.
    """

    name: ClassVar[str] = "neural cleanse"

    learning_rate: float = 0.3
    schedule: CostSchedule = field(default=CostSchedule(initial=1.0, goal=0.95, patience=3))
    start_share: float | None = 0.25

    def _optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate, b1=0.5, b2=0.9)

    def init(self, start: jax.Array, shape: tuple[int, int, int]) -> NeuralCleanseState:
        """State of one arm for images of `shape` `[h, w, c]`; `start` is its key."""
        pattern = jax.random.normal(start, (1, 1, shape[2]), jnp.float32)
        values = (_start(self.start_share, shape), jnp.broadcast_to(pattern, shape))
        return NeuralCleanseState(
            mask=values[0],
            pattern=values[1],
            moments=self._optimiser().init(values),
            cost=self.schedule.init(),
            best=_trigger(*values),
            best_l1=jnp.asarray(jnp.inf, jnp.float32),
            success=jnp.asarray(0.0, jnp.float32),
            margin=jnp.asarray(-jnp.inf, jnp.float32),
        )

    def step(self, state: NeuralCleanseState, forward, task: ArmTask) -> NeuralCleanseState:
        """One Adam step of one arm; `forward` takes images `[n, h, w, c]` to logits."""

        def loss_of(values):
            trigger = _trigger(*values)
            logits = forward(trigger.apply(task.images, task.offsets))
            gains = margins(logits, task.target)
            loss = share(jax.nn.softplus(1.0 - gains), task.others)
            return loss + state.cost.cost * trigger.mask.mean(), (logits, share(gains, task.others))

        values = (state.mask, state.pattern)
        (_, (logits, gain)), gradients = jax.value_and_grad(loss_of, has_aux=True)(values)
        success = attack_success_rate(logits, task.sources, task.target)
        trigger = _trigger(*values)
        l1 = mask_l1(trigger)
        better = (success >= self.schedule.goal) & (l1 < state.best_l1)
        updates, moments = self._optimiser().update(gradients, state.moments)
        mask, pattern = cast(tuple[jax.Array, jax.Array], optax.apply_updates(values, updates))
        return NeuralCleanseState(
            mask=mask,
            pattern=pattern,
            moments=moments,
            cost=update_cost(self.schedule, state.cost, success),
            best=jax.tree.map(lambda new, old: jnp.where(better, new, old), trigger, state.best),
            best_l1=jnp.where(better, l1, state.best_l1),
            success=success,
            margin=gain,
        )

    def trigger(self, state: NeuralCleanseState) -> FreeMask:
        """The smallest trigger that reached the goal, else the current one."""
        current = _trigger(state.mask, state.pattern)
        found = jnp.isfinite(state.best_l1)
        return jax.tree.map(lambda best, now: jnp.where(found, best, now), state.best, current)

    def rank(self, state: NeuralCleanseState) -> jax.Array:
        """What successive halving sorts by, larger is better: works, then small, then near."""
        size = jnp.where(jnp.isfinite(state.best_l1), -state.best_l1 / state.mask.size, -1.0)
        return 1e3 * size + jnp.tanh(state.margin / 10.0)


def _start(share: float | None, shape: tuple[int, int, int]) -> jax.Array:
    """Logits of the first mask, `[h, w, 1]`: of a soft disc, or of an eighth everywhere."""
    height, width, _ = shape
    if share is None:
        return jnp.full((height, width, 1), -2.0, jnp.float32)
    y = (jnp.arange(height, dtype=jnp.float32) - height / 2)[:, None] / min(height, width)
    x = (jnp.arange(width, dtype=jnp.float32) - width / 2)[None, :] / min(height, width)
    return (6.0 * jax.nn.sigmoid((share / 2 - jnp.hypot(y, x)) * 30.0) - 4.0)[..., None]


def _trigger(mask: jax.Array, pattern: jax.Array) -> FreeMask:
    return FreeMask(jax.nn.sigmoid(mask), jax.nn.sigmoid(pattern))
