"""The torch module of a family's network: what parity is measured against.

torch and torchvision are imported here and only when a function is called. Nothing in a model file
is executed: the module is torchvision's own code, or a head of torch.nn's, filled with tensors that
were already read.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from converters import families
from converters.errors import ParityError
from converters.families.family import Family
from converters.families.names import target_of, torch_shape
from converters.families.torch_layers import resize
from converters.model import NetworkConfig, param_shapes


def empty_module(config, names: Collection[str] = ()) -> Any:
    """The torch module of a configuration, in evaluation mode on torch's "meta" device.

    It has the shapes of the configuration but no memory for weights; load them with
    `load_state_dict(..., assign=True)`.

    Args:
      config: of any family, neither folded nor reduced to a single step; widths and depths need
        not be standard ones.
      names: of the file's tensors: parts that only train the network, such as the auxiliary head
        of Inception v3, are made if they hold theirs.
    """
    import torch

    family = families.family_of(config)
    if family is None:
        raise TypeError(f"expected the configuration of a family, got {type(config).__name__}")
    if config.folded:
        raise ValueError("torch has no folded networks; pass the configuration before folding")
    with torch.device("meta"):
        module = family.torch_module(config, names)
        _set_shapes(module, family, config)
    return module.eval()


def filled_module(config, tensors: Mapping[str, np.ndarray]) -> Any:
    """The torch module that holds a file's tensors, float64, in evaluation mode on the CPU.

    Values go through float32, the precision that a converted model has.

    Args:
      config: what the file converted to, not folded.
      tensors: torch name -> array of that same file.

    Raises:
      ParityError: the tensors do not fill torch's module.
    """
    import torch

    given = families.current_names(tensors)
    module = empty_module(config, given)
    # Files from before torch 0.4.1 lack the counters, which evaluation does not use.
    state = {
        name: torch.from_numpy(_single(given[name]))
        if name in given
        else torch.zeros(value.shape, dtype=value.dtype)
        for name, value in module.state_dict().items()
        if name in given or name.endswith("num_batches_tracked")
    }
    try:
        module.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise ParityError(f"the tensors do not fill torch's module: {error}") from error
    return module.double().requires_grad_(False)


def _single(tensor: np.ndarray) -> np.ndarray:
    # Counters stay integers; torch takes neither read-only nor byte-swapped arrays.
    floating = tensor.dtype.kind not in "iu"
    return np.array(tensor, np.float32 if floating else np.int64, order="C")


def _set_shapes(module: Any, family: Family, config: NetworkConfig) -> None:
    """Weights and attributes of the layers that the table knows to the configuration's shapes."""
    from torch import nn

    shapes = param_shapes(config)
    for path, layer in module.named_modules():
        found = target_of(family.table, f"{path}.weight")
        if found is None or found[0] not in shapes:
            continue
        if isinstance(layer, nn.BatchNorm2d):
            layer.eps = config.eps
        resize(layer, torch_shape(shapes[found[0]], found[1]))
