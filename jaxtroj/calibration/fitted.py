"""What fitting leaves behind: the stages, how they did out of fold, where they come from."""

from collections.abc import Mapping
from dataclasses import dataclass

from jaxtroj.calibration.judge import Judge
from jaxtroj.calibration.kinds import KindFound
from jaxtroj.calibration.labelled import Labelled, Origin
from jaxtroj.calibration.signs import Sign
from jaxtroj.calibration.stopping import StopRule
from jaxtroj.calibration.training import StageScore
from jaxtroj.calibration.transfer import Met, Transfer
from jaxtroj.evidence.stage import Measured


@dataclass(frozen=True)
class StageReport:
    """How a stage did out of fold, over all models and by architecture, and when it may stop."""

    score: StageScore
    by_architecture: Mapping[str, StageScore]
    stop: StopRule


@dataclass(frozen=True)
class Provenance:
    """What a calibrator was fitted on."""

    population: str
    """The labelled models in words: which round, how made, at what size."""
    seed: int
    commit: str
    """Commit of jaxtroj that fitted it, empty when unknown."""
    models: int
    poisoned: int
    sides: tuple[int, int] | None = None
    """Shortest and longest side in pixels of the pictures it is for; None where nobody said."""
    evidence: Measured | None = None
    """By which version its evidence was measured; None of several, and where nobody said."""


def provenance_of(labelled: Labelled, origin: Origin) -> Provenance:
    """What is kept of the models that a fit was given."""
    poisoned = int(labelled.truth.sum())
    models = len(labelled.rows)
    return Provenance(
        origin.population,
        origin.seed,
        origin.commit,
        models,
        poisoned,
        origin.sides,
        origin.evidence,
    )


@dataclass(frozen=True)
class Fitted:
    """All of a calibrator, as its file holds it; see `Calibrator` for the attributes."""

    stages: Mapping[str, Judge]
    reports: Mapping[str, StageReport]
    provenance: Provenance
    unfitted: tuple[str, ...]
    met: Met | None
    transfer: Transfer
    kinds: Mapping[str, KindFound]
    signs: tuple[Sign, ...] = ()
