"""`hub_model`: an image classifier of transformers, rebuilt from config and weights, captured."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from converters.errors import (
    MismatchError,
    UnsupportedArchitectureError,
    first_names,
    safe_repr,
)
from converters.graph.torch_network import torch_model
from converters.hub.aliases import own_names
from converters.hub.folder import CONFIG, HubFolder, processor_home
from converters.hub.processor import FolderForm, form_of
from converters.input_form import USUAL_SIZE, InputForm, assumed_size
from converters.model import Model
from converters.weights import single_precision

CLASSIFIERS = {
    "BeitForImageClassification": "beit",
    "ConvNextForImageClassification": "convnext",
    "ConvNextV2ForImageClassification": "convnextv2",
    "CvtForImageClassification": "cvt",
    "DeiTForImageClassification": "deit",
    "DeiTForImageClassificationWithTeacher": "deit",
    "Dinov2ForImageClassification": "dinov2",
    "Dinov2WithRegistersForImageClassification": "dinov2_with_registers",
    "EfficientNetForImageClassification": "efficientnet",
    "FocalNetForImageClassification": "focalnet",
    "LevitForImageClassification": "levit",
    "LevitForImageClassificationWithTeacher": "levit",
    "MobileNetV1ForImageClassification": "mobilenet_v1",
    "MobileNetV2ForImageClassification": "mobilenet_v2",
    "MobileViTForImageClassification": "mobilevit",
    "PoolFormerForImageClassification": "poolformer",
    "PvtV2ForImageClassification": "pvt_v2",
    "RegNetForImageClassification": "regnet",
    "ResNetForImageClassification": "resnet",
    "SegformerForImageClassification": "segformer",
    "SwinForImageClassification": "swin",
    "Swinv2ForImageClassification": "swinv2",
    "ViTForImageClassification": "vit",
}
"""Class in transformers -> its type of model: those that are rebuilt."""
# What every config has besides the fields of its type; all else in it is left out.
_COMMON = ("id2label", "label2id", "problem_type")
_LONGEST, _LARGEST = 64, 2**20
# Entries that say how often something with weights is made.
_LAYERS = (
    *("num_hidden_layers", "num_stages", "depths", "depth", "focal_levels", "num_encoder_blocks"),
    "num_block_repeats",
)
# EfficientNet's b7 multiplies its repeats by 3.1.
_DEEPEST = 8
_MOST_NAMES = 5


@dataclass(frozen=True)
class HubModel:
    """A converted folder: the network with its preparation in front, how it wants pictures, and
    what it calls its classes."""

    model: Model
    form: FolderForm | None
    class_names: tuple[str, ...] = ()


def hub_model(folder: HubFolder, form: InputForm, usual_size: tuple[int, int] | None) -> HubModel:
    """The model of a Hugging Face or timm folder.

    Args:
      folder: as it was read.
      form: what is said of it; where it says bounds, mean or deviation, the folder's do not count.
      usual_size: height and width of the pictures at hand.

    Raises:
      UnsupportedArchitectureError: transformers has no such classifier, or it is not rebuilt.
      MismatchError: config and weights do not fit each other.
      ConversionError: the network cannot be captured.
    """
    if "pretrained_cfg" in folder.config:
        from converters.hub.timm_network import rebuild_timm

        module, own = rebuild_timm(folder)
    else:
        module, own = rebuild(folder), form_of(processor_home(folder.path), usual_size)
    findings = (*folder.findings, *folder.weights.findings, *label_finding(folder.config))
    size = form.image_size or (own.size if own else None) or _fixed_size(folder.config)
    if size is None:
        size = usual_size or USUAL_SIZE
        findings += (assumed_size(size),)
    if own is not None and form.unsaid:
        form = replace(form, bounds=own.bounds, mean=own.mean, std=own.std)
    channels = folder.config.get("num_channels", _timm_channels(folder.config))
    shape = (size[0], size[1], channels if isinstance(channels, int) else 3)
    model = torch_model(module, shape, form, findings)
    return HubModel(model, own, class_names(folder.config))


def _timm_channels(config: Mapping[str, Any]) -> Any:
    given = config.get("model_args")
    return given.get("in_chans", 3) if isinstance(given, dict) else 3


def rebuild(folder: HubFolder) -> Any:
    """transformers' network in evaluation mode, with the folder's weights; raises as `hub_model`.

    transformers renames the weights of older files itself; nothing is fetched and no code but its
    own is used.
    """
    import torch
    import transformers

    from converters.hub.loading import loaded

    name = _class_of(folder.config)
    cls = getattr(transformers, name)
    values = own_names(folder.config, cls.config_class.attribute_map, CONFIG)
    _check(values, folder.weights.tensors)
    tensors = {n: torch.from_numpy(v) for n, v in _plain(folder.weights.tensors).items()}
    with _quiet():
        try:
            fields = {field: values[field] for field in _fields(cls.config_class) & set(values)}
            module = loaded(cls, fields, tensors)
        except MismatchError:
            raise
        except Exception as error:  # numbers that make no network raise anything there
            raise MismatchError(
                f"transformers' {name} cannot be made of {CONFIG}: {type(error).__name__}:"
                f" {safe_repr(str(error)[:300])}"
            ) from error
    return module.eval().requires_grad_(False)


def _class_of(config: Mapping[str, Any]) -> str:
    said, kind = config.get("architectures"), config.get("model_type")
    name = said[0] if isinstance(said, list) and len(said) == 1 else None
    if not isinstance(name, str) or CLASSIFIERS.get(name) != kind:
        raise UnsupportedArchitectureError(
            f"{CONFIG} says architectures {first_names(said)} of model_type {safe_repr(kind)};"
            f" expected one of {', '.join(CLASSIFIERS)}, or ...ForSequenceClassification of BERT,"
            " DistilBERT, RoBERTa, MPNet or GPT-2. Export any other network of pictures to ONNX, or"
            " to an exported program"
        )
    return name


def _check(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Raise for quantities, for aliases of the file's own, and for numbers of no real network."""
    if config.get("attribute_map") is not None:
        raise UnsupportedArchitectureError(
            f"{CONFIG} has other names of its own for entries (attribute_map), which transformers"
            " reads; expected none: write each entry under its own name"
        )
    if config.get("problem_type") in ("regression", "multi_label_classification"):
        raise UnsupportedArchitectureError(
            f"{CONFIG} says that the network gives quantities, or several classes at once"
            f" (problem_type {config['problem_type']!r}); expected one that chooses a class"
        )
    for key, value in config.items():
        numbers = value if isinstance(value, list) else [value]
        large = [n for n in numbers if isinstance(n, int | float) and abs(n) > _LARGEST]
        if large or (isinstance(value, list) and len(value) > _LONGEST):
            raise MismatchError(f"{CONFIG}: {safe_repr(key)} is larger than any network's")
    for key in _LAYERS:
        layers = config.get(key, 0)
        layers = layers if isinstance(layers, list) else [layers]
        if not all(isinstance(n, int) for n in layers) or sum(layers) > len(tensors):
            raise MismatchError(
                f"{CONFIG} says {key} {first_names(layers)}, the files hold {len(tensors)} tensors"
            )
    deeper = config.get("depth_coefficient", 1)
    if not isinstance(deeper, int | float) or not 0 < deeper <= _DEEPEST:
        raise MismatchError(
            f"{CONFIG} says depth_coefficient {safe_repr(deeper)}, expected a number from 0 to"
            f" {_DEEPEST}"
        )


