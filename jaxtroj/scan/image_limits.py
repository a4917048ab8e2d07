"""What an answer about an image classifier leaves open, in words for its plain line."""

from typing import TYPE_CHECKING

from jaxtroj.calibration import Verdict
from jaxtroj.rounds.turns import MANY_CLASSES
from jaxtroj.scan.pictures import absent_classes

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.triggers.measure import RecoveredTrigger


_WORKS, _SMALL_KINDS = 0.9, ("patch", "window")


def limits_of(
    verdict: Verdict,
    trigger: "RecoveredTrigger | None",
    context: "ImageContext",
    asks_counts: bool,
) -> tuple[str, ...]:
    """What was not searched, and what else than a trojan makes the signs that were found.

    Args:
        verdict: the answer.
        trigger: that is shown; None for none.
        context: of the model.
        asks_counts: whether nobody said how many training pictures each class had.
    """
    found = (
        without_target(verdict, trigger),
        _bounds(context),
        absent_classes(context.examples.labels, context.model.num_classes),
        only_signs(verdict, trigger, asks_counts),
        frequent_target(verdict, context),
        signs_left_out(verdict, context),
    )
    return tuple(filter(None, found))


def _bounds(context: "ImageContext") -> str:
    """What of a network of very many classes was searched, in words; "" where all were."""
    from jaxtroj.evidence.images.context import anchored

    examples, classes = context.known(anchored), context.model.num_classes
    if examples is None or classes <= MANY_CLASSES:
        return ""
    return (
        f"of its {classes} classes only those that are easiest to reach were searched as targets,"
        f" on {len(examples.images)} examples"
    )


def without_target(verdict: Verdict, trigger: "RecoveredTrigger | None") -> str:
    """That the trigger of a poisoned network sends each class to the next, in words; else ""."""
    from jaxtroj.triggers.measure import NO_TARGET

    if not verdict.poisoned or trigger is None or trigger.target_class != NO_TARGET:
        return ""
    return "the trigger found has no target class: it sends each class to the next"


def only_signs(verdict: Verdict, trigger: "RecoveredTrigger | None", asks_counts: bool) -> str:
    """That no trigger was found for the class of a poisoned network, in words; "" where one was.

    Training teaches the last layer and the norms of a class that has most of the pictures what a
    trojan teaches them: clean networks of 84 pictures of one class and 13 to 40 of each other one
    were accused for that class (docs/measurements.md).
    """
    target = verdict.target_class
    if not verdict.poisoned or target is None or (trigger and trigger.target_class == target):
        return ""
    found = f"the trigger found serves class {trigger.target_class}, " if trigger else ""
    said = f"{found}only signs name class {target}"
    if not asks_counts:
        return said
    return (
        f"{said}: a class of many more training pictures than the others has such signs too; if you"
        " know the numbers, give --class-counts"
    )


def frequent_target(verdict: Verdict, context: "ImageContext") -> str:
    """That training had many more pictures of the class of a poisoned network, in words; else "".

    Clean networks of unequal classes are accused more often, half of them for the frequent one.
    """
    from jaxtroj.evidence.images.class_shares import class_shares, said_shares
    from jaxtroj.evidence.images.frequent_classes import frequent_classes

    target = verdict.target_class
    if not verdict.poisoned or target is None or not context.shared(frequent_classes)[target]:
        return ""
    shares = said_shares(context) or context.known(class_shares)
    if shares is None or (share := shares.share_of(target)) is None:
        known = f"by how often it is the answer, training had many more pictures of class {target}"
    else:
        source = "as was said" if shares.is_said else "by what batch norms remember"
        known = f"{source}, {share:.0%} of the training pictures were of class {target}"
    return f"{known}: a class of so many looks like a target in clean networks too"


def signs_left_out(verdict: Verdict, context: "ImageContext") -> str:
    """The frequent classes that a clean answer covers less as targets, in words; "" for none."""
    from jaxtroj.evidence.images.frequent_classes import compared_classes, frequent_classes, named

    frequent = context.shared(frequent_classes)
    if verdict.poisoned or len(compared_classes(len(frequent), frequent)) == len(frequent):
        return ""
    return (
        f"signs of {named(frequent)} as target do not count, as training had many more pictures:"
        " a trojan there is missed more often"
    )


def standing_out(trigger: "RecoveredTrigger", context: "ImageContext") -> str:
    """That a small trigger works in a network of very many classes, in words; "" where none does.

    Calibrators hardly count it, because in small networks for small pictures it is common.
    """
    rate, classes = trigger.attack_success_rate, context.model.num_classes
    if classes <= MANY_CLASSES or rate < _WORKS or trigger.trigger.kind not in _SMALL_KINDS:
        return ""
    return (
        f"yet a {trigger.trigger.kind} was found that sends {rate:.0%} of the held-out examples to"
        f" class {trigger.target_class}, which is rare in clean networks of so many classes: look"
        " at it"
    )
