"""The table of searches: which methods run, where their arms start and for how long they go on.

A new method is one file beside this one and one row in `SEARCHES`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.inversion.driver import Arms, Method, Rung, begin, candidates, invert
from jaxtroj.inversion.neural_cleanse import NeuralCleanse
from jaxtroj.inversion.patch_search import PatchSearch
from jaxtroj.network import Network
from jaxtroj.triggers.measure import Measured, measure
from jaxtroj.triggers.patch import Patch


@dataclass(frozen=True)
class Known:
    """What is known before any search: the classes that simple patches reach best.

    Attributes:
      targets: int `[k]`, the classes that arms go to.
      patches: `[k]`, the best patch of each.
      scores: `[k]` in [0, 1], how well it works.
      key: of random starts; fold in the class and the placement, never the arm's position.
    """

    targets: np.ndarray
    patches: Patch
    scores: np.ndarray
    key: jax.Array


Starts = tuple[Any, tuple[np.ndarray, np.ndarray]]
"""What `Method.init` takes, with a leading axis of arms; targets and placements, see `begin`."""


@dataclass(frozen=True)
class SearchPlan:
    """One row: a method, the rounds of successive halving, and the starts of its arms."""

    method: Method
    rungs: tuple[Rung, ...]
    starts: Callable[[Known], Starts]


def from_patches(known: Known) -> Starts:
    """One arm for each class, from its best patch and how far that gets."""
    # How far a start gets is known already: the first rung drops the hopeless ones by it.
    starts = (known.patches, jnp.asarray(known.scores, jnp.float32))
    return starts, (known.targets, np.ones(len(known.targets), bool))


def from_keys(known: Known) -> Starts:
    """Two arms for each class, moving to the object and fixed in place, each with a key."""
    targets = np.tile(known.targets, 2)
    anchored = np.repeat([True, False], len(known.targets))
    keys = _arm_keys(known.key, jnp.asarray(targets), jnp.asarray(anchored, jnp.int32))
    return keys, (targets, anchored)


@jax.jit
def _arm_keys(key: jax.Array, targets: jax.Array, anchored: jax.Array) -> jax.Array:
    """Keys by class and placement, so an arm is the same whatever arms run beside it."""
    by_class = jax.vmap(partial(jax.random.fold_in, key))(targets)
    return jax.vmap(jax.random.fold_in)(by_class, anchored)


SEARCHES = (
    SearchPlan(PatchSearch(), (Rung(3, 8),), from_patches),
    SearchPlan(NeuralCleanse(), (Rung(6, 6), Rung(3, 8)), from_keys),
)


def run_search(
    search: SearchPlan,
    network: Network,
    parts: tuple[AnchoredExamples, AnchoredExamples],
    known: Known,
) -> Measured:
    """One search, its best arm of each class measured.

    Args:
      search: a row of the table.
      network: the model.
      parts: examples that triggers are fitted to, and others that they are measured on.
      known: where it starts.
    """
    few, rest = parts
    starts, labels = search.starts(known)
    height, width, channels = few.images.shape[1:]
    arms = begin(search.method, starts, labels, (height, width, channels))
    arms = _furthest(invert(search.method, network, few, arms, search.rungs))
    return measure(network, rest, candidates(search.method, arms))


def _furthest(arms: Arms) -> Arms:
    """Of arms as `invert` returns them the first of each class: the others need no measuring."""
    _, first = np.unique(arms.targets, return_index=True)
    return arms.take(np.sort(first))
