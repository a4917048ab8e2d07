"""Stage inversion: triggers searched by gradients, measured on examples they were not fitted to."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.probes import bank, bank_trigger
from jaxtroj.evidence.images.stages.sides import ON_OBJECTS, by_gradients
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.inversion import InversionBudget

FIELDS = (
    Field("patch_score", "inversion", 1,
          "the success of the best uniform patch on held-out examples",
          "fraction 0-1", "mean sigmoid margin of the best searched patch on held-out examples"),
    Field("patch_gap", "inversion", 1, "the lead over the next class of the best patch's class",
          "fraction 0-1", "patch_score less that of the best patch for another class"),
    Field("patch_area", "inversion", -1, "the size of the best uniform patch",
          "share of the picture", "area of the best searched patch"),
    Field("mask_score", "inversion", 1,
          "the success of the best inverted mask on held-out examples",
          "fraction 0-1", "mean sigmoid margin of the best inverted mask on held-out examples",
          source="Wang et al., Neural Cleanse, IEEE S&P 2019", search="mask"),
    Field("mask_size", "inversion", -1, "the size of the smallest inverted mask that works",
          "log share", "log of the mask's mean, smallest of the masks that work",
          source="Wang et al., Neural Cleanse, IEEE S&P 2019", search="mask"),
    Field("mask_ratio", "inversion", 1, "how much larger the masks of other classes are",
          "log ratio", "log of the second smallest class's mask over the smallest",
          source="Wang et al., Neural Cleanse, IEEE S&P 2019", search="mask"),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    from functools import partial

    import jax

    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.inversion import InversionBudget, inversion_fields, run_searches
    from jaxtroj.triggers.measure import best_of

    network, examples, probed = context.network, context.shared(anchored), context.shared(bank)
    budget, key = context.budget(InversionBudget), jax.random.fold_in(context.key, 2)
    found = run_searches(network, examples, probed, key, budget)
    return StageResult(
        inversion_fields(found, examples.classes),
        (context.shared(bank_trigger), *(partial(best_of, measured) for measured in found)),
        found,
    )


def _budget() -> "InversionBudget":
    from jaxtroj.evidence.images.inversion import InversionBudget

    return InversionBudget()


INVERSION = Stage("inversion", FIELDS, _run, by_gradients(ON_OBJECTS), ("patch", "mask"), _budget)
