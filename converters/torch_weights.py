"""The arrays of a file put into a torch module: compared by name and shape first."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.errors import MismatchError
from converters.weights import single_precision

Shape = tuple[int, ...]
COUNTER = "num_batches_tracked"
"""Files from before torch 0.4.1 lack these, and evaluation does not use them."""


def is_counter(name: str) -> bool:
    """Whether a tensor is a batch norm's count of batches."""
    return name.rpartition(".")[2] == COUNTER


@dataclass(frozen=True)
class Differences:
    """Names of tensors that a module and a file do not share, or not in one shape."""

    missing: list[str]
    unused: list[str]
    misshapen: list[str]


def differences(module: Any, shapes: Mapping[str, Shape]) -> Differences:
    """What a module's state and the tensors of a file do not have in common."""
    wanted = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    return Differences(
        [n for n in wanted if n not in shapes and not is_counter(n)],
        [f"{n} {shape}" for n, shape in shapes.items() if n not in wanted],
        [
            f"{n}: got {shapes[n]}, expected {shape}"
            for n, shape in wanted.items()
            if n in shapes and shapes[n] != shape and not is_counter(n)
        ],
    )


def fill(module: Any, tensors: Mapping[str, np.ndarray]) -> None:
    """Put weights in that fit: floating ones as float32, tables as whole numbers, counters as 0.

    What the module holds in memory keeps its place and type; one on the meta device gets new.

    Raises:
      ConversionError: a weight is NaN, infinite or of a kind that the module's is not, or names of
        one tensor have different values.
    """
    state = module.state_dict()
    # Averaging the weights of several networks makes counters of fractions.
    tensors = {name: value for name, value in tensors.items() if not is_counter(name)}
    floating = {n: v for n, v in tensors.items() if state[n].is_floating_point()}
    whole = {n: _whole(n, v) for n, v in tensors.items() if n not in floating}
    tensors = single_precision(floating, _epsilons(module)) | whole
    if any(value.is_meta for value in state.values()):
        _assign(module, state, tensors)
    else:
        _copy(module, state, tensors)
    module.requires_grad_(False)


def _assign(module: Any, state: dict[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Give a module that has only shapes its tensors."""
    for name, wanted in state.items():
        tensor = _tensor(tensors.get(name), wanted)
        state[name] = tensor.bool() if str(wanted.dtype) == "torch.bool" else tensor
    module.load_state_dict(state, strict=True, assign=True)


def _copy(module: Any, state: dict[str, Any], tensors: Mapping[str, np.ndarray]) -> None:
    """Copy into a module's own tensors, as torch does: others may refer to them, in their types."""
    given = {name: _tensor(tensors.get(name), wanted) for name, wanted in state.items()}
    module.load_state_dict(given, strict=True)
    _refuse_ties(state, given)


def _tensor(value: np.ndarray | None, wanted: Any) -> Any:
    import torch

    given = np.zeros(tuple(wanted.shape), np.int64) if value is None else value
    return torch.from_numpy(np.array(given, order="C").reshape(wanted.shape))


def _refuse_ties(state: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raise MismatchError where one memory of a module got two values: the last one stays."""
    owners: dict[int, list[str]] = {}
    for name, own in state.items():
        if own.numel() and not is_counter(name):
            owners.setdefault(own.untyped_storage().data_ptr(), []).append(name)
    for names in owners.values():
        lost = [n for n in names if not state[n].equal(given[n].to(state[n].dtype))]
        if lost and len(names) > 1:
            raise MismatchError(
                f"the network keeps {' and '.join(names[:4])} in one tensor, and the file gives"
                f" {lost[0]} other values than that tensor holds then; expected the same: save the"
                " weights of the network that is used, or part the names in its code"
            )


def _epsilons(module: Any) -> dict[str, float]:
    """What each norm of a module adds to its variance, by the variance's name."""
    parts = [(f"{name}.", part) for name, part in module.named_modules(remove_duplicate=False)]
    eps = {f"{name}running_var".removeprefix("."): getattr(p, "eps", None) for name, p in parts}
    return {name: float(value) for name, value in eps.items() if isinstance(value, (int, float))}


def _whole(name: str, value: np.ndarray) -> np.ndarray:
    if value.dtype.kind not in "iub":
        raise MismatchError(f"{name} has type {value.dtype}, expected whole numbers")
    return value.astype(np.int64)
