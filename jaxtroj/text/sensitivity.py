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
from jaxtroj.text.heads import Heads, margin, margins

SWEEP_AXES = 48
SWEEP_LENGTHS = (-3.0, 3.0)
SWEEP_EXAMPLES = 4


def sensitivity_fields(heads: Heads, metric: np.ndarray) -> dict[str, np.ndarray]:
    """Fields by name, `[m]` each; see `jaxtroj.text.schema`."""
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
    moved = x[:, :, None] + moves[:, None, :, None]
    flat = moved.reshape(*x.shape[:2], -1, x.shape[-1])
    found = jax.nn.sigmoid(margins(config, params, flat))
    return found.reshape(*moved.shape[:-1]).mean(axis=-1).max(axis=-1)


@partial(jax.jit, static_argnums=0)
def _slopes(config, params: Params, x):
    def one(params, x, target):
        return jax.grad(lambda point: margin(config, params, point[None], target)[0])(x)

    targets = jnp.arange(x.shape[1])
    by_example = jax.vmap(one, in_axes=(None, 0, None))
    by_target = jax.vmap(by_example, in_axes=(None, 0, 0))
    return jax.vmap(by_target, in_axes=(0, 0, None))(params, x, targets)
