"""Small networks of torchvision's classes with random weights, made anew for every mutant."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np


def _resnet() -> Any:
    from converters.families.resnet import BlockConfig, ResNetConfig

    stages = (
        (BlockConfig((8, 8), False), BlockConfig((8, 8), False)),
        *((BlockConfig((width, width), True),) for width in (8, 12, 16)),
    )
    return _of_family(ResNetConfig(8, stages, 1, 3))


def _bottleneck() -> Any:
    from converters.families.resnet import BlockConfig, ResNetConfig

    stages = tuple((BlockConfig((4, 4, width), True),) for width in (8, 8, 12, 16))
    return _of_family(ResNetConfig(8, stages, 1, 3))


def _of_family(config: Any) -> Any:
    """The torchvision module of a narrow configuration."""
    from converters.families.reference import empty_module

    return empty_module(config).to_empty(device="cpu").float()


def _densenet() -> Any:
    from torchvision.models import DenseNet

    return DenseNet(4, (2, 1, 1, 1), 8, num_classes=3)


def _shufflenet() -> Any:
    from torchvision.models import ShuffleNetV2

    return ShuffleNetV2([1, 1, 1], [4, 4, 4, 8, 8], 3)


NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet": _resnet,
    "bottleneck": _bottleneck,
    "densenet": _densenet,
    "shufflenet": _shufflenet,
}


def network(name: str) -> Any:
    """One of `NETWORKS` in evaluation mode, with the same weights at every call."""
    return copy.deepcopy(_network(name))


@cache
def _network(name: str) -> Any:
    import torch

    made, random = NETWORKS[name](), np.random.default_rng(7)
    with torch.no_grad():
        for key, tensor in made.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(torch.from_numpy(_values(key, tuple(tensor.shape), random)))
            else:
                tensor.zero_()
    return made.eval()


def _values(key: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    if key.endswith("running_var"):
        return random.uniform(0.5, 2, shape).astype(np.float32)
    if len(shape) == 1:
        centre = float(key.endswith("weight"))
        return (centre + 0.2 * random.standard_normal(shape)).astype(np.float32)
    scale = (2.0 / np.prod(shape[1:])) ** 0.5
    return (scale * random.standard_normal(shape)).astype(np.float32)
