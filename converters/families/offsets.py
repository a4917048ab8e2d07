"""Numbers in a family's weights beside which float32 rounds away what the image decides.

A batch norm whose mean and bias are 1e8 passes its values in torch, which takes the one from the
other first, and loses them where the mean is taken from the values, as Flax does: behind it a file
could hide a network from a scan. `converters.graph.offsets` looks at captured graphs for the same.
"""

from collections.abc import Iterator

import numpy as np

from converters.findings import LARGE_OFFSET, SUSPICION, rounded_away_beside
from converters.model import NetworkConfig, Params

_EPS = 1e-5  # where a family's configuration has none, it has no batch norms either


def large_offsets(config: NetworkConfig, params: Params) -> Iterator[str]:
    """Findings, one for each layer that adds as much; norms in units of their results.

    Args:
      config: of the family's network.
      params: flat names to arrays.
    """
    for name, values in params.items():
        layer, _, part = name.rpartition(".")
        added = np.abs(np.asarray(values, np.float64))
        if part == "mean":
            added = added * _norm_scale(layer, params, getattr(config, "eps", _EPS))
        elif part != "bias":
            continue
        if (largest := float(added.max(initial=0))) >= LARGE_OFFSET:
            yield f"{SUSPICION}: {rounded_away_beside(largest, name)}"


def _norm_scale(layer: str, params: Params, eps: float) -> np.ndarray:
    """What a batch norm multiplies by, without sign."""
    scale = np.asarray(params.get(f"{layer}.scale", 1.0), np.float64)
    return np.abs(scale) / np.sqrt(np.asarray(params[f"{layer}.var"], np.float64) + eps)
