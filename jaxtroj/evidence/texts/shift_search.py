"""The common shift of sentence embeddings that sends a class to the target, of a given length.

A text trigger moves every sentence's embedding in much the same way. The search looks for the shift
of given length that does most, in a metric in which all shifts are equally likely: either the
spread of clean embeddings, or the shifts that insertions of harmless text cause
(`jaxtroj.evidence.texts.metric`).

With references (clean heads on the same embeddings) the shift must leave these where they were, so
it cannot be mere sentiment:

    max over |z| = r of  mean log sigmoid(margin(x + z M)) + mean log sigmoid(-reference(x + z M))

What is left is where the head departs from clean heads. The ascent follows the gradient's direction
with a falling step and stays on the sphere: the length is given, so no weight has to be balanced.
Relatives: the searches of PICCOLO (Liu et al., S&P 2022) and DBS (Shen et al., ICML 2022), over
words and with one benign reference model.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.texts.heads import Head, in_basis, margin
from jaxtroj.evidence.texts.references import NO_REFERENCES, References, reference_margins


@dataclass(frozen=True)
class ShiftBudget:
    """How much to search.

    Attributes:
      radii: lengths of the shift, in the metric's units.
      steps: gradient steps.
      restarts: random starts of every arm.
      step: first step over the radius; falls linearly to a tenth.
    """

    radii: tuple[float, ...] = (1.0,)
    steps: int = 12
    restarts: int = 1
    step: float = 0.7


@dataclass(frozen=True)
class FoundShifts:
    """The best shift for every radius and target class, measured on held-out examples.

    Attributes:
      head: `[radii, targets]`, mean sigmoid of the head's margin for the target, in [0, 1].
      reference: the same of the references' mean; 0 without references.
      departure: `[radii, targets]`, mean margin of the head less that of the references, logits.
    """

    head: np.ndarray
    reference: np.ndarray
    departure: np.ndarray


def search_shifts(
    head: Head,
    metric: np.ndarray,
    key: jax.Array,
    budget: ShiftBudget,
    references: References | None = None,
) -> FoundShifts:
    """Search for every radius and target class.

    Args:
      head: to search.
      metric: `[k, d]`, row i is the shift of one unit along axis i.
      key: of the random starts; the same for every head, so heads are comparable.
      budget: see `ShiftBudget`.
      references: clean heads that the shift must not move; None for none.
    """
    radii = jnp.asarray(budget.radii, jnp.float32)
    starts = jax.random.normal(key, (budget.restarts, metric.shape[0]))
    known = references or NO_REFERENCES
    fitted, *found = _search(
        (head.config, known.configs, budget.steps),
        (head.params, jnp.asarray(metric), head.fitting, head.held_out),
        (known.params, radii, starts, budget.step),
    )
    best = np.asarray(fitted).argmax(axis=1)[:, None]
    chosen = (np.take_along_axis(np.asarray(value), best, axis=1)[:, 0] for value in found)
    return FoundShifts(*chosen)


@partial(jax.jit, static_argnums=0)
def _search(static, of_head, shared):
    """Objective, then what `FoundShifts` holds, each `[radii, restarts, targets]`."""
    config, configs, steps = static
    known, radii, starts, first_step = shared
    params, metric, fitting, held_out = of_head

    def answers(z, models, rows, target, radius):
        own, others = models
        moved = jnp.broadcast_to(radius * z, (len(rows), len(z)))
        x = jnp.concatenate([moved, rows], axis=1)
        found = margin(own[0], own[1], x, target)
        if not configs:
            return found, jnp.full((1, *found.shape), -jnp.inf)
        inner, stacked = tuple(c for c, _ in others), tuple(p for _, p in others)
        return found, reference_margins(inner, stacked, x, target)

    def gain(*where):
        own, others = answers(*where)
        return jax.nn.log_sigmoid(own).mean() + jax.nn.log_sigmoid(-others).mean()

    def one(models, rows, held_out, target, radius, start):
        def step(z, number):
            slope = jax.grad(gain)(z, models, rows, target, radius)
            rate = first_step * (1 - 0.9 * number / steps)
            return _unit(z + rate * _unit(slope)), None

        found, _ = jax.lax.scan(step, _unit(start), jnp.arange(steps))
        own, others = answers(found, models, held_out, target, radius)
        departure = own.mean() - (others.mean() if configs else 0.0)
        scores = jax.nn.sigmoid(own).mean(), jax.nn.sigmoid(others).mean()
        fitted = gain(found, models, rows, target, radius)
        return fitted, *scores, departure

    examples = jnp.concatenate([fitting, held_out], axis=1)
    basis = jnp.concatenate([metric, examples.reshape(-1, examples.shape[-1])])
    own = in_basis(config, params, basis)
    others = [in_basis(c, p, basis) for c, p in zip(configs, known, strict=True)]
    # Unit vectors stand for the examples: a point is its shift's coordinates and one of them.
    rows = jnp.eye(len(basis) - len(metric)).reshape(*examples.shape[:2], -1)
    parts = rows[:, : fitting.shape[1]], rows[:, fitting.shape[1] :]
    by_target = jax.vmap(partial(one, (own, others)), in_axes=(0, 0, 0, None, None))
    by_start = jax.vmap(by_target, in_axes=(None, None, None, None, 0))
    by_radius = jax.vmap(by_start, in_axes=(None, None, None, 0, None))
    return by_radius(*parts, jnp.arange(fitting.shape[0]), radii, starts)


def _unit(vector: jax.Array) -> jax.Array:
    return vector / jnp.maximum(jnp.linalg.norm(vector), 1e-12)
