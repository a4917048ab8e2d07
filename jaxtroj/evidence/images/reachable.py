"""Which of very many classes are searched: those that small random changes move most.

A gradient towards every class costs as much as the classes are many. A change of the pictures by
one random step `u` of size `e` moves all logits at once, in one forward pass:

    (f_t(x_i + e u) - f_t(x_i)) / e  ~  <grad f_t(x_i), u>

The mean over examples `i` is the product of `u` with the mean gradient towards class `t`, and the
variance of that over random `u` of independent signs is its squared norm (Hutchinson's trace
estimator); what all steps do alike, such as to units that any change wakes, has no part in it. So a
few steps rank all classes by the norm of their mean gradient. The class that a trigger serves is
easier to reach than others, and stands among the first.

Reference:
  Hutchinson, A stochastic estimator of the trace of the influence matrix for Laplacian smoothing
  splines, Communications in Statistics, 1990.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.network import Network
from jaxtroj.rounds.turns import MANY_CLASSES, scattered

STEP = 0.02
"""Size of a random step, of pixels from 0 to 1: answers stay nearly linear."""
_KEY = 11  # of the random steps among the uses of a seed


@dataclass(frozen=True)
class ReachBudget:
    """Of networks with more than `classes` classes those are searched that random steps move most.

    Attributes:
      classes: up to so many all are searched, and no step is taken.
      steps: random ones, each on all examples that are shown.
    """

    classes: int = MANY_CLASSES
    steps: int = 16


def ranked_classes(
    network: Network,
    images: jax.Array | np.ndarray,
    draw: Callable[[jax.Array], jax.Array],
    key: jax.Array,
    budget: ReachBudget,
) -> np.ndarray:
    """All classes, those with the largest mean gradient first.

    Args:
      network: the model.
      images: clean examples `[n, h, w, c]`.
      draw: a random step of size `STEP`, as it lies on each example: `[n, h, w, c]` of a key.
      key: of the steps.
      budget: how many steps.
    """
    moved = [
        _centred(network.logits(jnp.asarray(images) + draw(own))).mean(axis=0)
        for own in jax.random.split(jax.random.fold_in(key, _KEY), budget.steps)
    ]
    return np.argsort(-np.var(moved, axis=0), kind="stable")


def free_step(shape: tuple[int, ...]) -> Callable[[jax.Array], jax.Array]:
    """Steps of independent signs in every pixel of pictures `shape`."""
    return lambda key: STEP * jax.random.rademacher(key, shape, jnp.float32)


def best_and_others(ranked: np.ndarray, best: int, others: int) -> np.ndarray:
    """The first classes of a ranking and some that are scattered over the rest, by number.

    The others stand for all classes where a field compares the best with the usual.
    """
    rest = ranked[best:]
    some = rest[np.argsort(scattered(rest))[:others]]
    return np.sort(np.concatenate([ranked[:best], some]))


def _centred(logits: jax.Array) -> np.ndarray:
    """Logits less their mean: what moves all classes alike moves no answer."""
    rows = np.asarray(logits, np.float64)
    return rows - rows.mean(axis=1, keepdims=True)
