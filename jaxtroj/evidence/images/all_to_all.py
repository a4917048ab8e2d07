"""Stage all_to_all: how many examples one small mask sends to the class after their own."""

from dataclasses import dataclass

import jax
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.inversion.all_to_all import AllToAll
from jaxtroj.inversion.driver import Rung, begin, candidates, invert
from jaxtroj.network import Network
from jaxtroj.triggers.measure import NO_TARGET, Measured, all_gains, goals, sizes_of


@dataclass(frozen=True)
class AllToAllBudget:
    """Examples that the mask is fitted to, at most half, steps, and held-out examples.

    Of the `fit` examples it steps on all but one class's share, as arms with a target do.
    A mask counts as found from a worth of `works` on; with fewer than `least` held-out examples,
    or of fewer than `classes` classes, none does.
    """

    method: AllToAll = AllToAll()
    fit: int = 16
    steps: int = 45
    held_out: int = 30
    works: float = 0.45
    least: int = 8
    classes: int = 5


def search_all_to_all(
    network: Network, examples: AnchoredExamples, key: jax.Array, budget: AllToAllBudget
) -> Measured:
    """One mask, measured on examples that it was not fitted to.

    Args:
      network: the model.
      examples: of it.
      key: of the random start.
      budget: see `AllToAllBudget`.
    """
    count = min(budget.fit, max(1, len(examples.images) // 2))
    few, rest = examples.first(count), examples.after(count).first(budget.held_out)
    height, width, channels = few.images.shape[1:]
    labels = (np.array([NO_TARGET]), np.array([False]))
    arms = begin(budget.method, key[None], labels, (height, width, channels))
    arms = invert(budget.method, network, few, arms, (Rung(1, budget.steps),))
    found = candidates(budget.method, arms)
    gains = np.asarray(all_gains(network, rest, found.triggers, found.anchored), np.float64)
    sources = np.asarray(rest.sources)
    wanted = goals(NO_TARGET, sources, examples.classes)
    own = np.take_along_axis(gains, wanted[None, :, None], axis=2)[..., 0]
    return Measured(found, sources, own, sizes_of(found.triggers, (height, width)))


def worth_of(found: Measured, budget: AllToAllBudget) -> float:
    """Share of the held-out examples that a mask sends to their next class, times 1 less its mean.

    A mask of half of the picture does it to some examples of a clean network. With few classes, or
    on few examples, chance does: 0.
    """
    shown = len(np.unique(found.sources))  # a mask for examples of one class has a target class
    enough = len(found.sources) >= budget.least and shown >= budget.classes
    return float(found.rates[0] * (1.0 - found.sizes[0])) if enough else 0.0
