"""Networks of a zoo, in torch: small forms of architectures that people train.

All take pictures `[n, c, h, w]` in [0, 1] of any size from 24 px, of one or three channels. Widths
are a quarter to a half of the published ones, so that one core trains a network in minutes;
`resnet18` is the published network, for pictures of 48 px and more.

References:
  Simonyan and Zisserman, VGG, https://arxiv.org/abs/1409.1556, 2014.
  He et al., Deep Residual Learning, https://arxiv.org/abs/1512.03385, 2015.
  Zagoruyko and Komodakis, Wide Residual Networks, https://arxiv.org/abs/1605.07146, 2016.
  Sandler et al., MobileNetV2, https://arxiv.org/abs/1801.04381, 2018.
  Huang et al., Densely Connected Networks, https://arxiv.org/abs/1608.06993, 2016.
  Szegedy et al., Rethinking the Inception Architecture, https://arxiv.org/abs/1512.00567, 2015.
  Wu and He, Group Normalization, https://arxiv.org/abs/1803.08494, 2018.
  Liu et al., A ConvNet for the 2020s (ConvNeXt), https://arxiv.org/abs/2201.03545, 2022.
  Dosovitskiy et al., An Image is Worth 16x16 Words (ViT), https://arxiv.org/abs/2010.11929, 2020.
  Tolstikhin et al., MLP-Mixer, https://arxiv.org/abs/2105.01601, 2021.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.errors import GenerationError

if TYPE_CHECKING:
    import torch

Norm = Callable[[int], "torch.nn.Module"]
"""A norm for maps of so many channels."""

LEAST_PIXELS = 24
_LARGE = 48


@dataclass(frozen=True)
class Stem:
    """What the first layer is given: `channels` and pictures of `side` pixels."""

    channels: int
    side: int

    @property
    def stride(self) -> int:
        """Of the first layer: pictures of 48 px and more are halved at once."""
        return 2 if self.side >= _LARGE else 1


def build(architecture: str, channels: int, classes: int, side: int) -> "torch.nn.Module":
    """A freshly initialised network, by torch's global generator.

    Args:
        architecture: out of `KNOWN`.
        channels, side: of the pictures; those of 48 px and more are halved by the first layer.
        classes: width of the last layer.

    Raises GenerationError for a name that is not in `KNOWN`.
    """
    if architecture not in _BUILDERS:
        raise GenerationError(f"no network {architecture!r}; expected one of {', '.join(KNOWN)}")
    return _BUILDERS[architecture](Stem(channels, side), classes)


def _unit(cin: int, cout: int, kernel: int = 3, stride: int = 1, norm: Norm | None = None):
    """Convolution, norm (by default of the batch), relu."""
    from torch import nn

    conv = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, (norm or nn.BatchNorm2d)(cout), nn.ReLU())


def _pooled(*body, width: int, classes: int):
    """The body, a mean over its map, one linear layer."""
    from torch import nn

    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
    return nn.Sequential(*body, *head)


def _plain(stem: Stem, classes: int, has_norm: bool = True):
    from torch import nn

    shapes = ((stem.channels, 24, stem.stride), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1))
    if has_norm:
        return _pooled(*(_unit(a, b, 3, s) for a, b, s in shapes), width=96, classes=classes)
    convs = [part for a, b, s in shapes for part in (_kaiming(a, b, s), nn.ReLU())]
    return _pooled(*convs, width=96, classes=classes)


def _kaiming(cin: int, cout: int, stride: int):
    """A convolution whose weights keep the variance: without norms torch's own shrink it."""
    from torch import nn

    conv = nn.Conv2d(cin, cout, 3, stride, 1)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return conv


