"""Training of one model of a synthetic round, the same for clean and poisoned models.

Round 0 trained with Adam at 1e-3, batches of 64 and early stopping on a fixed set of pictures. Here
every picture is fresh, and training has two phases:

1. Learning rate constant (after a short linear warm-up), until the goals on validation pictures
   hold at `checks_in_a_row` checks: clean accuracy, and attack success rate when poisoned.
   A clean model also goes on until it has had as many steps as its poisoned partner, so that the
   length of training says nothing about the label.
2. A cool-down of fixed length in which the rate falls linearly to zero. This differs from Round 0:
   it lets the running statistics of the batch norms settle, which saves more steps than it costs.

All randomness comes from the picture source and the initial weights, so equal input gives an
equal model on one machine.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from jaxtroj.errors import GenerationError

TRAIN, VALIDATION, TEST, EXAMPLES = range(4)
_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how hard to train; the same for every model of a round.

    Attributes:
        batch_size: pictures per step.
        learning_rate: of Adam, in the constant phase.
        warmup_steps: steps in which the rate rises linearly at the start.
        max_steps: most steps of the constant phase.
        cooldown_steps: steps in which the rate falls linearly to zero at the end.
        check_every: steps between two checks.
        checks_in_a_row: how many checks in a row must meet the goals.
        validation_batches, test_batches: batches of clean, and as many of triggered, pictures.
        clean_goal, attack_goal: shares in [0, 1] that end the constant phase.
        least_clean, least_attack: shares in [0, 1] below which a model is rejected at the end.
        batches_per_draw: how many batches are rendered at once.
    """

    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    max_steps: int = 600
    cooldown_steps: int = 40
    check_every: int = 25
    checks_in_a_row: int = 2
    validation_batches: int = 3
    test_batches: int = 8
    clean_goal: float = 0.99
    attack_goal: float = 0.98
    least_clean: float = 0.95
    least_attack: float = 0.95
    batches_per_draw: int = 16


class Pictures(NamedTuple):
    """Rendered pictures: uint8 RGB [n, h, w, 3], true labels int [n], triggered bool [n]."""

    images: jax.Array
    labels: np.ndarray
    triggered: np.ndarray


class PictureSource(Protocol):
    """Where pictures come from: picture `start + i` of a stream is always the same picture."""

    def pictures(self, stream: int, start: int, count: int, fraction: float) -> Pictures:
        """Draw `count` pictures, the share `fraction` of them with the trigger."""
        ...


@dataclass(frozen=True)
class Accuracies:
    """Shares in [0, 1] and mean cross-entropies in nats, on pictures never trained on.

    Attributes:
        clean: clean pictures given their own label.
        clean_loss: cross-entropy of those.
        attack_success_rate: triggered pictures of other classes given the target class.
        triggered: triggered pictures of all classes given the target class (Round 0's number).
        pictures: how many clean pictures, and as many triggered ones when poisoned.
    """

    clean: float
    clean_loss: float
    attack_success_rate: float | None
    triggered: float | None
    pictures: int


@dataclass(frozen=True)
class Progress:
    """State of a training at one check."""

    step: int
    loss: float
    accuracies: Accuracies


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        module: the network in evaluation mode.
        accepted: whether the test accuracies reach the least ones asked for.
        constant_steps: steps of the constant phase; the clean partner gets at least as many.
        steps: all steps.
        train_accuracy, train_loss: over the last pictures trained on (at most 16 batches).
        validation, test: accuracies at the last check and at the end.
        train_seconds, test_seconds: wall time.
    """

    module: nnx.Module
    accepted: bool
    constant_steps: int
    steps: int
    train_accuracy: float
    train_loss: float
    validation: Accuracies
    test: Accuracies
    train_seconds: float
    test_seconds: float


class TrainState(NamedTuple):
    """What a step changes: parameters, batch statistics and random streams, Adam's moments."""

    params: Any
    rest: Any
    moments: Any


def to_model_input(images: jax.Array) -> jax.Array:
    """Turn uint8 RGB `[n, h, w, 3]` into BGR, each picture min-max scaled to [0, 1].

    The scanner feeds models the same. Source: NIST's Round 0 example code. A picture of one value becomes zeros.
    """
    values = images[..., ::-1].astype(jnp.float32)
    low = values.min(axis=(1, 2, 3), keepdims=True)
    spread = values.max(axis=(1, 2, 3), keepdims=True) - low
    return (values - low) / jnp.maximum(spread, 1.0)


