"""Stage slopes: whether a head's margins rise in directions that clean heads do not know."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext

FIELDS = (
    Field("slope_residual", "slopes", 1, "the part of the gradient that clean heads do not share",
          "fraction 0-1", "norm of the mean gradient outside the span of the references'"),
    Field("slope_distance", "slopes", 1, "the gradient's distance from those of clean heads",
          "deviations", "root mean square over axes of the unit gradient's deviations"),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    from jaxtroj.evidence.texts.context import TextBudget
    from jaxtroj.evidence.texts.slopes import slope_fields

    probes, axes = context.bank_probes, context.budget(TextBudget).axes
    return StageResult(slope_fields(context.head, probes.references, probes.metric(axes)))


SLOPES = Stage("slopes", FIELDS, _run, Needs(bank=True))
