"""A whole network that is a `Sequential` of torch's own layers: made layer by layer.

Such a file alone says what it computes: torch runs the layers in the file's order, each with the
code of its class and by its attributes. The layers are made here by torch's constructors from the
attributes that the file records; nothing in it is executed. Layers that compute by attributes which
are not recorded (padding by reflection) or by other pictures (batch norms without statistics) are
refused, and so is every class that is not in the table.

References:
  torch 2.14, torch/nn/modules.
"""

from collections.abc import Callable, Mapping
from typing import Any

from converters.errors import EXPORT, MismatchError, UnsupportedArchitectureError, safe_repr
from converters.rebuilt.description import Description
from converters.weights import ModuleInfo, Plain, children_of

CLASS_NAME = "torch.nn.modules.container.Sequential"
_MODULES = "torch.nn.modules."
# Those of a ResNet152 are 500; a file of far more is built to stall us.
_MOST_LAYERS = 2000
_POOL = ("kernel_size", "stride", "padding", "ceil_mode")
_NORM = ("num_features", "eps", "affine", "track_running_stats")
_RESIZED = ("size", "scale_factor", "mode", "align_corners", "recompute_scale_factor")
# Class -> attributes that its constructor takes under their own names.
_LAYERS: Mapping[str, tuple[str, ...]] = {
    "conv.Conv2d": (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups"),
        "padding_mode",
    ),
    "conv.ConvTranspose2d": (
        *("in_channels", "out_channels", "kernel_size", "stride", "padding", "output_padding"),
        *("groups", "dilation", "padding_mode"),
    ),
    "linear.Linear": ("in_features", "out_features"),
    "linear.Identity": (),
    "batchnorm.BatchNorm1d": _NORM,
    "batchnorm.BatchNorm2d": _NORM,
    "instancenorm.InstanceNorm2d": _NORM,
    "normalization.GroupNorm": ("num_groups", "num_channels", "eps", "affine"),
    "normalization.LayerNorm": ("normalized_shape", "eps", "elementwise_affine"),
    "normalization.LocalResponseNorm": ("size", "alpha", "beta", "k"),
    "pooling.MaxPool2d": (*_POOL, "dilation"),
    "pooling.AvgPool2d": (*_POOL, "count_include_pad", "divisor_override"),
    "pooling.AdaptiveAvgPool2d": ("output_size",),
    "pooling.AdaptiveMaxPool2d": ("output_size",),
    "flatten.Flatten": ("start_dim", "end_dim"),
    "flatten.Unflatten": ("dim", "unflattened_size"),
    "padding.ZeroPad2d": ("padding",),
    "padding.ConstantPad2d": ("padding", "value"),
    "upsampling.Upsample": _RESIZED,
    "pixelshuffle.PixelShuffle": ("upscale_factor",),
    "dropout.Dropout": ("p",),
    "dropout.Dropout2d": ("p",),
    "dropout.AlphaDropout": ("p",),
    "activation.ReLU": (),
    "activation.ReLU6": (),
    "activation.LeakyReLU": ("negative_slope",),
    "activation.PReLU": ("num_parameters",),
    "activation.ELU": ("alpha",),
    "activation.CELU": ("alpha",),
    "activation.SELU": (),
    "activation.GELU": ("approximate",),
    "activation.SiLU": (),
    "activation.Mish": (),
    "activation.Hardswish": (),
    "activation.Hardsigmoid": (),
    "activation.Hardtanh": ("min_val", "max_val"),
    "activation.Softplus": ("beta", "threshold"),
    "activation.Sigmoid": (),
    "activation.Softsign": (),
    "activation.Tanh": (),
    "activation.Threshold": ("threshold", "value"),
    "activation.GLU": ("dim",),
    "activation.Softmax": ("dim",),
    "activation.LogSoftmax": ("dim",),
}
Part = Callable[[str, Description], Any]
"""What stands at a path of a file, or None."""
_LAYER_NORM = "normalization.LayerNorm"
_BIASED = ("conv.Conv2d", "conv.ConvTranspose2d", "linear.Linear")
# What `__setstate__` sets where an older torch did not record it, if it is not the default.
_UNRECORDED: Mapping[str, Mapping[str, Plain]] = {
    "upsampling.Upsample": {"recompute_scale_factor": True}
}
# The only text that an argument may be.
_WORDS = {
    "padding_mode": ("zeros",),
    "padding": ("same", "valid"),
    "approximate": ("none", "tanh"),
    "mode": ("nearest", "bilinear"),
}


