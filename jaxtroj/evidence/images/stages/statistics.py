"""Stage statistics: how clean examples differ from what the batch norms saw in training."""

from functools import partial
from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import SUPPORT, Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext
    from jaxtroj.evidence.images.statistics import StatisticsBudget

_GIFT = "Iliad-GIFT BNDetector, Peraton Labs, TrojAI"
# Examples that are not drawn as the training pictures were move them as much as a trigger does.
_sign = partial(Field, search=SUPPORT)
# One class alone: what merely differs from the training pictures does not do that.
_lift = partial(Field, stage="statistics", search="lift")
# The same signs where running statistics do not lag behind the weights; these are judged.
_steady = partial(Field, stage="statistics", direction=1)
FIELDS = (
    _sign("norm_shift", "statistics", 1,
          "the distance of the clean examples from the means of the training pictures",
          "deviations",
          "batch mean less running mean, in running deviations; root mean square over channels of"
          " what two batches share, mean over batch norms", is_judged=False),
    _sign("norm_shift_peak", "statistics", 1,
          "that distance in the layer where it is largest", "deviations",
          "as norm_shift, largest over batch norms", is_judged=False),
    _sign("norm_shift_edge", "statistics", 1,
          "that distance in the channels where it is large", "deviations",
          "as norm_shift, 0.9 quantile over channels", is_judged=False),
    _sign("norm_spread", "statistics", 1,
          "the difference of the clean examples' variances from those of the training pictures",
          "log ratio", "as norm_shift, of the log ratio of batch variance to running variance",
          is_judged=False),
    _sign("norm_narrowing", "statistics", 0,
          "how much narrower the clean examples are than the training pictures",
          "difference of logs",
          "log running variance less log batch variance, median over channels, mean over norms"),
    _sign("norm_accuracy_drop", "statistics", 1,
          "the accuracy that the network loses to the statistics of clean examples",
          "difference of fractions",
          "accuracy on the examples with running statistics less that with batch statistics",
          source=_GIFT),
    _sign("norm_margin_drop", "statistics", 1,
          "the confidence that the network loses to the statistics of clean examples",
          "difference of fractions",
          "mean squashed margin with running statistics less that with batch statistics"),
    _lift("norm_lift", direction=1, unit="clean margins",
          label="the lead of one class that the statistics of clean examples raise",
          meaning="rise of a class's logit on examples of other classes with batch statistics in"
          " place of running ones; largest less second, frequent classes left out",
          is_judged=False),
    _lift("norm_lift_outlier", direction=1, unit="deviations",
          label="how far that lead stands out among the classes",
          meaning="norm_lift over the deviation of the other classes' rises", is_judged=False),
    _lift("norm_lift_class", direction=0, unit="class",
          label="the class that the statistics of clean examples raise most",
          meaning="class of norm_lift", is_judged=False, is_class=True),
    _steady("steady_shift", search=SUPPORT, unit="deviations",
            label="the distance of the clean examples from the means of the training pictures",
            meaning="norm_shift times exp(20 min(0, norm_margin_drop))"),
    _steady("steady_shift_peak", search=SUPPORT, unit="deviations",
            label="that distance in the layer where it is largest",
            meaning="norm_shift_peak times the same"),
    _steady("steady_shift_edge", search=SUPPORT, unit="deviations",
            label="that distance in the channels where it is large",
            meaning="norm_shift_edge times the same"),
    _steady("steady_spread", search=SUPPORT, unit="log ratio",
            label="the difference of the clean examples' variances from those of the training"
            " pictures",
            meaning="norm_spread times the same"),
    _steady("steady_lift", search="lift", unit="clean margins",
            label="the lead of one class that the statistics of clean examples raise",
            meaning="norm_lift times the same"),
    _steady("steady_lift_outlier", search="lift", unit="deviations",
            label="how far that lead stands out among the classes",
            meaning="norm_lift_outlier times the same"),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    from jaxtroj.evidence.images.frequent_classes import frequent_classes
    from jaxtroj.evidence.images.statistics import answered, statistics_fields

    examples, frequent = context.shared(answered), context.shared(frequent_classes)
    return StageResult(statistics_fields(context.opened, examples, frequent))


def _budget() -> "StatisticsBudget":
    from jaxtroj.evidence.images.statistics import StatisticsBudget

    return StatisticsBudget()


STATISTICS = Stage("statistics", FIELDS, _run, Needs(batch_norm=True), budget=_budget)
