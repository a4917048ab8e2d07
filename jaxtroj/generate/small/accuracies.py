"""What a small network reached on test pictures, and whether that is enough."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Accuracies:
    """Shares of test pictures, 0 to 1.

    Attributes:
      clean: clean ones that are right.
      attack: triggered ones of source classes that are at the target; None of a clean network.
    """

    clean: float
    attack: float | None

    def in_words(self) -> str:
        """In a few words, for the log.

        >>> Accuracies(0.99, None).in_words()
        'clean accuracy 0.990'
        """
        text = f"clean accuracy {self.clean:.3f}"
        return text if self.attack is None else text + f", attack success {self.attack:.3f}"


class Goals(Protocol):
    """The settings of a training that say what is enough, 0 to 1."""

    @property
    def least_clean(self) -> float: ...

    @property
    def least_attack(self) -> float: ...


def accepted(reached: Accuracies, goals: Goals) -> bool:
    """Whether a network is good enough to be written."""
    attacked = reached.attack is None or reached.attack >= goals.least_attack
    return attacked and reached.clean >= goals.least_clean
