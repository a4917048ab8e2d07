"""Whether two readings of one file are the same."""

import re
from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
TOLERANCE = 1e-4
_PREFIX = "tensor:"


def difference(ours: Arrays, theirs: Arrays) -> str:
    """What differs; empty where logits agree, or every tensor is the one of its name.

    Args:
      ours: "logits" or "tensor:NAME".
      theirs: the same; names of dicts in dicts with "/" between.
    """
    if "logits" in ours or "logits" in theirs:
        if set(ours) != set(theirs):
            return f"ours is {_kind(ours)}, the runtime's {_kind(theirs)}"
        return _logits(ours["logits"], theirs["logits"])
    return _tensors(
        {name.removeprefix(_PREFIX): array for name, array in ours.items()},
        {name.removeprefix(_PREFIX): array for name, array in theirs.items()},
    )


def _kind(arrays: Arrays) -> str:
    return "a network" if "logits" in arrays else f"{len(arrays)} tensors"


def _logits(ours: np.ndarray, theirs: np.ndarray) -> str:
    if ours.shape != theirs.shape:
        return f"logits of shape {ours.shape} and {theirs.shape}"
    scale = max(1.0, float(np.nanmax(np.abs(theirs), initial=0.0)))
    if np.allclose(ours, theirs, rtol=0, atol=TOLERANCE * scale, equal_nan=True):
        return ""
    return f"logits differ by {np.abs(ours - theirs).max():.3g} of {scale:.3g}"


def _tensors(ours: Arrays, theirs: Arrays) -> str:
    """Our names are those of one dict of the runtime's, perhaps without a wrapper's prefix."""
    first = next(iter(ours))
    prefixes = [name[: len(name) - len(first)] for name in theirs if name.endswith(first)]
    found = [_under(ours, theirs, prefix) for prefix in prefixes]
    if not found:
        return f"{first} is none of the runtime's {len(theirs)} tensors"
    return "" if "" in found else found[0]


def _under(ours: Arrays, theirs: Arrays, prefix: str) -> str:
    """Compare with the runtime's tensors whose names have `prefix` and no further dict."""
    if prefix and not re.search(r"(/|(^|/)(module\.|_orig_mod\.)+)$", prefix):
        return f"no dict is at {prefix}"
    there = {n.removeprefix(prefix) for n in theirs if n.startswith(prefix)}
    missing = [n for n in there if "/" not in n and n not in ours]
    if missing:
        return f"{missing[0]} is missing in ours"
    for name, array in ours.items():
        other = theirs.get(prefix + name)
        if other is None or other.shape != array.shape:
            return f"{name}: shape {array.shape} and {getattr(other, 'shape', None)}"
        with np.errstate(invalid="ignore"):  # NaN as a whole number is another value
            wide = array.astype(other.dtype) if array.dtype.kind not in "c" else array
        if not np.array_equal(wide, other, equal_nan=other.dtype.kind in "fc"):
            return f"{name}: other values"
    return ""
