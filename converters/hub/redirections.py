"""What in a folder makes transformers or timm compute with other weights than those in its files.

The readers differ there: with peft installed or not, transformers 4 or 5. A folder whose network
depends on the reader may show a scanner one network and its users another, so it is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from converters.errors import LoadError, MismatchError, UnsupportedArchitectureError, safe_repr
from converters.hub.weights import FolderWeights
from converters.tensors import DTYPES

ADAPTER, MLFLOW = "adapter_config.json", "MLmodel"
_HALVES = {name: DTYPES[name] for name in ("float16", "bfloat16")}
_WIDER = ("float32", "float64")


def refuse_redirections(folder: Path, config: Mapping[str, Any], place: str) -> None:
    """Nothing in a folder may have other files loaded, or weights changed once they are.

    Args:
      folder: with the weights.
      config: its `config.json`.
      place: what to call that file.

    Raises:
      LoadError: it names other files, or an adapter or MLflow's description lies there.
      UnsupportedArchitectureError: the weights are to be quantised.
    """
    if (folder / ADAPTER).exists():
        raise LoadError(
            f"{ADAPTER} lies beside the weights: transformers adds its adapter where peft is"
            " installed, and not elsewhere. Expected weights alone: save the network with the"
            " adapter merged (merge_and_unload), or take the file away"
        )
    if (folder / MLFLOW).exists():
        raise LoadError(
            f"{MLFLOW} lies beside the weights: MLflow loads the network that it describes, which"
            " may be another. Expected one of both: take the other file away"
        )
    for entry, named in _named_files(config):
        raise LoadError(
            f"{place} has {safe_repr(named)} loaded as weights ({entry}); expected no such entry:"
            " give that file the usual name, model.safetensors"
        )
    if config.get("quantization_config"):
        raise UnsupportedArchitectureError(
            f"{place} says that the weights are quantised; expected floating ones"
        )


def _named_files(config: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Entries that name a file of weights, for transformers or timm, and what they name."""
    prepared = config.get("pretrained_cfg")
    entries = {"transformers_weights": config.get("transformers_weights")}
    if isinstance(prepared, dict):
        names = ("hf_hub_filename", "file", "state_dict")
        entries |= {f"{name} of pretrained_cfg": prepared.get(name) for name in names}
    return [(entry, named) for entry, named in entries.items() if named]


def refuse_rounding(config: Mapping[str, Any], weights: FolderWeights, place: str) -> None:
    """Every weight must be a number of the type that the config has weights loaded in.

    transformers 5 rounds weights to it, transformers 4 loads them in float32. Where the config says
    none, transformers 5 takes that of the weights' index, else of the first tensor that it meets.

    Args:
      config: of the folder.
      weights: of its files.
      place: what to call the config.

    Raises:
      MismatchError: a weight would be rounded, or the type is none of torch's usual ones.
    """
    place, kinds = _loaded_as(config, weights, place)
    for kind in sorted(kinds):
        tensors = weights.tensors.items()
        changed = [name for name, value in tensors if _is_changed(value, _HALVES[kind])]
        if changed:
            raise MismatchError(
                f"{place} has weights loaded as {kind}, which {len(changed)} tensors, such as"
                f" {safe_repr(changed[0])}, are not: transformers 5 rounds them, transformers 4"
                " does not. Expected weights of the type that is said: save them in it, or say"
                " float32"
            )


def _loaded_as(
    config: Mapping[str, Any], weights: FolderWeights, place: str
) -> tuple[str, set[str]]:
    """What says the type that weights are loaded in, and which types of 16 bits it may be."""
    said = type_said(config)
    if said is None:
        said, place = weights.type_said, "the index of the weights"
    if said is None:
        first = _first_types(weights)
        return "the first tensor's type", {name for name in _HALVES if _HALVES[name] in first}
    if not isinstance(said, str) or said not in (*_HALVES, *_WIDER):
        raise MismatchError(
            f"{place}: dtype is {safe_repr(said)}, expected {', '.join((*_HALVES, *_WIDER))}"
        )
    return place, {said} & set(_HALVES)


def type_said(config: Mapping[str, Any]) -> Any:
    """The type in which a `config.json` has weights loaded; None where it says none."""
    said = config.get("dtype")
    return config.get("torch_dtype") if said is None else said


def _first_types(weights: FolderWeights) -> set[np.dtype]:
    """Types that the first floating tensor may have; safetensors keeps no order of its tensors."""
    types = [value.dtype for value in weights.tensors.values() if _is_floating(value)]
    ordered = not any(name.endswith(".safetensors") for name in weights.digests)
    return set(types[:1] if ordered else types)


def _is_floating(value: np.ndarray) -> bool:
    return value.dtype.kind == "f" or value.dtype in _HALVES.values()


def _is_changed(value: np.ndarray, kind: np.dtype) -> bool:
    """Whether rounding changes any floating number; NaN stays what it is."""
    if value.dtype == kind or not _is_floating(value):
        return False
    with np.errstate(over="ignore"):
        rounded = value.astype(kind).astype(value.dtype)
    return not np.array_equal(rounded, value, equal_nan=True)
