"""Stage weights: moments of a head's parameters; needs no examples."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext

FIELDS = (
    Field("weight_kurtosis", "weights", 0, "the heaviness of the tails of the weights",
          "dimensionless", "mean kurtosis of the kernels"),
    Field("weight_norm", "weights", 0, "the size of the weights",
          "log", "mean log of the kernels' root mean square"),
    Field("output_asymmetry", "weights", 0, "the last layer's asymmetry between the classes",
          "log ratio", "norm of the largest last-layer column over the smallest"),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    from jaxtroj.evidence.texts.weights import weight_fields

    return StageResult(weight_fields(context.head))


HEAD_WEIGHTS = Stage("weights", FIELDS, _run)
