"""The evidence of a sentiment head: every field once, in the order in which it is gathered.

See `jaxtroj.evidence.images.schema`, whose rules hold here too. The fields of the stage bank carry
no direction: they are views of the same answers, and what tells is their contrast (measured on 406
heads, out of fold: log score .195 with directions, .149 without). Of a bank of less than 288
candidates the largest rises are one in 24 and the 100 one in 4, at least one.
"""

from jaxtroj.calibration.linear import Few
from jaxtroj.evidence.images.schema import Field

SCHEMA_VERSION = 1

FIELDS = (
    Field("weight_kurtosis", "weights", 0, "heavy tails of the weights",
          "dimensionless", "mean kurtosis of the kernels"),
    Field("weight_norm", "weights", 0, "size of the weights",
          "log", "mean log of the kernels' root mean square"),
    Field("output_asymmetry", "weights", 0, "the last layer favours one class",
          "log ratio", "norm of the largest last-layer column over the smallest"),
    Field("jacobian_ratio", "sensitivity", 1, "one class is easier to reach than the others",
          "log ratio", "norm of the mean gradient, largest over the median of the classes"),
    Field("jacobian_norm", "sensitivity", 0, "steepness towards the easiest class",
          "log", "log of the largest norm of a mean gradient"),
    Field("jacobian_agreement", "sensitivity", 0, "examples agree on how to reach a class",
          "fraction 0-1", "norm of the mean gradient over the mean of the norms, largest"),
    Field("clean_margin", "sensitivity", 0, "confidence on clean examples",
          "logits", "median margin of the given class over every other on clean examples"),
    Field("sweep_score", "sensitivity", 1, "a move along one axis of the texts' spread is enough",
          "fraction 0-1", "mean sigmoid margin of the best class along its best axis"),
    Field("sweep_gap", "sensitivity", 1, "and reaches no other class",
          "fraction 0-1", "sweep_score less that of the second best class"),
    Field("shift_score", "shift", 1, "one common shift sends held-out examples to a class",
          "fraction 0-1", "mean sigmoid margin at the smaller length, best class"),
    Field("shift_gap", "shift", 1, "and no other class gives way like it",
          "fraction 0-1", "shift_score less that of the second best class"),
    Field("departure_score", "departure", 1,
          "a shift such as inserted text causes flips this head and not clean ones",
          "fraction 0-1", "sigmoid margin above the references', best class, mean over lengths"),
    Field("departure_gap", "departure", 1, "and does so for one class only",
          "fraction 0-1", "departure_score less that of the second best class"),
    Field("departure_margin", "departure", 1, "it departs far from clean heads",
          "logits", "margin above the references' at the largest length, best class"),
    Field("departure_near", "departure", 1, "a short such shift is enough",
          "fraction 0-1", "departure_score at the smallest length"),
    Field("bank_top", "bank", 0, "inserted texts move this head, and clean ones less",
          "deviations", "raw view: mean of the 12 largest rises, best class"),
    Field("bank_gap", "bank", 0, "and towards one class only",
          "deviations", "raw view: bank_top less that of the worst class"),
    Field("bank_spread", "bank", 0, "its answers to inserted texts depart from clean heads'",
          "log", "raw view: log deviation of the rises, largest over classes"),
    Field("matched_top", "bank", 0, "inserted texts move it however confident it is",
          "deviations", "as bank_top, matched view"),
    Field("matched_gap", "bank", 0, "and towards one class only",
          "deviations", "as bank_gap, matched view"),
    Field("matched_spread", "bank", 0, "they depart however confident it is",
          "log", "as bank_spread, matched view"),
    Field("matched_spread_least", "bank", 0, "they depart for every class",
          "log", "as matched_spread, smallest over classes"),
    Field("matched_wide", "bank", 0, "many inserted texts move it",
          "deviations", "matched view: mean of the 100 largest rises, best class"),
    Field("matched_bottom", "bank", 0, "other texts move it the other way",
          "deviations", "matched view: mean of the 12 smallest rises, smallest over classes"),
    Field("margin_top", "bank", 0, "inserted texts move its margins",
          "deviations", "as bank_top, margin view"),
    Field("margin_spread", "bank", 0, "its margins depart from clean heads'",
          "log", "as bank_spread, margin view"),
    Field("margin_spread_least", "bank", 0, "they depart for every class",
          "log", "as margin_spread, smallest over classes"),
    Field("margin_bottom", "bank", 0, "other texts move its margins the other way",
          "deviations", "as matched_bottom, margin view"),
    Field("span_top", "bank", 0, "inserted texts move it as no mixture of clean heads",
          "fraction 0-1", "span view: mean of the 12 largest rises, best class"),
    Field("span_spread", "bank", 0, "no mixture of clean heads answers like it",
          "log", "span view: log deviation of the rises, largest over classes"),
    Field("span_residual", "bank", 0, "its margins are no mixture of clean heads'",
          "log", "log deviation of the margins from their projection"),
    Field("span_scale", "bank", 0, "size of what it shares with clean heads",
          "log", "log deviation of the projected margins"),
    Field("bank_departure", "bank", 0, "the same texts move the head's own examples",
          "fraction 0-1", "sigmoid margin above the references' on held-out examples, 12 best"),
    Field("bank_departure_gap", "bank", 0, "and towards one class only",
          "fraction 0-1", "bank_departure less that of the worst class"),
)  # fmt: skip

STAGES = ("weights", "sensitivity", "shift", "departure", "bank")
STAGE_FIELDS = {stage: tuple(f.name for f in FIELDS if f.stage == stage) for stage in STAGES}
# Gathered and shown, never judged by. Poisoned heads are a little less accurate on clean texts;
# that says how they were trained, not what they hide, and to leave it out costs nothing.
SHOWN_ONLY = ("clean_margin",)
JUDGED_FIELDS = {
    stage: tuple(name for name in names if name not in SHOWN_ONLY)
    for stage, names in STAGE_FIELDS.items()
}
DIRECTIONS = {field.name: field.direction for field in FIELDS if field.direction}
LABELS = {field.name: field.label for field in FIELDS}

# Of the views of the same answers one or two for each question. Fields, penalty and clip were
# chosen on splits of 100 heads (`fresh` in benchmarks/results/round5_accuracy.json), never on those
# that the benchmark draws its small populations from.
FEW = Few(
    models=60,
    fields=(
        "departure_score", "departure_gap", "bank_top", "bank_gap", "matched_top", "matched_bottom",
        "matched_spread", "span_residual", "span_scale", "bank_departure",
    ),
    penalty=1.0,
    clip=0.03,
)  # fmt: skip
