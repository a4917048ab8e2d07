"""What a calibrator asks of the model of one stage, linear or pooled."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Judge(Protocol):
    """Evidence up to a stage to log-odds. Values are [n, names], float64, NaN where missing."""

    @property
    def names(self) -> tuple[str, ...]:
        """Fields of the stage and those before it, in the order of the columns."""
        ...

    @property
    def rate(self) -> float:
        """Share of poisoned models in training, in (0, 1)."""
        ...

    def usable(self, values: np.ndarray) -> bool:
        """Whether the one row [1, names] has what the stage needs."""
        ...

    def is_familiar(self, values: np.ndarray) -> bool:
        """Whether the one row lies where the labelled models lay."""
        ...

    def log_odds(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """Clipped log-odds at the training base rate, [n]."""
        ...

    def at_clip(self, values: np.ndarray, architectures: Sequence[str | None]) -> np.ndarray:
        """-1 where the answer lies at the lower clip, +1 at the upper, else 0: int [n]."""
        ...

    def reasons(
        self, values: np.ndarray, architecture: str | None, most: int = 3
    ) -> tuple[str, ...]:
        """What pulls the one row's answer to its side, in sentences, strongest first; caveats."""
        ...
