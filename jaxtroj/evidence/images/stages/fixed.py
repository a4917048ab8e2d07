"""Stage fixed: free patterns at fixed places of small pictures, and over the whole picture."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import AT_PLACES, by_gradients
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.fixed import FixedBudget

FIELDS = (
    Field("fixed_score", "fixed", 1,
          "the success of the best free pattern on held-out examples",
          "fraction 0-1",
          "mean sigmoid margin of the best class on held-out examples; windows or blends"),
    Field("fixed_gap", "fixed", 1,
          "the lead over the next class in the success of free patterns", "fraction 0-1",
          "score less that of the second best class; windows or blends"),
    Field("fixed_pull", "fixed", 1, "the push of the best free pattern",
          "clean margins",
          "mean margin of the best class over that of clean examples; windows or blends"),
    Field("fixed_lead", "fixed", 1,
          "the lead over the next class in the push of free patterns", "clean margins",
          "pull less that of the second best class; windows or blends"),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    from functools import partial

    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.fixed import FixedBudget, fixed_fields, locate, search_fixed
    from jaxtroj.triggers.measure import best_of

    network, examples = context.network, context.shared(anchored)
    budget = context.budget(FixedBudget)
    windows, blends, scale = search_fixed(network, examples, context.key, budget)
    located = locate(network, examples, windows, budget)
    triggers = (partial(best_of, located), partial(best_of, blends))
    return StageResult(fixed_fields(windows, blends, scale), triggers, (windows, blends))


def _budget() -> "FixedBudget":
    from jaxtroj.evidence.images.fixed import FixedBudget

    return FixedBudget()


FIXED = Stage("fixed", FIELDS, _run, by_gradients(AT_PLACES), ("window", "blend"), _budget)
