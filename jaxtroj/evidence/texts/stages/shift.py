"""Stage shift: a common shift of clean texts' own spread that sends them to one class."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.texts.context import TextBudget, TextContext

FIELDS = (
    Field("shift_score", "shift", 1, "the success of one common shift on held-out examples",
          "fraction 0-1", "mean sigmoid margin at the smaller length, best class"),
    Field("shift_gap", "shift", 1, "the lead over the next class of the best shift's class",
          "fraction 0-1", "shift_score less that of the second best class"),
)  # fmt: skip


def _run(context: "TextContext") -> StageResult:
    import numpy as np

    from jaxtroj.evidence.texts.context import TextBudget
    from jaxtroj.evidence.texts.found import Leaning
    from jaxtroj.evidence.texts.shift_search import search_shifts

    budget = context.budget(TextBudget).shift
    found = search_shifts(context.head, context.spread, context.key, budget)
    fields = {
        "shift_score": float(found.head[0].max()),
        "shift_gap": float(np.ptp(found.head, axis=1).max()),
    }
    return StageResult(fields, (Leaning(found.head.mean(axis=0)),))


def _budget() -> "TextBudget":
    from jaxtroj.evidence.texts.context import TextBudget

    return TextBudget()


SHIFT = Stage("shift", FIELDS, _run, kinds=("shift",), budget=_budget)
