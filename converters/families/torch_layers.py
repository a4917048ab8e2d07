"""torch layers given other widths; torch's own constructors fix those of some networks."""

from typing import Any


def resize(layer: Any, shape: tuple[int, ...]) -> None:
    """Give a convolution, a linear layer or a norm the weight of that shape, and all that follows.

    The layer must be on torch's "meta" device: values are lost.
    """
    import torch
    from torch import nn

    if isinstance(layer, nn.Conv2d):
        layer.out_channels, layer.in_channels = shape[0], shape[1] * layer.groups
    elif isinstance(layer, nn.BatchNorm2d):
        layer.num_features = shape[0]
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = shape
    if tuple(layer.weight.shape) == shape:
        return
    layer.weight = nn.Parameter(torch.empty(shape))
    for name in ("bias", "running_mean", "running_var"):
        value = getattr(layer, name, None)
        if value is None:
            continue
        size = torch.empty(shape[:1])
        setattr(layer, name, nn.Parameter(size) if name == "bias" else size)
