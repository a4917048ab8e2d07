"""ResNet 18 to 152, wide ResNet and ResNeXt (torchvision's v1.5: the stride is in the 3x3).

References:
  He et al., Deep Residual Learning for Image Recognition, https://arxiv.org/abs/1512.03385, 2015.
  Zagoruyko and Komodakis, Wide Residual Networks, https://arxiv.org/abs/1605.07146, 2016.
  Xie et al., Aggregated Residual Transformations, https://arxiv.org/abs/1611.05431, 2016.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from flax import nnx

from converters.errors import UnsupportedArchitectureError
from converters.families import layers, pooling
from converters.families.family import Family, GraphOutline
from converters.families.hyperparameters import NetworkModules, with_eps
from converters.families.names import (
    BATCH_NORM,
    CONVOLUTION,
    LINEAR,
    RELU,
    SEQUENTIAL,
    NameRule,
    Part,
    norm_rules,
)
from converters.model import ImageConfig

EPS = 1e-5
STAGES = 4
# ResNet1202 has 600; a file of far more is built to stall us.
MOST_BLOCKS = 640
_CONVOLUTIONS = r"(?:layer\d+\.\d+\.)?conv\d|layer\d+\.\d+\.downsample\.0"
TABLE = (
    NameRule(rf"({_CONVOLUTIONS})\.weight", r"\1.kernel", "convolution"),
    NameRule(rf"({_CONVOLUTIONS})\.bias", r"\1.bias", "vector"),
    *norm_rules(r"(?:layer\d+\.\d+\.)?bn\d|layer\d+\.\d+\.downsample\.1"),
    NameRule(r"fc\.weight", "fc.kernel", "linear"),
    NameRule(r"fc\.bias", "fc.bias", "vector"),
)
IGNORED = (r".*\.num_batches_tracked",)
OTHER_NAMES = {r"^features\.(?=(?:conv1|bn1|layer\d+)\.)": "", r"^classifier\.fc\.": "fc."}
"""Those of TrojanZoo, whose networks hold torchvision's layers."""
_BLOCK_CONVOLUTION = re.compile(r"layer([0-9]{1,4})\.([0-9]{1,4})\.conv([123])\.weight")
_BLOCK = r"layer[0-9]{1,4}\.[0-9]{1,4}"
KINDS = {
    "": r"torchvision\.models\.resnet\.ResNet",
    r"layer[0-9]{1,4}": SEQUENTIAL,
    _BLOCK: r"torchvision\.models\.resnet\.(BasicBlock|Bottleneck)",
    rf"conv1|{_BLOCK}\.conv[123]|{_BLOCK}\.downsample\.0": CONVOLUTION,
    rf"bn1|{_BLOCK}\.bn[123]|{_BLOCK}\.downsample\.1": BATCH_NORM,
    rf"relu|{_BLOCK}\.relu": RELU,
    rf"{_BLOCK}\.downsample": SEQUENTIAL,
    "maxpool": r"torch\.nn\.modules\.pooling\.MaxPool2d",
    "avgpool": r"torch\.nn\.modules\.pooling\.AdaptiveAvgPool2d",
    "fc": LINEAR,
}
POOLS = {
    "maxpool": {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 1, "ceil_mode": False}
}

# architecture -> blocks per stage, width of one group, groups. Basic blocks have two convolutions.
DEPTHS = {
    "resnet18": ("basic", (2, 2, 2, 2), 64, 1),
    "resnet34": ("basic", (3, 4, 6, 3), 64, 1),
    "resnet50": ("bottleneck", (3, 4, 6, 3), 64, 1),
    "resnet101": ("bottleneck", (3, 4, 23, 3), 64, 1),
    "resnet152": ("bottleneck", (3, 8, 36, 3), 64, 1),
    "wide_resnet50_2": ("bottleneck", (3, 4, 6, 3), 128, 1),
    "wide_resnet101_2": ("bottleneck", (3, 4, 23, 3), 128, 1),
    "resnext50_32x4d": ("bottleneck", (3, 4, 6, 3), 4, 32),
    "resnext101_32x8d": ("bottleneck", (3, 4, 23, 3), 8, 32),
    "resnext101_64x4d": ("bottleneck", (3, 4, 23, 3), 4, 64),
}


@dataclass(frozen=True)
class BlockConfig:
    """Output channels of a block's convolutions, and whether its shortcut is a convolution."""

    widths: tuple[int, ...]
    downsample: bool


@dataclass(frozen=True)
class ResNetConfig(ImageConfig):
    """Static description of a residual network; hashable, so it is a jit argument."""

    stem: int
    stages: tuple[tuple[BlockConfig, ...], ...]
    groups: int
    num_classes: int
    channels: int = 3
    eps: float = EPS
    folded: bool = False

    def build(self, rngs: nnx.Rngs) -> "ResNet":
        """A freshly initialised module of this shape."""
        return ResNet(self, rngs)


