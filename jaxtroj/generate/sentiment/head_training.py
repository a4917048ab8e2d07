"""Training of many heads of one shape at once: the model axis is a vmap axis.

Heads sit in a fixed number of slots. One compiled program trains all slots for one epoch; a head
that is done leaves its slot to the next in the queue. Everything a head sees (order of samples,
dropout, attacks, initial weights) is keyed by the head and its epoch, so neither the neighbours nor
the slot change it.

Round 5 trained with Adam at 1e-4 in batches of 64 for 57 epochs in the mean, on ten times as many
reviews. On a CPU that is hours per head; here the rate is higher and falls to zero over fewer
epochs (`HeadTraining`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxtroj.generate.sentiment.head_network import HeadParams, HeadShape, logits

_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)
# Attacked samples are the first of a batch; so many of them are computed whatever the ratio.
MOST_ATTACKED = 0.3


@dataclass(frozen=True)
class HeadTraining:
    """How heads are trained; the same for every head of a round.

    Attributes:
        batch_size: samples per step.
        learning_rate: of Adam at the start.
        epochs: most epochs; the rate falls to zero over them along a half cosine.
        patience: epochs without a better validation loss before training stops.
        loss_eps: improvements of the validation loss below this do not count.
        slots: heads that train at once.
    """

    batch_size: int = 128
    learning_rate: float = 2e-3
    epochs: int = 8
    patience: int = 3
    loss_eps: float = 1e-4
    slots: int = 8


class Knobs(NamedTuple):
    """Traced settings of one head, float32 scalars (vectors of them over slots).

    Attributes:
        dropout: probability in [0, 1).
        ratio: share of a batch that is attacked, 0 to `MOST_ATTACKED`.
        epsilon: largest change of a coordinate.
        step_size: of one attack step.
        low, high: bounds of an attacked embedding's coordinates.
    """

    dropout: jax.Array
    ratio: jax.Array
    epsilon: jax.Array
    step_size: jax.Array
    low: jax.Array
    high: jax.Array


class SlotState(NamedTuple):
    """Parameters and moments of Adam; over slots, every leaf has a leading axis."""

    params: HeadParams
    moments: optax.OptState


def fresh_state(params: Sequence[HeadParams]) -> SlotState:
    """The state of heads before their first step, one slot per head."""
    stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *params)
    return SlotState(stacked, jax.vmap(_ADAM.init)(stacked))


def put(state: SlotState, slot: int, params: HeadParams) -> SlotState:
    """The state with a fresh head in a slot."""
    one = SlotState(jax.tree.map(jnp.asarray, params), _ADAM.init(params))
    return jax.tree.map(lambda all_, new: all_.at[slot].set(new), state, one)


def take(state: SlotState, slot: int) -> HeadParams:
    """A copy of the parameters in a slot, as NumPy arrays."""
    return jax.tree.map(lambda leaf: np.array(leaf[slot]), state.params)


class Program(NamedTuple):
    """What decides the compiled program: heads' shape, and steps of the attack, 0 for none."""

    shape: HeadShape
    attack_steps: int


class Inputs(NamedTuple):
    """What the heads see in one epoch.

    Attributes:
        rows: of the pool [slots, steps, batch], int32.
        labels: [slots, steps, batch], int32.
        keys: one per slot, for this epoch.
        rates: learning rates [slots, steps].
        knobs: over slots.
    """

    rows: jax.Array
    labels: jax.Array
    keys: jax.Array
    rates: jax.Array
    knobs: Knobs


@partial(jax.jit, static_argnames=("program",), donate_argnames=("state",))
def train_epoch(
    program: Program, state: SlotState, pool: jax.Array, inputs: Inputs
) -> tuple[SlotState, jax.Array]:
    """Train every slot for one epoch.

    Args:
        program: of all heads; attacks are on the first samples of a batch.
        state: over slots; its buffers are reused.
        pool: all embeddings [n, d], any float type.
        inputs: of this epoch.

    Returns:
        The new state, and the mean training loss per slot.
    """

    def step(carry: SlotState, by_step):
        rows, targets, rate, number = by_step
        batch = Batch(pool[rows].astype(jnp.float32), targets)
        keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(inputs.keys, number)
        return jax.vmap(partial(_step, program))(carry, batch, keys, rate, inputs.knobs)

    steps = inputs.rows.shape[1]
    by_step = (inputs.rows.swapaxes(0, 1), inputs.labels.swapaxes(0, 1), inputs.rates.T)
    state, losses = jax.lax.scan(step, state, (*by_step, jnp.arange(steps)))
    return state, losses.mean(axis=0)


class Batch(NamedTuple):
    """Embeddings `[n, d]` and the labels they are trained towards `[n]`."""

    x: jax.Array
    targets: jax.Array


def _step(program: Program, state: SlotState, batch: Batch, key, rate, knobs: Knobs):
    train_key, attack_key = jax.random.split(key)
    x, targets = batch
    if program.attack_steps:
        x = _attacked(program, state.params, batch, attack_key, knobs)

    def loss_of(params):
        return _loss(program.shape, params, Batch(x, targets), knobs.dropout, train_key)

    loss, gradient = jax.value_and_grad(loss_of)(state.params)
    updates, moments = _ADAM.update(gradient, state.moments)
    params = jax.tree.map(lambda p, u: p - rate * u, state.params, updates)
    return SlotState(params, moments), loss


def _loss(shape: HeadShape, params, batch: Batch, dropout, key) -> jax.Array:
    scores = logits(shape, params, batch.x, dropout, key)
    return optax.softmax_cross_entropy_with_integer_labels(scores, batch.targets).mean()


def _attacked(program: Program, params, batch: Batch, key, knobs: Knobs) -> jax.Array:
    """The batch with its first samples moved against their labels, within a box.

    Projected gradient steps along the gradient's sign from a random start (FBF is one such step).
    """
    x, targets = batch
    count = round(MOST_ATTACKED * x.shape[0])
    clean, labels = x[:count], targets[:count]
    start_key, dropout_key = jax.random.split(key)
    box = partial(jnp.clip, min=-knobs.epsilon, max=knobs.epsilon)
    change = knobs.epsilon * jax.random.uniform(start_key, clean.shape, minval=-1.0, maxval=1.0)

    def attack(number, change):
        def loss_of(change):
            moved = jnp.clip(clean + change, knobs.low, knobs.high)
            step_key = jax.random.fold_in(dropout_key, number)
            return _loss(program.shape, params, Batch(moved, labels), knobs.dropout, step_key)

        return box(change + knobs.step_size * jnp.sign(jax.grad(loss_of)(change)))

    change = jax.lax.fori_loop(0, program.attack_steps, attack, change)
    moved = jnp.clip(clean + change, knobs.low, knobs.high)
    chosen = jnp.arange(count) < jnp.round(knobs.ratio * x.shape[0])
    return x.at[:count].set(jnp.where(chosen[:, None], moved, clean))


@partial(jax.jit, static_argnames=("shape",))
def slot_logits(
    shape: HeadShape, params: HeadParams, pool: jax.Array, samples: jax.Array
) -> jax.Array:
    """Logits of every slot for its own rows of the pool: [slots, n] -> [slots, n, 2]."""

    def one(params, rows):
        return logits(shape, params, pool[rows].astype(jnp.float32))

    return jax.vmap(one)(params, samples)
