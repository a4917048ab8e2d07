"""The evidence of an image classifier: every field once, in the order in which it is gathered.

A record stores these names; changing what one means needs a new `SCHEMA_VERSION`, so that records
and calibrators made with another meaning are never mixed.
"""

from dataclasses import dataclass

SCHEMA_VERSION = 2


@dataclass(frozen=True)
class Field:
    """One number of evidence.

    Attributes:
      name: its name in records.
      stage: where it is measured.
      direction: +1 when poisoned models have larger values, -1 smaller, 0 when either may be.
      label: in words, for reasons.
      unit: of the number.
      meaning: how it is computed.
    """

    name: str
    stage: str
    direction: int
    label: str
    unit: str
    meaning: str


FIELDS = (
    Field("head_mean_outlier", "weights", 1, "one class's last-layer weights have an odd mean",
          "deviations",
          "largest row mean above the others, in their deviations (Trojan Signatures)"),
    Field("head_norm_outlier", "weights", 1, "one class's last-layer weights are large",
          "deviations", "largest row norm above the others, in their deviations"),
    Field("head_cosine_spread", "weights", 0, "spread of the angles between last-layer rows",
          "cosine", "deviation of the cosines between rows of the last layer"),
    Field("layer_kurtosis", "weights", 0, "heavy tails of the weights",
          "dimensionless", "mean kurtosis of the kernels"),
    Field("probe_score", "probes", 1, "colour patches push examples to one class",
          "fraction 0-1", "mean sigmoid margin of the best class over its six best patches"),
    Field("probe_gap", "probes", 1, "they push to one class far more than to any other",
          "fraction 0-1", "probe_score less that of the second best class"),
    Field("probe_agreement", "probes", 1, "the best patches agree on one class",
          "fraction 0-1", "share of the close round's patches whose best class is the best class"),
    Field("probe_wide_gap", "probes", 1, "random patches already favour one class",
          "fraction 0-1", "as probe_gap, over the wide round"),
    Field("probe_head_gap", "probes", 1, "the last layer favours that class whatever the picture",
          "difference of cosines",
          "cosine of the best class's row with a vector of ones, less the others'"),
    Field("gradient_outlier", "sensitivity", 1, "one class is easier to reach than the others",
          "log ratio", "norm of the mean aligned gradient, largest over the median of the others"),
    Field("gradient_agreement", "sensitivity", 1, "examples agree on how to reach a class",
          "fraction 0-1", "norm of the mean aligned gradient over the mean of the norms"),
    Field("universal_gap", "sensitivity", 1, "one small common change reaches one class",
          "fraction 0-1", "mean sigmoid margin after a sign step, best class less second best"),
    Field("example_margin", "sensitivity", 0, "confidence on clean examples",
          "logits", "mean margin of the predicted class on clean examples"),
    Field("patch_score", "inversion", 1,
          "a uniform patch was found that sends held-out examples to a class",
          "fraction 0-1", "mean sigmoid margin of the best searched patch on held-out examples"),
    Field("patch_gap", "inversion", 1, "no other class has such a patch",
          "fraction 0-1", "patch_score less that of the best patch for another class"),
    Field("patch_area", "inversion", -1, "size of the found patch",
          "share of the picture", "area of the best searched patch"),
    Field("mask_score", "inversion", 1, "an inverted trigger sends held-out examples to a class",
          "fraction 0-1", "mean sigmoid margin of the best inverted mask on held-out examples"),
    Field("mask_size", "inversion", -1, "size of the smallest inverted trigger",
          "log share", "log of the mask's mean, smallest of the masks that work"),
    Field("mask_ratio", "inversion", 1, "other classes need a far larger trigger",
          "log ratio", "log of the second smallest class's mask over the smallest"),
    Field("fixed_score", "fixed", 1,
          "a free pattern at one place sends held-out examples to a class",
          "fraction 0-1",
          "mean sigmoid margin of the best class on held-out examples; windows or blends"),
    Field("fixed_gap", "fixed", 1, "no other class has such a pattern",
          "fraction 0-1", "score less that of the second best class; windows or blends"),
    Field("fixed_pull", "fixed", 1, "how far such a pattern pushes",
          "clean margins",
          "mean margin of the best class over that of clean examples; windows or blends"),
    Field("fixed_lead", "fixed", 1, "such a pattern pushes further than one for any other class",
          "clean margins", "pull less that of the second best class; windows or blends"),
)  # fmt: skip

STAGES = ("weights", "probes", "sensitivity", "inversion", "fixed")
# Pictures of at most so many pixels a side get other stages: see `usual_stages`.
SMALL_SIDE = 32
SMALL_STAGES, OTHER_STAGES = ("weights", "fixed"), STAGES[:4]
STAGE_FIELDS = {stage: tuple(f.name for f in FIELDS if f.stage == stage) for stage in STAGES}
DIRECTIONS = {field.name: field.direction for field in FIELDS if field.direction}
LABELS = {field.name: field.label for field in FIELDS}


def usual_stages(size: tuple[int, int]) -> tuple[str, ...]:
    """The stages that pictures of `size` (height and width, pixels) get if nobody chooses.

    In small pictures a trigger lies at one place and the object fills the picture; in larger ones
    there are too many places to try each, and the trigger is looked for on the object.
    """
    return SMALL_STAGES if max(size) <= SMALL_SIDE else OTHER_STAGES
