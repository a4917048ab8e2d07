"""Floating values as so many times the pixels, and something: whether 24 bits hold them.

`(v + 1e12) - 1e12` in float64 is v, in float32 it is 0. Pixels are prepared by few steps of
arithmetic with constants, and followed here through these; whatever else the network computes is
of a size that nobody knows, and nothing may be added to it in float64.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from converters.graph.graph import Node, Ref, TensorSpec
from converters.graph.intervals import (
    ANY,
    AVERAGED,
    MOVED,
    Bounds,
    count_given,
    has_divisor,
    joined,
)
from converters.graph.structure import base_name

STEPS = 8
"""Steps of arithmetic in float64."""
_FACTORS = (1e-6, 1e6)
"""What pixels may be multiplied by, all steps together."""
ADDED = 2.0**12
"""What may be added to pixels, in units of theirs: 24 bits keep a sixteenth of 1/256 beside it."""
_SUMS = frozenset({"add", "sub", "rsub"})
_ARITHMETIC = _SUMS | {"mul", "div", "neg"}
_NONE: Bounds = (math.inf, 0.0)


@dataclass(frozen=True)
class Scaled:
    """A floating value as so many times pixels, or numbers whose size nobody knows, and something.

    Attributes:
      factors: the least and the largest number that these are multiplied by; of a constant none.
      added: the largest number that is added to them.
      steps: of arithmetic that led to it.
      of_pixels: whether they are pixels.
    """

    factors: Bounds = (1.0, 1.0)
    added: float = 0.0
    steps: int = 0
    of_pixels: bool = True

    @property
    def is_constant(self) -> bool:
        """Whether nothing of the image is in it."""
        return self.factors == _NONE

    @property
    def is_held(self) -> bool:
        """Whether 24 bits hold it as well as 53, as far as pixels go."""
        least, most = self.factors
        is_ordinary = _FACTORS[0] <= least <= most <= _FACTORS[1]
        is_seen = self.added <= (ADDED * least if self.of_pixels else 0)
        return is_ordinary and is_seen and self.steps <= STEPS


UNKNOWN = Scaled(of_pixels=False)


@dataclass(frozen=True)
class Units:
    """What is known of a graph's floating values.

    Attributes:
      sizes: of constants the least absolute value that is not 0, and the largest; see `sizes_of`.
      specs: shape and type of each value.
      scaled: of each value of the image, as far as they were worked out.
    """

    sizes: dict[str, Bounds]
    specs: Mapping[str, TensorSpec]
    scaled: dict[str, Scaled]

    def note_constant(self, node: Node, name: str) -> None:
        """Take the sizes of a filled tensor, and of a constant that is moved."""
        kind = base_name(node)
        if kind in MOVED and isinstance(node.args[0], Ref):
            self.sizes[name] = _sizes_of(node.args[0], self)
        elif kind == "full":
            self.sizes[name] = _sizes_of(node.args[1], self)


def scaled_by(node: Node, known: Units) -> Scaled | None:
    """What moving, arithmetic with constants, and means make of pixels; None of anything else."""
    name, parts = base_name(node), [_operand(value, known) for value in node.args[:2]]
    if name == "copy":
        return parts[1]
    if name in MOVED:
        return parts[0]
    if name in AVERAGED and not has_divisor(node):
        return _averaged(parts[0], node, known)
    is_plain = all(type(value) in (int, float) and value == 1 for _, value in node.kwargs)
    return _computed(node, known) if name in _ARITHMETIC and is_plain else None


def sizes_of(array: np.ndarray) -> Bounds:
    """Least absolute value that is not 0, and largest; of zeros alone 1."""
    if array.dtype.kind == "c":
        return ANY
    found = np.abs(array[array != 0]).astype(np.float64)
    if not found.size:
        return 1.0, 1.0
    least, most = float(found.min()), float(found.max())
    return (least, most) if math.isfinite(most) else ANY


def _operand(value: Any, known: Units) -> Scaled:
    """A value, or joined ones of which some may be constant."""
    if isinstance(value, tuple):
        return _join([_operand(part, known) for part in value])
    if isinstance(value, Ref) and value.name in known.scaled:
        return known.scaled[value.name]
    return Scaled(_NONE, _largest(value, known))


def _join(parts: Sequence[Scaled]) -> Scaled:
    if not parts:
        return Scaled(_NONE)
    return Scaled(
        joined([part.factors for part in parts]),
        max(part.added for part in parts),
        max(part.steps for part in parts),
        all(part.of_pixels for part in parts),
    )


def _averaged(part: Scaled, node: Node, known: Units) -> Scaled | None:
    """A mean takes each element by the share that it has in it."""
    name = node.outputs[0]
    if name is None or not part.of_pixels:
        return None
    count = count_given(node, known.specs) / max(1, math.prod(known.specs[name].shape))
    if base_name(node) == "avg_pool2d":  # windows may lie over each other
        high, wide = (*node.args[1], node.args[1][-1])[:2]
        count = max(count, high * wide)
    return replace(part, factors=(part.factors[0] / max(1, count), part.factors[1]))


def _computed(node: Node, known: Units) -> Scaled | None:
    """Arithmetic of a value of the image and a constant; None of two values of the image."""
    name, values = base_name(node), node.args[:2]
    parts = [_operand(value, known) for value in values]
    of_image = [part for part in parts if not part.is_constant]
    fixed = [value for value, part in zip(values, parts, strict=True) if part.is_constant]
    if len(of_image) != 1 or (name == "div" and parts[0].is_constant):
        return None
    part = replace(of_image[0], steps=of_image[0].steps + 1)
    if name in _SUMS or not fixed:
        return replace(part, added=part.added + sum(_largest(value, known) for value in fixed))
    least, most = _sizes_of(fixed[0], known)
    if name == "div":
        least, most = (1 / most, 1 / least) if math.isfinite(least) else ANY
    factors = part.factors[0] * least, part.factors[1] * most
    return replace(part, factors=factors, added=part.added * most)


def _largest(value: Any, known: Units) -> float:
    return max(map(abs, _sizes_of(value, known)))


def _sizes_of(value: Any, known: Units) -> Bounds:
    """Sizes of an operand that is no value of the image; unbounded if nobody knows them."""
    if isinstance(value, Ref):
        return known.sizes.get(value.name, ANY)
    return sizes_of(np.asarray(value)) if isinstance(value, (bool, int, float)) else ANY