class ResidualBlock(nnx.Module):
    """Basic (two 3x3) or bottleneck (1x1, 3x3, 1x1) residual block."""

    def __init__(self, config: ResNetConfig, cin: int, block: BlockConfig, stride: int, rngs):
        bottleneck = len(block.widths) == 3
        kernels = (1, 3, 1) if bottleneck else (3, 3)
        strides = (1, stride, 1) if bottleneck else (stride, 1)
        groups = (1, config.groups, 1) if bottleneck else (1, 1)
        self.depth = len(kernels)
        if not block.downsample and (stride != 1 or cin != block.widths[-1]):
            raise ValueError(
                f"a block from {cin} to {block.widths[-1]} channels with stride {stride} "
                "has no downsample convolution"
            )
        width_in = cin
        for i, (kernel, width) in enumerate(zip(kernels, block.widths, strict=True)):
            conv = layers.Conv(
                width_in,
                width,
                kernel,
                stride=strides[i],
                padding=kernel // 2,
                groups=groups[i],
                use_bias=config.folded,
                rngs=rngs,
            )
            setattr(self, f"conv{i + 1}", conv)
            setattr(self, f"bn{i + 1}", layers.kept_norm(config, width, rngs))
            width_in = width
        self.downsample = (
            None
            if not block.downsample
            else nnx.List(
                [
                    layers.Conv(cin, width_in, 1, stride=stride, use_bias=config.folded, rngs=rngs),
                    layers.kept_norm(config, width_in, rngs),
                ]
            )
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        y = x
        for i in range(1, self.depth + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = y if i == self.depth else jax.nn.relu(y)
        shortcut = x if self.downsample is None else self.downsample[1](self.downsample[0](x))
        return jax.nn.relu(y + shortcut)


class ResNet(nnx.Module):
    """Residual network over NHWC images."""

    def __init__(self, config: ResNetConfig, rngs: nnx.Rngs):
        self.conv1 = layers.Conv(
            config.channels, config.stem, 7, stride=2, padding=3, use_bias=config.folded, rngs=rngs
        )
        self.bn1 = layers.kept_norm(config, config.stem, rngs)
        _check(config)
        cin = config.stem
        for i, stage in enumerate(config.stages):
            blocks = []
            for j, block in enumerate(stage):
                blocks.append(ResidualBlock(config, cin, block, 2 if i and not j else 1, rngs))
                cin = block.widths[-1]
            setattr(self, f"layer{i + 1}", nnx.List(blocks))
        self.fc = nnx.Linear(cin, config.num_classes, rngs=rngs)

    def features(self, images: jax.Array) -> jax.Array:
        """Pooled features `[n, d]` of images `[n, h, w, c]`."""
        x = jax.nn.relu(self.bn1(self.conv1(images)))
        x = pooling.max_pool(x, 3, 2, 1)
        for i in range(1, STAGES + 1):
            for block in getattr(self, f"layer{i}"):
                x = block(x)
        return pooling.global_mean(x)

    def __call__(self, images: jax.Array) -> jax.Array:
        return self.fc(self.features(images))


def _check(config: ResNetConfig) -> None:
    """What torchvision's code takes for granted."""
    if len(config.stages) != STAGES or not all(config.stages):
        raise ValueError(f"got {len(config.stages)} stages, expected {STAGES} with blocks")
    depths = {len(block.widths) for stage in config.stages for block in stage}
    if depths not in ({2}, {3}) or (depths == {2} and config.groups != 1):
        raise ValueError("expected basic blocks without groups throughout, or bottlenecks")


def standard(architecture: str, num_classes: int) -> ResNetConfig:
    """The torchvision network of that name, with a head of `num_classes`."""
    kind, depths, group_width, groups = DEPTHS[architecture]
    stages, cin = [], 64
    for i, depth in enumerate(depths):
        planes = 64 * 2**i
        inner = planes * group_width // 64 * groups
        widths = (planes, planes) if kind == "basic" else (inner, inner, planes * 4)
        first = BlockConfig(widths, downsample=bool(i) or cin != widths[-1])
        stages.append((first, *(BlockConfig(widths, False) for _ in range(depth - 1))))
        cin = widths[-1]
    return ResNetConfig(64, tuple(stages), groups, num_classes)


def recognise(shapes: Mapping[str, tuple[int, ...]]) -> ResNetConfig | None:
    """Configuration read off torch tensor shapes, or None when this is no residual network.

    Nor is one with a smaller first kernel: `converters.rebuilt` makes those.
    """
    if not {"conv1.weight", "fc.weight", "layer1.0.conv1.weight"} <= set(shapes):
        return None
    return None if max(shapes["conv1.weight"][2:], default=7) < 7 else blocks_of(shapes)


def blocks_of(shapes: Mapping[str, tuple[int, ...]]) -> ResNetConfig:
    """Configuration of a residual network, whatever its first kernel is.

    What a damaged file lacks takes a likely width; `names.assign` then lists it as missing.

    Raises:
      UnsupportedArchitectureError: more blocks than `MOST_BLOCKS`.
    """
    found: dict[int, dict[int, dict[int, int]]] = {}
    for name, shape in shapes.items():
        match = _BLOCK_CONVOLUTION.fullmatch(name)
        if match:
            i, j, k = map(int, match.groups())
            found.setdefault(i, {}).setdefault(j, {})[k] = shape[0]
    depth = 3 if any(3 in b for stage in found.values() for b in stage.values()) else 2
    count = sum(map(len, found.values()))
    if count > MOST_BLOCKS:
        raise UnsupportedArchitectureError(
            f"the file has {count} residual blocks, expected at most {MOST_BLOCKS}"
        )
    stages = tuple(
        tuple(
            BlockConfig(_widths(stage, j, depth), f"layer{i}.{j}.downsample.0.weight" in shapes)
            for j in sorted(stage)
        )
        for i, stage in sorted(found.items())
    )
    stem, head = shapes["conv1.weight"], shapes["fc.weight"]
    return ResNetConfig(stem[0], stages, _groups(shapes, depth), head[0], stem[1])


def _widths(stage: Mapping[int, Mapping[int, int]], number: int, depth: int) -> tuple[int, ...]:
    """Widths of a block's convolutions; one it lacks has that of another block or convolution."""
    block = stage[number]
    likely = {k: width for b in (*stage.values(), block) for k, width in b.items()}
    return tuple(likely.get(k, next(iter(block.values()))) for k in range(1, depth + 1))


def _groups(shapes: Mapping[str, tuple[int, ...]], depth: int) -> int:
    """Groups of the 3x3 convolutions of bottlenecks, from the inputs that one filter sees."""
    inner = shapes["layer1.0.conv1.weight"][0]
    seen = shapes.get("layer1.0.conv2.weight", (0, inner))[1]
    return inner // seen if depth == 3 and inner % seen == 0 else 1


def parts(config: ResNetConfig) -> dict[str, Part]:
    """Submodules by path whose class or order the config says."""
    found = {}
    for number, stage in enumerate(config.stages, 1):
        found[f"layer{number}"] = Part(children=tuple(map(str, range(len(stage)))))
        for place, block in enumerate(stage):
            kind = "BasicBlock" if len(block.widths) == 2 else "Bottleneck"
            found[f"layer{number}.{place}"] = Part(rf"torchvision\.models\.resnet\.{kind}")
            found[f"layer{number}.{place}.downsample"] = Part(children=("0", "1"))
    return found


def norm_pairs(config: ResNetConfig) -> tuple[tuple[str, str], ...]:
    """(convolution path, batch norm path) of every batch norm that follows a convolution."""
    pairs = [("conv1", "bn1")]
    for i, stage in enumerate(config.stages, 1):
        for j, block in enumerate(stage):
            path = f"layer{i}.{j}"
            pairs += [(f"{path}.conv{k}", f"{path}.bn{k}") for k in range(1, len(block.widths) + 1)]
            if block.downsample:
                pairs.append((f"{path}.downsample.0", f"{path}.downsample.1"))
    return tuple(pairs)


def architecture(config: ResNetConfig) -> str:
    """torchvision's name of a network of that depth; the family's where it has none."""
    same = (name for name in DEPTHS if _outline(standard(name, 1)) == _outline(config))
    return next(same, "resnet")


def _outline(config: ResNetConfig):
    """What names a depth: blocks per stage, groups, whether the inner widths are the wide ones."""
    stages = tuple((len(stage), len(stage[0].widths)) for stage in config.stages)
    first = config.stages[0][0].widths
    return stages, config.groups, first[0] / first[-1]


def torch_module(config: ResNetConfig, names: Collection[str] = ()) -> Any:
    """torchvision's network of these blocks; see `Family.torch_module`."""
    from torch import nn
    from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet

    _check(config)
    first = config.stages[0][0].widths
    bottleneck = len(first) == 3
    base = max(1, first[0] * 64 * 4 // (first[-1] * config.groups)) if bottleneck else 64
    depths = [len(stage) for stage in config.stages]
    block = Bottleneck if bottleneck else BasicBlock
    module = ResNet(block, depths, config.num_classes, groups=config.groups, width_per_group=base)
    for i, stage in enumerate(config.stages, 1):
        for j, described in enumerate(stage):
            made: Any = module.get_submodule(f"layer{i}.{j}")
            if described.downsample and made.downsample is None:
                made.downsample = nn.Sequential(
                    nn.Conv2d(1, 1, 1, stride=made.stride, bias=False),
                    nn.BatchNorm2d(1),
                )
            elif not described.downsample:
                made.downsample = None
    return module


def _counts(config: ResNetConfig) -> tuple[int, int]:
    blocks = [block for stage in config.stages for block in stage]
    count = 1 + sum(len(block.widths) + block.downsample for block in blocks)
    return count, count


FAMILY = Family(
    name="resnet",
    config=ResNetConfig,
    table=TABLE,
    ignored=IGNORED,
    old_names=OTHER_NAMES,
    recognise=recognise,
    architectures=tuple(DEPTHS),
    architecture=architecture,
    standard=standard,
    with_hyperparameters=with_eps(IGNORED, EPS),
    module_faults=NetworkModules(KINDS, POOLS, IGNORED, parts).faults,
    norm_pairs=norm_pairs,
    torch_module=torch_module,
    graph=GraphOutline(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), _counts),
)
