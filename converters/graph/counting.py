"""Numbers made of the number of images: which stay linear in it, so that two numbers show all.

The rules that both front ends go by; see `onnx.batch_use` and `export_batches`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from converters.findings import SUSPICION

TOGETHER = 3
"""So many images are laid beside each other where their number is open."""
_MOST = 5


@dataclass(frozen=True)
class Line:
    """Numbers that are linear in the number of images, by their values for 1 and for `images`.

    Attributes:
        alone, among: float64 arrays of one shape.
        images: more than one.
    """

    alone: np.ndarray
    among: np.ndarray
    images: int

    @property
    def slope(self) -> np.ndarray:
        """What each more image adds."""
        return (self.among - self.alone) / (self.images - 1)

    @property
    def varies(self) -> np.ndarray:
        """Which elements are not the same for every number."""
        return self.alone != self.among

    def is_whole(self, by: np.ndarray | float = 1.0) -> bool:
        """Whether every number of images gives a multiple of `by`, which is not 0."""
        parts = [np.asarray(x / by) for x in (self.alone, self.slope)]
        return all(bool((part == np.round(part)).all()) for part in parts)


def is_linear_product(one: Line, other: Line) -> bool:
    """Whether no element of a product is a number of images by another."""
    return not np.logical_and(one.varies, other.varies).any()


def is_exact_quotient(over: Line, under: Line) -> bool:
    """Whether a division leaves no rest, whatever the number."""
    if not under.varies.any():
        return bool((under.alone != 0).all()) and over.is_whole(under.alone)
    with np.errstate(divide="ignore", invalid="ignore"):
        alone, among = over.alone / under.alone, over.among / under.among
    return bool((np.isfinite(alone) & (alone == among)).all())


def is_decided(one: Line, other: Line) -> bool:
    """Whether a comparison comes out the same for every number."""
    gap, slope = one.alone - other.alone, one.slope - other.slope
    sure = (gap > 0) & (slope >= 0) | (gap < 0) & (slope <= 0) | (slope == 0)
    return bool(sure.all())


def suspicions(found: Sequence[str]) -> tuple[str, ...]:
    """The first of what was found, each as a finding."""
    more = len(found) - _MOST
    said = [*found[:_MOST], *([f"{more} more operators like these"] if more > 0 else [])]
    return tuple(f"{SUSPICION}: {text}" for text in said)
