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

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.anchors import AnchoredExamples
from jaxtroj.network import Network
from jaxtroj.numerics import logit
from jaxtroj.trigger import all_margins, share

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
    return jax.vmap(lambda g, o: jnp.roll(g, -o, axis=(0, 1)))(gradients, offsets)


def sensitivity_fields(
    network: Network, examples: AnchoredExamples, budget: SensitivityBudget
) -> dict[str, float]:
    """Evidence of the stage; `schema` says what each field means."""
    some = examples.first(budget.per_class * examples.classes)
    norms, agreements, flips = [], [], []
    for target in range(examples.classes):
        direction, norm, agreement = _towards(network, some, target, budget)
        norms.append(norm)
        agreements.append(agreement)
        flips.append(_universal_flip(network, some, target, budget.epsilon * jnp.sign(direction)))
    return {
        "gradient_outlier": _ratio(norms),
        "gradient_agreement": max(agreements),
        "gradient_agreement_gap": float(np.ptp(np.sort(agreements)[-2:])),
        "universal_score": max(flips),
        "universal_gap": float(np.ptp(np.sort(flips)[-2:])),
        "example_margin": float(all_margins(examples.logits).max(axis=-1).mean()),
        "example_accuracy_logit": float(logit(np.clip(examples.accuracy, 0.01, 0.99))),
    }


def _towards(network: Network, examples: AnchoredExamples, target: int, budget: SensitivityBudget):
    """Mean aligned gradient towards a class, its norm near the centre, how far examples agree."""
    weights = jnp.full((len(examples.images), examples.classes), -1.0 / (examples.classes - 1))
    gradients, _ = network.gradients(examples.images, weights.at[:, target].set(1.0))
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


def _universal_flip(network: Network, examples: AnchoredExamples, target: int, step: jax.Array):
    """Mean sigmoid of the target's margin with the perturbation moved to every anchor."""
    moved = jax.vmap(lambda o: jnp.roll(step, o, axis=(0, 1)))(examples.offsets())
    logits = network.logits(jnp.clip(examples.images + moved, 0.0, 1.0))
    return float(share(jax.nn.sigmoid(all_margins(logits)[:, target]), examples.sources != target))


def _ratio(values: list[float]) -> float:
    """Log of the largest value over the median of the others."""
    ordered = np.sort(values)
    return float(np.log((ordered[-1] + _EPS) / (np.median(ordered[:-1]) + _EPS)))
