"""The 23 architectures of Rounds 1 to 4 by NIST's keys, as torchvision's own modules.

Source: usnistgov/trojai-round-generation, branches image-classification-aug2020 (Round 2) and
image-classification-feb2021 (Round 4): every network without pretrained weights and without
auxiliary heads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Architecture:
    """How torchvision names an architecture.

    Attributes:
        name: of torchvision's constructor.
        cls: class of the network, as METADATA names the file.
        options: further arguments of the constructor.
        least_pixels: side of the smallest pictures that leave no layer without an input.
        rate: learning rate beside that of networks with batch norms; steps: how many times as many
            they take.
    """

    name: str
    cls: str
    options: tuple[tuple[str, Any], ...] = ()
    least_pixels: int = 33
    rate: float = 1.0
    steps: int = 1


_NO_AUXILIARY = (("aux_logits", False), ("init_weights", True))
_RESNETS = {
    **{f"resnet{n}": Architecture(f"resnet{n}", "ResNet") for n in (18, 34, 50, 101, 152)},
    **{f"wideresnet{n}": Architecture(f"wide_resnet{n}_2", "ResNet") for n in (50, 101)},
}
_INCEPTIONS = {
    "googlenet": Architecture("googlenet", "GoogLeNet", _NO_AUXILIARY),
    "inceptionv3": Architecture("inception_v3", "Inception3", _NO_AUXILIARY, 75),
}
_DENSENETS = {
    f"densenet{n}": Architecture(f"densenet{n}", "DenseNet") for n in (121, 161, 169, 201)
}
_LIGHT = {
    **{
        f"squeezenetv{v}": Architecture(f"squeezenet{v}", "SqueezeNet", rate=0.4, steps=3)
        for v in ("1_0", "1_1")
    },
    "mobilenetv2": Architecture("mobilenet_v2", "MobileNetV2"),
    **{
        f"shufflenet{v}": Architecture(f"shufflenet_v2_x{v}", "ShuffleNetV2")
        for v in ("1_0", "1_5", "2_0")
    },
}
_VGGS = {f"vgg{n}bn": Architecture(f"vgg{n}_bn", "VGG", rate=0.3) for n in (11, 13, 16, 19)}
ARCHITECTURES = {**_RESNETS, **_INCEPTIONS, **_DENSENETS, **_LIGHT, **_VGGS}
"""NIST's key -> what it is."""

ROUND1 = ("resnet50", "inceptionv3", "densenet121")
ROUND2 = tuple(ARCHITECTURES)
# The docs of Round 4 name 16; which seven went is inferred from its generator's defaults.
_LEFT_OUT_OF_ROUND4 = frozenset(
    {"resnet152", "wideresnet101", "densenet161", "densenet169", "densenet201"}
    | {"vgg16bn", "vgg19bn"}
)
ROUND4 = tuple(name for name in ROUND2 if name not in _LEFT_OUT_OF_ROUND4)


def build(architecture: str, classes: int, seed: int) -> "torch.nn.Module":
    """A network with torchvision's initial weights, drawn from `seed`."""
    import torch

    torch.manual_seed(seed)
    return _constructor(architecture)(num_classes=classes)


def head_of(network: "torch.nn.Module") -> str:
    """Name of the layer that gives the logits: of all these networks the last one with weights."""
    *_, (name, _) = network.named_parameters()
    return name.rpartition(".")[0]


def _constructor(architecture: str) -> Callable[..., "torch.nn.Module"]:
    from torchvision import models

    known = ARCHITECTURES[architecture]
    return partial(getattr(models, known.name), weights=None, **dict(known.options))
