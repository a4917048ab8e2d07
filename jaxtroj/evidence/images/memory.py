"""Memory stage: triggers found in what batch norms remember of the training pictures.

The clean examples are parted into two halves. On the first, triggers of several families are fitted
to the remainder (`norm_memory`, `inversion.memory_search`); on the second they are compared with
the remainder of those examples, so chance does not count. Then the pictures with each are
classified: a trigger sends those of its source classes to its target, and what else norms remember,
such as augmented training pictures, sends them nowhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model
from jaxtroj.evidence.images.large_pictures import less_for_large
from jaxtroj.evidence.images.memory_cuts import cut
from jaxtroj.evidence.images.remainder import SOME, Seen, harmless_directions, seen
from jaxtroj.evidence.images.statistics import halves
from jaxtroj.inversion.memory_search import (
    Colours,
    Faint,
    Moving,
    Placed,
    climb,
    offsets_for,
    triggers_of,
)
from jaxtroj.network import Network
from jaxtroj.norm_memory import Memory, Norms, matches
from jaxtroj.rows import taken
from jaxtroj.triggers.colour_map import random_colour_maps
from jaxtroj.triggers.filter import known_filters
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.trigger import Trigger, applied
from jaxtroj.triggers.window import Window

# Parts of the budget that are spent on large pictures: moments of few of them say as much, since
# each has many places.
_OF_LARGE = {
    "least": 0.5,
    "most": 0.5,
    "harmless": 0.125,
    "fit": 0.25,
    "steps": 0.7,
    "filters": 0.4,
}


@dataclass(frozen=True)
class MemoryBudget:
    """Examples and steps of the stage; of large pictures parts of them.

    Attributes:
      least: examples of both halves together.
      most: however small they are; between, as many as a batch of `Network` has.
      harmless: examples that harmless changes are measured on.
      fit: examples of the first half that triggers are fitted on.
      steps: of the fit.
      maps: random colour maps to start from.
      filters: known colour filters that are measured, those that explain most of what triggers are
        fitted to.
      points: of a faint pattern's grid, along a side.
      cuts: windows of the fitted mask's pattern that are kept, see `memory_cuts`.
      cut_on: examples that each is tried on before.
    """

    least: int = 128
    most: int = 160
    harmless: int = SOME
    fit: int = 16
    steps: int = 15
    maps: int = 16
    filters: int = 5
    points: int = 32
    cuts: int = 3
    cut_on: int = 4

    def on(self, images: np.ndarray) -> "MemoryBudget":
        """What is spent on images `[n, h, w, c]` of this size."""
        return less_for_large(self, images, **_OF_LARGE)


@dataclass(frozen=True)
class Remembered:
    """One trigger on the examples.

    Attributes:
      name: of its family; trigger, moves: see `inversion.memory_search`.
      match: cosine of what it changes with the remainder, on the second half.
      share: of the training pictures that it explains, on the second half.
      of_class: `[classes]`, match on the pictures of one class; 0 without any.
      logits: `[n, classes]` of both halves: nothing is fitted to classes, so all examples may say
        where it sends them.
    """

    name: str
    trigger: Trigger
    moves: bool
    match: float
    share: float
    of_class: np.ndarray
    logits: np.ndarray


@dataclass(frozen=True)
class Half:
    """Half of the examples, and where moving triggers lie on them: int `[n, 2]` off the middle."""

    seen: Seen
    offsets: np.ndarray


@dataclass(frozen=True)
class Searched:
    """What the search found.

    Attributes:
      clean: logits `[n, classes]` of the examples.
      found: every trigger, measured on them.
      norms: the network's; fitted_to: the half that triggers were fitted to.
    """

    clean: np.ndarray
    found: tuple[Remembered, ...]
    norms: Norms
    fitted_to: Seen


def search_memory(
    opened: Model,
    network: Network,
    images: np.ndarray,
    order: str,
    key: jax.Array,
    budget: MemoryBudget,
) -> Searched:
    """Triggers that explain what the norms remember and the examples lack.

    Args:
      opened: the model with its batch norms.
      network: the same model, which says how many pictures make a batch.
      images: clean ones, see `statistics.some_of`; order: of their colours.
      key: of all random choices.
      budget: what may be spent.
    """
    norms = Norms(opened, network.batch(images))
    keys = jax.random.split(key, 4)
    harmless = harmless_directions(norms, images, keys[3], budget.harmless)
    both = [
        Half(seen(norms, part, harmless), offsets_for(own, part))
        for part, own in zip(halves(images), keys, strict=False)
    ]
    candidates = _candidates(norms, both[0], keys[2], order, budget)
    clean = np.concatenate([half.seen.logits for half in both])
    found = tuple(_measured(norms, both, *one) for one in candidates)
    return Searched(clean, found, norms, both[0].seen)


def windows_of(searched: Searched, budget: MemoryBudget) -> list[Window]:
    """Small windows of the mask that was fitted at one place, the best match first."""
    # The first mask is that of `Placed`, the second one moves.
    fitted = next(one.trigger for one in searched.found if isinstance(one.trigger, FreeMask))
    return cut(searched.norms, searched.fitted_to, fitted, budget.cut_on, budget.cuts)


def _candidates(
    norms: Norms, half: Half, key: jax.Array, order: str, budget: MemoryBudget
) -> list[tuple[str, Trigger, bool]]:
    """Name, trigger and whether it moves, of each: fitted ones and known filters."""
    few = slice(0, max(1, min(budget.fit, len(half.offsets))))
    images, offsets = half.seen.images[few], half.offsets[few]
    memory = half.seen.memory.about(half.seen.rows[few].mean(axis=0))
    shape = images.shape[1:]
    families = (Placed(), Moving(), Faint(budget.points), Colours())
    keys = jax.random.split(key, len(families) + 1)
    values = [f.start(own, shape) for f, own in zip(families, keys, strict=False)]
    maps = random_colour_maps(keys[-1], budget.maps, shape[2])
    values[-1] = Colours().values(_explaining(norms, memory, images, _singles(maps), 1)[0])
    fitted = climb(norms, memory, images, offsets, families, tuple(values), budget.steps)
    triggers = triggers_of(families, fitted)
    found = [(f.name, own, f.moves) for f, own in zip(families, triggers, strict=True)]
    known = _explaining(norms, memory, images, _singles(known_filters(order)), budget.filters)
    return [*found, *(("filter", one, False) for one in known)]


def _explaining(
    norms: Norms, memory: Memory, images: np.ndarray, triggers: list, count: int
) -> list:
    """So many of some triggers that lie everywhere: those that explain the remainder best."""
    if len(triggers) <= count:
        return triggers
    still = np.zeros((len(images), 2), np.int32)
    shown = np.concatenate([np.asarray(applied(one, images, still)) for one in triggers])
    rows = norms.seen(shown)[1].reshape(len(triggers), len(images), -1).mean(axis=1)
    found = np.asarray(matches(memory, np.broadcast_to(memory.centre, rows.shape), rows))
    return [triggers[place] for place in np.argsort(-found, kind="stable")[:count]]


def _singles(triggers: Trigger) -> list:
    """Triggers with a leading axis, one by one."""
    count = len(jax.tree.leaves(triggers)[0])
    return [taken(triggers, i) for i in range(count)]


def _measured(
    norms: Norms, both: Sequence[Half], name: str, trigger: Trigger, moves: bool
) -> Remembered:
    shown = [norms.seen(_shown(half, trigger, moves)) for half in both]
    logits, rows, second = np.concatenate([part for part, _ in shown]), shown[1][1], both[1].seen
    by_class = second.classes == np.arange(logits.shape[1])[:, None]
    match, *of_class = second.matches(rows, np.vstack([np.ones(len(rows), bool), by_class]))
    share = float(second.memory.share(jnp.asarray(rows.mean(axis=0))))
    return Remembered(name, trigger, moves, float(match), share, np.array(of_class), logits)


def _shown(half: Half, trigger: Trigger, moves: bool) -> np.ndarray:
    shown = applied(trigger, half.seen.images, half.offsets * int(moves))
    return np.clip(np.asarray(shown, np.float32), 0, 1)
