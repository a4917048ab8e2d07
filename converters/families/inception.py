"""Inception v3 as torchvision builds it, for any input of 75 px or more.

The auxiliary head only trains the network; its tensors are ignored. Files from torchvision 0.4 have
no pooling submodules, which changes nothing here: pooling is part of the family.

Reference:
  Szegedy et al., Rethinking the Inception Architecture, https://arxiv.org/abs/1512.00567, 2015.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from converters.errors import MismatchError, safe_repr
from converters.families import layers, pooling, windows
from converters.families.family import Family, GraphOutline, Modules
from converters.families.hyperparameters import NetworkModules, uniform_eps
from converters.families.names import (
    BATCH_NORM,
    CONVOLUTION,
    LINEAR,
    NameRule,
    norm_rules,
)
from converters.model import ImageConfig
from converters.weights import Weights

EPS = 1e-3
_BASIC = r"(?:Conv2d|Mixed)_\w+(?:\.branch\w+)?"
TABLE = (
    NameRule(rf"({_BASIC}\.conv)\.weight", r"\1.kernel", "convolution"),
    *norm_rules(rf"{_BASIC}\.bn"),
    NameRule(r"fc\.weight", "fc.kernel", "linear"),
    NameRule(r"fc\.bias", "fc.bias", "vector"),
)
IGNORED = (r".*\.num_batches_tracked", r"AuxLogits\..*")
_CLASSES = r"torchvision\.models\.inception\."
_BASIC = r"Conv2d_[1-4][ab]_[13]x[13]|Mixed_[5-7][a-e]\.branch\w+"
KINDS = {
    "": rf"{_CLASSES}Inception3",
    r"Mixed_5[bcd]": rf"{_CLASSES}InceptionA",
    "Mixed_6a": rf"{_CLASSES}InceptionB",
    r"Mixed_6[bcde]": rf"{_CLASSES}InceptionC",
    "Mixed_7a": rf"{_CLASSES}InceptionD",
    r"Mixed_7[bc]": rf"{_CLASSES}InceptionE",
    _BASIC: rf"{_CLASSES}BasicConv2d",
    rf"({_BASIC})\.conv": CONVOLUTION,
    rf"({_BASIC})\.bn": BATCH_NORM,
    r"maxpool[12]": r"torch\.nn\.modules\.pooling\.MaxPool2d",
    "avgpool": r"torch\.nn\.modules\.pooling\.AdaptiveAvgPool2d",
    "dropout": r"torch\.nn\.modules\.dropout\.Dropout",
    "fc": LINEAR,
}
POOLS = {
    r"maxpool\d": {"kernel_size": 3, "stride": 2, "padding": 0, "dilation": 1, "ceil_mode": False}
}


@dataclass(frozen=True)
class BranchStep:
    """One convolution of a branch: torch name, width, kernel, stride, padding."""

    name: str
    width: int
    kernel: int | tuple[int, int] = 1
    stride: int = 1
    padding: int | tuple[int, int] = 0


def _block_a(pool: int):
    return (
        (BranchStep("branch1x1", 64),),
        (BranchStep("branch5x5_1", 48), BranchStep("branch5x5_2", 64, 5, 1, 2)),
        (
            BranchStep("branch3x3dbl_1", 64),
            BranchStep("branch3x3dbl_2", 96, 3, 1, 1),
            BranchStep("branch3x3dbl_3", 96, 3, 1, 1),
        ),
        ("mean", BranchStep("branch_pool", pool)),
    )


def _block_c(width: int):
    row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
    return (
        (BranchStep("branch1x1", 192),),
        (
            BranchStep("branch7x7_1", width),
            BranchStep("branch7x7_2", width, *row),
            BranchStep("branch7x7_3", 192, *column),
        ),
        (
            BranchStep("branch7x7dbl_1", width),
            BranchStep("branch7x7dbl_2", width, *column),
            BranchStep("branch7x7dbl_3", width, *row),
            BranchStep("branch7x7dbl_4", width, *column),
            BranchStep("branch7x7dbl_5", 192, *row),
        ),
        ("mean", BranchStep("branch_pool", 192)),
    )


def _block_e():
    row, column = ((1, 3), 1, (0, 1)), ((3, 1), 1, (1, 0))
    return (
        (BranchStep("branch1x1", 320),),
        (
            BranchStep("branch3x3_1", 384),
            (BranchStep("branch3x3_2a", 384, *row), BranchStep("branch3x3_2b", 384, *column)),
        ),
        (
            BranchStep("branch3x3dbl_1", 448),
            BranchStep("branch3x3dbl_2", 384, 3, 1, 1),
            (BranchStep("branch3x3dbl_3a", 384, *row), BranchStep("branch3x3dbl_3b", 384, *column)),
        ),
        ("mean", BranchStep("branch_pool", 192)),
    )


_BLOCK_B = (
    (BranchStep("branch3x3", 384, 3, 2),),
    (
        BranchStep("branch3x3dbl_1", 64),
        BranchStep("branch3x3dbl_2", 96, 3, 1, 1),
        BranchStep("branch3x3dbl_3", 96, 3, 2),
    ),
    ("max",),
)
_BLOCK_D = (
    (BranchStep("branch3x3_1", 192), BranchStep("branch3x3_2", 320, 3, 2)),
    (
        BranchStep("branch7x7x3_1", 192),
        BranchStep("branch7x7x3_2", 192, (1, 7), 1, (0, 3)),
        BranchStep("branch7x7x3_3", 192, (7, 1), 1, (3, 0)),
        BranchStep("branch7x7x3_4", 192, 3, 2),
    ),
    ("max",),
)
# The network in order: a single convolution, a pooling, or a block of branches.
TRUNK = (
    ("Conv2d_1a_3x3", BranchStep("", 32, 3, 2)),
    ("Conv2d_2a_3x3", BranchStep("", 32, 3)),
    ("Conv2d_2b_3x3", BranchStep("", 64, 3, 1, 1)),
    ("maxpool1", "max"),
    ("Conv2d_3b_1x1", BranchStep("", 80)),
    ("Conv2d_4a_3x3", BranchStep("", 192, 3)),
    ("maxpool2", "max"),
    ("Mixed_5b", _block_a(32)),
    ("Mixed_5c", _block_a(64)),
    ("Mixed_5d", _block_a(64)),
    ("Mixed_6a", _BLOCK_B),
    ("Mixed_6b", _block_c(128)),
    ("Mixed_6c", _block_c(160)),
    ("Mixed_6d", _block_c(160)),
    ("Mixed_6e", _block_c(192)),
    ("Mixed_7a", _BLOCK_D),
    ("Mixed_7b", _block_e()),
    ("Mixed_7c", _block_e()),
)


def _steps(branch):
    for step in branch:
        if isinstance(step, tuple):
            yield from step
        elif isinstance(step, BranchStep):
            yield step


def _convolutions():
    """(torch path, BranchStep) of every convolution, in network order."""
    for name, part in TRUNK:
        if isinstance(part, BranchStep):
            yield name, part
        elif isinstance(part, tuple):
            for branch in part:
                yield from ((f"{name}.{step.name}", step) for step in _steps(branch))


@dataclass(frozen=True)
class InceptionConfig(ImageConfig):
    """Static description: the width of every convolution in network order."""

    widths: tuple[int, ...]
    num_classes: int
    channels: int = 3
    eps: float = EPS
    transform_input: bool = False
    folded: bool = False

    def build(self, rngs: nnx.Rngs) -> "Inception":
        """A freshly initialised module of this shape."""
        return Inception(self, rngs)


class BasicConv(nnx.Module):
    """Convolution, batch norm, relu."""

    def __init__(
        self, config: InceptionConfig, cin: int, cout: int, step: BranchStep, rngs: nnx.Rngs
    ):
        self.conv = layers.Conv(
            cin,
            cout,
            step.kernel,
            stride=step.stride,
            padding=step.padding,
            use_bias=config.folded,
            rngs=rngs,
        )
        folded = config.folded
        self.bn = layers.Identity() if folded else layers.batch_norm(cout, config.eps, rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.nn.relu(self.bn(self.conv(x)))


class Mixed(nnx.Module):
    """Branches over one input, concatenated."""

    def __init__(self, config: InceptionConfig, cin: int, branches, widths, rngs: nnx.Rngs):
        self.branches = branches
        self.width = 0
        for branch in branches:
            width = cin
            for step in branch:
                fork = step if isinstance(step, tuple) else (step,)
                convs = [s for s in fork if isinstance(s, BranchStep)]
                for s in convs:
                    setattr(self, s.name, BasicConv(config, width, widths[s.name], s, rngs))
                width = sum(widths[s.name] for s in convs) if convs else width
            self.width += width

    def _step(self, step, x: jax.Array) -> jax.Array:
        if step == "mean":
            return pooling.avg_pool(x, 3, 1, 1)
        if step == "max":
            return pooling.max_pool(x, 3, 2)
        if isinstance(step, tuple):
            return jnp.concatenate([self._step(part, x) for part in step], axis=-1)
        return getattr(self, step.name)(x)

    def __call__(self, x: jax.Array) -> jax.Array:
        outputs = []
        for branch in self.branches:
            y = x
            for step in branch:
                y = self._step(step, y)
            outputs.append(y)
        return jnp.concatenate(outputs, axis=-1)


class Inception(nnx.Module):
    """Inception v3 over NHWC images."""

    def __init__(self, config: InceptionConfig, rngs: nnx.Rngs):
        if config.transform_input and config.channels != 3:
            raise ValueError(f"transform_input is for 3 channels, got {config.channels}")
        paths = [path for path, _ in _convolutions()]
        widths = dict(zip(paths, config.widths, strict=True))
        self.transform_input = config.transform_input
        cin = config.channels
        for name, part in TRUNK:
            if isinstance(part, BranchStep):
                setattr(self, name, BasicConv(config, cin, widths[name], part, rngs))
                cin = widths[name]
            elif isinstance(part, tuple):
                inner = {
                    path.split(".")[1]: w for path, w in widths.items() if path.startswith(name)
                }
                block = Mixed(config, cin, part, inner, rngs)
                setattr(self, name, block)
                cin = block.width
        self.fc = nnx.Linear(cin, config.num_classes, rngs=rngs)

    @windows.of_pictures
    def features(self, images: jax.Array) -> jax.Array:
        """Pooled features `[n, d]` of images `[n, h, w, c]`."""
        x = _transform(images) if self.transform_input else images
        for name, part in TRUNK:
            x = pooling.max_pool(x, 3, 2) if part == "max" else getattr(self, name)(x)
        return pooling.global_mean(x)

    def __call__(self, images: jax.Array) -> jax.Array:
        return self.fc(self.features(images))


def _transform(images: jax.Array) -> jax.Array:
    """torchvision's `transform_input`: ImageNet normalisation to that of the original weights."""
    scale = jnp.asarray([0.229, 0.224, 0.225], images.dtype) / 0.5
    shift = (jnp.asarray([0.485, 0.456, 0.406], images.dtype) - 0.5) / 0.5
    return images * scale + shift


