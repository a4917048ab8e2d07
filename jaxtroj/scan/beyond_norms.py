"""What an answer is worth if what batch norms remember counts for nothing.

Much of what is known of networks with batch norms is what their running statistics keep of the
training pictures, and quiet ones speak for clean. But whoever writes the file can set them anew by
clean pictures, and make up for it in the weights that follow, so that no answer changes: poisoned
networks that were called so at 0.99 came down to 0.58 and less by that. Statistics of pictures with
a pattern that nobody trained on speak for poisoned: a clean network rose from 0.15 to 0.50. No
field tells such statistics from those of training, so the answer by all other evidence is told
beside a clean one, and beside a poisoned one where it would be another.
"""

from dataclasses import replace

from jaxtroj.calibration import Verdict
from jaxtroj.evidence.stages import TABLES
from jaxtroj.record import finite
from jaxtroj.scan.attempt import Attempt
from jaxtroj.settings import choice_of, load_calibrator

_MORE = 0.1  # by which the probability must be higher to be told of a clean answer


def beyond_norms(attempt: Attempt, verdict: Verdict) -> str:
    """The probability without what batch norms remember, in words; "" where it says nothing new.

    That is: of networks without batch norms, where the calibrator has no counterpart for these,
    where a clean answer would not rise by more than 0.1, and where a poisoned one would stay one.
    """
    if not attempt.has_batch_norm:
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
    is_new = (
        found <= settings.threshold if verdict.poisoned else found > verdict.probability + _MORE
    )
    if not is_new:
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
