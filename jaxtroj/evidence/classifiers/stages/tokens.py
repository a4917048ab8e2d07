"""Stage tokens: up to three tokens, searched by gradients, that send texts to a class."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import OWN, Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.classifiers.context import ClassifierContext
    from jaxtroj.evidence.classifiers.search import TokenBudget

_HOTFLIP = "Ebrahimi et al. 2018; Wallace et al. 2019"
_WAY = "of the way to texts of the class"
FIELDS = (
    Field("token_reach", "tokens", 1, "how far a single inserted token moves held-out texts", _WAY,
          "mean margin with the token that gained most in the search less that of the texts, over"
          " what texts of the class have more; best class", _HOTFLIP),
    Field("token_lead", "tokens", 1, "how much further the best token moves texts than the third",
          _WAY, "token_reach of the first less that of the third best, best class", OWN),
)  # fmt: skip


def _run(context: "ClassifierContext") -> StageResult:
    from jaxtroj.evidence.classifiers.found_tokens import search_tokens, token_fields

    found = context.shared(search_tokens)
    return StageResult(token_fields(found), tuple(one.found for one in found))


def _budget() -> "TokenBudget":
    from jaxtroj.evidence.classifiers.search import TokenBudget

    return TokenBudget()


TOKENS = Stage("tokens", FIELDS, _run, kinds=("searched words",), budget=_budget)
