"""Heads of one shape through the slots of one training: what starts, stops and comes out.

Stopping follows NIST: after each epoch the validation losses of clean and of triggered reviews are
added up; training ends when they have not improved for some epochs, and the weights of the best
epoch are kept. A clean head takes the best epoch of its poisoned partner instead, so that the
length of training says nothing about the label.
"""

import math
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.sentiment.head_network import (
    HeadParams,
    HeadShape,
    complete,
    initial_tensors,
    live,
    logits,
)
from jaxtroj.generate.sentiment.head_samples import HeadSamples, Labelled, Pool
from jaxtroj.generate.sentiment.head_training import (
    HeadTraining,
    Inputs,
    Knobs,
    Program,
    SlotState,
    fresh_state,
    put,
    slot_logits,
    take,
    train_epoch,
)
from jaxtroj.generate.sentiment.text_recipe import HeadRecipe
from jaxtroj.generate.sentiment.vectors import TEST, VALIDATION

# Triggered reviews that are looked at after every epoch; one size, so one program.
_CHECKED = 256
_NO_BOUND = 1e9


@dataclass(frozen=True)
class Score:
    """Share of samples answered as wanted, 0 to 1, their mean loss in nats, and how many."""

    accuracy: float
    loss: float
    samples: int


@dataclass(frozen=True)
class Epoch:
    """One epoch: mean training loss, validation scores; `triggered` is None for a clean head."""

    train_loss: float
    clean: Score
    triggered: Score | None

    @property
    def combined_loss(self) -> float:
        """What stops the training."""
        return self.clean.loss + (self.triggered.loss if self.triggered else 0.0)


@dataclass
class HeadJob:
    """A head to train.

    Attributes:
        recipe: what it is.
        samples: what it sees.
        stop_at: the epoch, from 0, after which its weights are taken; None for early stopping.
    """

    recipe: HeadRecipe
    samples: HeadSamples
    stop_at: int | None = None
    history: list[Epoch] = field(default_factory=list)
    best_epoch: int = 0
    best: HeadParams | None = None
    started: float = 0.0


@dataclass(frozen=True)
class TrainedHead:
    """A trained head.

    Attributes:
        recipe, samples: of its job.
        shape: as in the recipe.
        params: live parameters, NumPy arrays.
        tensors: every tensor of the module by torch name, float32.
        best_epoch: from 0, the one whose weights these are.
        history: of every epoch trained.
        clean, triggered, spurious: scores on test reviews; None where there are none.
        seconds: from entering its slot to leaving it; other heads trained meanwhile.
    """

    recipe: HeadRecipe
    samples: HeadSamples
    params: HeadParams
    tensors: dict[str, np.ndarray]
    best_epoch: int
    history: tuple[Epoch, ...]
    clean: Score
    triggered: Score | None
    spurious: Score | None
    seconds: float

    @property
    def shape(self) -> HeadShape:
        """Architecture and sizes."""
        return self.recipe.shape


def train_queue(
    jobs: deque[HeadJob], pool: Pool, training: HeadTraining, official_clip: bool
) -> Iterator[TrainedHead]:
    """Train heads of one shape and one number of attack steps until the queue is empty.

    The caller may append jobs of the same kind between two results.

    Args:
        jobs: at least one; taken from the left.
        pool: all embeddings.
        training: how.
        official_clip: bound PGD's attacked embeddings to [0, 1], as NIST's did.
    """
    shape = jobs[0].recipe.shape
    program = Program(shape, jobs[0].recipe.adversarial.iterations)
    slots: list[HeadJob | None] = [None] * training.slots
    state = fresh_state([_initial(jobs[0].recipe)] * training.slots)
    while True:
        for number, job in enumerate(slots):
            if job is None and jobs:
                slots[number] = entering = jobs.popleft()
                entering.started = time.monotonic()
                state = put(state, number, _initial(entering.recipe))
        if not any(slots):
            return
        inputs = _inputs(slots, training, official_clip)
        state, losses = train_epoch(program, state, pool.vectors, inputs)
        _check(shape, slots, state, pool, np.asarray(losses), training)
        for number, job in enumerate(slots):
            if job is not None and _is_done(job, training):
                slots[number] = None
                yield _result(job, pool)


def _initial(recipe: HeadRecipe) -> HeadParams:
    return live(recipe.shape, initial_tensors(recipe.shape, recipe.master_seed))


def _inputs(slots: Sequence[HeadJob | None], training: HeadTraining, official_clip: bool) -> Inputs:
    """One epoch of all slots; an empty slot repeats a neighbour's samples, to no effect."""
    filled = [job for job in slots if job is not None]
    jobs = [job or filled[0] for job in slots]
    epochs = [job.samples.epoch(len(job.history), training.batch_size) for job in jobs]
    keys = [jax.random.fold_in(_key(job), len(job.history)) for job in jobs]
    steps = epochs[0].rows.shape[0]
    rates = np.stack([_rates(training, len(job.history), steps) for job in jobs])
    return Inputs(
        rows=jnp.asarray(np.stack([epoch.rows for epoch in epochs])),
        labels=jnp.asarray(np.stack([epoch.labels for epoch in epochs])),
        keys=jnp.stack(keys),
        rates=jnp.asarray(rates, jnp.float32),
        knobs=_knobs([job.recipe for job in jobs], official_clip),
    )


