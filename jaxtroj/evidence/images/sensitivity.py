"""Sensitivity: what one common small change of all examples does to the answers.

The mean input gradient towards a class, moved so that all objects lie over one another, is the
first-order universal perturbation. Where a trigger was learnt it is larger, and it agrees between
examples.

References:
  Moosavi-Dezfooli et al., Universal adversarial perturbations, 2017,
  https://arxiv.org/abs/1610.08401.
  Zhang et al., Cassandra: Detecting Trojaned Networks from Adversarial Perturbations,
  https://arxiv.org/abs/2007.14433, 2020.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.evidence.images.reachable import (
    STEP,
    ReachBudget,
    best_and_others,
    ranked_classes,
)
from jaxtroj.margins import all_margins, share
from jaxtroj.network import Network
from jaxtroj.triggers.mask import roll

_EPS = 1e-12
# Numbers in the pictures of one part of the work: 128 MiB, of which five copies are held at most.
_PART = 2**25


@dataclass(frozen=True)
class SensitivityBudget:
    """Examples per class, and the size of the universal perturbation in [0, 1] pixel units.

    Of networks with more classes than `reach` has, `best` are looked at that are reached most
    easily, and `others` to compare them with, on `few` examples in all.
    """

    per_class: int = 2
    reach: ReachBudget = field(default_factory=ReachBudget)
    best: int = 8
    others: int = 16
    few: int = 12
    epsilon: float = 0.06
    window: float = 0.25


@jax.jit
def _aligned(gradients: jax.Array, offsets: jax.Array) -> jax.Array:
    """Gradients `[n, h, w, c]` with every anchor moved to the centre."""
    return jax.vmap(roll)(gradients, -offsets)


@jax.jit
def _moved(steps: jax.Array, offsets: jax.Array) -> jax.Array:
    """Each of `steps [classes, h, w, c]` moved by each of `offsets [n, 2]`."""
    each = jax.vmap(roll, in_axes=(None, 0))
    return jax.vmap(each, in_axes=(0, None))(steps, offsets)


@jax.jit
def _changed(images: jax.Array, steps: jax.Array, offsets: jax.Array) -> jax.Array:
    """Pictures `[classes, n, h, w, c]`: each of `images` changed by each of the moved `steps`."""
    return jnp.clip(images + _moved(steps, offsets), 0.0, 1.0)


def sensitivity_fields(
    network: Network, examples: AnchoredExamples, key: jax.Array, budget: SensitivityBudget
) -> dict[str, float]:
    """Evidence of the stage; `images.stages.sensitivity` says what each field means."""
    some, targets = _looked_at(network, examples, key, budget)
    towards = zip(targets.tolist(), _towards_each(network, some, targets), strict=True)
    found = [_common(gradients, some, target, budget) for target, gradients in towards]
    directions, norms, agreements = zip(*found, strict=True)
    steps = budget.epsilon * jnp.sign(jnp.stack(directions))
    scores = _universal_scores(network, some, targets, steps)
    return {
        "gradient_outlier": _ratio(norms),
        "gradient_agreement": max(agreements),
        "universal_gap": float(np.ptp(np.sort(scores)[-2:])),
        "example_margin": float(all_margins(examples.logits).max(axis=-1).mean()),
    }


def _looked_at(
    network: Network, examples: AnchoredExamples, key: jax.Array, budget: SensitivityBudget
) -> tuple[AnchoredExamples, np.ndarray]:
    """The examples and the classes, sorted, that the budget allows."""
    some = examples.spread(budget.per_class)
    if examples.classes <= budget.reach.classes:
        return some, np.arange(examples.classes)
    few = some.first(budget.few)
    draw = partial(_drawn, tuple(few.images.shape[1:]), budget.window, few.offsets())
    ranked = ranked_classes(network, few.images, draw, key, budget.reach)
    return few, best_and_others(ranked, budget.best, budget.others)


def _drawn(shape: tuple[int, ...], window: float, offsets: jax.Array, key: jax.Array) -> jax.Array:
    """A random step over the objects `[n, h, w, c]`, where the norms of the gradients are taken."""
    signs = jax.random.rademacher(key, shape, jnp.float32)
    inside = _window_mask(shape, window)
    return _moved((STEP * signs * inside)[None], offsets)[0]


def _parts(network: Network, images: jax.Array, count: int) -> Iterator[slice]:
    """So many classes, a part at a time, of which each has all images.

    Parts end where batches do, so that every picture stands where it would without parts.
    """
    turn = network.batch(images)
    turn //= math.gcd(turn, len(images))
    size = max(1, _PART // (images.size * turn)) * turn
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _towards_each(
    network: Network, examples: AnchoredExamples, targets: np.ndarray
) -> Iterator[jax.Array]:
    """Gradients `[n, h, w, c]` of each target's logit less the mean of the others, in turn."""
    n, classes = len(examples.images), examples.classes
    weights = np.eye(classes, dtype=np.float32) * (classes / (classes - 1)) - 1.0 / (classes - 1)
    # The weights of all classes sum to zero, and so do the gradients.
    asked = targets[:-1] if len(targets) == classes else targets
    total = None
    for part in _parts(network, examples.images, len(asked)):
        rows = weights[asked[part]]
        images = jnp.tile(examples.images, (len(rows), 1, 1, 1))
        gradients, _ = network.gradients(images, np.repeat(rows, n, axis=0))
        gradients = gradients.reshape(len(rows), n, *images.shape[1:])
        total = gradients.sum(axis=0) if total is None else reduce(jnp.add, gradients, total)
        yield from gradients
    if len(asked) < len(targets) and total is not None:
        yield -total


