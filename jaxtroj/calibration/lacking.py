"""Models that a fit judges by its first stages alone, because they lack fields of a later one.

Networks without batch norms have no `statistics` and no `memory`; in a fit beside networks that
have them, no stage from `statistics` on answers for them, be their trigger search ever so clear.
"""

from collections import Counter
from dataclasses import dataclass

from jaxtroj.calibration.labelled import Labelled, Scheme, make_population
from jaxtroj.calibration.training import stage_task


@dataclass(frozen=True)
class JudgedEarly:
    """Models that lack fields of a stage which others are judged by."""

    models: int
    lacks: str
    """The first fitted stage that they lack fields of."""
    last: str | None
    """The last stage that answers for them; None: they get the base rate."""

    def __str__(self) -> str:
        judged = f"are judged by the stages up to {self.last} alone"
        judged = judged if self.last else "are judged by none: they get the base rate"
        return (
            f"{self.models} models lack the fields of stage {self.lacks} and {judged}; calibrate"
            " them apart, or scan again with --evidence-only where their scans ended early"
        )


def judged_early(labelled: Labelled, scheme: Scheme) -> list[JudgedEarly]:
    """For each stage that a fit by `scheme` has, the models that it stops answering for.

    None of a pooled model, which takes what there is. Raises CalibrationError as the fit does.
    """
    if scheme.is_pooled:
        return []
    population = make_population(labelled)
    prepared = {stage: stage_task(population, scheme, stage) for stage in scheme.stages}
    fitted = {stage: set(task[2].tolist()) for stage, task in prepared.items() if task is not None}
    ends: Counter[tuple[str, str | None]] = Counter()
    for row in range(len(population.keys)):
        answering = [stage for stage, complete in fitted.items() if row in complete]
        later = list(fitted)[len(answering) :]  # each stage needs the fields of those before it
        if later:
            ends[later[0], answering[-1] if answering else None] += 1
    return [JudgedEarly(models, lacks, last) for (lacks, last), models in ends.items()]
