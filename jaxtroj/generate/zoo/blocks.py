"""Blocks of a zoo's networks, in torch; see `networks` for the sources."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


def _conv(cin: int, cout: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions beside a shortcut; the relu comes after the sum."""

    def __init__(
        self, cin: int, cout: int, stride: int, norm: Callable[[int], nn.Module] | None = None
    ):
        super().__init__()
        normed = norm or nn.BatchNorm2d
        self.conv1, self.bn1 = _conv(cin, cout, 3, stride), normed(cout)
        self.conv2, self.bn2 = _conv(cout, cout, 3), normed(cout)
        same = cin == cout and stride == 1
        widened = nn.Sequential(_conv(cin, cout, 1, stride), normed(cout))
        self.shortcut = nn.Identity() if same else widened

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, cout, h / stride, w / stride]` of `[n, cin, h, w]`."""
        y = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        return functional.relu(y + self.shortcut(x))


class PreActivationBlock(nn.Module):
    """Norm, relu, convolution, twice; the shortcut of a wider block starts after the first relu."""

    def __init__(self, cin: int, cout: int, stride: int):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(cin), _conv(cin, cout, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(cout), _conv(cout, cout, 3)
        self.shortcut = None if cin == cout else _conv(cin, cout, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, cout, h / stride, w / stride]` of `[n, cin, h, w]`."""
        active = functional.relu(self.bn1(x))
        y = self.conv2(functional.relu(self.bn2(self.conv1(active))))
        return y + (x if self.shortcut is None else self.shortcut(active))


class InvertedResidual(nn.Module):
    """Widened four times, filtered channel by channel, narrowed; a shortcut where shapes agree."""

    def __init__(self, cin: int, cout: int, stride: int):
        super().__init__()
        wide = 4 * cin
        self.body = nn.Sequential(
            _conv(cin, wide, 1), nn.BatchNorm2d(wide), nn.ReLU6(),
            _conv(wide, wide, 3, stride, wide), nn.BatchNorm2d(wide), nn.ReLU6(),
            _conv(wide, cout, 1), nn.BatchNorm2d(cout),
        )  # fmt: skip
        self.has_shortcut = cin == cout and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, cout, h / stride, w / stride]` of `[n, cin, h, w]`."""
        return x + self.body(x) if self.has_shortcut else self.body(x)


class DenseLayer(nn.Module):
    """Adds `growth` channels to those it is given."""

    def __init__(self, cin: int, growth: int):
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(cin), _conv(cin, growth, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, cin + growth, h, w]` of `[n, cin, h, w]`."""
        return torch.cat([x, self.conv(functional.relu(self.norm(x)))], dim=1)


class InceptionBlock(nn.Module):
    """1x1, 3x3, twice 3x3, and pooled features side by side, `width` channels of each."""

    def __init__(self, cin: int, width: int):
        super().__init__()
        self.one = nn.Sequential(_conv(cin, width, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.three = self._chain(cin, width, 1)
        self.five = self._chain(cin, width, 2)
        self.pooled = nn.Sequential(_conv(cin, width, 1), nn.BatchNorm2d(width), nn.ReLU())

    @staticmethod
    def _chain(cin: int, width: int, count: int) -> nn.Sequential:
        parts = [_conv(cin, width, 1), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(count):
            parts += [_conv(width, width, 3), nn.BatchNorm2d(width), nn.ReLU()]
        return nn.Sequential(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[n, 4 width, h, w]` of `[n, cin, h, w]`."""
        pooled = self.pooled(functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False))
        return torch.cat([self.one(x), self.three(x), self.five(x), pooled], dim=1)
