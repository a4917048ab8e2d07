"""Folders of transformers' own networks with random weights, as `save_pretrained` writes them."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
import transformers

from converters.parity import logits_and_gradients

SIDE = 32
_ATTENTION = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": SIDE,
    "patch_size": 8,
}
# As published: trained on larger pictures than the processor makes, so positions are resized.
_LARGER = _ATTENTION | {"image_size": SIDE + 16}
_EXACT = {"size": {"height": SIDE, "width": SIDE}}
_CROPPED = {
    "size": {"shortest_edge": SIDE + 4},
    "crop_size": {"height": SIDE, "width": SIDE},
    "do_center_crop": True,
}
_SWIN = {
    "image_size": SIDE,
    "patch_size": 2,
    "embed_dim": 8,
    "depths": [1, 2],
    "num_heads": [2, 2],
    "window_size": 4,
}
FAMILIES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "vit": ("ViT", _ATTENTION, "ViTImageProcessor", _EXACT),
    "deit": ("DeiT", _ATTENTION, "DeiTImageProcessor", _CROPPED),
    "beit": ("Beit", _ATTENTION, "BeitImageProcessor", _EXACT | {"do_center_crop": False}),
    "convnext": (
        "ConvNext",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": SIDE}},
    ),
    "swin": (
        "Swin",
        _SWIN,
        "ViTImageProcessor",
        _EXACT,
    ),
    "resnet": (
        "ResNet",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": SIDE}},
    ),
    "mobilenet_v1": (
        "MobileNetV1",
        {"depth_multiplier": 0.25},
        "MobileNetV1ImageProcessor",
        _CROPPED,
    ),
    "mobilenet_v2": (
        "MobileNetV2",
        {"depth_multiplier": 0.25},
        "MobileNetV2ImageProcessor",
        _CROPPED,
    ),
    "swinv2": (
        "Swinv2",
        _SWIN,
        "ViTImageProcessor",
        _EXACT,
    ),
    "convnextv2": (
        "ConvNextV2",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": SIDE}},
    ),
    "dinov2": ("Dinov2", _LARGER, "BitImageProcessor", _CROPPED),
    "dinov2_with_registers": ("Dinov2WithRegisters", _LARGER, "BitImageProcessor", _CROPPED),
    "segformer": (
        "Segformer",
        {
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
        },
        "SegformerImageProcessor",
        _EXACT,
    ),
    "efficientnet": (
        "EfficientNet",
        {
            "width_coefficient": 0.25,
            "depth_coefficient": 0.5,
            "hidden_dim": 320,
            "image_size": SIDE,
            "batch_norm_eps": 1e-5,
        },
        "EfficientNetImageProcessor",
        _EXACT | {"include_top": False},
    ),
    "mobilevit": (
        "MobileViT",
        {
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16],
            "num_attention_heads": 2,
            "image_size": SIDE,
        },
        "MobileViTImageProcessor",
        _CROPPED,
    ),
    "regnet": (
        "RegNet",
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16, 16, 16],
            "depths": [1, 1, 1, 1],
            "groups_width": 8,
        },
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": SIDE}},
    ),
    "levit": (
        "Levit",
        {
            "image_size": SIDE,
            "hidden_sizes": [16, 24, 32],
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "key_dim": [8, 8, 8],
        },
        "LevitImageProcessor",
        _CROPPED,
    ),
    "poolformer": (
        "PoolFormer",
        {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
        "ViTImageProcessor",
        _EXACT,
    ),
    "cvt": (
        "Cvt",
        {"embed_dim": [8, 8, 16], "num_heads": [1, 1, 2], "depth": [1, 2, 3]},
        "ConvNextImageProcessor",
        {"size": {"shortest_edge": SIDE}},
    ),
    "pvt_v2": (
        "PvtV2",
        {
            "image_size": SIDE,
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 1, 2, 2],
        },
        "ViTImageProcessor",
        _EXACT,
    ),
    "focalnet": (
        "FocalNet",
        {
            "image_size": SIDE,
            "embed_dim": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        "ViTImageProcessor",
        _EXACT,
    ),
}
_OF_MANY_NORMS = ("efficientnet", "mobilevit")
NAMES = {0: "cat", 1: "dog", 2: "owl"}


def write_folder(folder: Path, family: str, **changes: Any) -> Path:
    """A folder of a family's small network with random weights of usual size."""
    _, values, processor, how = FAMILIES[family]
    network = _network(family, {**values, **changes})
    if family in _OF_MANY_NORMS:
        _let_norms_see(network, SIDE)
    network.eval().save_pretrained(folder)
    getattr(transformers, processor)(**how).save_pretrained(folder)
    return folder


def write_whole(folder: Path, family: str) -> Path:
    """A folder of the network that transformers makes when it is told nothing, no processor."""
    network = _network(family, {})
    _let_norms_see(network, 224)
    network.eval().save_pretrained(folder)
    return folder


def _let_norms_see(network: Any, side: int) -> None:
    """Of fifty norms that have seen nothing each multiplies what rounding did before."""
    norms = [part for part in network.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    if norms:
        with torch.no_grad():
            network.train()(torch.rand(4, 3, side, side, generator=torch.manual_seed(1)))


def with_teacher(family: str) -> Any:
    """A family's small network that has a second head."""
    return _network(family, FAMILIES[family][1], "ForImageClassificationWithTeacher").eval()


def _network(family: str, values: dict[str, Any], kind: str = "ForImageClassification") -> Any:
    """A family's network, its weights random and of usual size."""
    name = FAMILIES[family][0]
    labels = {"id2label": NAMES, "label2id": {label: n for n, label in NAMES.items()}}
    config = getattr(transformers, f"{name}Config")(**{**labels, **values})
    torch.manual_seed(0)
    network = getattr(transformers, f"{name}{kind}")(config)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.ndim > 1:
                # Convolutions stand before norms that have seen nothing yet, and relus.
                gain = 1.7 if weight.ndim == 4 else 1.0
                weight.normal_(0, gain * weight[0].numel() ** -0.5)
    return network


def change(folder: Path, name: str = "config.json", **changes) -> None:
    """Set entries of a JSON file."""
    values = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(values | changes))


def values(model, images: np.ndarray):
    """Logits, and gradients of the first class; in one program, as each compiles for seconds."""
    first = np.tile(np.eye(len(NAMES), dtype=np.float32)[0], (len(images), 1))
    program = jax.jit(logits_and_gradients, static_argnums=0)
    return program(model.config, model.params, images, first)
