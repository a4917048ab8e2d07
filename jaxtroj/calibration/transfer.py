"""How far a probability holds for networks that the fit has not met, learnt by leaving groups out.

Every architecture (or data set) in turn is judged by a fit on all others. The log-odds that come of
it, from the base rate, are divided by one temperature, at least 1, that gives the best log score:

    log-odds = base rate + (evidence - base rate) / temperature

The calibrator does the same for an architecture, a size of pictures or a number of classes that it
has not met. At most the temperature moves an answer towards the base rate; it never makes it surer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.numerics import logit, softplus

UNMEASURED = 1 / 3
"""What evidence counts of a network that is new to a fit in a way that nothing was learnt about:
another architecture where it had one, another number of classes where all had the same. Chosen, not
learnt: 0.95, the most that text classifiers get, becomes 0.73."""
TEMPERATURES = tuple(np.geomspace(1.0, 20.0, 121).tolist())


@dataclass(frozen=True)
class Traits:
    """What is known of a network besides its evidence; None where nobody said."""

    architecture: str | None = None
    outline: str = ""
    """Its layers in words, where the name is a digest."""
    side: int | None = None
    """Longest side of its pictures, pixels."""
    classes: int | None = None
    weight: float = 1.0
    """What its evidence counts, above 0 to 1: examples may show too little of it."""

    @property
    def name(self) -> str:
        """The architecture for people."""
        if self.architecture is None:
            return "network without an architecture"
        return self.architecture + (f" ({self.outline})" if self.outline else "")


NOTHING_KNOWN = Traits()


@dataclass(frozen=True)
class Met:
    """What the networks of a fit were."""

    architectures: tuple[str, ...]
    """Names, sorted."""
    sides: tuple[int, int] | None = None
    """Least and largest longest side of their pictures, pixels; None where nobody said."""
    classes: tuple[int, int] | None = None
    """Least and largest number of classes."""

    def strange_shape(self, traits: Traits) -> tuple[str, ...]:
        """What of a network's size and classes lies outside, in words."""
        asked = (
            (self.sides, traits.side, "pictures of {} pixels, only of {} to {}"),
            (self.classes, traits.classes, "network of {} classes, only of {} to {}"),
        )
        return tuple(
            words.format(value, *known)
            for known, value, words in asked
            if known is not None and value is not None and not known[0] <= value <= known[1]
        )


@dataclass(frozen=True)
class Temperature:
    """A learnt temperature and where it comes from; log scores in nats."""

    value: float
    """At least 1."""
    log_score: float
    """Of the groups left out, with it."""
    log_score_before: float
    """The same at temperature 1."""
    groups: int
    models: int


@dataclass(frozen=True)
class Transfer:
    """Temperatures for what was not met; None where the fit had fewer than two to learn from."""

    architecture: Temperature | None = None
    dataset: Temperature | None = None
    """For architectures, sizes of pictures and numbers of classes that come with other data, and
    for all models of a fit without sizes: text heads, whose vectors do not tell their data."""

    def factor(self, met: Met, traits: Traits) -> float:
        """What the log-odds of a network are multiplied by, in (0, 1]."""
        learnt = 1 / max((found.value for found in self.concerned(met, traits)), default=1.0)
        return learnt if self.is_measured(met, traits) else min(learnt, UNMEASURED)

    def is_measured(self, met: Met, traits: Traits) -> bool:
        """Whether the fit had networks that differ in what of this one is new to it."""
        name, classes = traits.architecture, traits.classes
        if len(met.architectures) == 1 and name not in (None, *met.architectures):
            return False
        known = met.classes
        return known is None or known[0] != known[1] or classes in (None, known[0])

    def concerned(self, met: Met, traits: Traits) -> tuple[Temperature, ...]:
        """The temperatures that were learnt for what a network is and the fit has not met."""
        # Who brings another architecture brings other pictures too, for all that is known.
        is_stranger = traits.architecture not in met.architectures
        # Heads on vectors show no size by which other data could be told: all are taken for it.
        is_elsewhere = met.sides is None or bool(met.strange_shape(traits))
        found = [self.architecture] if is_stranger else []
        found += [self.dataset] if is_stranger or is_elsewhere else []
        return tuple(one for one in found if one is not None)


def learn_temperature(
    log_odds: np.ndarray, poisoned: np.ndarray, groups: Sequence[str]
) -> Temperature:
    """The temperature with the best log score on left-out log-odds [n]."""
    prior, sign = float(logit(poisoned.mean())), np.where(poisoned, -1.0, 1.0)
    scores = [
        float(softplus(sign * (prior + (log_odds - prior) / value)).mean())
        for value in TEMPERATURES
    ]
    best = int(np.argmin(scores))
    number = len({group for group in groups if group})
    return Temperature(TEMPERATURES[best], scores[best], scores[0], number, len(poisoned))


def met_by(
    architectures: Sequence[str | None], sides: Sequence[int], classes: Sequence[int]
) -> Met:
    """What labelled models were; `sides` and `classes` may be empty."""
    names = tuple(sorted({name for name in architectures if name}))
    return Met(names, _range(sides), _range(classes))


def _range(values: Sequence[int]) -> tuple[int, int] | None:
    return (int(min(values)), int(max(values))) if len(values) else None
