"""Stage bank: what real insertions of text do to a head that they do not do to clean ones.

The fields carry no direction: they are views of the same answers, and what tells is their contrast
(measured on 406 heads, out of fold: log score .195 with directions, .149 without). Of a bank of
less than 288 candidates the largest rises are one in 24 and the 100 one in 4, at least one.
"""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext

FIELDS = (
    Field("bank_top", "bank", 0, "the effect of inserted texts beyond clean heads'",
          "deviations", "raw view: mean of the 12 largest rises, best class",
          is_for_few=True),
    Field("bank_gap", "bank", 0,
          "the difference between the classes in the effect of inserted texts",
          "deviations", "raw view: bank_top less that of the worst class",
          is_for_few=True),
    Field("bank_spread", "bank", 0, "the spread of the effects of inserted texts",
          "log", "raw view: log deviation of the rises, largest over classes"),
    Field("matched_top", "bank", 0,
          "the effect of inserted texts beyond equally confident clean heads'",
          "deviations", "as bank_top, matched view",
          is_for_few=True),
    Field("matched_gap", "bank", 0,
          "the difference between the classes in the effect of texts, at equal confidence",
          "deviations", "as bank_gap, matched view"),
    Field("matched_spread", "bank", 0,
          "the spread of the effects of inserted texts, at equal confidence",
          "log", "as bank_spread, matched view",
          is_for_few=True),
    Field("matched_spread_least", "bank", 0,
          "the least such spread of a class, at equal confidence",
          "log", "as matched_spread, smallest over classes"),
    Field("matched_wide", "bank", 0,
          "the number of inserted texts that move the head, at equal confidence",
          "deviations", "matched view: mean of the 100 largest rises, best class"),
    Field("matched_bottom", "bank", 0,
          "the effect of inserted texts the other way, at equal confidence",
          "deviations", "matched view: mean of the 12 smallest rises, smallest over classes",
          is_for_few=True),
    Field("margin_top", "bank", 0, "the effect of inserted texts on the margins",
          "deviations", "as bank_top, margin view"),
    Field("margin_spread", "bank", 0, "the spread of the effects on the margins",
          "log", "as bank_spread, margin view"),
    Field("margin_spread_least", "bank", 0, "the least such spread of a class",
          "log", "as margin_spread, smallest over classes"),
    Field("margin_bottom", "bank", 0, "the effect on the margins the other way",
          "deviations", "as matched_bottom, margin view"),
    Field("span_top", "bank", 0, "the effect of inserted texts beyond any mixture of clean heads",
          "fraction 0-1", "span view: mean of the 12 largest rises, best class"),
    Field("span_spread", "bank", 0, "the spread of the effects beyond any mixture of clean heads",
          "log", "span view: log deviation of the rises, largest over classes"),
    Field("span_residual", "bank", 0,
          "the part of the margins that no mixture of clean heads explains",
          "log", "log deviation of the margins from their projection",
          is_for_few=True),
    Field("span_scale", "bank", 0, "the part of the margins that clean heads share",
          "log", "log deviation of the projected margins",
          is_for_few=True),
    Field("bank_departure", "bank", 0, "the effect of inserted texts on the head's own examples",
          "fraction 0-1", "sigmoid margin above the references' on held-out examples, 12 best",
          is_for_few=True),
    Field("bank_longer", "bank", 0, "the effect of thrice the shift of inserted texts",
          "fraction 0-1",
          "as bank_departure, mean of the 14 largest matched rises, shifts three times as long"),
    Field("half_longer", "bank", 0, "the effect of thrice the shift of texts in one half",
          "fraction 0-1", "as bank_longer by each half's rises and shifts, larger of the two"),
    Field("bank_departure_gap", "bank", 0,
          "the difference between the classes in the effect on the head's own examples",
          "fraction 0-1", "bank_departure less that of the worst class"),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    from jaxtroj.evidence.texts.bank_answers import bank_fields, run_bank, top_departures
    from jaxtroj.evidence.texts.found import Leaning

    banked = run_bank(context.head, context.bank_probes)
    return StageResult(bank_fields(banked), (Leaning(top_departures(banked), banked),))


BANK = Stage("bank", FIELDS, _run, Needs(bank=True), ("text",))
