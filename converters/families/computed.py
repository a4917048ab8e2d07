"""Names of what weight norm, spectral norm and pruning store in place of a weight.

Such weights are computed when a network runs; torch has a function for each that writes them out.

References:
  torch 2.15, torch/nn/utils/{weight_norm,spectral_norm,prune,parametrize}.py.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

_COMPUTED = re.compile(
    r"(?:.*\.)?(?:(?:weight|bias)_(?:g|v|orig|mask)|parametrizations\.\w+\.original[01]?)"
)
# The one that has the shape of the weight.
_KEPT = re.compile(r"(.*\.)?(?:(weight|bias)_(?:v|orig)|parametrizations\.(\w+)\.original1?)")
# In this order: pruning writes `_orig` too, as spectral norm does.
_REMOVERS = {
    "_mask": "torch.nn.utils.prune.remove(module, 'weight')",
    ".original": "torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')",
    "_g": "torch.nn.utils.remove_weight_norm(module)",
    "_orig": "torch.nn.utils.remove_spectral_norm(module)",
}

T = TypeVar("T")


def is_computed_from(name: str) -> bool:
    """Whether a weight is computed from this tensor."""
    return _COMPUTED.fullmatch(name) is not None


def without_parametrisations(tensors: Mapping[str, T]) -> dict[str, T]:
    """What has the shape of a weight, under the weight's name; other tensors as they are."""
    found = {}
    for name, value in tensors.items():
        kept = _KEPT.fullmatch(name)
        if kept:
            found[f"{kept[1] or ''}{kept[2] or kept[3]}"] = value
        elif not is_computed_from(name):
            found[name] = value
    return found


def how_to_remove(names: Iterable[str]) -> str:
    """What to do where weights are computed from some of these tensors; empty where none is."""
    ends = [re.sub(r"original[01]$", "original", name) for name in names if is_computed_from(name)]
    for end, remover in _REMOVERS.items():
        if any(name.endswith(end) for name in ends):
            return (
                f"these parametrise weights: call {remover} for each such module of the network,"
                " then save it again"
            )
    return ""