def _no_part(path: str, d: Description) -> None:
    """Every part is one of torch's layers."""


def sequential(d: Description, made_otherwise: Part = _no_part) -> Any:
    """The network of a file whose root is a `Sequential`.

    Args:
      d: what the file says of it.
      made_otherwise: what stands at a path that is none of torch's layers; None for these.

    Raises:
      UnsupportedArchitectureError: a layer's class is not in the table.
      MismatchError: an attribute with which a layer cannot be made as torch would run it.
    """
    if len(d.modules) > _MOST_LAYERS:
        raise MismatchError(f"{len(d.modules)} layers, expected at most {_MOST_LAYERS}")
    return _container("", d, children_of(d.modules), made_otherwise)


def _container(
    path: str, d: Description, parts: Mapping[str, tuple[str, ...]], made_otherwise: Part
) -> Any:
    """A `Sequential` with its parts in the file's order, in which torch runs them."""
    from torch import nn

    made = nn.Sequential()
    for key in parts.get(path, ()):
        if hasattr(made, key):
            raise MismatchError(f"a layer is named {safe_repr(key)}, as a part of every module is")
        inner = f"{path}.{key}" if path else key
        if d.modules[inner].class_name == CLASS_NAME:
            layer = _container(inner, d, parts, made_otherwise)
        else:
            layer = made_otherwise(inner, d)
        made.add_module(key, _layer(inner, d) if layer is None else layer)
    return made


def _layer(path: str, d: Description) -> Any:
    from torch import nn

    info = d.modules[path]
    name = info.class_name.removeprefix(_MODULES)
    taken = _LAYERS.get(name) if info.class_name.startswith(_MODULES) else None
    if taken is None:
        raise UnsupportedArchitectureError(
            f"a Sequential whose layer {safe_repr(path)} is a {info.class_name[:100]}; expected "
            f"torch's own layers for pictures; {EXPORT}"
        )
    recorded = {key: _argument(path, key, info) for key in taken if key in info.attributes}
    arguments = {**_UNRECORDED.get(name, {}), **recorded}
    if name.startswith("batchnorm.") and not arguments.get("track_running_stats", True):
        raise MismatchError(
            f"{path} is a batch norm without statistics, so a picture's logits depend on those "
            f"beside it; {EXPORT}"
        )
    _check_axes(path, arguments)
    if name in _BIASED or name == _LAYER_NORM and arguments.get("elementwise_affine", True):
        arguments["bias"] = f"{path}.bias" in d.shapes
    return getattr(nn, name.rpartition(".")[2])(**arguments)


def _check_axes(path: str, arguments: Mapping[str, Plain]) -> None:
    """Refuse what goes over the pictures of a batch, such as a softmax, or joins or splits them."""
    for key, others in (("dim", (-1,)), ("start_dim", ())):
        value = arguments.get(key, 1)
        if value not in others and not (isinstance(value, int) and value >= 1):
            raise MismatchError(
                f"{path}.{key} is {safe_repr(value)}, so a picture's logits may depend on those "
                f"beside it; expected 1 or more; {EXPORT}"
            )


def _argument(path: str, key: str, info: ModuleInfo) -> Plain:
    """An attribute that is a number, a tuple of numbers, or one of the words that torch knows."""
    value = info.attributes[key]
    words = _WORDS.get(key, ())
    is_number = all(
        one is None or isinstance(one, (bool, int, float))
        for one in (value if isinstance(value, tuple) else (value,))
    )
    if not is_number and value not in words:
        raise MismatchError(
            f"{path}.{key} is {safe_repr(value)}, expected {' or '.join(words) or 'numbers'}; "
            f"{EXPORT}"
        )
    return value
