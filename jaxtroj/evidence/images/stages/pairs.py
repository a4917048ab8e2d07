"""Stage pairs: triggers that work from one or two source classes only."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import SMALL_SIDE, UP_TO_64, by_gradients
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.pairs import PairBudget

FIELDS = (
    Field("pair_bank", "pairs", 1,
          "the push of patches and filters on one class's pictures towards another class",
          "clean margins",
          "margin gained by the two best candidates on the pictures of one source, less that on"
          " other sources; best pair", is_judged=False),
    Field("pair_bank_lead", "pairs", 1,
          "the lead over other classes in the push of patches and filters",
          "clean margins", "pair_bank less that of the best pair of another target",
          is_judged=False),
    Field("pair_crossing", "pairs", 1,
          "how firmly a patch carries one class's pictures to a class far from it",
          "clean margins",
          "mean margin of the best pair's target on held-out examples of its source, at most what"
          " the clean ones lack, over that of clean examples"),
    Field("pair_lead", "pairs", 1, "the lead over other classes in how firmly a patch carries",
          "clean margins", "pair_crossing less that of the best pair of another target"),
    Field("pair_focus", "pairs", 0, "how much less the best pair's patch does to other classes",
          "clean margins",
          "margin that it gains on held-out examples of its source less that on other sources"),
    Field("dots_crossing", "pairs", 1,
          "how firmly single pixels carry one class's pictures to a class far from it",
          "clean margins", "as pair_crossing, of the pixels with the largest gradient",
          search="dots"),
    Field("dots_lead", "pairs", 1,
          "the lead over other classes in how firmly single pixels carry",
          "clean margins", "dots_crossing less that of the best pair of another target",
          search="dots"),
    Field("dots_focus", "pairs", 0, "how much less the best pair's pixels do to other classes",
          "clean margins", "as pair_focus, of the best dots", search="dots"),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    import jax

    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.pair_fields import pair_fields, pair_triggers
    from jaxtroj.evidence.images.pairs import PairBudget, search_pairs

    network, examples = context.network, context.shared(anchored)
    at_places = max(examples.images.shape[1:3]) <= SMALL_SIDE
    key, order = jax.random.fold_in(context.key, 3), context.examples.channel_order
    budget = context.budget(PairBudget)
    pairs = search_pairs(network, examples, key, order, at_places, budget)
    return StageResult(pair_fields(pairs), pair_triggers(pairs, budget.standing))


def _budget() -> "PairBudget":
    from jaxtroj.evidence.images.pairs import PairBudget

    return PairBudget()


PAIRS = Stage("pairs", FIELDS, _run, by_gradients(UP_TO_64), ("window", "mask"), _budget)
