"""The same function with fewer operations: batch norms folded, heads reduced to a single step.

In inference a batch norm is an affine map per channel, `scale / sqrt(var + eps) * (x - mean) +
bias`, and a convolution followed by one is a convolution with other weights and a bias. A norm that
stands before a relu and a convolution (DenseNet) has nothing to fold into and stays.
"""

import dataclasses

import jax
import numpy as np

from converters import families
from converters.errors import ConversionError
from converters.model import Model


def fold(model: Model) -> Model:
    """The same function with fewer operations; folding a folded model returns it unchanged.

    Computed in float64 and stored in the parameters' own type. A network captured as a graph is
    returned as it is: which norm follows which convolution is known of the families alone.

    Raises:
      ConversionError: a variance is not positive, or a folded weight is not finite.
    """
    config = model.config.core
    family = families.family_of(config)
    pairs = () if config.folded or family is None else family.norm_pairs(config)
    if not pairs:
        return model
    params = {path: np.asarray(value) for path, value in model.params.items()}
    for conv, norm in pairs:
        _fold_pair(params, conv, norm, config.eps)
    folded = {path: jax.device_put(value) for path, value in params.items()}
    done = dataclasses.replace(config, folded=True)
    return dataclasses.replace(model, config=model.config.around(done), params=folded)


def single_step(model: Model) -> Model:
    """The model with only what acts on sequences of one step; one without more than that itself."""
    family = families.family_of(model.config)
    if family is None or family.single_step is None or model.config.single_step:
        return model
    config, params = family.single_step(model.config, model.params)
    return dataclasses.replace(model, config=config, params=params)


def _fold_pair(params: dict[str, np.ndarray], conv: str, norm: str, eps: float) -> None:
    kernel = params[f"{conv}.kernel"]
    scale, bias, mean, var = (
        params.pop(f"{norm}.{leaf}").astype(np.float64) for leaf in ("scale", "bias", "mean", "var")
    )
    if not (var + eps > 0).all():
        raise ConversionError(f"{norm} has a running variance below -eps; expected 0 or more")
    factor = scale / np.sqrt(var + eps)
    # What overflows the parameters' type is refused below, so numpy need not warn.
    with np.errstate(over="ignore"):
        folded = {
            f"{conv}.kernel": (kernel.astype(np.float64) * factor).astype(kernel.dtype),
            f"{conv}.bias": (bias - mean * factor).astype(kernel.dtype),
        }
    if not all(np.isfinite(value).all() for value in folded.values()):
        raise ConversionError(f"folding {norm} into {conv} overflows {kernel.dtype}")
    params.update(folded)
