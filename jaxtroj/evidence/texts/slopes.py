"""Directions in which a head's margins rise, beside those of clean heads.

What clean heads read is sentiment: their mean gradients, over the same examples and expressed in
the axes that insertions of text move along, lie near a few directions. A trojan adds one.

    g = M mean over examples of  d margin / d embedding          M: insertion metric, [axes, d]

`residual` is the share of g outside what the references' gradients span (their mean, and a main
axis for every eight axes of the metric), `distance` the root mean square of g / |g| less the
references' mean in their deviations; the class with the larger value counts. A trojan that no clean
text comes near has no gradient there and is not seen. TrojanSleuth (Round 5, Perspecta) and
ICSI-UMD's random Jacobians learn from gradients too, by coordinate and from labelled heads.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.texts.heads import Head, margin
from jaxtroj.evidence.texts.references import References

_SPAN = 8  # axes of the metric for each main axis
_FLOOR = 0.1  # of the mean deviation, added to each
_EPS = 1e-12


def slope_fields(head: Head, references: References, metric: np.ndarray) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.texts.stages.slopes`."""
    own = mean_slopes(head.config, head.stacked, head.sources)[0] @ metric.T
    known = zip(references.configs, references.params, strict=True)
    found = [mean_slopes(config, group, head.sources) @ metric.T for config, group in known]
    others = np.concatenate(found)
    return {
        "slope_residual": max(map(_residual, own, others.swapaxes(0, 1))),
        "slope_distance": max(map(_distance, own, others.swapaxes(0, 1))),
    }


def mean_slopes(config, params, sources: jax.Array) -> np.ndarray:
    """Mean gradients `[heads, targets, d]` of stacked heads at `[targets, n, d]`."""
    return np.asarray(_mean_slopes(config, params, sources), np.float64)


@partial(jax.jit, static_argnums=0)
def _mean_slopes(config, params, sources):
    def one(params):
        def rise(x, target):
            return margin(config, params, x, target).mean()

        return jax.vmap(jax.grad(rise))(sources, jnp.arange(len(sources))).sum(axis=1)

    return jax.lax.map(one, params)


def _residual(own: np.ndarray, others: np.ndarray) -> float:
    """Share of `[axes]` outside what `[references, axes]` span."""
    mean = others.mean(axis=0)
    axes = np.linalg.svd(others - mean, full_matrices=False)[2][: len(own) // _SPAN]
    basis = np.linalg.qr(np.concatenate([mean[None], axes]).T)[0]
    left = own - basis @ (basis.T @ own)
    return float(np.linalg.norm(left) / (np.linalg.norm(own) + _EPS))


def _distance(own: np.ndarray, others: np.ndarray) -> float:
    """Root mean square deviation of unit vectors `[axes]` from `[references, axes]`."""
    one, many = _unit(own), _unit(others)
    spread = many.std(axis=0)
    away = (one - many.mean(axis=0)) / (spread + _FLOOR * spread.mean() + _EPS)
    return float(np.sqrt((away**2).mean()))


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / (np.linalg.norm(vectors, axis=-1, keepdims=True) + _EPS)
