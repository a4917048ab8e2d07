"""Stage reference: how far classes lean to others, beside a clean network of the same classes."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext

_reference = partial(Field, stage="reference", search="reference")
_FREE_EAGLE = "FreeEagle, https://arxiv.org/abs/2302.14500"
FIELDS = (
    _reference("reference_lean", direction=1, unit="share of what chance has", source=_FREE_EAGLE,
               label="how far one class's clean examples lean to another, beside the reference",
               meaning="log-probability of a class on another's clean examples, less what the"
               " reference and the way back explain, in the usual size of pairs as near; largest"
               " over pairs, over what the largest of so many normal ones is expected to be"),
    _reference("reference_lean_source", direction=0, unit="class",
               label="the class whose examples lean", meaning="source of reference_lean",
               is_judged=False),
    _reference("reference_lean_class", direction=0, unit="class",
               label="the class that they lean to", meaning="target of reference_lean",
               is_judged=False, is_class=True),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    from jaxtroj.evidence.images.reference import leans_of

    leans = leans_of(context)
    source, target = leans.pair
    found = {"reference_lean": leans.furthest}
    classes = {"reference_lean_source": float(source), "reference_lean_class": float(target)}
    return StageResult(found | classes)


REFERENCE = Stage("reference", FIELDS, _run, Needs(reference=True))
