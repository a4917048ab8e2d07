"""Networks for small pictures as public research code runs them, written again for comparison."""

import torch
from torch import nn
from torch.nn import functional as F
from torchvision import models


def _conv(cin: int, cout: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(cin, cout, kernel, stride, kernel // 2, bias=False)


class After(nn.Module):
    """kuangliu's BasicBlock; option A of the paper where `is_padded` (akamaster)."""

    def __init__(self, cin, cout, stride, name="shortcut", is_padded=False):
        super().__init__()
        self.conv1, self.bn1 = _conv(cin, cout, 3, stride), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = _conv(cout, cout), nn.BatchNorm2d(cout)
        self.cout, self.name, self.more = cout, name, cout // 4 if is_padded and cin != cout else 0
        if (stride != 1 or cin != cout) and not is_padded:
            setattr(self, name, nn.Sequential(_conv(cin, cout, 1, stride), nn.BatchNorm2d(cout)))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.more:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more), "constant", 0)
        elif hasattr(self, self.name):
            x = getattr(self, self.name)(x)
        return F.relu(y + x)


class AfterBottleneck(nn.Module):
    """kuangliu's Bottleneck; his block of ResNeXt (`growth` 2) and of RegNet (1) with groups."""

    def __init__(self, cin, planes, stride, growth=4, groups=1):
        super().__init__()
        self.cout = cout = growth * planes
        self.conv1, self.bn1 = _conv(cin, planes, 1), nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, groups=groups, bias=False)
        self.bn2, self.conv3 = nn.BatchNorm2d(planes), _conv(planes, cout, 1)
        self.bn3, self.shortcut = nn.BatchNorm2d(cout), nn.Sequential()
        if stride != 1 or cin != cout:
            self.shortcut = nn.Sequential(_conv(cin, cout, 1, stride), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class Before(nn.Module):
    """kuangliu's PreActBlock, and xternalz's block with its `convShortcut`."""

    def __init__(self, cin, cout, stride, is_wide=False):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(cin), _conv(cin, cout, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(cout), _conv(cout, cout)
        self.beside, self.cout = None, cout
        if stride != 1 or cin != cout:
            self.beside = "convShortcut" if is_wide else "shortcut"
            weights = _conv(cin, cout, 1, stride)
            setattr(self, self.beside, weights if is_wide else nn.Sequential(weights))

    def forward(self, x):
        y = F.relu(self.bn1(x))
        shortcut = x if self.beside is None else getattr(self, self.beside)(y)
        return self.conv2(F.relu(self.bn2(self.conv1(y)))) + shortcut


class Stages(nn.Module):
    """First convolution, stages `layer1` and so on, mean, one linear layer."""

    def __init__(
        self, block, depths, width, head="linear", classes=5, channels=3, kernel=3, **options
    ):
        super().__init__()
        self.is_before, self.head = block is Before, head
        self.conv1 = _conv(channels, width, kernel)
        if not self.is_before:
            self.bn1 = nn.BatchNorm2d(width)
        cin, self.depth = width, len(depths)
        for n, depth in enumerate(depths):
            planes, blocks = width * 2**n, []
            for k in range(depth):
                blocks.append(block(cin, planes, 2 if n and not k else 1, **options))
                cin = blocks[-1].cout
            self.add_module(f"layer{n + 1}", nn.Sequential(*blocks))
        self.add_module(head, nn.Linear(cin, classes))

    def forward(self, x):
        x = self.conv1(x)
        x = x if self.is_before else F.relu(self.bn1(x))
        for n in range(self.depth):
            x = getattr(self, f"layer{n + 1}")(x)
        x = F.avg_pool2d(x, x.shape[-1])
        return getattr(self, self.head)(x.flatten(1))


class LeakyBefore(Before):
    """YU1ut's block: later stages give their first convolution what comes in, without the norm."""

    def __init__(self, cin, cout, stride, is_wide=True):
        super().__init__(cin, cout, stride, is_wide)
        self.starts_raw = stride == 2

    def forward(self, x):
        y = F.leaky_relu(self.bn1(x), 0.1)
        start = x if self.starts_raw else y
        shortcut = x if self.beside is None else getattr(self, self.beside)(start)
        return self.conv2(F.leaky_relu(self.bn2(self.conv1(start)), 0.1)) + shortcut


class Wide(nn.Module):
    """xternalz's WideResNet; YU1ut's for MixMatch where `is_leaky`."""

    def __init__(self, depth, width, classes=5, is_leaky=False):
        super().__init__()
        self.is_leaky, block = is_leaky, LeakyBefore if is_leaky else Before
        self.conv1, cin = _conv(3, 8), 8
        for n in range(3):
            group, cout = nn.Module(), 8 * width * 2**n
            blocks = [
                block(cout if k else cin, cout, 2 if n and not k else 1, is_wide=True)
                for k in range(depth)
            ]
            group.layer = nn.Sequential(*blocks)
            self.add_module(f"block{n + 1}", group)
            cin = cout
        self.bn1, self.fc = nn.BatchNorm2d(cin), nn.Linear(cin, classes)

    def forward(self, x):
        x = self.conv1(x)
        for n in range(3):
            x = getattr(self, f"block{n + 1}").layer(x)
        x = self.bn1(x)
        x = F.leaky_relu(x, 0.1) if self.is_leaky else F.relu(x)
        return self.fc(F.avg_pool2d(x, x.shape[-1]).flatten(1))


class Plain(nn.Module):
    """kuangliu's VGG, of three pools."""

    def __init__(self, classes=5):
        super().__init__()
        self.features, cin = nn.Sequential(), 3
        for step in (4, "M", 8, 8, "M", 12, "M"):
            if step == "M":
                self.features.append(nn.MaxPool2d(2, 2))
            else:
                self.features.append(nn.Conv2d(cin, step, 3, padding=1))
                self.features.append(nn.BatchNorm2d(step)).append(nn.ReLU(inplace=True))
                cin = step
        self.features.append(nn.AvgPool2d(1, 1))
        self.classifier = nn.Linear(cin, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def small_stem(has_pool: bool = False) -> nn.Module:
    """torchvision's ResNet as it is usually changed for CIFAR-10."""
    network = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5)
    network.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    if not has_pool:
        network.maxpool = nn.Identity()  # pyright: ignore[reportAttributeAccessIssue]
    return network


# name -> network, side of its pictures, what a scan calls it.
NETWORKS = {
    "ResNet of basic blocks": (lambda: Stages(After, (1, 2, 1, 1), 8), 16, "small_resnet"),
    "ResNet of bottlenecks": (lambda: Stages(AfterBottleneck, (2, 1, 1), 4), 16, "small_resnet"),
    "ResNet without weights beside": (
        lambda: Stages(After, (2, 1, 1), 8, is_padded=True), 16, "small_resnet",
    ),
    "ResNet of three stages, fc": (
        lambda: Stages(After, (1, 1, 1), 8, head="fc", name="downsample"), 16, "small_resnet",
    ),
    "ResNeXt": (
        lambda: Stages(AfterBottleneck, (2, 1, 1), 8, kernel=1, growth=2, groups=4), 16,
        "small_resnet",
    ),
    "PreActResNet": (lambda: Stages(Before, (2, 1, 1, 1), 8), 16, "small_resnet"),
    "wide ResNet": (lambda: Wide(2, 2), 16, "wide_resnet"),
    "wide ResNet for MixMatch": (lambda: Wide(2, 2, is_leaky=True), 16, "wide_resnet"),
    "wide ResNet for MixMatch, of width 1": (
        lambda: Wide(1, 1, is_leaky=True), 16, "wide_resnet",
    ),
    "VGG": (Plain, 8, "small_vgg"),
    "torchvision's ResNet, small stem": (small_stem, 16, "resnet"),
    "the same with its pool": (lambda: small_stem(has_pool=True), 16, "resnet"),
}  # fmt: skip
# Those whose names and shapes another code has, too -> whose they are.
SHARED = {
    "wide ResNet": "xternalz",
    "wide ResNet for MixMatch": "mixmatch",
    "wide ResNet for MixMatch, of width 1": "mixmatch",
    "torchvision's ResNet, small stem": "no-first-pool",
    "the same with its pool": "huyvnphan",
}


def pictures(side: int, count: int = 3, channels: int = 3) -> torch.Tensor:
    """Float64 `[n, channels, h, w]` in [0, 1]."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, channels, side, side, generator=generator).double()
