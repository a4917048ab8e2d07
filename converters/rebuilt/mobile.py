"""MobileNet v2 and v3, MNASNet, ShuffleNet v2, EfficientNet: inverted residuals.

References:
  torchvision 0.29, mobilenetv2.py, mobilenetv3.py, mnasnet.py, shufflenetv2.py, efficientnet.py.
"""

from functools import partial
from typing import Any

from converters.errors import MismatchError
from converters.rebuilt.description import Description


def _layers(d: Description, path: str) -> list[str]:
    """Paths of the convolution blocks (convolution, norm, activation) of a sequence."""
    found = [f"{path}.{n}" for n in d.children(path) if d.is_convolution(f"{path}.{n}.0")]
    if not found:
        raise MismatchError(f"{path} holds no convolution, expected an inverted residual")
    return found


def mobilenet_v2(d: Description) -> Any:
    """MobileNet v2 of any depth, width and strides."""
    from torchvision import models

    stem = d.rows("features.0.0.weight")
    last = max(d.children("features"))
    scale, cin, rows = stem / 32, stem, []
    for n in range(1, last):
        path = f"features.{n}.conv"
        # Expansion, depthwise, projection; the projection stands outside a block of its own.
        expanded = d.is_convolution(f"{path}.1.0")
        depthwise = f"{path}.{int(expanded)}.0"
        cout = d.rows(f"{path}.{1 + expanded}.weight")
        ratio = d.rows(f"{depthwise}.weight") / cin if expanded else 1
        rows.append([ratio, cout / scale, 1, d.number(depthwise, "stride")])
        cin = cout
    # Rounding is off, since widths are given as they are.
    return models.MobileNetV2(d.rows("classifier.1.weight"), scale, rows, round_nearest=1)


def mobilenet_v3(d: Description) -> Any:
    """MobileNet v3 of any depth, width, strides and dilation."""
    from torchvision.models import mobilenetv3

    cin, rows = d.rows("features.0.0.weight"), []
    for n in range(1, max(d.children("features"))):
        path = f"features.{n}.block"
        layers = _layers(d, path)
        depthwise = layers[-2] if len(layers) > 1 else layers[0]
        row = mobilenetv3.InvertedResidualConfig(
            8,
            d.shape(f"{depthwise}.0.weight", 4)[2],
            8,
            8,
            any(f"{path}.{k}.fc1.weight" in d.shapes for k in d.children(path)),
            "HS" if d.kind(f"{depthwise}.2") == "Hardswish" else "RE",
            d.number(f"{depthwise}.0", "stride"),
            d.number(f"{depthwise}.0", "dilation"),
            1.0,
        )
        # Set afterwards: the constructor rounds to multiples of eight.
        row.input_channels, row.expanded_channels = cin, d.rows(f"{depthwise}.0.weight")
        cin = row.out_channels = d.rows(f"{layers[-1]}.0.weight")
        rows.append(row)
    return mobilenetv3.MobileNetV3(
        rows, d.rows("classifier.0.weight"), d.rows("classifier.3.weight")
    )


def mnasnet(d: Description) -> Any:
    """MNASNet of any width that torchvision makes."""
    from torchvision import models

    return models.MNASNet(
        d.rows("layers.13.0.layers.6.weight") / 320, d.rows("classifier.1.weight")
    )


def shufflenet_v2(d: Description) -> Any:
    """ShuffleNet v2 of any depth and width."""
    from torchvision import models

    stages = [f"stage{n}" for n in (2, 3, 4)]
    widths = [2 * d.rows(f"{stage}.0.branch2.5.weight") for stage in stages]
    widths = [d.rows("conv1.0.weight"), *widths, d.rows("conv5.0.weight")]
    repeats = [len(d.children(stage)) for stage in stages]
    return models.ShuffleNetV2(repeats, widths, d.rows("fc.weight"))


def efficientnet(d: Description) -> Any:
    """EfficientNet v1 or v2 of any depth and width."""
    from torch import nn
    from torchvision.models import efficientnet as torchvision

    last = max(d.children("features"))
    cin, stages = d.rows("features.0.0.weight"), []
    for n in range(1, last):
        stage = _efficient_stage(d, f"features.{n}", cin)
        stages.append(stage)
        cin = stage.out_channels
    return torchvision.EfficientNet(
        stages,
        dropout=0.0,
        num_classes=d.rows("classifier.1.weight"),
        norm_layer=partial(nn.BatchNorm2d, eps=d.epsilon("features.0.1")),
        last_channel=d.rows(f"features.{last}.0.weight"),
    )


def _efficient_stage(d: Description, path: str, cin: int) -> Any:
    """Blocks of one width; those that squeeze are MBConv, the others fused."""
    from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig

    block = f"{path}.0.block"
    layers = _layers(d, block)
    squeezes = any(f"{block}.{k}.fc1.weight" in d.shapes for k in d.children(block))
    inner = layers[-2] if squeezes and len(layers) > 1 else layers[0]
    expanded = cin if not squeezes and len(layers) == 1 else d.rows(f"{inner}.0.weight")
    stage = (MBConvConfig if squeezes else FusedMBConvConfig)(
        expanded / cin,
        d.shape(f"{inner}.0.weight", 4)[2],
        d.number(f"{inner}.0", "stride"),
        8,
        8,
        len(d.children(path)),
    )
    # Set afterwards: the constructor rounds to multiples of eight.
    stage.input_channels, stage.out_channels = cin, d.rows(f"{layers[-1]}.0.weight")
    return stage