def standard(architecture: str, num_classes: int) -> InceptionConfig:
    """Inception v3 with a head of `num_classes`."""
    return InceptionConfig(tuple(step.width for _, step in _convolutions()), num_classes)


def recognise(shapes: Mapping[str, tuple[int, ...]]) -> InceptionConfig | None:
    """Configuration read off torch tensor shapes, or None when this is no Inception v3."""
    if not {"Conv2d_1a_3x3.conv.weight", "Mixed_5b.branch1x1.conv.weight", "fc.weight"} <= set(
        shapes
    ):
        return None
    # An absent convolution keeps its standard width; `names.assign` then lists it as missing.
    widths = tuple(
        shapes.get(f"{path}.conv.weight", (step.width,))[0] for path, step in _convolutions()
    )
    return InceptionConfig(widths, shapes["fc.weight"][0], shapes["Conv2d_1a_3x3.conv.weight"][1])


def norm_pairs(config: InceptionConfig) -> tuple[tuple[str, str], ...]:
    """(convolution, batch norm) pairs; every batch norm of the network folds."""
    del config
    return tuple((f"{path}.conv", f"{path}.bn") for path, _ in _convolutions())


def _with_hyperparameters(config: InceptionConfig, modules: Modules) -> InceptionConfig:
    eps = uniform_eps(modules, IGNORED, EPS)
    return replace(config, eps=eps, transform_input=_transforms_input(modules))