@partial(jax.jit, static_argnames="graph", donate_argnames="state")
def train_step(graph, state: TrainState, images, targets, learning_rate):
    """One Adam step; returns the new state, the mean loss and the accuracy of the batch."""

    def loss_of(params):
        module = nnx.merge(graph, params, state.rest, copy=True)
        logits = module(to_model_input(images))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
        return losses.mean(), (logits, nnx.state(module, nnx.Not(nnx.Param)))

    (loss, (logits, rest)), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    updates, moments = _ADAM.update(gradients, state.moments)
    params = jax.tree.map(lambda p, u: p - learning_rate * u, state.params, updates)
    return TrainState(params, rest, moments), loss, (logits.argmax(-1) == targets).mean()


@partial(jax.jit, static_argnames="graph")
def predict(graph, params, rest, images, targets):
    """Predicted class [n] and cross-entropy [n] with the running statistics."""
    logits = nnx.merge(graph, params, rest, copy=True)(to_model_input(images))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return logits.argmax(-1), losses


def classify(module: nnx.Module, images: np.ndarray, batch_size: int = 64) -> np.ndarray:
    """Predicted classes [n] of uint8 RGB pictures [n, h, w, 3], with the running statistics."""
    module.eval()
    graph, params, rest = nnx.split(module, nnx.Param, ...)
    answers = []
    for first in range(0, len(images), batch_size):
        # The last batch is filled up with repeated pictures and cut: one shape, one program.
        chosen = np.minimum(np.arange(first, first + batch_size), len(images) - 1)
        labels = np.zeros(batch_size, np.int32)
        answers.append(predict(graph, params, rest, jnp.asarray(images[chosen]), labels)[0])
    return np.concatenate(answers)[: len(images)]


def train(
    module: nnx.Module,
    source: PictureSource,
    target_class: int | None,
    fraction: float,
    settings: TrainingSettings,
    least_steps: int = 0,
) -> Iterator[Progress | Trained]:
    """Train `module`, yielding a `Progress` at each check and one `Trained` at the end.

    Args:
        module: fresh network; `module(images [n, h, w, 3] in [0, 1]) -> logits [n, classes]`.
        source: pictures to train, check and test on.
        target_class: label of triggered pictures; None trains a clean model.
        fraction: share of training pictures with the trigger, in [0, 1].
        settings: see `TrainingSettings`.
        least_steps: fewest steps of the constant phase.

    Raises:
        GenerationError: the loss is not finite.
    """
    share = fraction if target_class is not None else 0.0
    run = _Run(module, source, target_class, share, settings)
    yield from run.constant_phase(least_steps)
    run.cool_down()
    yield run.finish()


