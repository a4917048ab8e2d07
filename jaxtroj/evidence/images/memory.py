"""Memory stage: triggers found in what batch norms remember of the training pictures.

The clean examples are parted into two halves. On the first, triggers of several families are fitted
to the remainder (`norm_memory`, `inversion.memory_search`); on the second they are compared with
the remainder of those examples, so chance does not count. Then the pictures with the best trigger
are classified: a trigger sends those of its source classes to its target.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model
from jaxtroj.evidence.images.statistics import halves, some_of
from jaxtroj.inversion.memory_search import (
    Colours,
    Faint,
    Moving,
    Placed,
    climb,
    offsets_for,
)
from jaxtroj.network import Network
from jaxtroj.norm_memory import Memory, Norms, memory_of
from jaxtroj.rounds.examples import Examples
from jaxtroj.triggers.colour_map import random_colour_maps
from jaxtroj.triggers.filter import known_filters
from jaxtroj.triggers.trigger import Trigger, applied


@dataclass(frozen=True)
class MemoryBudget:
    """Examples and steps of the stage.

    Attributes:
      least: examples of both halves together, however large the pictures are.
      most: however small they are; between, as many as a batch of `Network` has.
      fit: examples of the first half that triggers are fitted on.
      steps: of the fit.
      maps: random colour maps to start from.
      points: of a faint pattern's grid, along a side.
    """

    least: int = 32
    most: int = 160
    fit: int = 16
    steps: int = 15
    maps: int = 16
    points: int = 32


@dataclass(frozen=True)
class Remembered:
    """One trigger on the second half: cosine, share of training pictures, logits `[n, classes]`."""

    name: str
    trigger: Trigger
    moves: bool
    match: float
    share: float
    logits: np.ndarray


@dataclass(frozen=True)
class Half:
    """Some examples: pictures, clean logits, moments, where moving triggers lie, the remainder."""

    images: np.ndarray
    logits: np.ndarray
    rows: np.ndarray
    offsets: np.ndarray
    memory: Memory


def search_memory(
    opened: Model, network: Network, examples: Examples, key: jax.Array, budget: MemoryBudget
) -> tuple[Half, tuple[Remembered, ...]]:
    """The second half of the examples, and every candidate measured on it.

    Args:
      opened: the model with its batch norms.
      network: the same model, which says how many pictures make a batch.
      examples: clean pictures.
      key: of all random choices.
      budget: what may be spent.
    """
    images = np.asarray(some_of(examples, budget.least, budget.most)[0], np.float32)
    norms = Norms(opened, network.batch(images))
    keys = jax.random.split(key, 4)
    first, second = (
        _half(norms, part, own) for part, own in zip(halves(images), keys, strict=False)
    )
    candidates = _candidates(norms, first, keys[2], examples.channel_order, budget)
    return second, tuple(_measured(norms, second, *one) for one in candidates)


def _half(norms: Norms, images: np.ndarray, key: jax.Array) -> Half:
    logits, rows = norms.seen(images)
    changes = _harmless(norms, images, logits, rows, key)
    memory = memory_of(rows, norms.sizes(images), changes)
    return Half(images, logits, rows, offsets_for(key, images), memory)


def _harmless(norms: Norms, images, logits, rows, key: jax.Array) -> list[np.ndarray]:
    """Mean change of the moments by each harmless change of pictures, and by being sure."""
    some, plain = images[:16], rows[:16].mean(axis=0)
    changed = np.concatenate([np.clip(one, 0, 1) for one in _changed(some, key)])
    seen = norms.seen(changed.astype(np.float32))[1].reshape(-1, len(some), rows.shape[1])
    order = np.sort(logits, axis=1)
    sure = order[:, -1] - order[:, -2] >= np.median(order[:, -1] - order[:, -2])
    among = [rows[sure].mean(axis=0) - rows[~sure].mean(axis=0)] if 0 < sure.mean() < 1 else []
    return [*(seen.mean(axis=1) - plain), *among]


def _changed(images: np.ndarray, key: jax.Array) -> list[np.ndarray]:
    mean = images.mean(axis=(1, 2), keepdims=True)
    noise = np.asarray(jax.random.normal(key, images.shape, jnp.float32))
    near = [np.roll(images, move, axis) for axis in (1, 2) for move in (-1, 1)]
    blurred = (images + sum(near)) / 5
    return [
        0.7 * images, 1.3 * images, mean + 0.7 * (images - mean), images**1.4, images**0.7,
        images + 0.06 * noise, blurred, images[:, :, ::-1], np.roll(images, 2, 1),
        np.roll(images, -2, 2), 0.5 * images + 0.5 * images.mean(axis=-1, keepdims=True),
    ]  # fmt: skip


def _candidates(norms, half: Half, key, order: str, budget: MemoryBudget):
    """Name, trigger and whether it moves, of each candidate: the fitted ones and a known filter."""
    few = slice(0, max(1, min(budget.fit, len(half.images))))
    images, offsets = half.images[few], half.offsets[few]
    memory = half.memory.about(half.rows[few].mean(axis=0))
    shape = images.shape[1:]
    families = (Placed(), Moving(), Faint(budget.points), Colours())
    keys = jax.random.split(key, len(families) + 1)
    values = [f.start(own, shape) for f, own in zip(families, keys, strict=False)]
    maps = random_colour_maps(keys[-1], budget.maps, shape[2])
    values[-1] = Colours().values(_best(norms, memory, images, maps))
    fitted = climb(norms, memory, images, offsets, families, tuple(values), budget.steps)
    found = [(f.name, f.trigger(own), f.moves) for f, own in zip(families, fitted, strict=True)]
    return [*found, ("filter", _best(norms, memory, images, known_filters(order)), False)]


def _best(norms: Norms, memory: Memory, images: np.ndarray, triggers: Trigger):
    """The best of some triggers that lie everywhere."""
    count = len(jax.tree.leaves(triggers)[0])
    singles = [jax.tree.map(lambda x, i=i: x[i], triggers) for i in range(count)]
    still = np.zeros((len(images), 2), np.int32)
    shown = np.concatenate([np.asarray(applied(one, images, still)) for one in singles])
    rows = norms.seen(shown)[1].reshape(count, len(images), -1).mean(axis=1)
    return singles[int(np.argmax([float(memory.match(row)) for row in rows]))]


def _measured(norms: Norms, half: Half, name: str, trigger: Trigger, moves: bool) -> Remembered:
    shown = applied(trigger, half.images, half.offsets * int(moves))
    logits, rows = norms.seen(np.clip(np.asarray(shown, np.float32), 0, 1))
    changed = jnp.asarray(rows.mean(axis=0))
    match, share = float(half.memory.match(changed)), float(half.memory.share(changed))
    return Remembered(name, trigger, moves, match, share, logits)
