"""Stage sensitivity: what one common small change of all examples does to the answers."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import ON_OBJECTS, by_gradients
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.sensitivity import SensitivityBudget

FIELDS = (
    Field("gradient_outlier", "sensitivity", 1, "the lead of the class that is easiest to reach",
          "log ratio", "norm of the mean aligned gradient, largest over the median of the others",
          source="Zhang et al., arXiv:2007.14433, 2020"),
    Field("gradient_agreement", "sensitivity", 1,
          "the agreement of the examples on how to reach a class",
          "fraction 0-1", "norm of the mean aligned gradient over the mean of the norms",
          source="Moosavi-Dezfooli et al., arXiv:1610.08401, 2017"),
    Field("universal_gap", "sensitivity", 1,
          "the lead of one class after one small change of all examples",
          "fraction 0-1", "mean sigmoid margin after a sign step, best class less second best",
          source="Moosavi-Dezfooli et al., arXiv:1610.08401, 2017"),
    Field("example_margin", "sensitivity", 0, "the confidence on clean examples",
          "logits", "mean margin of the predicted class on clean examples"),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.sensitivity import SensitivityBudget, sensitivity_fields

    budget = context.budget(SensitivityBudget)
    examples = context.shared(anchored)
    return StageResult(sensitivity_fields(context.network, examples, context.key, budget))


def _budget() -> "SensitivityBudget":
    from jaxtroj.evidence.images.sensitivity import SensitivityBudget

    return SensitivityBudget()


SENSITIVITY = Stage("sensitivity", FIELDS, _run, by_gradients(ON_OBJECTS), budget=_budget)
