"""The hand-written Flax families, found by the names and shapes of the tensors in a file."""

from types import ModuleType

from converters.families import dense_head, densenet, inception, resnet, rnn_head

FAMILIES: dict[str, ModuleType] = {
    "resnet": resnet,
    "densenet": densenet,
    "inception": inception,
    "rnn_head": rnn_head,
    "dense_head": dense_head,
}
# Networks whose name and number of classes say everything: torchvision's.
ARCHITECTURES: dict[str, ModuleType] = {
    **{name: resnet for name in resnet.DEPTHS},
    **{name: densenet for name in densenet.DEPTHS},
    "inception_v3": inception,
}
# TrojAI's names of the sentiment heads.
HEADS: dict[str, ModuleType] = {
    "GruLinear": rnn_head,
    "LstmLinear": rnn_head,
    "FCLinear": dense_head,
    "Linear": dense_head,
}


def standard(architecture: str, num_classes: int):
    """Configuration of a torchvision network by its torchvision name.

    Raises:
      KeyError: the name is not one of `ARCHITECTURES`.
    """
    if architecture not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise KeyError(f"unknown architecture {architecture!r}; expected one of {known}")
    return ARCHITECTURES[architecture].standard(architecture, num_classes)


def build(architecture: str, num_classes: int, rngs):
    """Configuration and freshly initialised trainable NNX module of a standard architecture."""
    config = standard(architecture, num_classes)
    return config, config.build(rngs)


def family_of(config) -> ModuleType:
    """The family module that a configuration belongs to."""
    return next(f for f in FAMILIES.values() if f.__name__ == type(config).__module__)


def name_of(config) -> str:
    """Name of the family that a configuration belongs to, a key of `FAMILIES`."""
    return next(name for name, family in FAMILIES.items() if family is family_of(config))


def architecture_of(config) -> str:
    """TrojAI's name of a head, torchvision's of a network of standard depth, else the family's."""
    family = family_of(config)
    if hasattr(family, "architecture"):
        return family.architecture(config)
    for name, module in ARCHITECTURES.items():
        if module is family and _outline(module.standard(name, 1)) == _outline(config):
            return name
    return name_of(config)


def _outline(config):
    """What names a depth: blocks per stage, groups, whether the inner widths are the wide ones."""
    if isinstance(config, resnet.ResNetConfig):
        stages = tuple((len(stage), len(stage[0].widths)) for stage in config.stages)
        first = config.stages[0][0].widths
        return stages, config.groups, first[0] / first[-1]
    if isinstance(config, densenet.DenseNetConfig):
        # The depths alone tell the four apart, so a narrow variant keeps its name.
        return tuple(len(block) for block in config.blocks)
    return "inception_v3"
