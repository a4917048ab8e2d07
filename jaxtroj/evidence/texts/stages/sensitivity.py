"""Stage sensitivity: how a head's margins answer to changes of the embedding."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext

FIELDS = (
    Field("jacobian_ratio", "sensitivity", 1, "the lead of the class that is easiest to reach",
          "log ratio", "norm of the mean gradient, largest over the median of the classes",
          source="ICSI-UMD, TrojAI Round 5"),
    Field("jacobian_norm", "sensitivity", 0, "the steepness towards the easiest class",
          "log", "log of the largest norm of a mean gradient",
          source="ICSI-UMD, TrojAI Round 5", is_judged=False),
    Field("jacobian_steepness", "sensitivity", 0,
          "the steepness towards the easiest class, beside the confidence", "log",
          "log of the largest norm of a mean gradient over clean_margin",
          source="ICSI-UMD, TrojAI Round 5"),
    Field("jacobian_agreement", "sensitivity", 0,
          "the agreement of the examples on how to reach a class",
          "fraction 0-1", "norm of the mean gradient over the mean of the norms, largest",
          source="ICSI-UMD, TrojAI Round 5"),
    Field("clean_margin", "sensitivity", 0, "the confidence on clean examples",
          "logits", "median margin of the given class over every other on clean examples",
          is_judged=False),
    Field("sweep_score", "sensitivity", 1, "the success of a move along one axis of the texts",
          "fraction 0-1", "mean sigmoid margin of the best class along its best axis",
          source="Liu et al., PICCOLO, IEEE S&P 2022", is_judged=False),
    Field("sweep_gap", "sensitivity", 1, "the lead over the next class of the best move's class",
          "fraction 0-1", "sweep_score less that of the second best class",
          source="Liu et al., PICCOLO, IEEE S&P 2022", is_judged=False),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    from jaxtroj.evidence.texts.sensitivity import sensitivity_fields

    return StageResult(sensitivity_fields(context.head, context.spread))


HEAD_SENSITIVITY = Stage("sensitivity", FIELDS, _run)
