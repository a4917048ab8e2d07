"""Networks for small pictures as public research code defines them, told by names and shapes.

| tensors | whose code | what it is |
|---|---|---|
| `layer1.0.conv1`, `linear` | kuangliu, BackdoorBench, akamaster | (PreAct)ResNet, ResNeXt |
| `layer1.0.conv1`, `fc`, three stages | chenyaofo | ResNet |
| those of torchvision's ResNet, a smaller first kernel | many, TrojanZoo | without the first pool |
| the same | huyvnphan | with torchvision's first pool |
| `block1.layer.0.conv1`, `fc` | xternalz | wide ResNet |
| the same | YU1ut, kekmodel | wide ResNet with leaky ReLU |
| `features.0`, `classifier` alone | kuangliu | VGG |

(Accounts at GitHub: kuangliu/pytorch-cifar, akamaster/pytorch_resnet_cifar10,
chenyaofo/pytorch-cifar-models, SCLBD/BackdoorBench; the others in `converters.public_codes`.)

A state dict does not say strides: in all of these the first stage keeps the size and the others
halve it. Where shapes leave two networks possible, none is made; where public codes with the same
names and shapes differ, nothing is guessed: the user says whose the weights are, or labelled
examples do. What else shapes never show is taken as in that code, and a finding says so.

References:
  He et al., https://arxiv.org/abs/1512.03385 (section 4.2: shortcuts without weights).
  He et al., Identity Mappings in Deep Residual Networks, https://arxiv.org/abs/1603.05027.
  Zagoruyko and Komodakis, Wide Residual Networks, https://arxiv.org/abs/1605.07146.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from converters.errors import EXPORT, MismatchError
from converters.families import resnet
from converters.rebuilt.description import Description

STRIDES = (
    "a state dict does not say strides; taken as in public code with these names: the first stage"
    " keeps the size, the others halve it",
)
UNSAID = (*STRIDES, "a state dict does not say activations; taken as ReLU, as in that code")
VGG_POOLS = (
    "a state dict does not show pools; taken as max pools of 2x2 pixels in the gaps of its"
    " numbering, though another layer without weights, such as dropout, leaves the same gap",
)
_MOST_STAGES = 6


def residual(d: Description, has_first_pool: bool = False) -> Any:
    """A ResNet of any depth and width, norms after its convolutions or before them."""
    stages = [f"layer{n}" for n in _numbers(d, "layer{}.0.conv1.weight")]
    head = "linear" if "linear.weight" in d.shapes else "fc"
    return _network(d, stages, head, ends_in_norm=False, has_first_pool=has_first_pool)


def pooled_residual(d: Description) -> Any:
    """The same with torchvision's max pool after the first kernel (huyvnphan)."""
    return residual(d, has_first_pool=True)


def wide(d: Description, is_leaky: bool = False) -> Any:
    """A wide ResNet: norms before convolutions, and one after the last block."""
    stages = [f"block{n}.layer" for n in _numbers(d, "block{}.layer.0.conv1.weight")]
    return _network(d, stages, "fc", ends_in_norm=True, is_leaky=is_leaky)


def leaky_wide(d: Description) -> Any:
    """The same as for MixMatch."""
    return wide(d, is_leaky=True)


def torchvision_residual(d: Description) -> Any:
    """torchvision's ResNet with a smaller first kernel; its pool only where the file says it."""
    if not d.modules:
        return residual(d)
    from torch import nn

    channels, side = d.shape("conv1.weight", 4)[1:3]
    d.shape("fc.weight", 2)
    config = resnet.blocks_of(d.shapes)
    module = resnet.torch_module(config)
    stride = d.number("conv1", "stride")
    padding = d.number("conv1", "padding")
    bias = "conv1.bias" in d.shapes
    module.conv1 = nn.Conv2d(channels, config.stem, side, stride, padding, bias=bias)
    if d.kind("maxpool") != "MaxPool2d":
        module.maxpool = nn.Identity()
    return module


def vgg(d: Description) -> Any:
    """A VGG with one linear layer after its last pool."""
    from converters.rebuilt.plain import vgg_features
    from converters.rebuilt.small_modules import PlainNetwork

    return PlainNetwork(vgg_features(d), d.shape("classifier.weight", 2))


def _numbers(d: Description, name: str) -> list[int]:
    """Numbers of the stages, from 1."""
    found = [n for n in range(1, _MOST_STAGES + 1) if name.format(n) in d.shapes]
    if found != list(range(1, len(found) + 1)) or len(found) < 2:
        raise MismatchError(f"the file has the stages {found}, expected 1, 2 and so on")
    return found


def _network(
    d: Description,
    stages: Iterable[str],
    head: str,
    *,
    ends_in_norm: bool,
    has_first_pool: bool = False,
    is_leaky: bool = False,
) -> Any:
    from converters.rebuilt.small_modules import ResidualNetwork, Style

    blocks = [_blocks(d, stage) for stage in stages]
    paths = [path for stage in blocks for path in stage]
    if len(paths) > resnet.MOST_BLOCKS:
        raise MismatchError(
            f"the file has {len(paths)} blocks, expected at most {resnet.MOST_BLOCKS}"
        )
    norms_first = _norms_come_first(d, paths)
    has_norm = "bn1.weight" in d.shapes
    if has_norm != (ends_in_norm or not norms_first) or (ends_in_norm and not norms_first):
        raise MismatchError(
            f"norms stand {'before' if norms_first else 'after'} convolutions, with"
            f"{'' if has_norm else 'out'} a norm bn1 beside the blocks: no network that is "
            f"rebuilt from these names is so; {EXPORT}"
        )
    return ResidualNetwork(d, blocks, head, Style(norms_first, has_first_pool, is_leaky))


def _blocks(d: Description, stage: str) -> list[str]:
    numbers = d.children(stage)
    if numbers != list(range(len(numbers))):
        raise MismatchError(f"{stage} has the blocks {numbers[:20]}, expected 0, 1 and so on")
    return [f"{stage}.{n}" for n in numbers]


def _norms_come_first(d: Description, blocks: Sequence[str]) -> bool:
    """Whether norms stand before convolutions: then a block's first has the width of its input."""
    said = set()
    for path in blocks:
        cout, cin = d.shape(f"{path}.conv1.weight", 4)[:2]
        if cin != cout:
            said.add(d.rows(f"{path}.bn1.weight") == cin)
    if len(said) != 1:
        raise MismatchError(
            "the shapes do not tell whether norms stand before convolutions or after them ("
            f"{'some say so, some so' if said else 'no block changes its width'}); {EXPORT}"
        )
    return said.pop()