def _vgg(stem: Stem, classes: int):
    """Pairs of convolutions, pooled three times; a hidden layer on the flattened map."""
    from torch import nn

    body, cin, stride = [], stem.channels, stem.stride
    for width in (32, 64, 96):
        body += [_unit(cin, width, 3, stride), _unit(width, width), nn.MaxPool2d(2)]
        cin, stride = width, 1
    head = (nn.Flatten(), nn.Linear((stem.side // stem.stride // 8) ** 2 * cin, 128), nn.ReLU())
    return nn.Sequential(*body, *head, nn.Linear(128, classes))


def _residual(
    widths: tuple[int, ...], blocks: int, stem: Stem, classes: int, norm: Norm | None = None
):
    from jaxtroj.generate.zoo.blocks import BasicBlock

    body: list[torch.nn.Module] = [_unit(stem.channels, widths[0], 3, stem.stride, norm)]
    cin = widths[0]
    for group, width in enumerate(widths):
        for place in range(blocks):
            body.append(BasicBlock(cin, width, 2 if group and not place else 1, norm))
            cin = width
    return _pooled(*body, width=cin, classes=classes)


def _group_norm(stem: Stem, classes: int):
    """`resnet10`, narrower, with norms over groups of 8 channels of one picture."""
    from torch import nn

    def norm(width: int) -> nn.Module:
        return nn.GroupNorm(width // 8, width)

    return _residual((24, 48, 96, 144), 1, stem, classes, norm)


def _wide(stem: Stem, classes: int):
    """WRN-16-1: pre-activation blocks, a norm and relu before the pooling."""
    from torch import nn

    from jaxtroj.generate.zoo.blocks import PreActivationBlock

    body: list[nn.Module] = [nn.Conv2d(stem.channels, 16, 3, stem.stride, 1, bias=False)]
    cin = 16
    for group, width in enumerate((16, 32, 64)):
        for place in range(2):
            body.append(PreActivationBlock(cin, width, 2 if group and not place else 1))
            cin = width
    return _pooled(*body, nn.BatchNorm2d(cin), nn.ReLU(), width=cin, classes=classes)


def _mobile(stem: Stem, classes: int):
    from jaxtroj.generate.zoo.blocks import InvertedResidual

    shapes = ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 40, 2), (40, 40, 1), (40, 64, 1))
    body = [
        _unit(stem.channels, 16, 3, stem.stride),
        *(InvertedResidual(a, b, s) for a, b, s in shapes),
    ]
    return _pooled(*body, _unit(64, 128, 1), width=128, classes=classes)


def _dense(stem: Stem, classes: int):
    """Three blocks of four layers that each add 12 channels, halved between."""
    from torch import nn

    from jaxtroj.generate.zoo.blocks import DenseLayer

    body: list[nn.Module] = [nn.Conv2d(stem.channels, 24, 3, stem.stride, 1, bias=False)]
    width = 24
    for block in range(3):
        if block:
            body += [_unit(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
        for _ in range(4):
            body.append(DenseLayer(width, 12))
            width += 12
    return _pooled(*body, nn.BatchNorm2d(width), nn.ReLU(), width=width, classes=classes)


def _inception(stem: Stem, classes: int):
    from torch import nn

    from jaxtroj.generate.zoo.blocks import InceptionBlock

    body = [_unit(stem.channels, 32, 3, stem.stride), InceptionBlock(32, 12), nn.MaxPool2d(2)]
    body += [InceptionBlock(48, 20), nn.MaxPool2d(2), InceptionBlock(80, 32)]
    return _pooled(*body, width=128, classes=classes)


def _resnet18(stem: Stem, classes: int):
    import torchvision
    from torch import nn

    network = torchvision.models.resnet18(num_classes=classes)
    if stem.channels != 3:
        network.conv1 = nn.Conv2d(stem.channels, 64, 7, 2, 3, bias=False)
    return network


def _convnext(stem: Stem, classes: int):
    """Two, two and one block; squares of 2 (4) pixels in, halved between."""
    from torch import nn

    from jaxtroj.generate.zoo.layer_norm_blocks import ChannelNorm, ConvNeXtBlock

    square = 2 * stem.stride
    body: list[nn.Module] = [nn.Conv2d(stem.channels, 32, square, square), ChannelNorm(32)]
    for width, blocks in ((32, 2), (64, 2), (96, 1)):
        if width > 32:
            halved = nn.Conv2d(width - 32, width, 2, 2)
            body += [ChannelNorm(width - 32), halved]
        body += [ConvNeXtBlock(width) for _ in range(blocks)]
    return _pooled(*body, ChannelNorm(96), width=96, classes=classes)


def _vit(stem: Stem, classes: int):
    """Four blocks of four heads on squares of 4 (8) pixels; the mean token is classified."""
    from torch import nn

    from jaxtroj.generate.zoo.layer_norm_blocks import AttentionBlock, MeanToken, Tokens

    tokens = Tokens(stem.channels, stem.side, 4 * stem.stride, 96, has_places=True)
    blocks = [AttentionBlock(96, 4) for _ in range(4)]
    return nn.Sequential(tokens, *blocks, MeanToken(96), nn.Linear(96, classes))


def _mixer(stem: Stem, classes: int):
    """Four blocks on squares of 4 (8) pixels; the mean token is classified."""
    from torch import nn

    from jaxtroj.generate.zoo.layer_norm_blocks import MeanToken, MixerBlock, Tokens

    tokens = Tokens(stem.channels, stem.side, 4 * stem.stride, 96, has_places=False)
    blocks = [MixerBlock(tokens.count, 96) for _ in range(4)]
    return nn.Sequential(tokens, *blocks, MeanToken(96), nn.Linear(96, classes))


_BUILDERS: dict[str, Callable[..., "torch.nn.Module"]] = {
    "plain": _plain,
    "plain_no_norm": partial(_plain, has_norm=False),
    "vgg": _vgg,
    "resnet20": partial(_residual, (16, 32, 64), 3),
    "resnet10": partial(_residual, (32, 64, 128, 192), 1),
    "wrn16": _wide,
    "mobilenet_v2": _mobile,
    "densenet": _dense,
    "inception": _inception,
    "resnet18": _resnet18,
    "group_norm": _group_norm,
    "convnext": _convnext,
    "vit": _vit,
    "mixer": _mixer,
}
KNOWN = tuple(_BUILDERS)
