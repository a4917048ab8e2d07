"""Stage memory: triggers found in what batch norms remember of the training pictures."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import SMALL_SIDE, UP_TO_PHOTOS
from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.memory import MemoryBudget, Searched

_WORKS = 0.9  # of the held-out examples that a window has to flip
_COSINE = "cosine -1 to 1"
# Networks that were taught moved, cut or recoloured pictures remember those as they do triggers, so
# a match is no reason by itself.
_match = partial(Field, stage="memory", direction=1, unit=_COSINE, is_judged=False)
_sent = partial(Field, stage="memory", search="memory")
FIELDS = (
    _match("memory_match",
           label="how well a trigger explains what the training pictures had and the examples lack",
           meaning="cosine, on examples it was not fitted to, of what the trigger changes in the"
           " moments of the batch norms with what these remember and the examples lack; largest of"
           " the five below"),
    _match("memory_placed", label="how well a mask at one place explains it",
           meaning="the same of a fitted mask and pattern at one place"),
    _match("memory_moving", label="how well a mask that moves about explains it",
           meaning="the same of a fitted mask and pattern that lie elsewhere in each picture"),
    _match("memory_faint", label="how well a faint pattern explains it",
           meaning="the same of a fitted smooth pattern that is added"),
    _match("memory_colours", label="how well a colour map explains it",
           meaning="the same of a fitted colour map"),
    _match("memory_filter", label="how well a known colour filter explains it",
           meaning="the same of the best of the five known filters, above 64 px of the two that"
           " explain most of a few examples"),
    Field("memory_share", "memory", 0, "the share of the training pictures that it explains",
          "fraction", "least squares, of the trigger of memory_match", is_judged=False),
    _sent("memory_worth", direction=1, unit="fraction 0-1",
          label="how far a trigger that explains it carries all classes to one",
          meaning="cosine of a fitted trigger times share of the examples of other classes that it"
          " sends to one class, less that of the second; largest of the triggers"),
    _sent("memory_pair_worth", direction=1, unit="fraction 0-1",
          label="how far a trigger that explains it carries one class to another",
          meaning="cosine on the examples of one class times the share of them, two more added,"
          " that it sends to another; largest of the triggers and of all pairs of classes"),
    _sent("memory_class", direction=0, unit="class",
          label="the class that this trigger sends most examples to",
          meaning="class of memory_worth", is_judged=False, is_class=True),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    import jax

    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.memory import MemoryBudget, search_memory
    from jaxtroj.evidence.images.memory_fields import memory_fields
    from jaxtroj.evidence.images.statistics import some_of

    context.shared(anchored)  # refuses a network whose logits are not finite
    key, examples = jax.random.fold_in(context.key, 5), context.examples
    budget = context.budget(MemoryBudget).on(examples.images)
    images, _ = some_of(context, budget.least, budget.most)
    order = examples.channel_order
    searched = search_memory(context.opened, context.network, images, order, key, budget)
    fields = memory_fields(searched.clean, searched.found)
    return StageResult(fields, _triggers(context, searched, budget))


def _triggers(context: "ImageContext", searched: "Searched", budget: "MemoryBudget"):
    """What people are shown: the trigger that was found, or a window of it where one works.

    A window that flips nearly all examples can be shown, so a scan that is sure may end here.
    """
    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.fixed import FixedBudget, placed
    from jaxtroj.evidence.images.memory import windows_of
    from jaxtroj.evidence.images.memory_fields import carried_class, is_shown, recovered
    from jaxtroj.triggers.measure import best_of

    clean, found, network = searched.clean, searched.found, context.network
    if is_shown(clean, found):
        return (partial(recovered, network, clean, found),)
    examples, target = context.shared(anchored), carried_class(clean, found)
    if target is None or max(examples.images.shape[1:3]) > SMALL_SIDE:
        return ()
    for window in windows_of(searched, budget):
        measured = placed(network, examples, window, target, context.budget(FixedBudget))
        if best_of(measured, examples).attack_success_rate >= _WORKS:
            return (partial(best_of, measured),)
    return ()


def _budget() -> "MemoryBudget":
    from jaxtroj.evidence.images.memory import MemoryBudget

    return MemoryBudget()


KINDS = ("mask", "smooth", "colour map", "filter")
_NEEDS = Needs(sides=UP_TO_PHOTOS.sides, batch_norm=True, gradient=True)
MEMORY = Stage("memory", FIELDS, _run, _NEEDS, KINDS, _budget)
