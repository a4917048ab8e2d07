"""How a head's margins answer to changes of the embedding.

The mean gradient of a class's margin over examples outside it is the direction in which that class
is nearest, its norm how steeply (random Jacobian detectors, ICSI-UMD, Round 5). The sweep moves
examples along the main axes of a metric and watches the margins' range (PICCOLO's Round 5 sweep
over single coordinates, made with axes that real text moves along).
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Params
from jaxtroj.evidence.texts.heads import Head, in_basis, margin, margins, sums

SWEEP_AXES = 48
SWEEP_LENGTHS = (-3.0, 3.0)
SWEEP_EXAMPLES = 4


def sensitivity_fields(head: Head, metric: np.ndarray) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.texts.stages.sensitivity`."""
    slopes = np.asarray(_slopes(head.config, head.params, head.sources))
    norms = np.linalg.norm(slopes.mean(axis=1), axis=-1) + 1e-12
    agreement = norms / (np.linalg.norm(slopes, axis=-1).mean(axis=1) + 1e-12)
    clean = np.asarray(margins(head.config, head.params, head.sources))
    ordered = np.sort(_sweep(head, metric))
    confidence = -float(np.median(clean))
    return {
        "jacobian_ratio": float(np.log(norms.max() / np.median(norms))),
        "jacobian_norm": float(np.log(norms.max())),
        "jacobian_steepness": steepness(float(np.log(norms.max())), confidence),
        "jacobian_agreement": float(agreement.max()),
        "clean_margin": confidence,
        "sweep_score": float(ordered[-1]),
        "sweep_gap": float(ordered[-1] - ordered[-2]),
    }


def steepness(norm: float, confidence: float) -> float:
    """How steep margins are beside their size: the logarithm of a norm, less that of the margin."""
    return norm - float(np.log(max(confidence, 1e-12)))


def _sweep(head: Head, metric: np.ndarray) -> np.ndarray:
    """Mean sigmoid margin along the best single axis, `[targets]`."""
    axes = jnp.asarray(metric[:SWEEP_AXES])
    moves = jnp.concatenate([length * axes for length in SWEEP_LENGTHS])
    return np.asarray(_swept(head.config, head.params, head.held_out[:, :SWEEP_EXAMPLES], moves))


@partial(jax.jit, static_argnums=0)
def _swept(config, params: Params, x, moves):
    """Best mean sigmoid margin `[targets]`: examples `[targets, n, d]` by `[k, d]` moves."""
    coordinates = sums(x.shape[1], moves.shape[0])
    points = jnp.asarray(coordinates.reshape(-1, coordinates.shape[-1]))

    def one(target: int):
        inner = in_basis(config, params, jnp.concatenate([x[target], moves]))
        found = jax.nn.sigmoid(margin(*inner, points, jnp.int32(target)))
        return found.reshape(coordinates.shape[:2]).mean(axis=1).max()

    return jnp.stack([one(target) for target in range(x.shape[0])])


@partial(jax.jit, static_argnums=0)
def _slopes(config, params: Params, x):
    def one(x, target):
        return jax.grad(lambda point: margin(config, params, point[None], target)[0])(x)

    by_target = jax.vmap(jax.vmap(one, in_axes=(0, None)))
    return by_target(x, jnp.arange(x.shape[0]))
