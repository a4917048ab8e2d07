"""The class that a verdict names: where searches agree, of a fitted pattern, or of the signs.

In small pictures searches vote, see `evidence.images.agreement`. In larger pictures nearly every
search works for some class, and the class is that of a fitted pattern that works, else of the
signs. Whole-picture triggers (colour maps, borders, filters) and those for one pair of classes can
be found for some class of every network, poisoned or not, and the strongest one mostly serves
another class than the target. The class that the last layer leans to is the target far more often,
also where it leans by little; see docs/history.md. Where a fitted pattern works, both agree.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import SMALL_SIDE
from jaxtroj.evidence.stages import IMAGES

if TYPE_CHECKING:
    from jaxtroj.anchors import AnchoredExamples
    from jaxtroj.triggers.measure import Measured, RecoveredTrigger

FITTED_PATTERNS = frozenset({"window search", "patch search", "neural cleanse", "blend search"})
"""Methods that fit a pattern of free pixels, at one place or faint, for each class alike."""
_WORKS = 0.5  # of the held-out examples that a trigger for the named class has to flip
_FEWEST_SEARCHES = 3
"""Fewer than these agree on nothing."""


def named_class(fields: Mapping[str, float], found: "Sequence[RecoveredTrigger]") -> int | None:
    """The class named; None where neither a sign nor a trigger names one.

    Args:
        fields: evidence by name.
        found: the best trigger of each search, the strongest first.
    """
    shown = found[0] if found else None
    if len(found) >= _FEWEST_SEARCHES and max(found[0].shape) <= SMALL_SIDE:
        from jaxtroj.evidence.images.agreement import votes_of

        votes = votes_of(fields, found)
        return max(votes, key=lambda target: votes[target])
    if (
        shown is not None
        and shown.method in FITTED_PATTERNS
        and shown.attack_success_rate >= _WORKS
    ):
        return int(shown.target_class)
    signs = (int(fields.get(name, -1)) for name in IMAGES.class_fields.values())
    signed = next((sign for sign in signs if sign >= 0), None)
    if signed is None and shown is not None:
        return int(shown.target_class)
    return signed


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
