"""`user_model`: weights in a file, and the code that the user says they are for."""

from collections.abc import Mapping

import numpy as np
import torch

from converters.artifact import Artifact
from converters.errors import ConversionError, MismatchError
from converters.graph.torch_network import torch_model
from converters.input_form import USUAL_SIZE, InputForm, assumed_size
from converters.model import Model
from converters.torch_weights import Differences, differences, fill, is_counter
from converters.user_code import NetworkCode, build, running
from converters.weights import Weights

_SHOWN = 8


def user_model(
    artifact: Artifact, code: NetworkCode, form: InputForm, usual_size: tuple[int, int] | None
) -> Model:
    """The model of a state dict and its network's code, which is run.

    Args:
      artifact: what the safe reader found in the file.
      code: makes the network; the user trusts it.
      form: what the file does not say.
      usual_size: height and width where `form` does not say them; 224 by default.

    Raises:
      UserCodeError: the code raised, or makes no network.
      MismatchError: the weights do not fit it; names that are missing or unexpected are listed.
      ConversionError: it cannot be captured.
    """
    weights = artifact.weights
    if weights.modules:
        raise ConversionError(
            "the file holds a whole network, which is read without its code; leave --network out"
        )
    module = _evaluating(build(code), code)
    findings = (*artifact.findings, *weights.findings, *_load(module, weights, code))
    trusted = f"built by code that the user named and trusts: {code}, sha256 {code.digest()}"
    size = form.image_size or usual_size
    if size is None:
        size, findings = USUAL_SIZE, (*findings, assumed_size(USUAL_SIZE))
    with running(code):
        return _captured(module, size, form, (trusted, *findings))


def _evaluating(module: torch.nn.Module, code: NetworkCode) -> torch.nn.Module:
    """The module in evaluation mode; raises ConversionError where its code does not let it."""
    with running(code):
        module.eval()
    if module.training:
        raise ConversionError(
            f"{code} stays in training mode when eval() is called, so that an image's answer hangs"
            " on the others beside it; expected evaluation mode: let its train() pass the mode on"
        )
    return module


def _load(module: torch.nn.Module, weights: Weights, code: NetworkCode) -> tuple[str, ...]:
    """Fill a module, whose names the file may have behind a first one; the findings."""
    tensors, findings = weights.tensors, ()
    found = _compared(module, tensors)
    prefixes = _prefixes(module, tensors) if found.missing or found.unused else []
    if len(prefixes) > 1:
        raise MismatchError(
            f"the file holds all weights of {code} {len(prefixes)} times, under names that begin "
            f"with {_some([prefix or 'nothing else' for prefix in prefixes])}; save the ones to "
            "scan in a file of their own"
        )
    if prefixes and prefixes[0]:
        (prefix,) = prefixes
        others = [name for name in tensors if not name.startswith(prefix)]
        bare = {n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)}
        tensors, found = bare, _compared(module, bare)
        beside = f"; other weights were left out: {_some(others)}" if others else ""
        findings = (f"the weights' names begin with {prefix}, which was left out{beside}",)
    _refuse(found, code)
    fill(module, tensors)
    return findings


def _prefixes(module: torch.nn.Module, tensors: Mapping[str, np.ndarray]) -> list[str]:
    """First parts of names behind which the file has every weight of the module; "" is one."""
    wanted = [name for name in module.state_dict() if not is_counter(name)]
    if not wanted:
        return []
    end = wanted[0]
    firsts = [n.removesuffix(end) for n in tensors if n == end or n.endswith(f".{end}")]
    return [first for first in firsts if all(f"{first}{name}" in tensors for name in wanted)]


def _compared(module: torch.nn.Module, tensors: Mapping[str, np.ndarray]) -> Differences:
    return differences(module, {name: tuple(value.shape) for name, value in tensors.items()})


def _refuse(found: Differences, code: NetworkCode) -> None:
    parts = {"missing": found.missing, "unexpected": found.unused, "misshapen": found.misshapen}
    faults = [f"{len(names)} {kind}: {_some(names)}" for kind, names in parts.items() if names]
    if faults:
        raise MismatchError(
            f"the weights do not fit {code}; {'; '.join(faults)}. Are its arguments (--network-args"
            ") those that it was trained with?"
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")


def _captured(
    module: torch.nn.Module, size: tuple[int, int], form: InputForm, findings: tuple[str, ...]
) -> Model:
    """The model, for as many channels as its first convolution takes, or else 3, or 1."""
    convolutions = (part for part in module.modules() if isinstance(part, torch.nn.Conv2d))
    first = next(convolutions, None)
    if first is not None:
        return torch_model(module, (*size, first.in_channels), form, findings)
    try:
        return torch_model(module, (*size, 3), form, findings)
    except ConversionError:
        return torch_model(module, (*size, 1), form, findings)
