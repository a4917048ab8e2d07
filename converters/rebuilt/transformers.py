"""ViT, Swin v1 and v2, MaxViT: networks with attention.

References:
  torchvision 0.29, torchvision/models/{vision_transformer,swin_transformer,maxvit}.py.
"""

import math
from functools import partial
from typing import Any

from converters.errors import MismatchError
from converters.rebuilt.description import Description


def vision_transformer(d: Description) -> Any:
    """ViT of any depth, width, patch and image size."""
    from torch import nn
    from torchvision.models import VisionTransformer

    hidden, _, patch, _ = d.shape("conv_proj.weight", 4)
    tokens = d.shape("encoder.pos_embedding", 3)[1] - 1
    side = math.isqrt(max(tokens, 0))
    if side * side != tokens or not side:
        raise MismatchError(f"{tokens} patches make no square image")
    block = "encoder.layers.encoder_layer_"
    layers = sum(n.startswith(block) and n.endswith(".ln_1.weight") for n in d.shapes)
    inner = "heads.pre_logits.weight"
    return VisionTransformer(
        side * patch,
        patch,
        layers,
        d.number(f"{block}0.self_attention", "num_heads", hidden),
        hidden,
        d.rows(f"{block}0.mlp.0.weight"),
        num_classes=d.rows("heads.head.weight"),
        representation_size=d.rows(inner) if inner in d.shapes else None,
        norm_layer=partial(nn.LayerNorm, eps=d.epsilon("encoder.ln")),
    )


def swin(d: Description) -> Any:
    """Swin v1 or v2 of any depth, width, patch and window."""
    from torch import nn
    from torchvision.models import swin_transformer as torchvision

    width, _, *patch = d.shape("features.0.0.weight", 4)
    second = "features.1.0.attn.logit_scale" in d.shapes
    stages = range(1, max(d.children("features")) + 1, 2)
    depths = [len(d.children(f"features.{n}")) for n in stages]
    scale, column = ("logit_scale", 0) if second else ("relative_position_bias_table", 1)
    heads = [d.shape(f"features.{n}.0.attn.{scale}", 3 - column)[column] for n in stages]
    if sum(depths) < 2:
        raise MismatchError("a Swin network has two blocks at least")
    kinds = torchvision.SwinTransformerBlock, torchvision.PatchMerging
    if second:
        kinds = torchvision.SwinTransformerBlockV2, torchvision.PatchMergingV2
    return torchvision.SwinTransformer(
        patch,
        width,
        depths,
        heads,
        _window(d, second),
        d.rows("features.1.0.mlp.0.weight") / width,
        num_classes=d.rows("head.weight"),
        norm_layer=partial(nn.LayerNorm, eps=d.epsilon("norm", 1e-5)),
        block=kinds[0],
        downsample_layer=kinds[1],
    )


def _window(d: Description, second: bool) -> list[int]:
    """Height and width of the windows, from the table of relative positions."""
    attention = "features.1.0.attn"
    if second:
        _, height, width, _ = d.shape(f"{attention}.relative_coords_table", 4)
        return [(height + 1) // 2, (width + 1) // 2]
    side = _square_window(d.rows(f"{attention}.relative_position_bias_table"))
    window = d.pair(attention, "window_size", (side, side))
    if 0 in window:
        raise MismatchError(f"{attention} has a table of no square window; save the whole network")
    return list(window)


def _square_window(positions: int) -> int:
    """Side of the square window with that many relative positions, 0 if there is none."""
    side = math.isqrt(positions)
    return (side + 1) // 2 if side * side == positions and side % 2 else 0


def _drops(d: Description) -> bool:
    return any(info.class_name.endswith(".StochasticDepth") for info in d.modules.values())


def maxvit(d: Description) -> Any:
    """MaxViT of any depth and width, for the image size that its grids say."""
    from torchvision.models import MaxVit

    blocks = d.children("blocks")
    layer = "layers.0.layers"
    widths = [d.rows(f"blocks.{n}.{layer}.MBconv.layers.conv_c.weight") for n in blocks]
    table = f"blocks.0.{layer}.window_attention.attn_layer.1.relative_position_bias_table"
    positions, heads = d.shape(table, 2)
    # A state dict does not say it; torchvision makes it for 224 pixels.
    grid = d.pair("blocks.0", "grid_size", (56, 56))
    partition = _square_window(positions)
    if not partition or not heads or widths[0] % heads:
        raise MismatchError(f"grid {grid}, {positions} positions and {heads} heads make no MaxViT")
    return MaxVit(
        (4 * grid[0], 4 * grid[1]),
        d.rows("stem.0.0.weight"),
        partition,
        widths,
        [len(d.children(f"blocks.{n}.layers")) for n in blocks],
        widths[0] // heads,
        # Without effect on logits, but a probability of 0 has an identity in its place.
        0.2 if not d.modules or _drops(d) else 0.0,
        num_classes=d.rows("classifier.5.weight"),
    )