def _common(gradients: jax.Array, examples: AnchoredExamples, target: int, budget):
    """Mean aligned gradient towards a class, its norm near the centre, how far examples agree."""
    others = examples.sources != target
    aligned = _aligned(gradients, examples.offsets())
    mean = share(aligned, others[:, None, None, None], axis=0)
    centre = _window(mean, budget.window)
    single = jnp.sqrt((_window(aligned, budget.window) ** 2).sum(axis=(1, 2, 3)))
    norm = float(jnp.sqrt((centre**2).sum()))
    return mean, norm, norm / (float(share(single, others)) + _EPS)


def _window(x: jax.Array, size: float) -> jax.Array:
    """The central part of `[..., h, w, c]`, `size` of the side each way."""
    rows, columns = _middle(x.shape[-3:-1], size)
    return x[..., rows, columns, :]


def _window_mask(shape: tuple[int, ...], size: float) -> np.ndarray:
    """1 in that part of pictures `(h, w, c)`, else 0: `[h, w, 1]`."""
    mask = np.zeros((*shape[:2], 1), np.float32)
    mask[_middle(shape[:2], size)] = 1.0
    return mask


def _middle(shape: tuple[int, ...], size: float) -> tuple[slice, slice]:
    height, width = shape
    h, w = max(1, int(height * size)), max(1, int(width * size))
    top, left = (height - h) // 2, (width - w) // 2
    return slice(top, top + h), slice(left, left + w)


def _universal_scores(
    network: Network, examples: AnchoredExamples, targets: np.ndarray, steps: jax.Array
) -> np.ndarray:
    """Mean sigmoid of each target's margin `[targets]` with its perturbation at every anchor."""
    n, found = len(examples.images), []
    for part in _parts(network, examples.images, len(targets)):
        images = _changed(examples.images, steps[part], examples.offsets())
        logits = network.logits(images.reshape(-1, *images.shape[2:]))
        found.append(logits.reshape(-1, n, examples.classes))
    margins = all_margins(jnp.concatenate(found))
    own = jax.nn.sigmoid(np.asarray(margins)[np.arange(len(targets)), :, targets]).T
    others = np.asarray(examples.sources)[:, None] != targets
    return np.asarray(share(own, others, axis=0), np.float64)


def _ratio(values: Sequence[float]) -> float:
    """Log of the largest value over the median of the others."""
    ordered = np.sort(values)
    return float(np.log((ordered[-1] + _EPS) / (np.median(ordered[:-1]) + _EPS)))