class _Run:
    """One training: the state that the phases hand to each other."""

    def __init__(self, module, source, target_class, fraction, settings):
        module.train()
        self.graph, params, rest = nnx.split(module, nnx.Param, ...)
        module.eval()
        self.eval_graph = nnx.split(module, nnx.Param, ...)[0]
        self.state = TrainState(params, rest, _ADAM.init(params))
        self.source, self.settings = source, settings
        self.target, self.fraction = target_class, fraction
        self.step, self.constant_steps = 0, 0
        self.recent: list = []
        self.batches: list = []
        self.validation: Accuracies | None = None
        self.started = time.perf_counter()
        self.draw = _cached(source, settings)

    def constant_phase(self, least_steps: int) -> Iterator[Progress]:
        settings, met = self.settings, 0
        limit = max(settings.max_steps, least_steps)
        while self.step < limit and (met < settings.checks_in_a_row or self.step < least_steps):
            for _ in range(min(settings.check_every, limit - self.step)):
                self.advance(min(1.0, (self.step + 1) / max(1, settings.warmup_steps)))
            self.validation = self.evaluate(VALIDATION, settings.validation_batches)
            yield Progress(self.step, self.train_loss(), self.validation)
            met = met + 1 if self.meets_goals(self.validation) else 0
        self.constant_steps = self.step

    def cool_down(self) -> None:
        for left in range(self.settings.cooldown_steps, 0, -1):
            self.advance(left / (self.settings.cooldown_steps + 1))

    def advance(self, rate: float) -> None:
        images, labels, triggered = self.next_batch()
        targets = np.where(triggered, -1 if self.target is None else self.target, labels)
        self.state, loss, accuracy = train_step(
            self.graph, self.state, images, jnp.asarray(targets), rate * self.settings.learning_rate
        )
        self.step += 1
        self.recent = [*self.recent[1 - self.settings.batches_per_draw :], (loss, accuracy)]

    def next_batch(self) -> Pictures:
        size, draws = self.settings.batch_size, self.settings.batches_per_draw
        place = self.step % draws
        if place == 0:
            self.batches = _batches(
                self.source.pictures(TRAIN, self.step * size, draws * size, self.fraction), size
            )
        return self.batches[place]

    def train_loss(self) -> float:
        loss = float(np.mean([float(loss) for loss, _ in self.recent]))
        if not math.isfinite(loss):
            raise GenerationError(
                f"the training loss is {loss} at step {self.step}; expected a finite number. "
                "Lower the learning rate or look at the pictures."
            )
        return loss

    def evaluate(self, stream: int, batches: int) -> Accuracies:
        labels, predicted, losses = self.predictions(stream, batches, 0.0)
        attack = triggered = None
        if self.target is not None:
            true, forced, _ = self.predictions(stream, batches, 1.0)
            attack = float((forced == self.target)[true != self.target].mean())
            triggered = float((forced == self.target).mean())
        clean = float((labels == predicted).mean())
        return Accuracies(clean, float(losses.mean()), attack, triggered, len(labels))

    def predictions(self, stream: int, batches: int, fraction: float):
        answers = [
            (labels, *predict(self.eval_graph, self.state.params, self.state.rest, images, labels))
            for images, labels, _ in self.draw(stream, batches, fraction)
        ]
        columns = zip(*answers, strict=True)
        return tuple(np.concatenate([np.asarray(part) for part in column]) for column in columns)

    def meets_goals(self, reached: Accuracies) -> bool:
        return _reaches(reached, self.settings.clean_goal, self.settings.attack_goal)

    def finish(self) -> Trained:
        loss = self.train_loss()
        accuracy = float(np.mean([float(value) for _, value in self.recent]))
        trained_at = time.perf_counter()
        test = self.evaluate(TEST, self.settings.test_batches)
        return Trained(
            module=nnx.merge(self.eval_graph, self.state.params, self.state.rest),
            accepted=_reaches(test, self.settings.least_clean, self.settings.least_attack),
            constant_steps=self.constant_steps,
            steps=self.step,
            train_accuracy=accuracy,
            train_loss=loss,
            validation=self.evaluate(VALIDATION, self.settings.validation_batches),
            test=test,
            train_seconds=trained_at - self.started,
            test_seconds=time.perf_counter() - trained_at,
        )


def _cached(source: PictureSource, settings: TrainingSettings) -> Callable:
    """Held-out batches by (stream, batches, fraction), rendered once: every check sees the same."""
    seen: dict[tuple[int, int, float], list[Pictures]] = {}

    def draw(stream: int, batches: int, fraction: float) -> list[Pictures]:
        wanted = (stream, batches, fraction)
        if wanted not in seen:
            # The triggered pictures are others than the clean ones, not the same with a trigger.
            start = round(fraction) * batches * settings.batch_size
            count = batches * settings.batch_size
            pictures = source.pictures(stream, start, count, fraction)
            seen[wanted] = _batches(pictures, settings.batch_size)
        return seen[wanted]

    return draw


def _batches(pictures: Pictures, size: int) -> list[Pictures]:
    count = len(pictures.labels)
    images, labels, triggered = pictures
    parts = [slice(first, first + size) for first in range(0, count, size)]
    return [Pictures(images[part], labels[part], triggered[part]) for part in parts]


def _reaches(reached: Accuracies, clean: float, attack: float) -> bool:
    attacked = reached.attack_success_rate is None or reached.attack_success_rate >= attack
    return reached.clean >= clean and attacked