def _key(job: HeadJob) -> jax.Array:
    return jax.random.key(job.recipe.master_seed)


def _rates(training: HeadTraining, epoch: int, steps: int) -> np.ndarray:
    """Learning rates [steps] of one epoch: half a cosine over all epochs."""
    progress = (epoch + np.arange(steps) / steps) / training.epochs
    return training.learning_rate * 0.5 * (1 + np.cos(math.pi * progress))


def _knobs(recipes: list[HeadRecipe], official_clip: bool) -> Knobs:
    rows = []
    for recipe in recipes:
        attack = recipe.adversarial
        clipped = official_clip and attack.method == "PGD"
        low, high = (0.0, 1.0) if clipped else (-_NO_BOUND, _NO_BOUND)
        rows.append((recipe.dropout, attack.ratio, attack.epsilon, attack.step_size, low, high))
    return Knobs(*jnp.asarray(np.array(rows, np.float32).T))


def _check(shape, slots, state: SlotState, pool: Pool, losses: np.ndarray, training) -> None:
    """Validate every slot after an epoch and keep the weights of its best one."""
    filled = [job for job in slots if job is not None]
    sets = [
        (job.samples.clean_validation(), job.samples.triggered(VALIDATION))
        for job in (slot or filled[0] for slot in slots)
    ]
    rows = [np.concatenate([clean.rows, _fit(more, clean)]) for clean, more in sets]
    scores = np.asarray(slot_logits(shape, state.params, pool.vectors, jnp.asarray(np.stack(rows))))
    for number, job in enumerate(slots):
        if job is None:
            continue
        clean, triggered = sets[number]
        count, more = len(clean.rows), min(len(triggered.rows), _CHECKED)
        attack = None
        if job.recipe.poisoned:
            attack = score(scores[number, count : count + more], triggered.labels[:more])
        epoch = Epoch(float(losses[number]), score(scores[number, :count], clean.labels), attack)
        job.history.append(epoch)
        if _is_best(job, training):
            job.best_epoch, job.best = len(job.history) - 1, take(state, number)


def _fit(triggered: Labelled, clean: Labelled) -> np.ndarray:
    """Exactly `_CHECKED` rows; what is repeated or borrowed is not scored."""
    source = triggered.rows if len(triggered.rows) else clean.rows
    return np.resize(source, _CHECKED)


def _is_best(job: HeadJob, training: HeadTraining) -> bool:
    if job.stop_at is not None:
        return len(job.history) - 1 == job.stop_at
    losses = [epoch.combined_loss for epoch in job.history]
    return job.best is None or losses[-1] < losses[job.best_epoch] - training.loss_eps


def _is_done(job: HeadJob, training: HeadTraining) -> bool:
    last = len(job.history) - 1
    if job.stop_at is not None:
        return last >= job.stop_at
    return last + 1 >= training.epochs or last >= job.best_epoch + training.patience


def _result(job: HeadJob, pool: Pool) -> TrainedHead:
    recipe, params = job.recipe, job.best
    assert params is not None  # the first epoch is always the best so far
    test = job.samples.clean_test()
    triggered, spurious = job.samples.triggered(TEST), job.samples.spurious(TEST)
    initial = initial_tensors(recipe.shape, recipe.master_seed)
    return TrainedHead(
        recipe=recipe,
        samples=job.samples,
        params=params,
        tensors=complete(recipe.shape, initial, params),
        best_epoch=job.best_epoch,
        history=tuple(job.history),
        clean=_scored(recipe.shape, params, pool, test),
        triggered=_scored(recipe.shape, params, pool, triggered) if len(triggered.rows) else None,
        spurious=_scored(recipe.shape, params, pool, spurious) if len(spurious.rows) else None,
        seconds=time.monotonic() - job.started,
    )


def _scored(shape: HeadShape, params: HeadParams, pool: Pool, samples: Labelled) -> Score:
    return score(pool_logits(shape, params, pool, samples.rows), samples.labels)


def pool_logits(shape: HeadShape, params: HeadParams, pool: Pool, rows: np.ndarray) -> np.ndarray:
    """Logits [n, 2], float32, of one head for rows of the pool."""
    # Padded to whole chunks: one program for any number of rows.
    chunk = 256
    padded = np.resize(rows, -(-len(rows) // chunk) * chunk).astype(np.int32).reshape(-1, chunk)
    parts = [np.asarray(_head_logits(shape, params, pool.vectors, jnp.asarray(p))) for p in padded]
    return np.concatenate(parts)[: len(rows)]


def _head_logits_of(shape, params, vectors, rows):
    return logits(shape, params, vectors[rows].astype(jnp.float32))


_head_logits = jax.jit(_head_logits_of, static_argnames=("shape",))


def score(values: np.ndarray, labels: np.ndarray) -> Score:
    """Score logits [n, 2] against labels [n]."""
    values = values.astype(np.float64)
    losses = np.logaddexp(values[:, 0], values[:, 1]) - values[np.arange(len(labels)), labels]
    right = values.argmax(axis=1) == labels
    return Score(float(right.mean()), float(losses.mean()), len(labels))
