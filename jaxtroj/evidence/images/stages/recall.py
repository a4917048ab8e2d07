"""Stage recall: whether triggers that other searches found stand in what batch norms remember."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.fixed import FIXED
from jaxtroj.evidence.images.stages.inversion import INVERSION
from jaxtroj.evidence.images.stages.pairs import PAIRS
from jaxtroj.evidence.images.stages.probes import PROBES
from jaxtroj.evidence.images.stages.sides import UP_TO_64
from jaxtroj.evidence.images.stages.whole import WHOLE
from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.recall import RecallBudget

_recall = partial(Field, stage="recall", search="recall")
FIELDS = (
    Field("recall_match", "recall", 1,
          "how well a trigger that was found explains what the training pictures had",
          "cosine -1 to 1",
          "cosine of what a found trigger changes in the moments of the batch norms with what these"
          " remember and the examples lack; largest of the triggers", is_judged=False),
    _recall("recall_worth", direction=1, unit="fraction 0-1",
            label="how well a trigger that works explains what the training pictures had",
            meaning="recall_match times the share of the examples it is for that go to its class;"
            " largest of the triggers"),
    _recall("recall_lead", direction=1, unit="fraction 0-1",
            label="the lead of one class in it",
            meaning="recall_worth less that of the best trigger for another class"),
    _recall("recall_class", direction=0, unit="class",
            label="the class of the trigger that explains most",
            meaning="class of recall_worth, -1 for none", is_judged=False, is_class=True),
)  # fmt: skip
_SEARCHES = (PROBES, INVERSION, FIXED, WHOLE, PAIRS)


def _run(context: "ImageContext") -> StageResult:
    import jax

    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.recall import RecallBudget, recall_fields, search_recall
    from jaxtroj.evidence.images.statistics import some_of

    results = (context.known(stage.run) for stage in _SEARCHES)
    candidates = [one for result in results if result for one in result.triggers]
    found = context.recover(tuple(dict.fromkeys(candidates)))
    budget = context.budget(RecallBudget)
    recalled = search_recall(
        context.opened,
        context.network,
        some_of(context, budget.least, budget.most)[0],
        context.shared(anchored),
        found,
        jax.random.fold_in(context.key, 6),
        budget,
    )
    return StageResult(recall_fields(recalled))


def _budget() -> "RecallBudget":
    from jaxtroj.evidence.images.recall import RecallBudget

    return RecallBudget()


_NEEDS = Needs(sides=UP_TO_64.sides, batch_norm=True, gradient=True)
RECALL = Stage("recall", FIELDS, _run, _NEEDS, budget=_budget, earlier=(WHOLE,))
