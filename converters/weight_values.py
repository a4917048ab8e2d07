"""Weights that no network computes with: refused before anything is made of them."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from converters.errors import ConversionError


def single_precision(weights: Mapping[str, np.ndarray], eps: float = 0.0) -> dict[str, np.ndarray]:
    """The same weights as float32.

    Args:
      weights: name -> array; names of variances end in "var".
      eps: what norms add to a variance.

    Raises:
      ConversionError: a weight is NaN, infinite or no floating number, or a variance negative.
    """
    _refuse_kinds(weights)
    # Finite float64 weights may overflow here; they are refused below, so numpy need not warn.
    with np.errstate(over="ignore"):
        single = {path: np.asarray(value, np.float32) for path, value in weights.items()}
    _refuse_values(single, eps)
    return single


def _refuse_kinds(params: Mapping[str, np.ndarray]) -> None:
    # The kinds beyond NumPy's own (bfloat16, float8) are known to jax.
    faulty = [
        path for path, value in params.items() if not jnp.issubdtype(value.dtype, jnp.floating)
    ]
    if faulty:
        raise ConversionError(
            f"{len(faulty)} weights are no floating numbers, the first is {faulty[0]} of type "
            f"{params[faulty[0]].dtype}; expected float32 or another floating type. Quantised "
            "networks are not supported: export the original one."
        )


def _refuse_values(params: Mapping[str, np.ndarray], eps: float) -> None:
    faulty = [path for path, value in params.items() if not np.isfinite(value).all()]
    if faulty:
        raise ConversionError(
            f"{len(faulty)} tensors hold NaN or infinite values, the first is {faulty[0]}; "
            "expected finite weights. The network computes nothing: train or save it again."
        )
    negative = [
        p for p, v in params.items() if p.endswith((".var", "running_var")) and (v + eps <= 0).any()
    ]
    if negative:
        raise ConversionError(
            f"{len(negative)} running variances are negative, the first is {negative[0]}; "
            "expected 0 or more. The network computes NaN: save it again."
        )
