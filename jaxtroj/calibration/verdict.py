"""The answer for one model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """The answer for one model."""

    probability: float
    """P(poisoned), from 1e-12 to 1 - 1e-12, where log scores are cut off too."""
    poisoned: bool
    """Whether the probability exceeds the threshold."""
    target_class: int | None
    """Class that the recovered trigger forces, None when there is none."""
    source_classes: tuple[int, ...]
    """Classes that the trigger works from."""
    reasons: tuple[str, ...]
    """Sentences: what decides where the evidence does not, the caveats, then what the evidence
    speaks for, strongest first."""
    caveats: tuple[str, ...] = ()
    """What of the network the calibrator has not met; empty where it has met all."""
