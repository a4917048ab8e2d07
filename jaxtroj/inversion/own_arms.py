"""Patterns that are each fitted to pictures of their own, for the sign steps.

A search for triggers of one source class shows each arm examples of its class only. The steps go
through all arms in common batches all the same: a batch of one arm would be mostly padding.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from jaxtroj.inversion.sign_steps import Fit
from jaxtroj.network import Network


@dataclass(frozen=True)
class OwnPatterns:
    """Patterns under given masks; see `sign_steps.Arms`.

    Attributes:
      targets: int `[a]`.
      masks: `[a, h, w, 1]`; patterns: `[a, h, w, c]` in [0, 1].
      pictures: `[a, m, h, w, c]`, none of the arm's target.
      moves: whole pixels `[a, m, 2]` that masks and patterns move by in each picture; what leaves
        it at one edge comes back at the other.
    """

    targets: np.ndarray
    masks: np.ndarray
    patterns: np.ndarray
    pictures: np.ndarray
    moves: np.ndarray

    low: ClassVar[float] = 0.0

    @property
    def values(self) -> np.ndarray:
        """The patterns."""
        return self.patterns

    def take(self, index: np.ndarray | slice) -> "OwnPatterns":
        """See `Arms`."""
        return OwnPatterns(
            self.targets[index],
            self.masks[index],
            self.patterns[index],
            self.pictures[index],
            self.moves[index],
        )

    def valued(self, values: np.ndarray) -> "OwnPatterns":
        """See `Arms`."""
        return replace(self, patterns=values)

    def stamped(self, images: np.ndarray) -> np.ndarray:
        """Every arm on its own pictures; those of the fit are not looked at."""
        del images
        masks, patterns = (_moved(x[:, None], self.moves) for x in (self.masks, self.patterns))
        return self.pictures + masks * (patterns - self.pictures)

    def pulled(self, images: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """See `Arms`."""
        del images
        return self.mean_gradient(gradients) * (self.masks > 0)

    def mean_gradient(self, gradients: np.ndarray) -> np.ndarray:
        """Means `[a, h, w, c]` of gradients `[a, m, h, w, c]`, each moved back."""
        return _moved(gradients, -self.moves).mean(axis=1)

    def __len__(self) -> int:
        return len(self.targets)


def own_fit(network: Network, count: int, shape: tuple[int, ...], scale: float) -> Fit:
    """What the steps take for arms that have `count` pictures of `shape` each, every one counted.

    Args:
      network: the model.
      count: of pictures of an arm.
      shape: height, width, channels.
      scale: mean margin of the clean examples.
    """
    return Fit(network, np.zeros((count, *shape), np.float32), np.full(count, -1), scale)


def _moved(values: np.ndarray, moves: np.ndarray) -> np.ndarray:
    """Maps `[a, m or 1, h, w, c]` rolled by `moves [a, m, 2]`; without any move as they are."""
    if not moves.any():
        return values
    spread = np.broadcast_to(values, (*moves.shape[:2], *values.shape[2:]))
    each = zip(spread.reshape(-1, *spread.shape[2:]), moves.reshape(-1, 2), strict=True)
    return np.stack([np.roll(one, move, axis=(0, 1)) for one, move in each]).reshape(spread.shape)
