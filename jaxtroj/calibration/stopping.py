"""When the stages still to come can be left out.

The rule looks at what happened to the labelled models out of fold. A stage may end the scan of a
model if all of this holds:

1. its answer lies at the stage's clip, inside the training cloud (trust 1);
2. at least `WITNESSES` labelled models lay at that same clip at this stage, so that the rule is
   not drawn from a handful;
3. the answer's log-odds are larger than the worst move towards the other side that any labelled
   model on the same side of 0.5 made from this stage to the last, plus `MARGIN`.

With n witnesses and no crossing, the chance of one is below 3 / n at 95 % confidence.
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.calibration.training import OutOfFold

WITNESSES = 8
MARGIN = 0.5


@dataclass(frozen=True)
class StopRule:
    """What the labelled models did between a stage and the last, in nats of log-odds."""

    worst_drop: float
    """Largest fall of a model above 0.5, >= 0."""
    worst_rise: float
    """Largest rise of a model below 0.5, >= 0."""
    witnesses_high: int
    """Models at the upper clip of this stage."""
    witnesses_low: int
    """Models at the lower clip."""

    def allows(self, log_odds: float, at_clip: int) -> bool:
        """Whether an answer (log-odds at the base rate in use) can no longer cross 0."""
        if at_clip > 0:
            return self.witnesses_high >= WITNESSES and log_odds > self.worst_drop + MARGIN
        if at_clip < 0:
            return self.witnesses_low >= WITNESSES and -log_odds > self.worst_rise + MARGIN
        return False


def stop_rule(stage: OutOfFold, last: OutOfFold) -> StopRule:
    """Learns the rule from rows that both stages answered."""
    both = ~np.isnan(stage.log_odds) & ~np.isnan(last.log_odds)
    before, at_clip = stage.log_odds[both], stage.at_clip[both]
    fall = before - last.log_odds[both]
    return StopRule(
        worst_drop=float(max(fall[before > 0].max(initial=0.0), 0.0)),
        worst_rise=float(max((-fall[before < 0]).max(initial=0.0), 0.0)),
        witnesses_high=int((at_clip > 0).sum()),
        witnesses_low=int((at_clip < 0).sum()),
    )
