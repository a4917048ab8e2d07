"""Fold batch norms into the convolutions before them.

In inference a batch norm is an affine map per channel, `scale / sqrt(var + eps) * (x - mean) +
bias`, and a convolution followed by one is a convolution with other weights and a bias. A norm that
stands before a relu and a convolution (DenseNet) has nothing to fold into and stays.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from converters import families
from converters.errors import ConversionError
from converters.model import Model
from converters.preparation import PreparedConfig


def fold(model: Model) -> Model:
    """The same function with fewer operations; folding a folded model returns it unchanged.

    Computed in float64 and stored in the parameters' own type. A network captured as a graph is
    returned as it is: which norm follows which convolution is known of the families alone.

    Raises:
      ConversionError: a variance is not positive, or a folded weight is not finite.
    """
    config = model.config
    if isinstance(config, PreparedConfig):
        inner = fold(dataclasses.replace(model, config=config.inner))
        return dataclasses.replace(inner, config=dataclasses.replace(config, inner=inner.config))
    if getattr(config, "folded", True):
        return model
    params = {path: np.asarray(value) for path, value in model.params.items()}
    for conv, norm in families.family_of(config).norm_pairs(config):
        _fold_pair(params, conv, norm, config.eps)  # pyright: ignore[reportAttributeAccessIssue]
    folded = {path: jnp.asarray(value) for path, value in params.items()}
    return dataclasses.replace(
        model,
        config=dataclasses.replace(config, folded=True),  # pyright: ignore[reportArgumentType]
        params=folded,
    )


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
