"""The torch modules of `small_pictures`: residual networks and VGGs, made from shapes."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from converters.errors import EXPORT, MismatchError
from converters.rebuilt.description import Description, Shape

_FIRST_KERNELS = (1, 3)
_SLOPE = 0.1


@dataclass(frozen=True)
class Style:
    """What names and shapes alone do not say of a residual network.

    Attributes:
      norms_first: whether norms and activations stand before the convolutions.
      has_first_pool: whether torchvision's max pool follows the first convolution.
      is_leaky: as in MixMatch's code: leaky ReLU, and where a later stage changes the width its
        first convolution and its shortcut take what comes in as it is; the norm that stands there
        is without effect.
    """

    norms_first: bool
    has_first_pool: bool = False
    is_leaky: bool = False

    def active(self, x: torch.Tensor) -> torch.Tensor:
        """The activation of `x`."""
        return functional.leaky_relu(x, _SLOPE) if self.is_leaky else functional.relu(x)


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions, or 1x1, 3x3 and 1x1 ones, beside a shortcut.

    Norms and activations stand after the convolutions, the last activation after the sum; or before
    them, and then a shortcut with weights starts after the first, if the block has one.
    """

    def __init__(self, d: Description, path: str, cin: int, stride: int, style: Style):
        super().__init__()
        norms_first = style.norms_first
        kernels = (1, 3, 1) if f"{path}.conv3.weight" in d.shapes else (3, 3)
        self.style, self.has_norms_first, self.depth = style, norms_first, len(kernels)
        self.cin, self.stride = cin, stride
        width, steps_at = cin, kernels.index(3)
        for n, kernel in enumerate(kernels):
            name = f"{path}.conv{n + 1}"
            groups = _groups(d, name, width) if kernels == (1, 3, 1) and kernel == 3 else 1
            step = stride if n == steps_at else 1
            has_bias = not norms_first and f"{name}.bias" in d.shapes
            made = _convolution(d, name, width, kernel, step, groups=groups, bias=has_bias)
            setattr(self, f"conv{n + 1}", made)
            setattr(self, f"bn{n + 1}", nn.BatchNorm2d(width if norms_first else made.out_channels))
            width = made.out_channels
        self.cout = width
        self.shortcut_name = _add_shortcut(self, d, path)
        # Only stages after the first have a step of 2.
        self.starts_raw = style.is_leaky and stride > 1 and bool(self.shortcut_name)

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
        first = x if self.starts_raw else self.style.active(norm(x))
        y = convolution(first)
        for convolution, norm in others:
            y = convolution(self.style.active(norm(y)))
        return y + self._beside(x, first)

    def _layers(self):
        return [
            (self.get_submodule(f"conv{n}"), self.get_submodule(f"bn{n}"))
            for n in range(1, self.depth + 1)
        ]

    def _beside(self, x, start):
        """What is added: of `start` by the shortcut's weights, of `x` itself without any."""
        if self.shortcut_name:
            return self.get_submodule(self.shortcut_name)(start)
        if self.cin == self.cout and self.stride == 1:
            return x
        more = (self.cout - self.cin) // 2
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, more, more))


def _add_shortcut(block: ResidualBlock, d: Description, path: str) -> str:
    """Give a block its shortcut with weights; its name, or "" for one without.

    Where norms stand last, one follows the shortcut's convolution. Without weights the picture is
    thinned out, and channels of zeros on both sides make the width (option A of the paper).
    """
    cin, cout, stride = block.cin, block.cout, block.stride
    if block.has_norms_first and f"{path}.convShortcut.weight" in d.shapes:
        block.convShortcut = _convolution(d, f"{path}.convShortcut", cin, 1, stride)
        return "convShortcut"
    for name in ("shortcut",) if block.has_norms_first else ("shortcut", "downsample"):
        if f"{path}.{name}.0.weight" in d.shapes:
            parts: list[nn.Module] = [_convolution(d, f"{path}.{name}.0", cin, 1, stride)]
            if not block.has_norms_first:
                parts.append(nn.BatchNorm2d(cout))
            setattr(block, name, nn.Sequential(*parts))
            return name
    is_plain = cin == cout and stride == 1
    is_padded = cout == 2 * cin and stride == 2 and not block.has_norms_first
    if not is_plain and not is_padded:
        raise MismatchError(
            f"{path} goes from {cin} to {cout} channels without weights beside its convolutions; "
            f"{EXPORT}"
        )
    return ""


