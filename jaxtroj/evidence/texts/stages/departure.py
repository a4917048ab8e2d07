"""Stage departure: a shift such as inserted text causes, held back by clean heads."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Needs, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextContext

FIELDS = (
    Field("departure_score", "departure", 1,
          "the success of text-like shifts beyond what clean heads show",
          "fraction 0-1", "sigmoid margin above the references', best class, mean over lengths",
          is_for_few=True),
    Field("departure_gap", "departure", 1,
          "the lead of one class over the next under text-like shifts",
          "fraction 0-1", "departure_score less that of the second best class",
          is_for_few=True),
    Field("departure_margin", "departure", 1, "the margin of text-like shifts beyond clean heads'",
          "logits", "margin above the references' at the largest length, best class"),
    Field("departure_near", "departure", 1,
          "the success of short text-like shifts beyond clean heads'",
          "fraction 0-1", "departure_score at the smallest length"),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    import numpy as np

    from jaxtroj.evidence.texts.context import TextBudget
    from jaxtroj.evidence.texts.found import Leaning
    from jaxtroj.evidence.texts.shift_search import search_shifts

    probes, budget = context.bank_probes, context.budget(TextBudget)
    references = probes.references.first(budget.references)
    metric = probes.metric(budget.axes)
    found = search_shifts(context.head, metric, context.key, budget.departure, references)
    above = found.head - found.reference
    by_target = above.mean(axis=0)
    ordered = np.sort(by_target)
    fields = {
        "departure_score": float(ordered[-1]),
        "departure_gap": float(ordered[-1] - ordered[-2]),
        "departure_margin": float(found.departure[-1].max()),
        "departure_near": float(above[0].max()),
    }
    return StageResult(fields, (Leaning(by_target),))


DEPARTURE = Stage("departure", FIELDS, _run, Needs(bank=True), ("shift",))
