"""The torch modules of `small_pictures`: residual networks and VGGs, made from shapes."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from converters.errors import EXPORT, MismatchError
from converters.rebuilt.description import Description, Shape

_SHORTCUTS = ("shortcut", "downsample", "convShortcut")
_KERNELS = (1, 3, 5)


class ResidualBlock(nn.Module):
    """Two or three convolutions beside a shortcut.

    Norms and activations stand after the convolutions, the last activation after the sum; or before
    them, and then a shortcut with weights starts after the first.
    """

    def __init__(self, d: Description, path: str, cin: int, stride: int, norms_first: bool):
        super().__init__()
        self.has_norms_first, self.depth = norms_first, 2 + (f"{path}.conv3.weight" in d.shapes)
        self.stride, width, left = stride, cin, stride
        for n in range(1, self.depth + 1):
            # As in torchvision's bottlenecks, the first kernel wider than 1 takes the steps.
            step = left if d.shape(f"{path}.conv{n}.weight", 4)[2] > 1 else 1
            left = 1 if step == left else left
            convolution = _convolution(d, f"{path}.conv{n}", width, step)
            setattr(self, f"conv{n}", convolution)
            normed = width if norms_first else convolution.out_channels
            setattr(self, f"bn{n}", nn.BatchNorm2d(normed))
            width = convolution.out_channels
        self.cin, self.cout = cin, width
        self.name = _add_shortcut(self, d, path)

    def forward(self, x):
        return self._norms_first(x) if self.has_norms_first else self._norms_last(x)

    def _norms_last(self, x):
        y = x
        for n, (convolution, norm) in enumerate(self._layers(), 1):
            y = norm(convolution(y))
            y = y if n == self.depth else functional.relu(y)
        return functional.relu(y + self._beside(x, x))

    def _norms_first(self, x):
        (convolution, norm), *others = self._layers()
        first = functional.relu(norm(x))
        y = convolution(first)
        for convolution, norm in others:
            y = convolution(functional.relu(norm(y)))
        return y + self._beside(x, first)

    def _layers(self):
        return [
            (self.get_submodule(f"conv{n}"), self.get_submodule(f"bn{n}"))
            for n in range(1, self.depth + 1)
        ]

    def _beside(self, x, start):
        """What is added: of `start` by the shortcut's weights, of `x` itself without any."""
        if self.name:
            return self.get_submodule(self.name)(start)
        if self.cin == self.cout and self.stride == 1:
            return x
        more = (self.cout - self.cin) // 2
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, more, more))


def _add_shortcut(block: ResidualBlock, d: Description, path: str) -> str:
    """Give a block its shortcut with weights; its name, or "" for one without.

    Without weights the picture is thinned out, and channels of zeros on both sides make the width
    (option A of the paper), which all public networks do that double it.
    """
    cin, cout, stride = block.cin, block.cout, block.stride
    for name in _SHORTCUTS:
        if f"{path}.{name}.weight" in d.shapes:
            setattr(block, name, _convolution(d, f"{path}.{name}", cin, stride))
            return name
        if f"{path}.{name}.0.weight" in d.shapes:
            parts: list[nn.Module] = [_convolution(d, f"{path}.{name}.0", cin, stride)]
            if f"{path}.{name}.1.weight" in d.shapes:
                parts.append(nn.BatchNorm2d(cout))
            setattr(block, name, nn.Sequential(*parts))
            return name
    is_plain = cin == cout and stride == 1
    if not is_plain and (block.has_norms_first or cout != 2 * cin):
        raise MismatchError(
            f"{path} goes from {cin} to {cout} channels without weights beside its convolutions; "
            f"{EXPORT}"
        )
    return ""


class ResidualNetwork(nn.Module):
    """A first convolution, stages of blocks, the mean over all places, one linear layer."""

    def __init__(
        self, d: Description, stages: Sequence[Sequence[str]], head: str, norms_first: bool
    ):
        super().__init__()
        self.head, self.norms_first = head, norms_first
        self.conv1 = _convolution(d, "conv1", d.shape("conv1.weight", 4)[1], 1)
        width = self.conv1.out_channels
        if not norms_first:
            self.bn1 = nn.BatchNorm2d(width)
        self.paths = [path for stage in stages for path in stage]
        for number, stage in enumerate(stages):
            for place, path in enumerate(stage):
                stride = 2 if number and not place else 1
                block = ResidualBlock(d, path, width, stride, norms_first)
                _put(self, path, block)
                width = block.cout
        self.ends_in_norm = norms_first and "bn1.weight" in d.shapes
        if self.ends_in_norm:
            self.bn1 = nn.BatchNorm2d(width)
        self.add_module(head, _linear(d.shape(f"{head}.weight", 2), width))

    def forward(self, images):
        x = self.conv1(images)
        x = x if self.norms_first else functional.relu(self.bn1(x))
        for path in self.paths:
            x = self.get_submodule(path)(x)
        if self.ends_in_norm:
            x = functional.relu(self.bn1(x))
        return self.get_submodule(self.head)(x.mean((2, 3)))


class PlainNetwork(nn.Module):
    """Convolutions and pools, all that is left as one vector, one linear layer."""

    def __init__(self, features: nn.Module, head: Shape):
        super().__init__()
        self.features, self.classifier = features, nn.Linear(head[1], head[0])

    def forward(self, images):
        return self.classifier(torch.flatten(self.features(images), 1))


def _put(root: nn.Module, path: str, module: nn.Module) -> None:
    """Place a module under its path, in containers without a forward pass of their own."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in dict(root.named_children()):
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(name, module)


def _convolution(d: Description, path: str, cin: int, stride: int) -> nn.Conv2d:
    cout, seen, height, side = d.shape(f"{path}.weight", 4)
    if height != side or side not in _KERNELS or cin % seen:
        raise MismatchError(
            f"{path}.weight is {(cout, seen, height, side)} for {cin} channels, expected a square "
            f"kernel of {', '.join(map(str, _KERNELS))} pixels that sees all channels or a part"
        )
    bias = f"{path}.bias" in d.shapes
    return nn.Conv2d(cin, cout, side, stride, side // 2, groups=cin // seen, bias=bias)


def _linear(shape: Shape, width: int) -> nn.Linear:
    if shape[1] != width:
        raise MismatchError(
            f"the last layer takes {shape[1]} numbers and the blocks give {width} channels: the "
            f"network does not take the mean over all places; {EXPORT}"
        )
    return nn.Linear(width, shape[0])
