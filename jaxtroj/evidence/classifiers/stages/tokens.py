"""Stage tokens: up to three tokens, searched by gradients, that send texts to a class."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.stage import OWN, Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.classifiers.context import ClassifierContext
    from jaxtroj.evidence.classifiers.search import TokenBudget

_HOTFLIP = "Ebrahimi et al. 2018; Wallace et al. 2019"
FIELDS = (
    Field("token_flip", "tokens", 1, "the success of a single inserted token on held-out texts",
          "fraction 0-1", "of the token that gained most in the search, best class", _HOTFLIP),
    Field("token_isolation", "tokens", 1,
          "the effect of a single token beside those of like meaning", "fraction 0-1",
          "mean sigmoid margin less that of its neighbours in the table of words, largest of the"
          " six best tokens, best class", OWN),
    Field("found_flip", "tokens", 1, "the success of the found words on held-out texts",
          "fraction 0-1", "of up to three tokens, best class", _HOTFLIP),
    Field("found_gap", "tokens", 1, "the difference between the classes in what found words do",
          "fraction 0-1", "found_flip less that of the worst class that was searched", OWN),
    Field("found_isolation", "tokens", 1,
          "the effect of the found words beside those of like meaning", "fraction 0-1",
          "as token_isolation, of the words with one of them replaced", OWN),
    Field("found_margin", "tokens", 1, "the confidence that the found words bring",
          "ratio", "mean held-out margin over that of clean texts of the class, best class", OWN),
)  # fmt: skip


def _run(context: "ClassifierContext") -> StageResult:
    from jaxtroj.evidence.classifiers.found_tokens import search_tokens, token_fields

    found = context.shared(search_tokens)
    return StageResult(token_fields(found), tuple(one.found for one in found))


def _budget() -> "TokenBudget":
    from jaxtroj.evidence.classifiers.search import TokenBudget

    return TokenBudget()


TOKENS = Stage("tokens", FIELDS, _run, kinds=("searched words",), budget=_budget)
