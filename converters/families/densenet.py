"""DenseNet 121, 161, 169 and 201.

Reference:
  Huang et al., Densely Connected Convolutional Networks, https://arxiv.org/abs/1608.06993, 2016.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from converters.families import layers, pooling, windows
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
_LAYER = r"features\.denseblock\d+\.denselayer\d+"
_CONVOLUTION = rf"features\.conv0|{_LAYER}\.conv\d|features\.transition\d+\.conv"
TABLE = (
    NameRule(rf"({_CONVOLUTION})\.weight", r"\1.kernel", "convolution"),
    *norm_rules(rf"features\.norm\d|{_LAYER}\.norm\d|features\.transition\d+\.norm"),
    NameRule(r"classifier\.weight", "classifier.kernel", "linear"),
    NameRule(r"classifier\.bias", "classifier.bias", "vector"),
)
IGNORED = (r".*\.num_batches_tracked",)
_LAYER_CONVOLUTION = re.compile(
    r"features\.denseblock([0-9]{1,4})\.denselayer([0-9]{1,4})\.conv([12])\.weight"
)
# Files from before torchvision 0.2.1 write `norm.1` where later ones write `norm1`.
OLD_NAMES = {rf"({_LAYER}\.(?:norm|relu|conv))\.([12])\.": r"\1\2."}
_CLASSES = r"torchvision\.models\.densenet\."
KINDS = {
    "": rf"{_CLASSES}DenseNet",
    "features": SEQUENTIAL,
    r"features\.denseblock\d+": rf"{_CLASSES}_DenseBlock",
    _LAYER: rf"{_CLASSES}_DenseLayer",
    r"features\.transition\d+": rf"{_CLASSES}_Transition",
    _CONVOLUTION: CONVOLUTION,
    rf"features\.norm\d|{_LAYER}\.norm\d|features\.transition\d+\.norm": BATCH_NORM,
    rf"features\.relu0|{_LAYER}\.relu\d|features\.transition\d+\.relu": RELU,
    r"features\.pool0": r"torch\.nn\.modules\.pooling\.MaxPool2d",
    r"features\.transition\d+\.pool": r"torch\.nn\.modules\.pooling\.AvgPool2d",
    "classifier": LINEAR,
}
POOLS = {
    "features.pool0": {
        "kernel_size": 3,
        "stride": 2,
        "padding": 1,
        "dilation": 1,
        "ceil_mode": False,
    },
    r"features\.transition\d+\.pool": {
        "kernel_size": 2,
        "stride": 2,
        "padding": 0,
        "ceil_mode": False,
        "count_include_pad": True,
        "divisor_override": None,
    },
}

# architecture -> layers per block, growth rate, stem width.
DEPTHS = {
    "densenet121": ((6, 12, 24, 16), 32, 64),
    "densenet161": ((6, 12, 36, 24), 48, 96),
    "densenet169": ((6, 12, 32, 32), 32, 64),
    "densenet201": ((6, 12, 48, 32), 32, 64),
}


@dataclass(frozen=True)
class DenseNetConfig(ImageConfig):
    """Static description: per block, per layer the widths of its 1x1 and 3x3 convolution."""

    stem: int
    blocks: tuple[tuple[tuple[int, int], ...], ...]
    transitions: tuple[int, ...]
    num_classes: int
    channels: int = 3
    eps: float = EPS
    folded: bool = False

    last_path = "classifier"

    def build(self, rngs: nnx.Rngs) -> "DenseNet":
        """A freshly initialised module of this shape."""
        return DenseNet(self, rngs)


class DenseLayer(nnx.Module):
    """norm, relu, 1x1, norm, relu, 3x3: the new features to append."""

    def __init__(self, config: DenseNetConfig, cin: int, widths: tuple[int, int], rngs):
        self.norm1 = layers.batch_norm(cin, config.eps, rngs)
        self.conv1 = layers.Conv(cin, widths[0], 1, use_bias=config.folded, rngs=rngs)
        self.norm2 = layers.kept_norm(config, widths[0], rngs)
        self.conv2 = layers.Conv(widths[0], widths[1], 3, padding=1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.conv1(jax.nn.relu(self.norm1(x)))
        return self.conv2(jax.nn.relu(self.norm2(x)))


class DenseBlock(nnx.Module):
    """Layers that each see all features before them."""

    def __init__(self, config: DenseNetConfig, cin: int, widths, rngs: nnx.Rngs):
        self.depth = len(widths)
        for j, layer in enumerate(widths, 1):
            setattr(self, f"denselayer{j}", DenseLayer(config, cin, layer, rngs))
            cin += layer[1]

    def __call__(self, x: jax.Array) -> jax.Array:
        for j in range(1, self.depth + 1):
            x = jnp.concatenate([x, getattr(self, f"denselayer{j}")(x)], axis=-1)
        return x


class Transition(nnx.Module):
    """norm, relu, 1x1, 2x2 mean: halves the map."""

    def __init__(self, config: DenseNetConfig, cin: int, cout: int, rngs: nnx.Rngs):
        self.norm = layers.batch_norm(cin, config.eps, rngs)
        self.conv = layers.Conv(cin, cout, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        # A mean commutes with a 1x1 convolution: pooling first does a quarter of the products.
        return self.conv(pooling.avg_pool(jax.nn.relu(self.norm(x)), 2, 2))


class Features(nnx.Module):
    """Everything before the classifier, under torch's name `features`."""

    def __init__(self, config: DenseNetConfig, rngs: nnx.Rngs):
        if not all(config.blocks) or len(config.transitions) != len(config.blocks) - 1:
            raise ValueError(
                f"got {len(config.transitions)} transitions between {len(config.blocks)} blocks"
            )
        self.conv0 = layers.Conv(
            config.channels, config.stem, 7, stride=2, padding=3, use_bias=config.folded, rngs=rngs
        )
        self.norm0 = layers.kept_norm(config, config.stem, rngs)
        self.depth = len(config.blocks)
        width = config.stem
        for i, block in enumerate(config.blocks, 1):
            setattr(self, f"denseblock{i}", DenseBlock(config, width, block, rngs))
            width += sum(layer[1] for layer in block)
            if i < self.depth:
                cout = config.transitions[i - 1]
                setattr(self, f"transition{i}", Transition(config, width, cout, rngs))
                width = cout
        self.width = width
        self.norm5 = layers.batch_norm(width, config.eps, rngs)

    @windows.of_pictures
    def __call__(self, images: jax.Array) -> jax.Array:
        x = jax.nn.relu(self.norm0(self.conv0(images)))
        x = pooling.max_pool(x, 3, 2, 1)
        for i in range(1, self.depth + 1):
            x = getattr(self, f"denseblock{i}")(x)
            x = x if i == self.depth else getattr(self, f"transition{i}")(x)
        return jax.nn.relu(self.norm5(x))


