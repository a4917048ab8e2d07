"""Training of one model of a synthetic round, the same for clean and poisoned models.

Round 0 trained with Adam at 1e-3, batches of 64 and early stopping on a fixed set of pictures. Here
every picture is fresh, and training goes in cycles of two phases:

1. Learning rate constant (after a linear warm-up in the first cycle), until the goals hold on the
   pictures trained on since the last check: clean ones, and triggered ones when poisoned.
2. A cool-down in which the rate falls linearly to zero. This differs from Round 0: with the
   running statistics of its batch norms a network is erratic while the rate is high (measured:
   half of the pictures right at a training loss of 0.04) and settles within 40 steps without it.

Then the goals are checked on validation pictures; another cycle follows where they are not met.
A clean model goes through at least the cycles of its poisoned partner, so that the length of
training says nothing about the label.

All randomness comes from the picture source and the initial weights, so equal input gives an
equal model on one machine.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from flax import nnx

from jaxtroj.generate.divergence import DivergedError

TRAIN, VALIDATION, TEST, EXAMPLES = range(4)
TRAINERS = ("flax", "torch")


@dataclass(frozen=True)
class TrainingSettings:
    """How long and how hard to train; the same for every model of a round.

    Attributes:
        trainer: what computes the steps, one of `TRAINERS`.
        batch_size: pictures per step.
        learning_rate: of Adam, in the constant phases.
        warmup_steps: steps in which the rate rises linearly at the start.
        max_steps: no cycle starts after so many steps, and constant phases end there.
        cooldown_steps: steps in which the rate falls linearly to zero at the end of a cycle.
        check_every: steps between two checks of the goals on training pictures.
        training_goal: share in [0, 1] of clean, and of triggered, training pictures that must be
            right since the last check to end a constant phase.
        clean_goal, attack_goal: shares in [0, 1] of validation pictures that end the training.
        least_clean, least_attack: shares in [0, 1] of test pictures below which a model is
            rejected.
        validation_batches, test_batches: batches of clean, and as many of triggered, pictures.
        batches_per_draw: how many batches are rendered at once.
    """

    trainer: str = "flax"
    batch_size: int = 64
    learning_rate: float = 1e-3
    warmup_steps: int = 20
    max_steps: int = 600
    cooldown_steps: int = 40
    check_every: int = 25
    training_goal: float = 0.97
    clean_goal: float = 0.99
    attack_goal: float = 0.98
    least_clean: float = 0.95
    least_attack: float = 0.95
    validation_batches: int = 4
    test_batches: int = 8
    batches_per_draw: int = 16


class PictureBatch(NamedTuple):
    """Rendered pictures: uint8 RGB [n, h, w, 3], true labels int [n], triggered bool [n]."""

    images: jax.Array
    labels: np.ndarray
    triggered: np.ndarray


class Learner(Protocol):
    """What computes the steps: `flax_learner.FlaxLearner`, `torch_learner.TorchLearner`.

    Images are uint8 RGB [n, h, w, 3], targets int [n].
    """

    def step(self, images: jax.Array, targets: np.ndarray, learning_rate: float) -> tuple[Any, Any]:
        """One step of Adam; returns the mean loss in nats and which pictures [n] were right."""
        ...

    def predict(self, images: jax.Array, targets: np.ndarray) -> tuple[Any, Any]:
        """Predicted class [n] and cross-entropy [n], with the running statistics."""
        ...

    def module(self) -> nnx.Module:
        """The network so far, in evaluation mode."""
        ...


class PictureSource(Protocol):
    """Where pictures come from: picture `start + i` of a stream is always the same picture."""

    def pictures(self, stream: int, start: int, count: int, fraction: float) -> PictureBatch:
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
class TrainingProgress:
    """State of a training at one check.

    Attributes:
        step: steps so far.
        loss: mean cross-entropy since the last check, nats.
        clean, triggered: share in [0, 1] of the training pictures since then given the label they
            are trained towards, in training mode; None where there were none.
    """

    step: int
    loss: float
    clean: float | None
    triggered: float | None


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        module: the network in evaluation mode.
        accepted: whether the test accuracies reach the least ones asked for.
        cycles: steps of the constant phase of each cycle.
        steps: all steps, cool-downs too.
        last: of the last steps.
        validation, test: accuracies at the end.
        train_seconds, test_seconds: wall time.
    """

    module: nnx.Module
    accepted: bool
    cycles: tuple[int, ...]
    steps: int
    last: TrainingProgress
    validation: Accuracies
    test: Accuracies
    train_seconds: float
    test_seconds: float


def train(
    learner: Learner,
    source: PictureSource,
    target_class: int | None,
    fraction: float,
    settings: TrainingSettings,
    least_cycles: tuple[int, ...] = (),
) -> Iterator[TrainingProgress | Trained]:
    """Train a network, yielding a `TrainingProgress` at each check and one `Trained` at the end.

    Args:
        learner: a fresh network and the means to train it.
        source: pictures to train, check and test on.
        target_class: label of triggered pictures; None trains a clean model.
        fraction: share of training pictures with the trigger, in [0, 1].
        settings: see `TrainingSettings`.
        least_cycles: fewest steps of the constant phase of each cycle, and fewest cycles.

    Raises:
        DivergedError: the loss is not finite.
    """
    share = fraction if target_class is not None else 0.0
    run = _Run(learner, source, target_class, share, settings)
    validation = None
    while validation is None or not run.is_done(validation, least_cycles):
        done = len(run.cycles)
        yield from run.constant_phase(least_cycles[done] if done < len(least_cycles) else 0)
        last = run.cool_down()
        yield last
        validation = run.evaluate(VALIDATION, settings.validation_batches)
    yield run.finish(last, validation)


