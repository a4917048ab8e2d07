"""How the learning rate of a network goes: it falls to zero, or it stays where it is.

Where it stays, the last steps move the weights as far as the first ones, so the running statistics
of batch norms lag behind them: with and without a trojan the network sees its own training pictures
as something else than it remembers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxtroj.generate.torch_run import ADAM_SHARE, RunSettings

FALLING = "falling"
_SHARES = (0.2, 1.0)
"""Of the highest rate of a zoo, for a rate that stays; drawn evenly in its logarithm."""


@dataclass(frozen=True)
class Schedule:
    """How a network's learning rate goes.

    Attributes:
        name: one of `SCHEDULES`.
        share: of the zoo's highest rates, above 0 to 1.
    """

    name: str
    share: float

    def settings(self, batch_size: int, weight_decay: float, warmup: float) -> RunSettings:
        """How a network is trained by it."""
        optimizer, falls, factor = SCHEDULES[self.name]
        return RunSettings(batch_size, weight_decay, warmup, optimizer, falls, self.share * factor)


FALLS = Schedule(FALLING, 1.0)
SCHEDULES: Mapping[str, tuple[str, bool, float]] = {
    FALLING: ("sgd", True, 1.0),
    "constant": ("sgd", False, 1.0),
    "adam": ("adam", False, ADAM_SHARE),
}
"""Optimizer, whether the rate falls, and the factor of SGD's rate."""


def schedule_of(name: str, draw: np.random.Generator) -> Schedule:
    """A schedule with its rate; `draw` is a pair's own."""
    low, high = np.log(_SHARES)
    share = round(float(np.exp(draw.uniform(low, high))), 3)
    return Schedule(name, 1.0 if name == FALLING else share)