class DenseNet(nnx.Module):
    """Densely connected network over NHWC images."""

    def __init__(self, config: DenseNetConfig, rngs: nnx.Rngs):
        self.features = Features(config, rngs)
        self.classifier = nnx.Linear(self.features.width, config.num_classes, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        return self.classifier(pooling.global_mean(self.features(images)))


def standard(architecture: str, num_classes: int) -> DenseNetConfig:
    """The torchvision network of that name, with a head of `num_classes`."""
    depths, growth, stem = DEPTHS[architecture]
    transitions, width = [], stem
    for depth in depths[:-1]:
        width = (width + depth * growth) // 2
        transitions.append(width)
    blocks = tuple(((4 * growth, growth),) * depth for depth in depths)
    return DenseNetConfig(stem, blocks, tuple(transitions), num_classes)


def recognise(shapes: Mapping[str, tuple[int, ...]]) -> DenseNetConfig | None:
    """Configuration read off torch tensor shapes, or None when this is no dense network.

    What a damaged file lacks takes a likely width; `names.assign` then lists it as missing.
    """
    if not {"features.conv0.weight", "classifier.weight"} <= set(shapes):
        return None
    found: dict[int, dict[int, dict[int, int]]] = {}
    for name, shape in shapes.items():
        match = _LAYER_CONVOLUTION.fullmatch(name)
        if match:
            i, j, k = map(int, match.groups())
            found.setdefault(i, {}).setdefault(j, {})[k] = shape[0]
    likely = {
        k: w for block in found.values() for layer in block.values() for k, w in layer.items()
    }
    blocks = tuple(
        tuple(
            (layer.get(1, likely.get(1, 1)), layer.get(2, likely.get(2, 1)))
            for _, layer in sorted(block.items())
        )
        for _, block in sorted(found.items())
    )
    stem, head = shapes["features.conv0.weight"], shapes["classifier.weight"]
    return DenseNetConfig(stem[0], blocks, _transitions(shapes, blocks, stem[0]), head[0], stem[1])


def _transitions(shapes: Mapping[str, tuple[int, ...]], blocks, width: int) -> tuple[int, ...]:
    widths = []
    for i, block in enumerate(blocks[:-1], 1):
        half = (width + sum(layer[1] for layer in block)) // 2
        width = shapes.get(f"features.transition{i}.conv.weight", (half,))[0]
        widths.append(width)
    return tuple(widths)


def parts(config: DenseNetConfig) -> dict[str, Part]:
    """Submodules by path that run their own submodules in order."""
    last = len(config.blocks)
    layer = Part(children=("norm1", "relu1", "conv1", "norm2", "relu2", "conv2"))
    found, order = {}, ["conv0", "norm0", "relu0", "pool0"]
    for number, block in enumerate(config.blocks, 1):
        names = tuple(f"denselayer{k}" for k in range(1, len(block) + 1))
        found[f"features.denseblock{number}"] = Part(children=names)
        found |= {f"features.denseblock{number}.{name}": layer for name in names}
        order.append(f"denseblock{number}")
        if number < last:
            found[f"features.transition{number}"] = Part(children=("norm", "relu", "conv", "pool"))
            order.append(f"transition{number}")
    return found | {"features": Part(children=(*order, "norm5"))}


def norm_pairs(config: DenseNetConfig) -> tuple[tuple[str, str], ...]:
    """(convolution, batch norm) pairs that fold; norms before a relu-convolution do not."""
    pairs = [("features.conv0", "features.norm0")]
    for i, block in enumerate(config.blocks, 1):
        for j in range(1, len(block) + 1):
            path = f"features.denseblock{i}.denselayer{j}"
            pairs.append((f"{path}.conv1", f"{path}.norm2"))
    return tuple(pairs)


def architecture(config: DenseNetConfig) -> str:
    """torchvision's name of a network of that depth; the family's where it has none."""
    # The depths alone tell the four apart, so a narrow variant keeps its name.
    depths = tuple(map(len, config.blocks))
    return next((name for name, known in DEPTHS.items() if known[0] == depths), "densenet")


def torch_module(config: DenseNetConfig, names: Collection[str] = ()) -> Any:
    """torchvision's network of these blocks; see `Family.torch_module`."""
    from torchvision.models import DenseNet as TorchDenseNet

    depths: Any = tuple(map(len, config.blocks))  # torchvision says four; it takes any
    growth = config.blocks[0][0][1]
    return TorchDenseNet(growth, depths, config.stem, num_classes=config.num_classes)


def _counts(config: DenseNetConfig) -> tuple[int, int]:
    inner = 2 * sum(map(len, config.blocks)) + len(config.transitions)
    return 1 + inner, 2 + inner


FAMILY = Family(
    name="densenet",
    config=DenseNetConfig,
    table=TABLE,
    ignored=IGNORED,
    old_names=OLD_NAMES,
    recognise=recognise,
    architectures=tuple(DEPTHS),
    architecture=architecture,
    standard=standard,
    with_hyperparameters=with_eps(IGNORED, EPS),
    module_faults=NetworkModules(KINDS, POOLS, IGNORED, parts).faults,
    norm_pairs=norm_pairs,
    torch_module=torch_module,
    graph=GraphOutline(tuple(DEPTHS), _counts),
)
