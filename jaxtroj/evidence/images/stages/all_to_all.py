"""Stage all_to_all: whether one small mask sends each class to the one after it."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import UP_TO_64, by_gradients
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.all_to_all import AllToAllBudget
    from jaxtroj.evidence.images.context import ImageContext

_BADNETS = "Gu et al., arXiv:1708.06733, 2017"
FIELDS = (
    Field("all_to_all_rate", "all_to_all", 1,
          "the share of examples that one mask sends to the class after their own",
          "fraction 0-1", "of held-out examples, the share that the inverted mask sends there",
          source=_BADNETS, is_judged=False),
    Field("all_to_all_size", "all_to_all", -1,
          "the size of that mask",
          "log share", "log of the mask's mean", source=_BADNETS, is_judged=False),
    Field("all_to_all_worth", "all_to_all", 1,
          "how well a small mask sends each class to the next",
          "fraction 0-1", "all_to_all_rate times the share of the picture that the mask leaves; 0"
          " for too few classes or held-out examples", source=_BADNETS, is_judged=False),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    import jax
    import numpy as np

    from jaxtroj.evidence.images.all_to_all import AllToAllBudget, search_all_to_all, worth_of
    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.triggers.measure import best_of

    budget, examples = context.budget(AllToAllBudget), context.shared(anchored)
    key = jax.random.fold_in(context.key, 9)
    found = search_all_to_all(context.network, examples, key, budget)
    worth = worth_of(found, budget)
    fields = {
        "all_to_all_rate": float(found.rates[0]),
        "all_to_all_size": float(np.log(found.sizes[0])),
        "all_to_all_worth": worth,
    }
    return StageResult(fields, (partial(best_of, found),) if worth >= budget.works else ())


def _budget() -> "AllToAllBudget":
    from jaxtroj.evidence.images.all_to_all import AllToAllBudget

    return AllToAllBudget()


# Of a trojan with a target it shows nothing, so later stages have to.
ALL_TO_ALL = Stage(
    "all_to_all",
    FIELDS,
    _run,
    by_gradients(UP_TO_64),
    ("all-to-all mask",),
    _budget,
    shows=False,
)
