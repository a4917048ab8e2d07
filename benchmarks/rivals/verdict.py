"""What every detector of PyTorch says of a network, and what it may spend on it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Attributes:
    steps: gradient steps: for each label, or of all arms together, as the detector says.
    seconds: of processor time, after which it answers by what it has.
    """

    steps: int
    seconds: float = 60.0


@dataclass(frozen=True)
class RivalVerdict:
    """One detector's answer by its own threshold.

    Attributes:
      poisoned: whether it calls the network so.
      target: the class that stands out most; None where none does.
      statistic: what its threshold is on, larger for poisoned networks.
      seconds: of processor time, the network loaded already.
      cut: whether the budget ended the search before the detector would have.
    """

    poisoned: bool
    target: int | None
    statistic: float
    seconds: float
    cut: bool = False
