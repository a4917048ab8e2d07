"""Evidence of one model in, calibrated probability and its reasons out."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from jaxtroj.calibration import files
from jaxtroj.calibration.caveats import caveats_of
from jaxtroj.calibration.deciding import what_decides
from jaxtroj.calibration.few_classes import fit_few_classes
from jaxtroj.calibration.fitted import Fitted, Provenance, StageReport
from jaxtroj.calibration.fitting import fit_calibrator
from jaxtroj.calibration.judge import Judge
from jaxtroj.calibration.kinds import KindFound, shares_of
from jaxtroj.calibration.labelled import UNKNOWN, Labelled, Origin, Scheme, matrix
from jaxtroj.calibration.large_pictures import fit_large_pictures
from jaxtroj.calibration.pooled import PooledModel, PooledStage
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.signs import Sign, seen, with_signs
from jaxtroj.calibration.transfer import NOTHING_KNOWN, Met, Traits, Transfer
from jaxtroj.calibration.verdict import Verdict
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import clip_probability, is_above, logit, sigmoid
from jaxtroj.populations import LARGE_ABOVE


@dataclass(frozen=True)
class Calibrator:
    """Fitted map from evidence to P(poisoned), asked after each stage of evidence."""

    stages: Mapping[str, Judge]
    """In the order in which evidence is gathered."""
    reports: Mapping[str, StageReport]
    """Out-of-fold record of the same stages."""
    provenance: Provenance
    unfitted: tuple[str, ...] = field(default=())
    """Stages with too few complete rows to fit, or none of the fields few models are fitted on."""
    met: Met | None = None
    """What the networks of the fit were; None in a calibrator that only knows architectures."""
    transfer: Transfer = Transfer()
    """How far its evidence holds for what it has not met."""
    kinds: Mapping[str, KindFound] = field(default_factory=dict)
    """Kind of trigger in the population -> how it was found, out of fold."""
    signs: tuple[Sign, ...] = ()
    """Of trojans that no network of the fit has."""

    @property
    def needs_all(self) -> bool:
        """Whether each stage needs the fields of all stages before it."""
        return not any(isinstance(judge, PooledStage) for judge in self.stages.values())

    @property
    def found(self) -> Mapping[str, float]:
        """Kind of trigger in the population -> share found, 0 to 1; not of kinds of few models."""
        return shares_of(self.kinds)

    @property
    def base_rate(self) -> float:
        """Share of poisoned models in the population it was fitted on, where that is a sample.

        A pooled calibrator's is a mixture of all that could be had: even odds.
        """
        if not self.needs_all:
            return 0.5
        return self.provenance.poisoned / self.provenance.models

    def covers(self, size: tuple[int, int]) -> bool | None:
        """Whether it is for pictures of `size` (height and width, pixels); None if it notes no
        sizes."""
        sides = self.provenance.sides
        return None if sides is None else sides[0] <= min(size) and max(size) <= sides[1]

    @classmethod
    def fit(cls, labelled: Labelled, scheme: Scheme, origin: Origin = UNKNOWN) -> "Calibrator":
        """Fits every stage and scores it out of fold.

        A regression counts a row only for the stages that it has all fields of; a pooled model
        (`scheme.is_pooled`) takes what there is, and learns how far it holds for what it has not
        met.

        Raises:
            CalibrationError: fewer than 10 models (3 of each kind) with the first stage's fields.
        """
        return cls(**vars(fit_calibrator(labelled, scheme, origin)))

    def for_few_classes(self, labelled: Labelled | None) -> "Calibrator":
        """The same with what labelled networks of few classes show; with None, without it.

        Raises:
            CalibrationError: it is not pooled; see also `few_classes.fit_few_classes`.
        """
        model = self._pooled("networks of few classes")
        few = None if labelled is None else fit_few_classes(model, labelled).few
        return self._asking(replace(model, few=few))

    def for_large_pictures(
        self, labelled: Labelled | None, groups: Sequence[str] = (), above: int = LARGE_ABOVE
    ) -> "Calibrator":
        """The same with what labelled networks of large pictures show; with None, without it.

        Raises:
            CalibrationError: it is not pooled; see also `large_pictures.fit_large_pictures`.
        """
        model = self._pooled("networks of large pictures")
        large = None if labelled is None else fit_large_pictures(model, labelled, groups, above)
        return self._asking(replace(model, large=large))

    def _pooled(self, judged: str) -> PooledModel:
        """The pooled model. Raises CalibrationError where there is none to judge some apart."""
        model = pooled_of(self.stages)
        if model is None:
            raise CalibrationError(f"only a pooled calibrator judges {judged} apart")
        return model

    def _asking(self, model: PooledModel) -> "Calibrator":
        return replace(self, stages={name: PooledStage(model, name) for name in self.stages})

    def probability(
        self,
        fields: Mapping[str, float | None],
        traits: Traits = NOTHING_KNOWN,
        base_rate: float = 0.5,
    ) -> float:
        """P(poisoned) by the last stage whose fields are all there; `base_rate` when none is.

        No answer lies outside [1e-12, 1 - 1e-12], whatever the base rate.

        Args:
            fields: evidence by name; names the calibrator does not know are ignored.
            traits: of the network; an unknown architecture gets the mean intercept, and of what the
                calibrator has not met the evidence counts less, see `transfer`.
            base_rate: P(poisoned) before the evidence, in (0, 1); Bayes' rule moves the odds from
                the training base rate to it, after the clip, so the shift is exact.
        Raises:
            CalibrationError: `base_rate` is not in (0, 1).
        """
        stage = self.last_complete(fields)
        if stage is None:
            return float(clip_probability(_checked_rate(base_rate)))
        return self.stage_probability(stage, fields, traits, base_rate)

    def stage_probability(
        self,
        stage: str,
        fields: Mapping[str, float | None],
        traits: Traits = NOTHING_KNOWN,
        base_rate: float = 0.5,
    ) -> float:
        """P(poisoned) by the evidence of a stage and those before it.

        Raises CalibrationError when the stage is unknown or one of its fields is missing.
        """
        log_odds = self._log_odds(stage, fields, traits, base_rate)
        return float(clip_probability(sigmoid(log_odds)))

    def can_stop(
        self,
        fields: Mapping[str, float | None],
        stage: str,
        traits: Traits = NOTHING_KNOWN,
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
        model, values = self._judge(stage, traits), matrix([fields], self.stages[stage].names)
        if not model.is_familiar(values):
            return False
        at_clip = int(model.at_clip(values, [traits.architecture])[0])
        log_odds = self._log_odds(stage, fields, traits, base_rate)
        return self.reports[stage].stop.allows(log_odds, at_clip)

    def is_sure(
        self,
        fields: Mapping[str, float | None],
        stage: str,
        enough: float,
        traits: Traits = NOTHING_KNOWN,
        base_rate: float = 0.5,
    ) -> bool:
        """Whether a stage gives a probability of at most `enough`, or of at least `1 - enough`.

        False when the stage was not fitted or a field is missing.
        """
        if stage not in self.stages or not self._is_complete(stage, fields):
            return False
        probability = self.stage_probability(stage, fields, traits, base_rate)
        return min(probability, 1 - probability) <= enough

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
        self, fields: Mapping[str, float | None], traits: Traits = NOTHING_KNOWN, most: int = 3
    ) -> tuple[str, ...]:
        """Why, in sentences: what was not met first, then what pulls to the answer's side.

        In a regression a field's pull is its weight times its distance, on the tamed scale, from
        the median of the clean models when the answer is poisoned, else from that of the poisoned
        ones; of a pooled model the fields that carried the pool are named.
        Caveats follow: evidence outside the training range, fields that are missing.
        """
        stage = self.last_complete(fields)
        if stage is None:
            absent = ", ".join(self.missing(fields)[:3])
            return (f"no evidence the calibrator can use (missing: {absent} ...); base rate",)
        model = self._judge(stage, traits)
        values = matrix([fields], model.names)
        return (
            *self.caveats(traits),
            *(sign.reason(fields) for sign in seen(self.signs, fields)),
            *model.reasons(values, traits.architecture, most),
            *self._left_out(stage, fields),
        )

    def verdict(
        self,
        fields: Mapping[str, float | None],
        traits: Traits = NOTHING_KNOWN,
        base_rate: float = 0.5,
        threshold: float = 0.5,
        target_class: int | None = None,
        source_classes: Sequence[int] = (),
    ) -> Verdict:
        """Probability, side of the threshold and reasons; a clean verdict names no target."""
        probability = self.probability(fields, traits, base_rate)
        poisoned = is_above(probability, threshold)
        decisive: tuple[str, ...] = ()
        if self.last_complete(fields) is not None:  # else the reason is the base rate already
            at_even_odds = self.probability(fields, traits)
            decisive = what_decides(probability, at_even_odds, base_rate, threshold)
        return Verdict(
            probability=probability,
            poisoned=poisoned,
            target_class=target_class if poisoned else None,
            source_classes=tuple(source_classes) if poisoned else (),
            reasons=(*decisive, *self.explain(fields, traits)),
            caveats=self.caveats(traits),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON, atomically. Raises CalibrationError when it cannot be written."""
        files.save(self._fitted(), path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Calibrator":
        """Reads what `save` wrote. Raises CalibrationError for anything else."""
        return Calibrator(**vars(files.load(path)))

    def _is_complete(self, stage: str, fields: Mapping[str, float | None]) -> bool:
        return self.stages[stage].usable(matrix([fields], self.stages[stage].names))

    def _judge(self, stage: str, traits: Traits) -> Judge:
        """Of a stage, for a network's size of pictures and number of classes."""
        judge = self.stages[stage]
        if not isinstance(judge, PooledStage):
            return judge
        return judge.for_network(traits.side, traits.classes)

    def _log_odds(
        self,
        stage: str,
        fields: Mapping[str, float | None],
        traits: Traits,
        base_rate: float,
    ) -> float:
        if stage not in self.stages:
            raise CalibrationError(
                f"no stage {stage!r} in this calibrator, expected one of {', '.join(self.stages)}"
            )
        if not self._is_complete(stage, fields):
            raise CalibrationError(f"stage {stage!r} lacks fields; use probability() instead")
        model, values = self._judge(stage, traits), matrix([fields], self.stages[stage].names)
        prior = float(logit(model.rate))
        found = float(model.log_odds(values, [traits.architecture])[0])
        factor = 1.0 if self.met is None else self.transfer.factor(self.met, traits)
        factor *= traits.weight
        if factor < 1:
            found = prior + factor * (found - prior)
        shift = float(logit(_checked_rate(base_rate)) - prior)
        shown = seen(self.signs, fields)
        return with_signs(found - prior, shown) + prior + shift if shown else found + shift

    def caveats(self, traits: Traits) -> tuple[str, ...]:
        """What must be said first of a network that no calibration model resembles."""
        return tuple(caveats_of(self._fitted(), traits))

    def _fitted(self) -> Fitted:
        """All of it, as its file holds it."""
        return Fitted(**vars(self))

    def _left_out(self, stage: str, fields: Mapping[str, float | None]) -> list[str]:
        absent = self.missing(fields) if self.needs_all else ()
        return [f"answered after stage {stage}, {len(absent)} later fields are missing"] * bool(
            absent
        )


def _checked_rate(base_rate: float) -> float:
    if not 0 < base_rate < 1:
        raise CalibrationError(f"the base rate must lie in (0, 1), got {base_rate}")
    return float(base_rate)
