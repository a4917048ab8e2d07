"""Stage weights: the last layer's rows and the moments of the layers before it.

Examples only say which classes training had many more pictures of than of others: their rows stand
out without any trojan, and the rows of the others are compared (`images.frequent_classes`).
"""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext

FIELDS = (
    Field("head_mean_outlier", "weights", 1, "the outlying mean of one class's last-layer weights",
          "deviations",
          "largest row mean above the others, in their deviations (Trojan Signatures), frequent"
          " classes left out; of more than 44 classes as among 44",
          source="Fields et al., arXiv:2109.02836, 2021"),
    Field("head_norm_outlier", "weights", 1, "the outlying size of one class's last-layer weights",
          "deviations",
          "largest row norm above the others, in their deviations, frequent classes left out; of"
          " more than 44 classes as among 44"),
    Field("head_cosine_spread", "weights", 0, "the spread of the angles between last-layer rows",
          "cosine", "deviation of the cosines between rows of the last layer"),
    Field("layer_kurtosis", "weights", 0, "the heaviness of the tails of the weights",
          "dimensionless", "mean kurtosis of the kernels"),
    Field("head_lead", "weights", 1, "the lead of one class's last-layer row towards all features",
          "difference of cosines",
          "cosine of a class's row with a vector of ones, less the others': largest less second,"
          " frequent classes left out; 0 without a last layer; a small lead never speaks for clean",
          search="head lead"),
    Field("head_lead_class", "weights", 0, "the class whose last-layer row leans furthest",
          "class", "class of the largest such gap; -1 without a last layer", is_judged=False,
          search="head lead", is_class=True),
)  # fmt: skip


def _run(context: "ImageContext") -> StageResult:
    import numpy as np

    from jaxtroj.evidence.images.head_rows import compared_head
    from jaxtroj.evidence.images.weights import weight_fields

    params = {name: np.asarray(value) for name, value in context.model.params.items()}
    return StageResult(weight_fields(params, *compared_head(context)))


WEIGHTS = Stage("weights", FIELDS, _run)