def _transforms_input(modules: Modules) -> bool:
    """Whether a whole network normalises its pictures once more; False where no file says it.

    Raises:
      MismatchError: it is no truth value: torch takes `{}` for False, and only its type is known.
    """
    root = modules.get("")
    value = False if root is None else root.attributes.get("transform_input", False)
    if not isinstance(value, bool):
        raise MismatchError(
            f"transform_input is {safe_repr(value)}, expected True or False; set it to one of them "
            "and save the network again"
        )
    return value


def _remarks(config: InceptionConfig, weights: Weights) -> Iterator[str]:
    del config
    if any(name.startswith("AuxLogits.") for name in weights.tensors):
        yield "the auxiliary head only trains the network and was left out"
    if "" not in weights.modules:
        yield "a state dict does not say whether transform_input is on; taken as off"


def torch_module(config: InceptionConfig, names: Collection[str] = ()) -> Any:
    """torchvision's network, with its auxiliary head if the names hold one."""
    from torchvision.models import Inception3

    auxiliary = any(name.startswith("AuxLogits.") for name in names)
    return Inception3(config.num_classes, auxiliary, config.transform_input, init_weights=False)


FAMILY = Family(
    name="inception",
    config=InceptionConfig,
    table=TABLE,
    ignored=IGNORED,
    recognise=recognise,
    architectures=("inception_v3",),
    architecture=lambda config: "inception_v3",
    standard=standard,
    with_hyperparameters=_with_hyperparameters,
    module_faults=NetworkModules(KINDS, POOLS, IGNORED).faults,
    remarks=_remarks,
    norm_pairs=norm_pairs,
    torch_module=torch_module,
    graph=GraphOutline(
        ("inception_v3",),
        lambda config: (len(config.widths), len(config.widths)),
        lambda config: (config, replace(config, transform_input=True)),
    ),
)
