"""Which networks are rebuilt: an explicit table by class name and by names of tensors."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from converters.errors import EXPORT, UnsupportedArchitectureError
from converters.public_codes import HUYVNPHAN, MIXMATCH, NO_FIRST_POOL, XTERNALZ, PublicCode
from converters.rebuilt import mobile, plain, residual, sequential, small_pictures, transformers
from converters.rebuilt.description import Description
from converters.weights import ModuleInfo, Weights

# Renamed since; older files say the old names.
_RENAMED = {
    "torchvision.models.mobilenet.MobileNetV2": "torchvision.models.mobilenetv2.MobileNetV2",
    "torchvision.models.mobilenet.InvertedResidual": (
        "torchvision.models.mobilenetv2.InvertedResidual"
    ),
    **dict.fromkeys(
        (
            "torchvision.models.mobilenet.ConvBNReLU",
            "torchvision.models.mobilenetv2.ConvBNReLU",
            "torchvision.models.mobilenetv2.ConvBNActivation",
            "torchvision.ops.misc.ConvNormActivation",
        ),
        "torchvision.ops.misc.Conv2dNormActivation",
    ),
    "torchvision.models.mobilenetv3.SqueezeExcitation": "torchvision.ops.misc.SqueezeExcitation",
    "torch.nn.modules.linear._LinearWithBias": (
        "torch.nn.modules.linear.NonDynamicallyQuantizableLinear"
    ),
}
_WIDTHS = r"(features|classifier|fc|conv\d|aux\d|inception\w+)(\..*)?"
_SQUEEZES = r".*\.fc[12]"
Build = Callable[[Description], Any]
# Fewer names are those of other networks, too, when one of them is missing.
_TELLING = 4


@dataclass(frozen=True)
class KnownNetwork:
    """One of torchvision's classes, or a network of public code that state dicts are of.

    Attributes:
      name: for records.
      class_name: full name of torchvision's class, as files name it; empty for other code, whose
        whole networks are not read, since nobody sees what their classes compute.
      build: makes the network on torch's current device, with random weights.
      tensors: names that tell its state dict from others; none where only whole networks are read.
      standards: torchvision's functions that make networks of the class, for state dicts, which do
        not name strides; empty where every number is seen in the weights.
      exact: whether a standard network serves only for a state dict of its very shapes, head and
        positions aside; else one of the same tensor names does.
      free: layers whose width the constructor fixes; they are fitted to the file's.
      unsaid: what a state dict leaves open, and how it was taken.
      codes: public codes that differ in what its state dicts leave open, each with what makes its
        network, in the place of `build`; empty where one way is known.
      of_family: whether a Flax family takes most networks of the class; a whole network must have
        `tensors`, too, then, or it is told how it differs from the family.
    """

    name: str
    class_name: str
    build: Build
    tensors: tuple[str, ...]
    standards: tuple[str, ...] = ()
    exact: bool = False
    free: str = "(?!)"
    unsaid: tuple[str, ...] = ()
    codes: tuple[tuple[PublicCode, Build], ...] = ()
    of_family: bool = False


KNOWN = (
    KnownNetwork(
        "alexnet",
        "torchvision.models.alexnet.AlexNet",
        plain.alexnet,
        ("features.0.weight", "features.10.weight", "classifier.1.weight", "classifier.4.weight"),
        free=_WIDTHS,
    ),
    KnownNetwork(
        "vgg",
        "torchvision.models.vgg.VGG",
        plain.vgg,
        ("features.0.weight", "classifier.0.weight", "classifier.3.weight", "classifier.6.weight"),
        free=_WIDTHS,
    ),
    KnownNetwork(
        "squeezenet",
        "torchvision.models.squeezenet.SqueezeNet",
        plain.squeezenet,
        ("features.0.weight", "features.3.squeeze.weight", "classifier.1.weight"),
        free=_WIDTHS,
    ),
    KnownNetwork(
        "googlenet",
        "torchvision.models.googlenet.GoogLeNet",
        plain.googlenet,
        ("conv1.conv.weight", "inception3a.branch1.conv.weight", "fc.weight"),
        free=_WIDTHS,
        unsaid=("a state dict does not say whether transform_input is on; taken as off",),
    ),
    KnownNetwork(
        "mobilenet_v2",
        "torchvision.models.mobilenetv2.MobileNetV2",
        mobile.mobilenet_v2,
        ("features.0.0.weight", "features.1.conv.0.0.weight", "classifier.1.weight"),
        ("mobilenet_v2",),
        free=r"features\.\d+\.[01]|classifier\.1",
    ),
    KnownNetwork(
        "mobilenet_v3",
        "torchvision.models.mobilenetv3.MobileNetV3",
        mobile.mobilenet_v3,
        ("features.0.0.weight", "features.1.block.0.0.weight", "classifier.3.weight"),
        ("mobilenet_v3_small", "mobilenet_v3_large"),
        free=rf"features\.\d+\.[01]|classifier\.[03]|{_SQUEEZES}",
    ),
    KnownNetwork(
        "mnasnet",
        "torchvision.models.mnasnet.MNASNet",
        mobile.mnasnet,
        ("layers.0.weight", "layers.8.0.layers.0.weight", "classifier.1.weight"),
    ),
    KnownNetwork(
        "shufflenet_v2",
        "torchvision.models.shufflenetv2.ShuffleNetV2",
        mobile.shufflenet_v2,
        ("conv1.0.weight", "stage2.0.branch1.0.weight", "conv5.0.weight"),
    ),
    KnownNetwork(
        "efficientnet",
        "torchvision.models.efficientnet.EfficientNet",
        mobile.efficientnet,
        ("features.0.0.weight", "features.1.0.block.0.0.weight", "classifier.1.weight"),
        (*(f"efficientnet_b{n}" for n in range(8)), *(f"efficientnet_v2_{s}" for s in "sml")),
        free=_SQUEEZES,
    ),
    KnownNetwork(
        "regnet",
        "torchvision.models.regnet.RegNet",
        residual.regnet,
        ("stem.0.weight", "trunk_output.block1.block1-0.f.a.0.weight"),
        free=_SQUEEZES,
    ),
    KnownNetwork(
        "convnext",
        "torchvision.models.convnext.ConvNeXt",
        residual.convnext,
        ("features.0.0.weight", "features.1.0.layer_scale", "classifier.2.weight"),
    ),
    KnownNetwork(
        "vit",
        "torchvision.models.vision_transformer.VisionTransformer",
        transformers.vision_transformer,
        ("class_token", "conv_proj.weight", "encoder.pos_embedding"),
        ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32", "vit_h_14"),
        exact=True,
    ),
    KnownNetwork(
        "swin",
        "torchvision.models.swin_transformer.SwinTransformer",
        transformers.swin,
        ("features.0.0.weight", "features.1.0.attn.qkv.weight", "head.weight"),
    ),
    KnownNetwork(
        "maxvit",
        "torchvision.models.maxvit.MaxVit",
        transformers.maxvit,
        ("stem.0.0.weight", "blocks.0.layers.0.layers.MBconv.layers.conv_a.0.weight"),
        unsaid=("a state dict does not say the size of images; taken as 224 x 224",),
    ),
    KnownNetwork(
        "resnet",
        "torchvision.models.resnet.ResNet",
        small_pictures.torchvision_residual,
        ("conv1.weight", "layer1.0.conv1.weight", "layer4.0.downsample.0.weight", "fc.weight"),
        of_family=True,
        unsaid=small_pictures.STRIDES,
        codes=(
            (NO_FIRST_POOL, small_pictures.residual),
            (HUYVNPHAN, small_pictures.pooled_residual),
        ),
    ),
    *(
        KnownNetwork(
            "small_resnet",
            "",
            small_pictures.residual,
            ("conv1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.weight", f"{head}.weight"),
            unsaid=small_pictures.UNSAID,
        )
        for head in ("linear", "fc")
    ),
    KnownNetwork(
        "wide_resnet",
        "",
        small_pictures.wide,
        ("conv1.weight", "block1.layer.0.conv1.weight", "block1.layer.0.bn1.weight", "fc.weight"),
        unsaid=small_pictures.STRIDES,
        codes=((XTERNALZ, small_pictures.wide), (MIXMATCH, small_pictures.leaky_wide)),
    ),
    KnownNetwork(
        "small_vgg",
        "",
        small_pictures.vgg,
        ("features.0.weight", "classifier.weight", "classifier.bias"),
        free=r"features\.0",
        unsaid=small_pictures.VGG_POOLS,
    ),
    KnownNetwork("sequential", sequential.CLASS_NAME, sequential.sequential, ()),
)


def current_class(name: str) -> str:
    """The name that torch and torchvision have for a class today."""
    return _RENAMED.get(name, name)


def known_network(weights: Weights) -> KnownNetwork | None:
    """The family of a file: by the class of a whole network, by tensor names of a state dict."""
    return known_of(weights.tensors, weights.modules)


def known_of(names: Collection[str], modules: Mapping[str, ModuleInfo]) -> KnownNetwork | None:
    """The same by names of tensors and description of modules."""
    if "" in modules:
        found = class_entry(modules[""].class_name)
        fits = found is None or not found.of_family or _has(names, found.tensors)
        return found if fits else None
    return next((f for f in KNOWN if f.tensors and _has(names, f.tensors)), None)


def class_entry(class_name: str) -> KnownNetwork | None:
    """The entry of a whole network's class, whether it is rebuilt or mostly a family's."""
    name = current_class(class_name)
    return next((f for f in KNOWN if f.class_name and f.class_name == name), None)


def code_of(
    network: KnownNetwork, names: Collection[str], public_code: str | None
) -> PublicCode | None:
    """Whose code a state dict is of; None where that is open, or one code is known.

    Args:
      network: what it is of.
      names: of its tensors, as the file has them; these come first.
      public_code: what was said, see `InputForm`.
    """
    codes = [code for code, _ in network.codes]
    own = (code for code in codes if code.own_names and _has(names, code.own_names))
    said = (code for code in codes if code.name == public_code)
    return next(chain(own, said), None)


def refuse_replaced(names: Collection[str]) -> None:
    """Raise for a file that has other layers in the place of one that a known network has.

    Raises:
      UnsupportedArchitectureError: says which network, what is missing and what is unknown.
    """
    for network in KNOWN:
        missing = [name for name in network.tensors if name not in names]
        if len(missing) != 1 or len(network.tensors) < _TELLING:
            continue
        place = missing[0].removesuffix("weight")
        unknown = [name for name in names if name.startswith(place)]
        if unknown:
            shown = ", ".join(name[:60] for name in unknown[:2])
            raise UnsupportedArchitectureError(
                f"like {network.name}, but {missing[0]} is missing and there is {shown}; {EXPORT}; "
                "or name its code, if you trust it: --network FILE.py:CLASS"
            )


def _has(names: Iterable[str], wanted: tuple[str, ...]) -> bool:
    return set(wanted) <= set(names)


def current_names(names: Iterable[str]) -> dict[str, str]:
    """Old tensor name -> name that torchvision writes today (ViT before 0.13)."""
    return {n: re.sub(r"\.mlp\.linear_([12])\.", _sequential, n) for n in names}


def _sequential(match: re.Match[str]) -> str:
    return f".mlp.{3 * (int(match[1]) - 1)}."
