"""Stage agreement: whether the searches before it found triggers for one and the same class."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.fixed import FIXED
from jaxtroj.evidence.images.stages.inversion import INVERSION
from jaxtroj.evidence.images.stages.memory import MEMORY
from jaxtroj.evidence.images.stages.probes import PROBES
from jaxtroj.evidence.images.stages.sides import AT_PLACES, by_gradients
from jaxtroj.evidence.images.stages.weights import WEIGHTS
from jaxtroj.evidence.images.stages.whole import WHOLE
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext

_agreement = partial(Field, stage="agreement", search="agreement")
FIELDS = (
    _agreement("agreement_votes", direction=1, unit="votes",
               label="the votes of all searches for one class",
               meaning="squares of the attack success rates of the searches whose best trigger is"
               " for the class, and one vote at most of the last layer; best class"),
    _agreement("agreement_lead", direction=1, unit="votes",
               label="the lead of one class in the votes of all searches",
               meaning="agreement_votes less those of the second best class"),
    _agreement("agreement_class", direction=0, unit="class",
               label="the class that searches agree on", is_judged=False, is_class=True,
               meaning="class of agreement_votes, -1 for none"),
)  # fmt: skip
_SEARCHES = (MEMORY, PROBES, INVERSION, FIXED, WHOLE)


def _run(context: "ImageContext") -> StageResult:
    from jaxtroj.evidence.images.agreement import agreement_fields

    known = (context.known(stage.run) for stage in (WEIGHTS, *_SEARCHES))
    results = [result for result in known if result is not None]
    fields = {name: value for result in results for name, value in result.fields.items()}
    found = context.recover([one for result in results for one in result.triggers])
    return StageResult(agreement_fields(fields, found))


AGREEMENT = Stage("agreement", FIELDS, _run, by_gradients(AT_PLACES), earlier=(WEIGHTS, WHOLE))
