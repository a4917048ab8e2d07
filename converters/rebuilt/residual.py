"""RegNet and ConvNeXt: stages of residual blocks.

References:
  torchvision 0.29, torchvision/models/{regnet,convnext}.py.
"""

from functools import partial
from typing import Any

from converters.errors import MismatchError
from converters.rebuilt.description import Description

_STAGES = 8


def regnet(d: Description) -> Any:
    """RegNet X or Y of any depth, width and group width."""
    from torch import nn
    from torchvision.models import regnet as torchvision

    stem = d.rows("stem.0.weight")
    depths, widths, groups, multipliers, strides, ratios = [], [], [], [], [], []
    for n in range(1, _STAGES + 1):
        stage = f"trunk_output.block{n}.block{n}-"
        depth = sum(name.startswith(stage) for name in d.shapes if name.endswith(".f.a.0.weight"))
        if not depth:
            break
        first = f"{stage}0.f"
        depths.append(depth)
        widths.append(d.rows(f"{first}.c.0.weight"))
        inner, group = d.shape(f"{first}.b.0.weight", 4)[:2]
        groups.append(group)
        multipliers.append(inner / widths[-1])
        strides.append(d.number(f"{first}.b.0", "stride", default=2))
        if f"{first}.se.fc1.weight" in d.shapes:
            squeezed = d.rows(f"{first}.se.fc1.weight")
            ratios.append(squeezed / (widths[-2] if n > 1 else stem))
    params = torchvision.BlockParams(
        depths, widths, groups, multipliers, strides, _squeeze(ratios) if ratios else None
    )
    norm = partial(nn.BatchNorm2d, eps=d.epsilon("stem.1", 1e-5))
    return torchvision.RegNet(params, d.rows("fc.weight"), stem, norm_layer=norm)


def _squeeze(ratios: list[float]) -> float:
    """torchvision's quarter where rounding explains the difference; layers are fitted later."""
    return 0.25 if max(abs(ratio - 0.25) for ratio in ratios) < 0.05 else ratios[0]


def convnext(d: Description) -> Any:
    """ConvNeXt of any depth and width."""
    from torchvision.models import convnext as torchvision

    last = max(d.children("features"), default=0)
    rows, n = [], 1
    while n <= last:
        stage = f"features.{n}"
        depth = len(d.children(stage))
        width = d.rows(f"{stage}.0.block.0.weight")
        # Between stages a norm and a convolution of stride two.
        narrows = d.is_convolution(f"features.{n + 1}.1")
        cout = d.rows(f"features.{n + 1}.1.weight") if narrows else None
        rows.append(torchvision.CNBlockConfig(width, cout, depth))
        n += 1 + narrows
    if sum(row.num_layers for row in rows) < 2:
        raise MismatchError("a ConvNeXt has two blocks at least")
    return torchvision.ConvNeXt(rows, num_classes=d.rows("classifier.2.weight"))
