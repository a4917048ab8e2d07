"""Evidence of one model in, calibrated probability and its reasons out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxtroj.calibration import files
from jaxtroj.calibration.fitted import Fitted, Provenance, StageReport, provenance_of
from jaxtroj.calibration.labelled import UNKNOWN, Labelled, Origin, Scheme, make_population, matrix
from jaxtroj.calibration.linear import FREE_DISTANCE
from jaxtroj.calibration.stage import StageModel
from jaxtroj.calibration.stopping import stop_rule
from jaxtroj.calibration.training import (
    OutOfFold,
    fit_stages,
    out_of_fold,
    stage_score,
)
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import logit, sigmoid

LEAST_CONTRIBUTION = 0.05  # nats of log-odds below which a field is no reason


@dataclass(frozen=True)
class Verdict:
    """The answer for one model."""

    probability: float
    """P(poisoned), in (0, 1)."""
    poisoned: bool
    """Whether the probability exceeds the threshold."""
    target_class: int | None
    """Class that the recovered trigger forces, None when there is none."""
    source_classes: tuple[int, ...]
    """Classes that the trigger works from."""
    reasons: tuple[str, ...]
    """Sentences, strongest first."""


@dataclass(frozen=True)
class Calibrator:
    """Fitted map from evidence to P(poisoned), one regression for each cumulative stage."""

    stages: Mapping[str, StageModel]
    """In the order in which evidence is gathered."""
    reports: Mapping[str, StageReport]
    """Out-of-fold record of the same stages."""
    provenance: Provenance
    unfitted: tuple[str, ...] = field(default=())
    """Stages with too few complete rows to fit."""

    @property
    def base_rate(self) -> float:
        """Share of poisoned models in the population it was fitted on."""
        return self.provenance.poisoned / self.provenance.models

    def covers(self, size: tuple[int, int]) -> bool:
        """Whether it is for pictures of `size` (height and width, pixels)."""
        sides = self.provenance.sides
        return sides is not None and sides[0] <= min(size) and max(size) <= sides[1]

    @classmethod
    def fit(cls, labelled: Labelled, scheme: Scheme, origin: Origin = UNKNOWN) -> "Calibrator":
        """Fits every stage and scores it out of fold.

        A row counts only for the stages that it has all fields of.

        Raises:
            CalibrationError: fewer than 10 models (3 of each kind) with the first stage's fields.
        """
        fitted = fit_stages(make_population(labelled), scheme, origin.seed)
        held_out = out_of_fold(labelled, scheme, origin.seed)
        truth, last = labelled.truth, held_out[list(fitted)[-1]]
        reports = {
            stage: _report(held_out[stage], last, truth, labelled.architectures) for stage in fitted
        }
        unfitted = tuple(stage for stage in scheme.stages if stage not in fitted)
        return cls(fitted, reports, provenance_of(labelled, origin), unfitted)

    def probability(
        self,
        fields: Mapping[str, float | None],
        architecture: str | None = None,
        base_rate: float = 0.5,
    ) -> float:
        """P(poisoned) by the last stage whose fields are all there; `base_rate` when none is.

        Args:
            fields: evidence by name; names the calibrator does not know are ignored.
            architecture: an unknown one gets the mean intercept.
            base_rate: P(poisoned) before the evidence, in (0, 1); Bayes' rule moves the odds from
                the training base rate to it, after the clip, so the shift is exact.
        Raises:
            CalibrationError: `base_rate` is not in (0, 1).
        """
        stage = self.last_complete(fields)
        if stage is None:
            return _checked_rate(base_rate)
        return self.stage_probability(stage, fields, architecture, base_rate)

    def stage_probability(
        self,
        stage: str,
        fields: Mapping[str, float | None],
        architecture: str | None = None,
        base_rate: float = 0.5,
    ) -> float:
        """P(poisoned) by the evidence of a stage and those before it.

        Raises CalibrationError when the stage is unknown or one of its fields is missing.
        """
        return float(sigmoid(self._log_odds(stage, fields, architecture, base_rate)))

    def can_stop(
        self,
        fields: Mapping[str, float | None],
        stage: str,
        architecture: str | None = None,
        base_rate: float = 0.5,
    ) -> bool:
        """Whether the stages after `stage` could not change the side of 0.5: see `stopping`.

        False when the stage was not fitted or a field is missing; True at the last fitted stage,
        since evidence without a fitted stage changes no probability.
        """
        if stage not in self.stages or not self._is_complete(stage, fields):
            return False
        if stage == list(self.stages)[-1]:
            return True
        model, values = self.stages[stage], matrix([fields], self.stages[stage].names)
        if model.linear.trust(values)[0] < 1:
            return False
        at_clip = int(model.at_clip(values, [architecture])[0])
        log_odds = self._log_odds(stage, fields, architecture, base_rate)
        return self.reports[stage].stop.allows(log_odds, at_clip)

    def last_complete(self, fields: Mapping[str, float | None]) -> str | None:
        """The last stage whose fields, and those of all stages before it, are all there."""
        complete = [stage for stage in self.stages if self._is_complete(stage, fields)]
        return complete[-1] if complete else None

    def missing(self, fields: Mapping[str, float | None]) -> tuple[str, ...]:
        """Names of the last stage's fields that are absent or not finite."""
        names = list(self.stages.values())[-1].names
        values = matrix([fields], names)[0]
        return tuple(name for name, value in zip(names, values, strict=True) if np.isnan(value))

    def explain(
        self, fields: Mapping[str, float | None], architecture: str | None = None, most: int = 3
    ) -> tuple[str, ...]:
        """Why, in sentences: an unknown architecture first, then what pulls to the answer's side.

        A field's pull is its weight times its distance, on the tamed scale, from the median of
        the clean models when the answer is poisoned, else from that of the poisoned ones.
        Caveats follow: evidence outside the training range, fields that are missing.
        """
        stage = self.last_complete(fields)
        if stage is None:
            absent = ", ".join(self.missing(fields)[:3])
            return (f"no evidence the calibrator can use (missing: {absent} ...); base rate",)
        model = self.stages[stage]
        values = matrix([fields], model.names)
        return (
            *self._stranger(architecture),
            *_pulls(model, values, architecture, most),
            *_outside(model, values),
            *self._left_out(stage, fields),
        )

    def verdict(
        self,
        fields: Mapping[str, float | None],
        architecture: str | None = None,
        base_rate: float = 0.5,
        threshold: float = 0.5,
        target_class: int | None = None,
        source_classes: Sequence[int] = (),
    ) -> Verdict:
        """Probability, side of the threshold and reasons; a clean verdict names no target."""
        probability = self.probability(fields, architecture, base_rate)
        poisoned = probability > threshold
        return Verdict(
            probability=probability,
            poisoned=poisoned,
            target_class=target_class if poisoned else None,
            source_classes=tuple(source_classes) if poisoned else (),
            reasons=self.explain(fields, architecture),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON, atomically. Raises CalibrationError when it cannot be written."""
        fitted = Fitted(self.stages, self.reports, self.provenance, self.unfitted)
        files.save(fitted, path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Calibrator":
        """Reads what `save` wrote. Raises CalibrationError for anything else."""
        found = files.load(path)
        return Calibrator(found.stages, found.reports, found.provenance, found.unfitted)

    def _is_complete(self, stage: str, fields: Mapping[str, float | None]) -> bool:
        return bool(np.isfinite(matrix([fields], self.stages[stage].names)).all())

    def _log_odds(
        self,
        stage: str,
        fields: Mapping[str, float | None],
        architecture: str | None,
        base_rate: float,
    ) -> float:
        if stage not in self.stages:
            raise CalibrationError(
                f"no stage {stage!r} in this calibrator, expected one of {', '.join(self.stages)}"
            )
        if not self._is_complete(stage, fields):
            raise CalibrationError(f"stage {stage!r} lacks fields; use probability() instead")
        model = self.stages[stage]
        shift = float(logit(_checked_rate(base_rate)) - logit(model.linear.rate))
        return float(model.log_odds(matrix([fields], model.names), [architecture])[0]) + shift

    def _stranger(self, architecture: str | None) -> list[str]:
        """What must be said first of a network that no calibration model resembles."""
        known = {name for report in self.reports.values() for name in report.by_architecture}
        if architecture in known:
            return []
        # A trigger in such a network may leave traces that the fit has never weighed.
        name = architecture or "network without an architecture"
        return [
            f"the calibrator has met no {name}, only {', '.join(sorted(known)) or 'unnamed ones'}:"
            " take the probability as a guess"
        ]

    def _left_out(self, stage: str, fields: Mapping[str, float | None]) -> list[str]:
        absent = self.missing(fields)
        return [f"answered after stage {stage}, {len(absent)} later fields are missing"] * bool(
            absent
        )


def _checked_rate(base_rate: float) -> float:
    if not 0 < base_rate < 1:
        raise CalibrationError(f"the base rate must lie in (0, 1), got {base_rate}")
    return float(base_rate)


def _report(
    held_out: OutOfFold, last: OutOfFold, truth: np.ndarray, architectures: Sequence[str | None]
) -> StageReport:
    names = np.array([name or "" for name in architectures])
    answered = ~np.isnan(held_out.log_odds)
    return StageReport(
        score=stage_score(held_out, truth, np.ones(len(truth), dtype=bool)),
        by_architecture={
            str(name): stage_score(held_out, truth, names == name)
            for name in np.unique(names[answered])
            if name
        },
        stop=stop_rule(held_out, last),
    )


def _pulls(model: StageModel, values: np.ndarray, architecture: str | None, most: int) -> list[str]:
    """The fields that pull hardest to the side of the answer, in words."""
    linear = model.linear
    is_poisoned = linear.log_odds(values, [architecture])[0] > logit(linear.rate)
    other = [f.clean if is_poisoned else f.poisoned for f in linear.fields]
    pull = linear.contributions(values)[0] - linear.contributions(np.array([other]))[0]
    pull = pull if is_poisoned else -pull
    strongest = [i for i in np.argsort(-pull, kind="stable") if pull[i] >= LEAST_CONTRIBUTION]
    side = "poisoned" if is_poisoned else "clean"
    return [
        f"{linear.fields[i].label} speaks for {side}: {values[0, i]:.3g} (median of clean models "
        f"{linear.fields[i].clean:.3g}, of poisoned models {linear.fields[i].poisoned:.3g})"
        for i in strongest[:most]
    ]


def _outside(model: StageModel, values: np.ndarray) -> list[str]:
    distances = model.linear.distances(values)[0]
    worst = int(np.argmax(distances))
    if distances[worst] <= FREE_DISTANCE:
        return []
    return [
        f"{model.linear.fields[worst].label} is {values[0, worst]:.3g}, outside the calibration "
        f"models' range: the evidence counts {model.linear.trust(values)[0]:.0%}"
    ]
