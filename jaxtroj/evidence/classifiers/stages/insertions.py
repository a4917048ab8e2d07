"""Stage insertions: what random words, phrases and characters do, inserted into clean texts."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.classifiers.context import ClassifierContext
    from jaxtroj.evidence.classifiers.insertions import BankBudget

FIELDS = (
    Field("inserted_top", "insertions", 0, "the effect of inserted words on the classes",
          "fraction 0-1", "rise of the mean sigmoid margin, mean of the 3 largest, best class"),
)  # fmt: skip


def _run(context: "ClassifierContext") -> StageResult:
    from jaxtroj.evidence.classifiers.insertions import insertion_fields, run_bank

    return StageResult(insertion_fields(context.shared(run_bank)))


def _budget() -> "BankBudget":
    from jaxtroj.evidence.classifiers.insertions import BankBudget

    return BankBudget()


INSERTIONS = Stage("insertions", FIELDS, _run, kinds=("inserted words",), budget=_budget)
