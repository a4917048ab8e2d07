"""Code of networks that keep their weights in more than one place, or in types of their own."""

import torch
from torch import nn
from torch.nn.functional import conv2d, relu


def head(channels, classes=5):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Net(nn.Module):
    """A convolution and a head; the others change what lies between."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.head = head(8)

    def forward(self, x):
        return self.head(relu(self.conv(x)))


class ListReference(Net):
    def __init__(self):
        super().__init__()
        self.kept = [self.conv.weight, self.conv.bias]

    def forward(self, x):
        return self.head(relu(conv2d(x, *self.kept)))


class Closure(Net):
    def __init__(self):
        super().__init__()
        weight = self.conv.weight
        self.run = lambda x: conv2d(x, weight / weight.norm())

    def forward(self, x):
        return self.head(relu(self.run(x)))


class BufferViews(Net):
    norm: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("norm", torch.rand(2, 3))
        self.mean, self.deviation = self.norm[:, :, None, None]

    def forward(self, x):
        return super().forward((x - self.mean) / (1 + self.deviation))


class SmallNumbers(Net):
    """0 - 1 is 255 in the buffer's type."""

    def __init__(self):
        super().__init__()
        self.register_buffer("gate", (torch.arange(8) % 2).to(torch.uint8))

    def forward(self, x):
        return self.head(self.conv(x) * ((self.gate - 1).float() / 255)[:, None, None])


class HalfInside(Net):
    def __init__(self):
        super().__init__()
        self.conv = self.conv.half()

    def forward(self, x):
        return self.head(self.conv(x.half()).float())


class Tied(Net):
    def __init__(self):
        super().__init__()
        self.again = nn.Conv2d(8, 8, 1)
        self.third = nn.Conv2d(8, 8, 1)
        self.third.weight = self.again.weight

    def forward(self, x):
        return self.head(self.third(relu(self.again(self.conv(x)))))


class AlwaysTraining(Net):
    def train(self, mode=True):
        return super().train(True)
