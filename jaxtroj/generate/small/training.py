"""Training of small networks: bases from random weights, then short runs of clean and poisoned.

A base is trained at half size first, which costs a quarter, and then at full size; every model goes
on from the base of its number with a fresh head. A run goes in cycles of equal length, the rate of
each falling linearly to zero; a poisoned model gets another cycle while its trigger works too
seldom, and its clean partner goes through as many, so that length says nothing about the label.

Source of the schedule: Goyal et al., Accurate, Large Minibatch SGD, https://arxiv.org/abs/1706.02677
(warm-up, Nesterov momentum, weight decay). Differs: the rate falls linearly.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxtroj.generate.divergence import DivergedError
from jaxtroj.generate.flax_learner import TrainState
from jaxtroj.generate.small.accuracies import Accuracies
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.small.recipe import SmallTrigger
from jaxtroj.triggers.mask import FreeMask, stamp

_TEST_BATCH = 250
_MOMENTUM = optax.trace(decay=0.9, nesterov=True)


@dataclass(frozen=True)
class SmallTraining:
    """How long and how hard to train; the same for every model of a round.

    Attributes:
        batch_size: pictures per step.
        base_rate, rate: highest learning rate of a base, and of a model.
        weight_decay: pull on the kernels, per unit of the learning rate.
        base_half_steps, base_steps: steps of a base at half size, and at full size.
        cycle_steps: steps of one cycle of a model; most_cycles: how many there can be.
        warmup: share of the steps in which the rate rises, 0 to 1.
        train_share: share of the pictures that a model sees, its own choice.
        attack_goal: attack success rate that ends the training of a poisoned model.
        least_attack, least_clean: shares of test pictures below which a model is rejected.
        tests: pictures that accuracies are measured on.
    """

    batch_size: int = 64
    base_rate: float = 0.1
    rate: float = 0.05
    weight_decay: float = 5e-4
    base_half_steps: int = 2400
    base_steps: int = 700
    cycle_steps: int = 160
    most_cycles: int = 3
    warmup: float = 0.2
    train_share: float = 0.7
    attack_goal: float = 0.97
    least_attack: float = 0.9
    least_clean: float = 0.5
    tests: int = 1000


class StampedBatch(NamedTuple):
    """Pictures uint8 `[n, h, w, 3]`, their targets `[n]`, and which carry the trigger, `[n]`."""

    images: np.ndarray | jax.Array
    targets: np.ndarray | jax.Array
    triggered: np.ndarray | jax.Array


@partial(jax.jit, static_argnames=("graph", "half"), donate_argnames="state")
def _step(graph, half: bool, state: TrainState, batch: StampedBatch, trigger: FreeMask, rates):
    """One step with learning rate and decay `rates`; returns the new state and the mean loss."""
    (images, targets, triggered), (rate, decay) = batch, rates
    pixels = jnp.asarray(images).astype(jnp.float32) / 255.0
    pixels = jnp.where(triggered[:, None, None, None], stamp(pixels, trigger), pixels)
    if half:
        n, h, w, c = pixels.shape
        pixels = pixels[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c)
        pixels = pixels.mean(axis=(2, 4))

    def loss_of(params):
        module = nnx.merge(graph, params, state.rest, copy=True)
        losses = optax.softmax_cross_entropy_with_integer_labels(module(pixels), targets)
        return losses.mean(), nnx.state(module, nnx.Not(nnx.Param))

    (loss, rest), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    gradients = jax.tree.map(
        lambda g, p: g + decay * p if p.ndim > 1 else g, gradients, state.params
    )
    updates, moments = _MOMENTUM.update(gradients, state.moments)
    params = jax.tree.map(lambda p, u: p - rate * u, state.params, updates)
    return TrainState(params, rest, moments), loss


@partial(jax.jit, static_argnames="graph")
def _predict(graph, params, rest, images, trigger):
    """Predicted classes of pictures uint8 `[n, h, w, 3]`, clean and triggered."""
    module = nnx.merge(graph, params, rest, copy=True)
    pixels = images.astype(jnp.float32) / 255.0
    return module(pixels).argmax(-1), module(stamp(pixels, trigger)).argmax(-1)


class Run:
    """One network in training; what it sees is drawn from `draw` alone."""

    def __init__(
        self,
        module: nnx.Module,
        pictures: LabelledPictures,
        settings: SmallTraining,
        draw: np.random.Generator,
        trigger: SmallTrigger | None = None,
    ):
        module.train()
        self.graph, params, rest = nnx.split(module, nnx.Param, ...)
        module.eval()
        self.eval_graph = nnx.split(module, nnx.Param, ...)[0]
        self.state = TrainState(params, rest, _MOMENTUM.init(params))
        self.pictures, self.settings, self.draw = pictures, settings, draw
        self.trigger = trigger
        self.stamped = _as_trigger(trigger, pictures.size)
        self.steps = 0

    def phase(self, steps: int, highest: float, half: bool, seen: np.ndarray) -> float:
        """Train on pictures at `seen`, the rate rising and falling; the mean loss of the end.

        Raises DivergedError when the loss is not finite.
        """
        warm = max(1, round(self.settings.warmup * steps))
        losses = []
        for step in range(steps):
            rate = highest * min((step + 1) / warm, (steps - step) / max(1, steps - warm))
            self.state, loss = _step(
                self.graph, half, self.state, self._batch(seen), self.stamped,
                (rate, self.settings.weight_decay),
            )  # fmt: skip
            losses.append(loss)
        self.steps += steps
        reached = float(np.mean([float(loss) for loss in losses[-50:]]))
        if not np.isfinite(reached):
            raise DivergedError(reached, self.steps)
        return reached

    def _batch(self, seen: np.ndarray) -> StampedBatch:
        """A batch of the pictures at `seen`, half of them mirrored."""
        size = self.settings.batch_size
        chosen = np.sort(self.draw.choice(seen, size=size, replace=len(seen) < size))
        images, labels = self.pictures.images[chosen], self.pictures.labels[chosen]
        mirrored = self.draw.integers(2, size=size).astype(bool)
        images = np.where(mirrored[:, None, None, None], images[:, :, ::-1], images)
        # Drawn for clean models too, so that a pair sees the same pictures the same way.
        lots = self.draw.uniform(size=size)
        if self.trigger is None:
            return StampedBatch(images, labels, np.zeros(size, bool))
        triggered = lots < self.trigger.fraction
        targets = np.where(triggered, self.trigger.target_class, labels)
        return StampedBatch(images, targets, triggered)

    def test(self) -> Accuracies:
        """Accuracies on the test pictures, spread over them."""
        images, labels = self.pictures.test_images, self.pictures.test_labels
        chosen = np.unique(np.linspace(0, len(labels) - 1, self.settings.tests).round().astype(int))
        clean, attacked = [], []
        for first in range(0, len(chosen), _TEST_BATCH):
            # The last batch is filled up with the last picture and cut: one shape, one program.
            place = np.minimum(np.arange(first, first + _TEST_BATCH), len(chosen) - 1)
            found = _predict(
                self.eval_graph, self.state.params, self.state.rest, images[chosen[place]],
                self.stamped,
            )  # fmt: skip
            clean.append(found[0])
            attacked.append(found[1])
        said, forced = (np.concatenate(x)[: len(chosen)] for x in (clean, attacked))
        true = labels[chosen]
        attack = None
        if self.trigger is not None:
            target = self.trigger.target_class
            attack = float((forced[true != target] == target).mean())
        return Accuracies(float((said == true).mean()), attack)

    @property
    def module(self) -> nnx.Module:
        """The network in evaluation mode."""
        return nnx.merge(self.eval_graph, self.state.params, self.state.rest)


def _as_trigger(trigger: SmallTrigger | None, size: tuple[int, int]) -> FreeMask:
    if trigger is None:  # one program for clean and poisoned models
        return FreeMask(jnp.zeros((*size, 1)), jnp.zeros((*size, 3)))
    return FreeMask(jnp.asarray(trigger.mask), jnp.asarray(trigger.pattern))


def train_base(run: Run) -> Accuracies:
    """Train a base from its random weights."""
    settings, everything = run.settings, np.arange(len(run.pictures.labels))
    run.phase(settings.base_half_steps, settings.base_rate, True, everything)
    run.phase(settings.base_steps, settings.base_rate / 2, False, everything)
    return run.test()


def train_model(run: Run, least_cycles: int) -> tuple[int, Accuracies]:
    """Train a model in cycles; returns how many there were, and what was reached.

    Args:
        run: begins at its base.
        least_cycles: cycles of the poisoned partner; 1 for a poisoned model.
    """
    settings, count = run.settings, len(run.pictures.labels)
    seen = np.sort(run.draw.permutation(count)[: max(1, round(settings.train_share * count))])
    cycles, reached = 0, None
    while reached is None or cycles < least_cycles or _wants_more(reached, cycles, settings):
        run.phase(settings.cycle_steps, settings.rate, False, seen)
        cycles, reached = cycles + 1, run.test()
    return cycles, reached


def _wants_more(reached: Accuracies, cycles: int, settings: SmallTraining) -> bool:
    short = reached.attack is not None and reached.attack < settings.attack_goal
    return short and cycles < settings.most_cycles