def _fields(config_class: Any) -> set[str]:
    """What a config's own type takes, without what transformers adds to choose implementations."""
    import inspect

    from transformers import PretrainedConfig

    own = set(inspect.signature(config_class).parameters)
    return own - set(inspect.signature(PretrainedConfig).parameters) | set(_COMMON)


def _plain(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Floating tensors as float32, whole numbers as they are, all writable."""
    whole = {n: np.array(v) for n, v in tensors.items() if v.dtype.kind in "iub"}
    floating = {n: v for n, v in tensors.items() if n not in whole}
    single = single_precision(floating)
    return {n: np.array(v, order="C") for n, v in single.items()} | whole


def _fixed_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    size = config.get("image_size")
    if isinstance(size, int):
        return size, size
    if isinstance(size, list) and len(size) == 2 and all(isinstance(n, int) for n in size):
        return size[0], size[1]
    return None


def label_finding(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The first names of classes that the config has, if it names them."""
    ordered = _labels(config)
    if all(label == f"LABEL_{n}" for n, label in enumerate(ordered)):
        return ()
    shown = ", ".join(f"{n} {safe_repr(label)}" for n, label in enumerate(ordered[:_MOST_NAMES]))
    return (f"classes of the folder: {shown}{' ...' if len(ordered) > _MOST_NAMES else ''}",)


def class_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What the config calls its classes, in their order; empty where it does not name each."""
    ordered = _labels(config)
    return tuple(map(str, ordered)) if all(isinstance(label, str) for label in ordered) else ()


def _labels(config: Mapping[str, Any]) -> list[Any]:
    labels = config.get("id2label", config.get("label_names"))
    if isinstance(labels, list):
        labels = {str(number): label for number, label in enumerate(labels)}
    if not isinstance(labels, dict) or not all(str(key).isdecimal() for key in labels):
        return []
    return [labels[key] for key in sorted(labels, key=int)]


@contextmanager
def _quiet() -> Iterator[None]:
    """transformers without its bars and reports of loading; what is wrong is raised by us."""
    from transformers.utils import logging as library

    logger = logging.getLogger("transformers")
    level, bars = logger.level, library.is_progress_bar_enabled()
    logger.setLevel(logging.CRITICAL)
    library.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if bars:
            library.enable_progress_bar()
