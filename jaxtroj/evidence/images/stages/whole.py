"""Stage whole: filters, sinusoids, smooth patterns, warps and frames, for pictures of any size."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import UP_TO_PHOTOS, by_gradients
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.whole import WholeBudget

_WORDS = {
    "filter": "known filters and random colour maps",
    "sinusoid": "sinusoids",
    "smooth": "searched smooth patterns",
    "warp": "random and searched warps",
    "border": "frames of one colour and with a free pattern",
}


def _of_family(name: str, words: str) -> tuple[Field, Field]:
    ratio = Field(
        f"whole_{name}_ratio",
        "whole",
        1,
        f"the push of {words} to one class beside the next",
        "ratio",
        "push to the best class over 1 + that to the second best, where this is above 0; a push is"
        " the mean margin on held-out examples, in clean margins",
    )
    edge = Field(
        f"whole_{name}_edge",
        "whole",
        1,
        f"the lead of one class under {words}",
        "ratio",
        "push to the best class less that to the second best, over 1 + that to the second best,"
        " where this is above 0",
    )
    return ratio, edge


FIELDS = (
    *(field for name, words in _WORDS.items() for field in _of_family(name, words)),
    Field("whole_sink", "whole", 1, "the lead of one class under all candidates of the bank",
          "fraction 0-1",
          "mean share of examples that candidates send to the best class, less that of the second"),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    from functools import partial

    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.whole import WholeBudget, search_whole, whole_fields
    from jaxtroj.triggers.measure import best_of

    examples, order = context.shared(anchored), context.examples.channel_order
    budget = context.budget(WholeBudget).on(context.examples.images)
    whole = search_whole(context.network, examples, context.key, order, budget)
    kinds = tuple(kind for family in whole.found.values() for kind in family)
    triggers = tuple(partial(best_of, kind) for kind in kinds)
    return StageResult(whole_fields(whole), triggers, kinds)


def _budget() -> "WholeBudget":
    from jaxtroj.evidence.images.whole import WholeBudget

    return WholeBudget()


KINDS = ("filter", "colour map", "sinusoid", "smooth", "warp", "border")
WHOLE = Stage("whole", FIELDS, _run, by_gradients(UP_TO_PHOTOS), KINDS, _budget)