class _Run:
    """One training: the state that the phases hand to each other."""

    def __init__(self, learner, source, target_class, fraction, settings):
        self.learner = learner
        self.source, self.settings = source, settings
        self.target, self.fraction = target_class, fraction
        self.step, self.cycles = 0, ()
        self.since_check: list = []
        self.batches: list[PictureBatch] = []
        self.started = time.perf_counter()

    def is_done(self, validation: Accuracies, least_cycles: tuple[int, ...]) -> bool:
        met = _reaches(validation, self.settings.clean_goal, self.settings.attack_goal)
        enough = met or self.step >= self.settings.max_steps
        return enough and len(self.cycles) >= len(least_cycles)

    def constant_phase(self, least: int) -> Iterator[TrainingProgress]:
        settings, first, met = self.settings, self.step, False
        while self.step - first < least or not (met or self.step >= settings.max_steps):
            for _ in range(settings.check_every):
                self.advance(min(1.0, (self.step + 1) / max(1, settings.warmup_steps)))
            progress = self.progress()
            shares = [s for s in (progress.clean, progress.triggered) if s is not None]
            met = min(shares) >= settings.training_goal
            yield progress
        self.cycles = (*self.cycles, self.step - first)

    def cool_down(self) -> TrainingProgress:
        for left in range(self.settings.cooldown_steps, 0, -1):
            self.advance(left / (self.settings.cooldown_steps + 1))
        return self.progress()

    def advance(self, rate: float) -> None:
        images, labels, triggered = self.next_batch()
        targets = np.where(triggered, -1 if self.target is None else self.target, labels)
        loss, right = self.learner.step(images, targets, rate * self.settings.learning_rate)
        self.step += 1
        self.since_check.append((loss, right, triggered))

    def next_batch(self) -> PictureBatch:
        size, draws = self.settings.batch_size, self.settings.batches_per_draw
        place = self.step % draws
        if place == 0:
            self.batches = _batches(
                self.source.pictures(TRAIN, self.step * size, draws * size, self.fraction), size
            )
        return self.batches[place]

    def progress(self) -> TrainingProgress:
        """What the steps since the last check reached; forgets them."""
        losses, rights, flags = zip(*self.since_check, strict=True)
        self.since_check = []
        loss = float(np.mean(np.asarray(losses)))
        if not math.isfinite(loss):
            raise DivergedError(loss, self.step)
        right, triggered = np.concatenate(rights), np.concatenate(flags)
        return TrainingProgress(
            self.step, loss, _share(right[~triggered]), _share(right[triggered])
        )

    def evaluate(self, stream: int, batches: int) -> Accuracies:
        labels, predicted, losses = self.predictions(stream, batches, 0.0)
        attack = triggered = None
        if self.target is not None:
            true, forced, _ = self.predictions(stream, batches, 1.0)
            attack = _share(forced[true != self.target] == self.target)
            triggered = _share(forced == self.target)
        clean = float((labels == predicted).mean())
        return Accuracies(clean, float(losses.mean()), attack, triggered, len(labels))

    def predictions(self, stream: int, batches: int, fraction: float):
        size = self.settings.batch_size
        # The triggered pictures are others than the clean ones, not the same with a trigger.
        start = round(fraction) * batches * size
        pictures = self.source.pictures(stream, start, batches * size, fraction)
        answers = [
            (labels, *self.learner.predict(images, labels))
            for images, labels, _ in _batches(pictures, size)
        ]
        columns = zip(*answers, strict=True)
        return tuple(np.concatenate([np.asarray(part) for part in column]) for column in columns)

    def finish(self, last: TrainingProgress, validation: Accuracies) -> Trained:
        trained_at = time.perf_counter()
        test = self.evaluate(TEST, self.settings.test_batches)
        return Trained(
            module=self.learner.module(),
            accepted=_reaches(test, self.settings.least_clean, self.settings.least_attack),
            cycles=self.cycles,
            steps=self.step,
            last=last,
            validation=validation,
            test=test,
            train_seconds=trained_at - self.started,
            test_seconds=time.perf_counter() - trained_at,
        )


def _batches(pictures: PictureBatch, size: int) -> list[PictureBatch]:
    count = len(pictures.labels)
    images, labels, triggered = pictures
    parts = [slice(first, first + size) for first in range(0, count, size)]
    return [PictureBatch(images[part], labels[part], triggered[part]) for part in parts]


def _reaches(reached: Accuracies, clean: float, attack: float) -> bool:
    attacked = reached.attack_success_rate is None or reached.attack_success_rate >= attack
    return reached.clean >= clean and attacked


def _share(right: np.ndarray) -> float | None:
    return float(right.mean()) if right.size else None
