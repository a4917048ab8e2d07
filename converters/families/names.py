"""Name tables: how a torch state dict becomes the parameters of a Flax module, and back.

A family keeps one table of `NameRule`s. Completeness is two-sided: every source tensor is consumed
or named as ignored, every target leaf is filled, or one error lists all that is missing, unused and
misshapen.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from converters.errors import MismatchError
from converters.families.computed import how_to_remove
from converters.weights import contiguous

# torch layout -> Flax layout; each permutation's inverse takes it back.
LAYOUTS = {"convolution": (2, 3, 1, 0), "linear": (1, 0), "table": (0, 1), "vector": (0,)}
# Module paths are the same in both worlds; only the last part of a name may differ.
_TORCH_LEAVES = {
    "kernel": "weight",
    "embedding": "weight",
    "scale": "weight",
    "mean": "running_mean",
    "var": "running_var",
}

# Of names in one error: a file may have ten thousand, each of any length.
_MOST_LISTED, _LONGEST = 200, 200

# Patterns of torch's class names, for what a family says of pickled modules.
CONVOLUTION = r"torch\.nn\.modules\.conv\.Conv2d"
BATCH_NORM = r"torch\.nn\.modules\.batchnorm\.BatchNorm2d"
RELU = r"torch\.nn\.modules\.activation\.ReLU"
LINEAR = r"torch\.nn\.modules\.linear\.Linear"
SEQUENTIAL = r"torch\.nn\.modules\.container\.Sequential"


@dataclass(frozen=True)
class Part:
    """A submodule of a pickled network about which the config says more than its path.

    Attributes:
      kind: pattern of its class name; None where the path says it.
      children: names of its submodules in the order in which they run; None where the class's own
        code says the order.
    """

    kind: str | None = None
    children: tuple[str, ...] | None = None


@dataclass(frozen=True)
class NameRule:
    """Torch names matching `pattern` (whole name) go to Flax path `target` in layout `layout`."""

    pattern: str
    target: str
    layout: str


def norm_rules(pattern: str) -> tuple[NameRule, ...]:
    """Rules for batch norms whose torch module path matches `pattern` (no groups inside)."""
    pairs = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
    return tuple(
        NameRule(rf"({pattern})\.{src}", rf"\1.{dst}", "vector") for src, dst in pairs.items()
    )


def target_of(table: tuple[NameRule, ...], name: str) -> tuple[str, str] | None:
    """Flax path and layout of a torch name, or None when no rule matches."""
    for rule in table:
        match = re.fullmatch(rule.pattern, name)
        if match:
            return match.expand(rule.target), rule.layout
    return None


def assign(
    table: tuple[NameRule, ...],
    ignored: tuple[str, ...],
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, np.ndarray]:
    """Flax parameters from torch tensors.

    Args:
      table: the family's rules.
      ignored: patterns of source names that carry nothing for inference.
      tensors: torch name -> array, torch layout.
      shapes: Flax path -> shape of every leaf that must be filled.

    Raises:
      MismatchError: with every missing, unused and misshapen name, or with two names of one leaf.
    """
    filled: dict[str, np.ndarray] = {}
    sources: dict[str, str] = {}
    unused, misshapen = [], {}
    for name, tensor in tensors.items():
        if any(re.fullmatch(pattern, name) for pattern in ignored):
            continue
        found = target_of(table, name)
        if found is None or found[0] not in shapes:
            unused.append(f"{name} {tuple(tensor.shape)}")
            continue
        path, layout = found
        expected = torch_shape(shapes[path], layout)
        if path in sources:
            _refuse_two_values(sources[path], tensors[sources[path]], name, tensor)
        sources[path] = name
        if tuple(tensor.shape) == expected:
            filled[path] = np.transpose(tensor, LAYOUTS[layout])
        else:
            misshapen[path] = f"{name}: got {tuple(tensor.shape)}, expected {expected}"
    # A misshapen source also leaves its target unfilled: it is reported once, as misshapen.
    missing = [_torch_name(path) for path in shapes if path not in filled | misshapen]
    refuse_mismatch(missing, unused, list(misshapen.values()))
    return filled


def _refuse_two_values(one: str, first: np.ndarray, other: str, second: np.ndarray) -> None:
    """Raise MismatchError where tensors of two names for one leaf, such as of 2018, differ."""
    if first.shape != second.shape or not (first == second).all():
        raise MismatchError(
            f"{one[:_LONGEST]} and {other[:_LONGEST]} are two names of one weight and hold other"
            " values. Some versions of a library load the one, others the other; expected one of"
            " both: save the network again with the one that is meant"
        )


def torch_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The torch shape of a Flax leaf of `shape`; dimensions that do not fit stay as they are."""
    order = np.argsort(LAYOUTS[layout])
    return tuple(shape[axis] for axis in order) if len(order) == len(shape) else tuple(shape)


def _torch_name(path: str) -> str:
    module, _, leaf = path.rpartition(".")
    return f"{module}.{_TORCH_LEAVES.get(leaf, leaf)}"


def refuse_mismatch(missing: list[str], unused: list[str], misshapen: list[str]) -> None:
    """Raise MismatchError with the names, unless there are none."""
    parts = {"missing": missing, "unused": unused, "misshapen": misshapen}
    if not any(parts.values()):
        return
    text = "; ".join(f"{kind}: {_listed(names)}" for kind, names in parts.items() if names)
    removal = how_to_remove(name.partition(" ")[0] for name in unused)
    advice = f"Of the unused, {removal}. " if removal else ""
    raise MismatchError(
        f"the weights do not fit the architecture they name. {advice}{text}. "
        "Check that the file holds one whole, unmodified model of this family."
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(name[:_LONGEST] for name in names[:_MOST_LISTED]) + more


def to_torch(
    table: tuple[NameRule, ...],
    names: Mapping[str, tuple[int, ...]],
    params: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Torch-layout tensors of those `names` (name -> shape) that the table maps to a parameter."""
    out = {}
    for name, shape in names.items():
        found = target_of(table, name)
        if found is None:
            continue
        path, layout = found
        value = np.transpose(np.asarray(params[path]), np.argsort(LAYOUTS[layout]))
        if value.shape != tuple(shape):
            raise MismatchError(
                f"{name}: got {value.shape} from the model, expected {tuple(shape)}"
            )
        out[name] = contiguous(value)
    return out
