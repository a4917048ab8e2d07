"""Evidence to verdict: by the calibrator, with what must be said before its reasons."""

from jaxtroj.calibration import Calibrator, Verdict
from jaxtroj.errors import CalibrationError, EvidenceError
from jaxtroj.evidence.gather import Stop
from jaxtroj.record import EVIDENCE_ONLY, finite
from jaxtroj.scan.attempt import Attempt
from jaxtroj.settings import EVEN_ODDS


def stop_rule(attempt: Attempt, calibrator: Calibrator | None) -> Stop:
    """Whether the stages after one could no longer change the side of the verdict."""
    settings = attempt.settings
    if calibrator is None or not settings.early_stop or settings.threshold != EVEN_ODDS:
        return lambda stage, fields: False
    rate, traits = attempt.base_rate, attempt.traits
    return lambda stage, fields: calibrator.can_stop(fields, stage, traits, rate)


def check_finite(attempt: Attempt) -> None:
    """Raises EvidenceError if a field is NaN or infinite; the record keeps the others."""
    fields = attempt.evidence.fields
    odd = sorted(set(fields) - set(finite(fields)))
    if odd:
        raise EvidenceError(f"evidence is not finite: {', '.join(odd)}; is the model sound?")


def judge(
    attempt: Attempt, calibrator: Calibrator | None, target: int | None, sources: tuple[int, ...]
) -> Verdict:
    """What the calibrator says of the evidence; the base rate without one.

    Args:
        attempt: with its evidence.
        calibrator: for its kind of model.
        target, sources: of the strongest trigger, if there is one.

    Raises:
        CalibrationError: it cannot use any stage of this evidence.
    """
    if calibrator is None:
        return Verdict(attempt.base_rate, False, target, sources, (EVIDENCE_ONLY,))
    fields, traits = finite(attempt.evidence.fields), attempt.traits
    if calibrator.last_complete(fields) is None:
        raise CalibrationError(
            "the calibrator cannot use this evidence, it lacks"
            f" {', '.join(calibrator.missing(fields)[:4])}; calibrate on a run made"
            " with the same version and stages"
        )
    threshold = attempt.settings.threshold
    return calibrator.verdict(fields, traits, attempt.base_rate, threshold, target, sources)
