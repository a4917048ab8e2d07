"""Stage sensitivity: how the heads' margins answer to changes of the embedding.

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
from jaxtroj.evidence.texts.heads import Heads, in_basis, margin, margins, sums

SWEEP_AXES = 48
SWEEP_LENGTHS = (-3.0, 3.0)
SWEEP_EXAMPLES = 4


def sensitivity_fields(heads: Heads, metric: np.ndarray) -> dict[str, np.ndarray]:
    """Fields by name, `[m]` each; see `jaxtroj.evidence.texts.schema`."""
    slopes = np.asarray(_slopes(heads.config, heads.params, heads.sources))
    means = slopes.mean(axis=2)
    norms = np.linalg.norm(means, axis=-1) + 1e-12
    agreement = norms / (np.linalg.norm(slopes, axis=-1).mean(axis=2) + 1e-12)
    clean = np.asarray(margins(heads.config, heads.params, heads.sources))
    swept = _sweep(heads, metric)
    ordered = np.sort(swept, axis=1)
    return {
        "jacobian_ratio": np.log(norms.max(axis=1) / np.median(norms, axis=1)),
        "jacobian_norm": np.log(norms.max(axis=1)),
        "jacobian_agreement": agreement.max(axis=1),
        "clean_margin": -np.median(clean, axis=(1, 2)),
        "sweep_score": ordered[:, -1],
        "sweep_gap": ordered[:, -1] - ordered[:, -2],
    }


def _sweep(heads: Heads, metric: np.ndarray) -> np.ndarray:
    """Mean sigmoid margin along the best single axis, `[m, targets]`."""
    axes = jnp.asarray(metric[:, :SWEEP_AXES])
    moves = jnp.concatenate([length * axes for length in SWEEP_LENGTHS], axis=1)
    x = heads.held_out[:, :, :SWEEP_EXAMPLES]
    return np.asarray(_swept(heads.config, heads.params, x, moves))


@partial(jax.jit, static_argnums=0)
def _swept(config, params: Params, x, moves):
    by_target = [
        _moved(config, params, x[:, target], moves, target) for target in range(x.shape[1])
    ]
    return jnp.stack(by_target, axis=1)


def _moved(config, params: Params, x, moves, target: int):
    """Best mean sigmoid margin `[m]` of one target: examples `[m, n, d]` by `[m, k, d]` moves."""
    coordinates = sums(x.shape[1], moves.shape[1])
    points = jnp.asarray(coordinates.reshape(-1, coordinates.shape[-1]))

    def one(values):
        params, x, moves = values
        inner = in_basis(config, params, jnp.concatenate([x, moves]))
        found = jax.nn.sigmoid(margin(*inner, points, jnp.int32(target)))
        return found.reshape(coordinates.shape[:2]).mean(axis=1).max()

    return jax.lax.map(one, (params, x, moves))


@partial(jax.jit, static_argnums=0)
def _slopes(config, params: Params, x):
    def one(params, x, target):
        return jax.grad(lambda point: margin(config, params, point[None], target)[0])(x)

    targets = jnp.arange(x.shape[1])
    by_example = jax.vmap(one, in_axes=(None, 0, None))
    by_target = jax.vmap(by_example, in_axes=(None, 0, 0))
    return jax.vmap(by_target, in_axes=(0, 0, None))(params, x, targets)
