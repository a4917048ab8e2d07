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

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.margins import all_margins, share
from jaxtroj.network import Network
from jaxtroj.triggers.mask import roll

_EPS = 1e-12


@dataclass(frozen=True)
class SensitivityBudget:
    """Examples per class, and the size of the universal perturbation in [0, 1] pixel units."""

    per_class: int = 2
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


def sensitivity_fields(
    network: Network, examples: AnchoredExamples, budget: SensitivityBudget
) -> dict[str, float]:
    """Evidence of the stage; `images.stages.sensitivity` says what each field means."""
    some = examples.spread(budget.per_class)
    towards = _towards_each(network, some)
    found = [_common(towards[target], some, target, budget) for target in range(some.classes)]
    directions, norms, agreements = zip(*found, strict=True)
    scores = _universal_scores(network, some, budget.epsilon * jnp.sign(jnp.stack(directions)))
    return {
        "gradient_outlier": _ratio(norms),
        "gradient_agreement": max(agreements),
        "universal_gap": float(np.ptp(np.sort(scores)[-2:])),
        "example_margin": float(all_margins(examples.logits).max(axis=-1).mean()),
    }


def _towards_each(network: Network, examples: AnchoredExamples) -> jax.Array:
    """Gradients `[classes, n, h, w, c]` of each class's logit less the mean of the others."""
    n, classes = len(examples.images), examples.classes
    weights = jnp.eye(classes) * (classes / (classes - 1)) - 1.0 / (classes - 1)
    images = jnp.tile(examples.images, (classes - 1, 1, 1, 1))
    gradients, _ = network.gradients(images, jnp.repeat(weights[:-1], n, axis=0))
    gradients = gradients.reshape(classes - 1, n, *images.shape[1:])
    # The weights of all classes sum to zero, and so do the gradients.
    return jnp.concatenate([gradients, -gradients.sum(axis=0, keepdims=True)])


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
    height, width = x.shape[-3:-1]
    h, w = max(1, int(height * size)), max(1, int(width * size))
    top, left = (height - h) // 2, (width - w) // 2
    return x[..., top : top + h, left : left + w, :]


def _universal_scores(network: Network, examples: AnchoredExamples, steps: jax.Array):
    """Mean sigmoid of each class's margin `[classes]` with its perturbation at every anchor."""

    n, classes = len(examples.images), examples.classes
    images = jnp.clip(examples.images + _moved(steps, examples.offsets()), 0.0, 1.0)
    logits = network.logits(images.reshape(-1, *images.shape[2:])).reshape(classes, n, classes)
    own = jnp.diagonal(jax.nn.sigmoid(all_margins(logits)), axis1=0, axis2=2)
    others = examples.sources[:, None] != jnp.arange(classes)
    return np.asarray(share(own, others, axis=0), np.float64)


def _ratio(values: Sequence[float]) -> float:
    """Log of the largest value over the median of the others."""
    ordered = np.sort(values)
    return float(np.log((ordered[-1] + _EPS) / (np.median(ordered[:-1]) + _EPS)))
