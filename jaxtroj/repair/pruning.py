"""Fine-pruning: features that clean pictures leave dormant are removed, then the rest is tuned.

Liu et al., Fine-Pruning, https://arxiv.org/abs/1805.12185. The features are those that the last
layer reads; what it reads of a feature is the derivative of a logit by its weight, so no layer has
to be found or hooked.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model, apply
from jaxtroj.errors import EvidenceError
from jaxtroj.last_weight import last_weight
from jaxtroj.repair.data import Labelled
from jaxtroj.repair.outcome import accuracy

_ALLOWED = 0.04  # clean accuracy that may go, as in the paper
_STEPS = 20  # in which features are removed


def pruned(model: Model, examples: Labelled) -> tuple[Model, dict[str, jax.Array]]:
    """The model without its dormant features, and masks `tuned` keeps them out with.

    Raises EvidenceError where the network has no last layer with a row for each class.
    """
    name, axis = _last_weight(model)
    weight = model.params[name]
    order = np.argsort(_activity(model, name, axis, examples), kind="stable")
    before, best = accuracy(model, examples), jnp.ones_like(weight)
    for share in np.arange(1, _STEPS) / _STEPS:
        out = order[: int(share * len(order))]
        mask = jnp.moveaxis(jnp.moveaxis(jnp.ones_like(weight), axis, 0).at[out].set(0), 0, axis)
        if accuracy(_with(model, name, weight * mask), examples) < before - _ALLOWED:
            break
        best = mask
    return _with(model, name, weight * best), {name: best}


def _with(model: Model, name: str, value: jax.Array) -> Model:
    return Model(model.config, {**model.params, name: value}, model.architecture, model.findings)


def _last_weight(model: Model) -> tuple[str, int]:
    """See `last_weight`; raises EvidenceError where there is none."""
    if (found := last_weight(model)) is not None:
        return found
    raise EvidenceError(
        "the network has no last layer with a row of weights for each class; it cannot be pruned"
    )


def _activity(model: Model, name: str, axis: int, examples: Labelled) -> np.ndarray:
    """Mean size of each feature over the examples."""
    total = np.zeros(model.params[name].shape)
    for start in range(0, len(examples), 64):
        images = jnp.asarray(examples.images[start : start + 64])
        total = total + np.asarray(_features(model.config, name, model.params, images))
    return np.moveaxis(np.abs(total), axis, 0).reshape(total.shape[axis], -1).sum(axis=1)


@partial(jax.jit, static_argnums=(0, 1))
def _features(config, name, params, images):
    """Sum over images of what every weight of the last layer reads."""

    def logits(weight):
        return apply(config, {**params, name: weight}, images).sum()

    return jax.grad(logits)(params[name])
