"""What a clean answer is worth if what batch norms remember counts for nothing.

Much of what is known of networks with batch norms is what their running statistics keep of the
training pictures, and quiet ones speak for clean. But whoever writes the file can set them anew by
clean pictures, and make up for it in the weights that follow, so that no answer changes: poisoned
networks that were called so at 0.99 came down to 0.58 and less by that. No field tells such
statistics from those of training, so the answer by all other evidence is told beside the usual one.
"""

from dataclasses import replace

from jaxtroj.calibration import Verdict
from jaxtroj.evidence.stages import TABLES
from jaxtroj.record import finite
from jaxtroj.scan.attempt import Attempt
from jaxtroj.settings import choice_of, load_calibrator

_MORE = 0.1  # by which the probability must be higher to be told


def beyond_norms(attempt: Attempt, verdict: Verdict) -> str:
    """The probability without what batch norms remember, in words; "" where it says nothing new.

    That is: of a poisoned verdict, of networks without batch norms, and where the calibrator has no
    counterpart for these.
    """
    if verdict.poisoned or not attempt.has_batch_norm:
        return ""
    settings, asked = attempt.settings, replace(attempt.asked, has_batch_norm=False)
    usual, without = choice_of(settings, attempt.asked), choice_of(settings, asked)
    calibrator = load_calibrator(settings, asked)
    if calibrator is None or usual is None or without is None or without.path == usual.path:
        return ""
    fields = _of_others(attempt)
    if calibrator.last_complete(fields) is None:
        return ""
    found = calibrator.probability(fields, attempt.traits, attempt.base_rate)
    if found <= verdict.probability + _MORE:
        return ""
    return (
        "without what its batch norms remember, which whoever wrote the file can set anew, the"
        f" probability is {found:.2f}"
    )


def _of_others(attempt: Attempt) -> dict[str, float]:
    """Finite fields of the stages that need no batch norms."""
    table = TABLES[attempt.kind]
    by_norms = {
        field.name for stage in table.stages if stage.needs.batch_norm for field in stage.fields
    }
    fields = finite(attempt.evidence.fields)
    return {name: value for name, value in fields.items() if name not in by_norms}