class ResidualNetwork(nn.Module):
    """A first convolution, stages of blocks, the mean over all places, one linear layer."""

    def __init__(self, d: Description, stages: Sequence[Sequence[str]], head: str, style: Style):
        super().__init__()
        self.head, self.style, norms_first = head, style, style.norms_first
        self.conv1 = _first(d)
        width = self.conv1.out_channels
        if not norms_first:
            self.bn1 = nn.BatchNorm2d(width)
        self.paths = [path for stage in stages for path in stage]
        for number, stage in enumerate(stages):
            for place, path in enumerate(stage):
                narrows = number > 0 and place == 0
                block = ResidualBlock(d, path, width, 2 if narrows else 1, style)
                if narrows:
                    _check_doubles(path, width, block.cout)
                _put(self, path, block)
                width = block.cout
        self.ends_in_norm = norms_first and "bn1.weight" in d.shapes
        if self.ends_in_norm:
            self.bn1 = nn.BatchNorm2d(width)
        self.add_module(head, _linear(d.shape(f"{head}.weight", 2), width))

    def forward(self, images):
        x = self.conv1(images)
        x = x if self.style.norms_first else functional.relu(self.bn1(x))
        x = functional.max_pool2d(x, 3, 2, 1) if self.style.has_first_pool else x
        for path in self.paths:
            x = self.get_submodule(path)(x)
        if self.ends_in_norm:
            x = self.style.active(self.bn1(x))
        return self.get_submodule(self.head)(x.mean((2, 3)))


class PlainNetwork(nn.Module):
    """Convolutions and pools, all that is left as one vector, one linear layer."""

    def __init__(self, features: nn.Module, head: Shape):
        super().__init__()
        self.features, self.classifier = features, nn.Linear(head[1], head[0])

    def forward(self, images):
        left = torch.flatten(self.features(images), 1)
        if left.shape[1] != self.classifier.in_features:
            height, width = images.shape[2:]
            raise MismatchError(
                f"pictures of {height} x {width} pixels leave {left.shape[1]} numbers for the last "
                f"layer, which takes {self.classifier.in_features}; give the size that the network "
                "was trained with, such as --image-size 32x32"
            )
        return self.classifier(left)


def _put(root: nn.Module, path: str, module: nn.Module) -> None:
    """Place a module under its path, in containers without a forward pass of their own."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in dict(root.named_children()):
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(name, module)


def _first(d: Description) -> nn.Conv2d:
    """The convolution before the blocks, which keeps the size."""
    channels, side = d.shape("conv1.weight", 4)[1:3]
    if side not in _FIRST_KERNELS:
        raise MismatchError(
            f"the first kernel has {side} pixels a side, expected 3 (or 1): a state dict does not "
            f"say the steps of another; {EXPORT}"
        )
    return _convolution(d, "conv1", channels, side, 1, bias="conv1.bias" in d.shapes)


def _convolution(
    d: Description,
    path: str,
    cin: int,
    kernel: int,
    stride: int,
    *,
    groups: int = 1,
    bias: bool = False,
) -> nn.Conv2d:
    """One of the file's width; what else differs is told once all tensors are compared."""
    cout = d.shape(f"{path}.weight", 4)[0]
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=bias)


def _groups(d: Description, path: str, cin: int) -> int:
    """Groups of a convolution of `cin` channels, from those that one filter sees."""
    seen = d.shape(f"{path}.weight", 4)[1]
    return cin // seen if cin % seen == 0 else 1


def _check_doubles(path: str, cin: int, cout: int) -> None:
    """Refuse a stage of another width than those that are known to halve the size.

    kuangliu's RegNets have the names of his ResNets, and their second stage keeps the size.
    """
    if cout != 2 * cin:
        raise MismatchError(
            f"{path} goes from {cin} to {cout} channels; of these names only networks whose stages "
            f"double the channels are known to halve the size where they do; {EXPORT}"
        )


def _linear(shape: Shape, width: int) -> nn.Linear:
    if shape[1] != width:
        raise MismatchError(
            f"the last layer takes {shape[1]} numbers and the blocks give {width} channels: the "
            f"network does not take the mean over all places; {EXPORT}"
        )
    return nn.Linear(width, shape[0])
