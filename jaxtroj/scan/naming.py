"""The class that a verdict names: of the loudest sign that names one, else of the trigger shown.

Some signs name a class and no trigger: the last layer leans to one, the statistics of clean
examples raise one. On networks whose trigger no search can make again they mostly name the target,
where the strongest trigger found serves some other class that is easily reached. Of triggers that
work from a single class they often name the source.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxtroj.calibration.pooled import LEAST_SCORE
from jaxtroj.evidence.stage import SUPPORT
from jaxtroj.evidence.stages import IMAGES

if TYPE_CHECKING:
    from jaxtroj.anchors import AnchoredExamples
    from jaxtroj.triggers.measure import Measured, RecoveredTrigger

_LOUD = 0.5  # of the loudest search: a sign below that names nothing
_WORKS = 0.5  # of the held-out examples that a trigger for the named class has to flip


def signed_class(fields: Mapping[str, float], supports: Mapping[str, float]) -> int | None:
    """The class of the loudest sign that names one; None where none is loud enough.

    Args:
        fields: evidence by name.
        supports: search -> decades beyond clean models, see `Calibrator.supports`.
    """
    signs = {
        search: int(fields[name])
        for search, name in IMAGES.class_fields.items()
        if search in supports and fields.get(name, -1) >= 0
    }
    loudest = max(signs, key=supports.__getitem__, default=None)
    if loudest is None:
        return None
    searches = [s for name, s in supports.items() if name not in signs and name != SUPPORT]
    least = max(LEAST_SCORE, _LOUD * max(searches, default=0.0))
    return signs[loudest] if supports[loudest] >= least else None


def working_trigger(
    target: int,
    found: "Sequence[RecoveredTrigger]",
    for_classes: "Sequence[Measured]",
    examples: "AnchoredExamples",
) -> "RecoveredTrigger | None":
    """The strongest trigger for a class; None if none flips half of the examples it is for.

    Args:
        target: the class.
        found: the best trigger of each search.
        for_classes: what the searches measured for other classes too.
        examples: all of the model's.
    """
    from jaxtroj.triggers.measure import best_for, strongest_first

    own = [trigger for trigger in found if trigger.target_class == target]
    known = strongest_first([*own, *best_for(target, for_classes, examples)])
    return next((trigger for trigger in known if trigger.attack_success_rate >= _WORKS), None)
