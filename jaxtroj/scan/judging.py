"""Evidence to verdict: by the calibrator, with what must be said before its reasons."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from jaxtroj.calibration import Calibrator, Verdict
from jaxtroj.errors import CalibrationError, EvidenceError
from jaxtroj.evidence.gather import Stop
from jaxtroj.evidence.stage import Stage
from jaxtroj.evidence.versions import check_fitted
from jaxtroj.numerics import is_above
from jaxtroj.record import EVIDENCE_ONLY, finite
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.beyond_norms import beyond_norms
from jaxtroj.settings import EVEN_ODDS


def stop_rule(attempt: Attempt, calibrator: Calibrator | None) -> Stop:
    """Whether the stages after one could no longer change the verdict, or need not."""
    settings = attempt.settings
    if calibrator is None or not settings.early_stop:
        return lambda stage, fields, has_trigger: False
    rate, traits, enough = attempt.base_rate, attempt.traits, settings.enough

    def stop(stage: str, fields: Mapping[str, float], has_trigger: bool) -> bool:
        is_called = is_above(calibrator.probability(fields, traits, rate), settings.threshold)
        if is_called and not has_trigger:
            return False  # who is told of a trojan is shown one
        if enough is not None and calibrator.is_sure(fields, stage, enough, traits, rate):
            return True
        if settings.threshold != EVEN_ODDS:  # what labelled models did is known of that side alone
            return False
        if stage not in calibrator.stages and not calibrator.missing(fields):
            return not is_called  # past the last fitted stage; a trojan is looked for to the end
        return calibrator.can_stop(fields, stage, traits, rate)

    return stop


def check_finite(attempt: Attempt) -> None:
    """Raises EvidenceError if a field is NaN or infinite; the record keeps the others."""
    fields = attempt.evidence.fields
    odd = sorted(set(fields) - set(finite(fields)))
    if odd:
        raise EvidenceError(
            f"evidence is not finite: {', '.join(odd)}; expected numbers. What the network computes"
            " runs over or divides by 0 on changed pictures: give the bounds and normalization that"
            " it was trained with, export it without roots and quotients of what can be 0, or leave"
            " out the stages of these fields (--stages)"
        )


def lacking(stages: Sequence[Stage], fitted: Collection[str], got: Collection[str]) -> str:
    """Why a calibrator has nothing to judge a model by, in words; "" where it has something.

    Args:
        stages: all of the model's kind.
        fitted: names of those that the calibrator judges by.
        got: names of those that the model got.
    """
    wanted = [stage for stage in stages if stage.name in fitted]
    if not wanted or any(stage.name in got for stage in wanted):
        return ""
    by_needs: dict[str, list[str]] = {}
    for stage in wanted:
        by_needs.setdefault(stage.needs.words, []).append(stage.name)
    needs = " and ".join(map(_need, by_needs.values(), by_needs))
    return f"{EVIDENCE_ONLY}, the probability is the base rate: the calibrator judges by {needs}"


def _need(names: Sequence[str], words: str) -> str:
    """
    >>> _need(["beside"], "a probe bank"), _need(["fixed", "whole"], "an input gradient")
    ('beside, which needs a probe bank', 'fixed, whole, which need an input gradient')
    """
    return f"{', '.join(names)}, which need{'' if len(names) > 1 else 's'} {words}"


def judge(
    attempt: Attempt,
    calibrator: Calibrator | None,
    target: int | None,
    sources: tuple[int, ...],
    lacks: str = "",
) -> Verdict:
    """What the calibrator says of the evidence; the base rate without one, or where it `lacks`.

    Args:
        attempt: with its evidence.
        calibrator: for its kind of model.
        target, sources: of the strongest trigger, if there is one.
        lacks: see `lacking`.

    Raises:
        CalibrationError: it cannot use any stage of this evidence.
    """
    if calibrator is None or lacks:
        reason = lacks or EVIDENCE_ONLY
        return Verdict(attempt.base_rate, False, target, sources, (reason,))
    fields, traits = finite(attempt.evidence.fields), attempt.traits
    if calibrator.last_complete(fields) is None:
        raise CalibrationError(
            "the calibrator cannot use this evidence, it lacks"
            f" {', '.join(calibrator.missing(fields)[:4])}; calibrate on a run made"
            " with the same version and stages"
        )
    threshold = attempt.settings.threshold
    found = calibrator.verdict(fields, traits, attempt.base_rate, threshold, target, sources)
    outdated = check_fitted(attempt.kind, calibrator.provenance.evidence)
    doubts = tuple(filter(None, (outdated, beyond_norms(attempt, found))))
    return replace(found, reasons=(*found.reasons, *doubts), caveats=(*found.caveats, *doubts))
